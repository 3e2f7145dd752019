"""Somebody changes documents of a task at work, and everything is killed at once: its agents hear of it, once."""

from pathlib import Path

import pytest

from tests.end_to_end.messages_server import HeldServer, serving
from tests.end_to_end.shell import assert_no_committed_turn_was_asked_again, until
from tests.end_to_end.survey import QUESTION, SHEETS, write_survey
from tests.end_to_end.test_killed_platform import kill_everything, platform
from tests.end_to_end.transcripts import said


@pytest.mark.timeout(900)
def test_agents_hear_once_which_documents_changed_when_everything_is_killed_right_after_and_ended_tasks_refuse_it(
    tmp_path: Path,
) -> None:
    documents = write_survey(tmp_path / "survey")
    with serving(HeldServer(delay=0.0, holds_after=2)) as server, platform(tmp_path / "home", server) as shell:
        task = str(shell.json("submit", QUESTION, "--docs", str(documents), "--detach")["task_id"])
        until(lambda: len(server.answered) >= 2, 180, "two turns of an agent")
        working = [step["id"] for step in shell.json("show", task)["steps"] if step["state"] != "done"]

        sheet = documents / "sheet-00.md"
        sheet.write_text(sheet.read_text().replace("0-3 has a depth", "0-3 has no depth"))
        (documents / "sheet-98.md").write_text("Harbour Sydvik has a depth of 4 metres.\n")
        (documents / "sheet-01.md").write_bytes(b"%PDF-1.4 broken")
        (documents / "sheet-02.md").unlink()
        given = shell.json("documents", task, "--docs", str(documents), "--by", "Ada")
        again = shell.run("documents", task, "--docs", str(sheet))
        missing = shell.run("documents", task, "--docs", str(tmp_path / "nowhere.md"))
        kill_everything(shell.home)
        server.goes_on.set()
        assert [(one["name"], one["kind"]) for one in given["changes"]] == [
            ("sheet-00.md", "changed"),
            ("sheet-98.md", "added"),
        ]
        assert given["not_given"] == ["sheet-02.md"]
        assert [one["name"] for one in given["left_out"]] == ["sheet-01.md"]
        assert (again.returncode, again.stderr.splitlines()[-1]) == (0, "done: nothing has changed")
        assert missing.returncode == 2
        assert "nowhere.md: no such file" in missing.stderr
        assert shell.run("up").returncode == 0
        assert shell.answer_until_over(task) == "done"

        steps = [step["id"] for step in shell.json("show", task)["steps"]]
        heard = {agent: [one.text for one in said(shell, task, agent) if one.updates] for agent in steps}
        assert "writing" in working
        assert {agent: len(heard[agent]) for agent in working} == dict.fromkeys(working, 1)
        assert "- changed: sheet-00.md (line 9; 301 lines now)" in heard["writing"][0]
        assert "- added: sheet-98.md (1 lines)" in heard["writing"][0]
        assert "Its documents changed while it ran: 1 changed, 1 added" in shell.run("report", task).stdout
        assert len(shell.run("documents", task).stdout.splitlines()) == SHEETS + 1
        assert_no_committed_turn_was_asked_again(server, shell)

        refused = shell.run("documents", task, "--docs", str(documents))
        assert refused.returncode == 2
        assert f"{task} has ended (done): none of its agents would read the documents again." in refused.stderr
