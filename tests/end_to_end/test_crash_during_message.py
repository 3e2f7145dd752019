"""A task at work gets changed documents and is told something, and everything is killed at once: its agents hear of
both, the words as they are, and once."""

from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.end_to_end.messages_server import HoldableMessagesServer, run_server
from tests.end_to_end.shell import Shell, assert_no_committed_turn_repeated, wait_until
from tests.end_to_end.survey_documents import QUESTION, SHEETS, write_survey_documents
from tests.end_to_end.test_crash_recovery import kill_everything, run_local_platform
from tests.end_to_end.transcripts import load_messages

WORDS = 'Never cite sheet 3:\n  its "depths" are wrong — 2 m too deep.'


@dataclass(frozen=True)
class Documents:
    """What became of the orders to read the documents again."""

    given: dict[str, Any]
    again: CompletedProcess[str]
    missing: CompletedProcess[str]


def documents_changed(shell: Shell, task: str, folder: Path) -> Documents:
    """One sheet says something else, one is new, one is broken and one is gone."""
    sheet = folder / "sheet-00.md"
    sheet.write_text(sheet.read_text().replace("0-3 has a depth", "0-3 has no depth"))
    (folder / "sheet-98.md").write_text("Harbour Sydvik has a depth of 4 metres.\n")
    (folder / "sheet-01.md").write_bytes(b"%PDF-1.4 broken")
    (folder / "sheet-02.md").unlink()
    return Documents(
        given=shell.run_json("documents", task, "--docs", str(folder), "--by", "Ada"),
        again=shell.run("documents", task, "--docs", str(sheet)),
        missing=shell.run("documents", task, "--docs", str(folder / "nowhere.md")),
    )


@pytest.mark.timeout(900)
def test_agents_hear_once_of_words_and_documents_when_everything_is_killed_right_after_and_ended_tasks_refuse_both(
    tmp_path: Path,
) -> None:
    folder = write_survey_documents(tmp_path / "survey")
    with (
        run_server(HoldableMessagesServer(delay=0.0, holds_after=2)) as server,
        run_local_platform(tmp_path / "home", server) as shell,
    ):
        task = str(shell.run_json("submit", QUESTION, "--docs", str(folder), "--detach")["task_id"])
        wait_until(lambda: len(server.answered) >= 2, 180, "two turns of an agent")
        working = [step["id"] for step in shell.run_json("show", task)["steps"] if step["state"] != "done"]
        documents = documents_changed(shell, task, folder)
        told = shell.run("message", task, WORDS, "--by", "Ada")
        kill_everything(shell.home)
        server.goes_on.set()
        assert told.returncode == 0, told.stderr
        assert_order_was_taken(documents)
        assert shell.run("up").returncode == 0
        assert shell.approve_until_over(task) == "done"

        assert "writing" in working
        assert_words_were_heard_once(shell, task, working)
        assert_documents_were_heard_of_once(shell, task, working)
        assert_no_committed_turn_repeated(server, shell)

        untold, unread = shell.run("message", task, WORDS), shell.run("documents", task, "--docs", str(folder))
        assert (untold.returncode, unread.returncode) == (2, 2)
        assert f"{task} has ended (done), so no agent would read the message." in untold.stderr
        assert f"{task} has ended (done), so no agent would read the documents again." in unread.stderr


def assert_order_was_taken(documents: Documents) -> None:
    assert [(one["name"], one["kind"]) for one in documents.given["changes"]] == [
        ("sheet-00.md", "changed"),
        ("sheet-98.md", "added"),
    ]
    assert documents.given["not_given"] == ["sheet-02.md"]
    assert [one["name"] for one in documents.given["left_out"]] == ["sheet-01.md"]
    assert (documents.again.returncode, documents.again.stderr.splitlines()[-1]) == (0, "done: nothing has changed")
    assert documents.missing.returncode == 2
    assert "nowhere.md: no such file" in documents.missing.stderr


def assert_words_were_heard_once(shell: Shell, task: str, working: list[str]) -> None:
    shown = shell.run_json("show", task)
    heard = {
        step["id"]: [message.text for message in load_messages(shell, task, step["id"]) if message.task_message]
        for step in shown["steps"]
    }
    assert {agent: heard[agent] for agent in working} == {agent: [WORDS] for agent in working}
    assert [(one["text"], one["by"]) for one in shown["messages"]] == [(WORDS, "Ada")]


def assert_documents_were_heard_of_once(shell: Shell, task: str, working: list[str]) -> None:
    steps = [step["id"] for step in shell.run_json("show", task)["steps"]]
    heard = {
        agent: [one.text for one in load_messages(shell, task, agent) if one.documents_update_number] for agent in steps
    }
    assert {agent: len(heard[agent]) for agent in working} == dict.fromkeys(working, 1)
    assert "- changed: sheet-00.md (line 9; 301 lines now)" in heard["writing"][0]
    assert "- added: sheet-98.md (1 line)" in heard["writing"][0]
    assert "The documents were updated while the task ran: 1 changed, 1 added" in shell.run("report", task).stdout
    assert len(shell.run("documents", task).stdout.splitlines()) == SHEETS + 1
