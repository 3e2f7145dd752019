"""A fork from the shell: what was finished is not asked for and not paid again, and the report is whole."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.end_to_end.messages_server import HoldableMessagesServer, run_server
from tests.end_to_end.shell import Shell
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_crash_recovery import run_local_platform

KEPT, ANEW = {"research-1", "research-2"}, {"analysis", "writing"}


def written(report: str) -> str:
    """The part that the agents wrote, without the account of how it came about."""
    return report.partition("## About this report")[0]


def paid_by_agent(shell: Shell, task: str) -> dict[str, int]:
    """Fresh tokens and cached ones, of each agent on the task's bill."""
    lines = cast("list[dict[str, Any]]", shell.run_json("cost", task)["lines"])
    usages = [(str(line["agent"]), cast("dict[str, int]", line["usage"])) for line in lines]
    agents = {agent for agent, _ in usages}
    return {agent: sum(sum(usage.values()) for name, usage in usages if name == agent) for agent in agents}


@pytest.mark.timeout(900)
def test_a_fork_asks_and_pays_for_nothing_that_was_finished_and_what_cannot_be_forked_is_refused(
    tmp_path: Path,
) -> None:
    documents = write_survey_documents(tmp_path / "survey")
    with (
        run_server(HoldableMessagesServer(delay=0.0)) as server,
        run_local_platform(tmp_path / "home", server) as shell,
    ):
        task = str(shell.run_json("submit", QUESTION, "--docs", str(documents), "--detach")["task_id"])

        def refused(step: str, *options: str) -> str:
            done = shell.run("fork", task, "--from", step, "--detach", *options)
            assert done.returncode == 2, done.stderr
            return done.stderr

        assert f"{task} has not ended: `waystation watch` follows it" in refused("analysis")
        server.goes_on.set()
        assert shell.approve_until_over(task) == "done"
        before, report = paid_by_agent(shell, task), shell.run("report", task).stdout
        assert f"{task} has no step 'anlysis'; it has research-1, research-2, analysis" in refused("anlysis")

        answered = len(server.answered)
        fork = str(shell.run_json("fork", task, "--from", "analysis", "--request-id", "again", "--detach")["task_id"])
        assert shell.approve_until_over(fork) == "done"
        shown, again = shell.run_json("show", fork), shell.run("report", fork).stdout
        assert "the request id 'again' was already used in this session" in refused("writing", "--request-id", "again")
        taken = ("--session", str(shell.run_json("show", task)["session"]), "--request-id", "again")
        submitted = shell.run("submit", "Another question?", "--docs", str(documents), *taken)
        assert submitted.returncode == 2
        assert "the request id 'again' was already used in this session" in submitted.stderr
        assert "Budget" not in submitted.stderr, "a refused task has no summary"

        assert {call.step for call in server.answered[answered:]} == ANEW
        assert shown["reused_work"] == {"task_id": task, "agents": sorted(KEPT), "payers": {}}
        assert {step["id"] for step in shown["steps"] if step["usage"]["total"] == 0} == KEPT
        paid = paid_by_agent(shell, fork)
        assert before.keys() >= KEPT | ANEW
        assert ANEW <= paid.keys() <= before.keys() - KEPT
        assert paid_by_agent(shell, task) == before
        assert re.search(r"all citations point to lines that exist \(\d+ places\)", again)
        assert written(again) == written(report)
