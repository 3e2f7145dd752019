"""A task at work is told something, and everything is killed at once: its agents hear it, word for word, once."""

from pathlib import Path

import pytest

from tests.end_to_end.messages_server import HeldServer, serving
from tests.end_to_end.shell import assert_no_committed_turn_was_asked_again, until
from tests.end_to_end.survey import QUESTION, write_survey
from tests.end_to_end.test_killed_platform import kill_everything, platform
from tests.end_to_end.transcripts import said

WORDS = 'Never cite sheet 3:\n  its "depths" are wrong — 2 m too deep.'


@pytest.mark.timeout(900)
def test_agents_hear_it_once_word_for_word_when_everything_is_killed_right_after_and_ended_tasks_refuse_it(
    tmp_path: Path,
) -> None:
    documents = write_survey(tmp_path / "survey")
    with serving(HeldServer(delay=0.0, holds_after=2)) as server, platform(tmp_path / "home", server) as shell:
        task = str(shell.json("submit", QUESTION, "--docs", str(documents), "--detach")["task_id"])
        until(lambda: len(server.answered) >= 2, 180, "two turns of an agent")
        working = [step["id"] for step in shell.json("show", task)["steps"] if step["state"] != "done"]

        told = shell.run("tell", task, WORDS, "--by", "Ada")
        kill_everything(shell.home)
        server.goes_on.set()
        assert told.returncode == 0, told.stderr
        assert shell.run("up").returncode == 0
        assert shell.answer_until_over(task) == "done"

        shown = shell.json("show", task)
        heard = {
            step["id"]: [message.text for message in said(shell, task, step["id"]) if message.told]
            for step in shown["steps"]
        }
        assert "writing" in working
        assert {agent: heard[agent] for agent in working} == {agent: [WORDS] for agent in working}
        assert [(one["text"], one["by"]) for one in shown["told"]] == [(WORDS, "Ada")]
        assert_no_committed_turn_was_asked_again(server, shell)

        refused = shell.run("tell", task, WORDS)
        assert refused.returncode == 2
        assert f"{task} has ended (done): none of its agents would hear it." in refused.stderr
