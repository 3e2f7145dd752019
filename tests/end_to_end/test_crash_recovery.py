"""Everything is killed in the middle of a leg and started again: the task goes on, pays nothing twice, and ends."""

import os
import signal
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.end_to_end.messages_server import HoldableMessagesServer, MessagesServer, run_server
from tests.end_to_end.shell import Shell, assert_no_committed_turn_repeated, is_paused, wait_until
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from waystation.runtime.temporal.run_file import read_run_file


@contextmanager
def run_local_platform(home: Path, server: MessagesServer, **settings: str) -> Generator[Shell]:
    running = Shell(home, {"ANTHROPIC_API_KEY": "a-key-for-tests", "ANTHROPIC_BASE_URL": server.url, **settings})
    assert running.run("up").returncode == 0
    try:
        yield running
    finally:
        running.run("down")


def kill_everything(home: Path) -> None:
    run = read_run_file(home / "run.json")
    assert run is not None
    for mark in (run.workers, run.server):
        os.kill(mark.pid, signal.SIGKILL)


@pytest.mark.timeout(900)
def test_a_task_survives_kill_9_of_everything_in_the_middle_of_a_leg(tmp_path: Path) -> None:
    documents = write_survey_documents(tmp_path / "survey")
    with (
        run_server(HoldableMessagesServer(delay=0.15, holds_after=3)) as server,
        run_local_platform(tmp_path / "home", server) as shell,
    ):
        submitted = shell.run_json(
            "submit", QUESTION, "--docs", str(documents), "--budget", "24k", "--window", "11k", "--detach"
        )
        task_id = str(submitted["task_id"])
        wait_until(lambda: len(shell.list_paid_turns()) >= 3, 180, "three committed turns")
        kill_everything(shell.home)
        paid_before = len(shell.list_paid_turns())
        server.goes_on.set()
        assert shell.run("show", task_id).returncode in {0, 3}

        assert shell.run("up").returncode == 0
        shell.wait_for_task(task_id, is_paused, 360, "the pause")
        assert task_id.removeprefix("task-")[:8] in shell.run("approvals").stdout

        assert shell.approve_until_over(task_id) in {"done", "partial"}
        assert len(shell.list_paid_turns()) > paid_before
        assert "# " in shell.run("report", task_id).stdout
        assert_no_committed_turn_repeated(server, shell)
