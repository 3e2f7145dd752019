"""A task over hundreds of documents: subagents read them side by side, whatever is killed meanwhile."""

import re
from pathlib import Path
from typing import Any, cast

import pytest

from tests.end_to_end.messages_server import CacheForEachAgent, serving
from tests.end_to_end.shell import Shell, assert_no_committed_turn_was_asked_again, until
from tests.end_to_end.stdlib import ASKED, write_stdlib
from tests.end_to_end.test_killed_platform import kill_everything, platform

DOCUMENTS = 500
OPTIONS = ("--budget", "600k", "--agent-budget", "90k", "--window", "16k", "--detach")


def subagents(shown: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for step in cast("list[dict[str, Any]]", shown["steps"]) if "." in step["id"]]


def written(report: str) -> str:
    """The part that the agents wrote, without the account of how it came about."""
    return report.partition("## How this report came about")[0]


@pytest.mark.timeout(1_500)
def test_five_hundred_documents_are_read_by_subagents_and_kill_9_changes_nothing_in_the_report(tmp_path: Path) -> None:
    documents = write_stdlib(tmp_path / "stdlib", DOCUMENTS)
    with serving(CacheForEachAgent(delay=0.0)) as server, platform(tmp_path / "killed", server) as shell:
        task = submitted(shell, documents, "killed")
        until(lambda: sum(step["legs"] > 0 for step in subagents(shell.json("show", task))) >= 4, 360, "four at work")
        kill_everything(shell.home)
        assert shell.run("up").returncode == 0
        assert shell.answer_until_over(task) == "done"
        killed = shell.json("show", task)
        assert_no_committed_turn_was_asked_again(server, shell)
        report = shell.run("report", task).stdout

    # A model of its own: a warm prompt cache leaves more of a budget, and the windows of subagents follow from that.
    with serving(CacheForEachAgent(delay=0.0)) as server, platform(tmp_path / "undisturbed", server) as shell:
        undisturbed = submitted(shell, documents, "undisturbed")
        assert shell.answer_until_over(undisturbed) == "done"
        again = shell.run("report", undisturbed).stdout

    workers = subagents(killed)
    assert len(workers) >= 4
    compacted = {made["agent"] for made in killed["compactions"]}
    assert compacted & {step["id"] for step in workers}
    asked = [approval for approval in killed["approvals"] if "." in approval["agent"]]
    assert any(approval["decision"] == "approved" for approval in asked)
    assert re.search(r"All \d+ citations were checked against the documents, and hold", report)
    assert written(report) == written(again)


def submitted(shell: Shell, documents: Path, request_id: str) -> str:
    given = ("submit", ASKED, "--docs", str(documents), "--session", request_id, "--request-id", request_id, *OPTIONS)
    return str(shell.json(*given)["task_id"])
