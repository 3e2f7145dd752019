"""A task over hundreds of documents: subagents read them side by side, whatever is killed meanwhile."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.end_to_end.messages_server import UncachedMessagesServer, run_server
from tests.end_to_end.shell import Shell, assert_no_committed_turn_repeated
from tests.end_to_end.stdlib_documents import QUESTION, write_stdlib_documents
from tests.end_to_end.test_crash_recovery import kill_everything, run_local_platform
from waystation.tasks.view import TaskView

DOCUMENTS = 500
OPTIONS = ("--budget", "2000k", "--agent-budget", "500k", "--window", "16k", "--detach")
"""All of the budget is given to the four agents of the plan. A subagent that has spent its part borrows, or asks."""
ADDED = "200k"


def subagents(shown: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in cast("list[dict[str, Any]]", shown["steps"]) if "." in step["id"]]


def four_subagents_at_work(seen: TaskView) -> bool:
    return sum(step.legs > 0 for step in seen.steps if "." in step.id) >= 4


def headings(report: str) -> list[str]:
    return [line for line in report.splitlines() if line.startswith("#")]


def cited(report: str) -> set[str]:
    return set(re.findall(r"\[\S+?:\d+-\d+\]", report))


@pytest.mark.timeout(1_500)
def test_five_hundred_documents_are_read_by_subagents_and_kill_9_changes_nothing_in_the_outcome(tmp_path: Path) -> None:
    """The requests of an agent end with how far its siblings are, so that a compaction may come a message earlier or
    later: reports of two runs have the same parts, and nearly the same quotations.
    """
    documents = write_stdlib_documents(tmp_path / "stdlib", DOCUMENTS)
    with (
        run_server(UncachedMessagesServer(delay=0.0)) as server,
        run_local_platform(tmp_path / "home", server) as shell,
    ):
        task = submitted(shell, documents, "killed")
        shell.wait_for_task(task, four_subagents_at_work, 360, "four at work")
        kill_everything(shell.home)
        assert shell.run("up").returncode == 0
        assert shell.approve_until_over(task, ADDED) == "done"
        killed = shell.run_json("show", task)
        assert_no_committed_turn_repeated(server, shell)
        report = shell.run("report", task).stdout

        undisturbed = submitted(shell, documents, "undisturbed")
        assert shell.approve_until_over(undisturbed, ADDED) == "done"
        again = shell.run("report", undisturbed).stdout
        steps = shell.run_json("show", undisturbed)["steps"]

    workers = subagents(killed)
    assert len(workers) >= 4
    compacted = {made["agent"] for made in killed["compactions"]}
    assert compacted & {step["id"] for step in workers}
    assert re.search(r"all citations point to lines that exist \(\d+ places\)", report)
    assert [(step["id"], step["state"]) for step in killed["steps"]] == [(step["id"], "done") for step in steps]
    assert headings(report) == headings(again)
    assert len(cited(report) & cited(again)) > 0.75 * len(cited(report) | cited(again))


def submitted(shell: Shell, documents: Path, request_id: str) -> str:
    given = (
        "submit",
        QUESTION,
        "--docs",
        str(documents),
        "--session",
        request_id,
        "--request-id",
        request_id,
        *OPTIONS,
    )
    return str(shell.run_json(*given)["task_id"])
