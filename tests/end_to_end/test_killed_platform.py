"""Everything is killed in the middle of a leg and started again: the task goes on, pays nothing twice, and ends."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from tests.end_to_end.messages_server import MessagesServer, running_messages_server
from waystation.adapters.temporal.run_file import read_run_file

WAYSTATION = Path(sys.executable).parent / "waystation"
QUESTION = "Which harbours does the survey name, and what does it say about their depth?"


class Platform:
    """The product as a person uses it: commands in a shell."""

    def __init__(self, home: Path, base_url: str) -> None:
        self.home = home
        self.env = {
            **os.environ,
            "WAYSTATION_HOME": str(home),
            "ANTHROPIC_API_KEY": "a-key-for-tests",
            "ANTHROPIC_BASE_URL": base_url,
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(WAYSTATION), *arguments], env=self.env, capture_output=True, text=True, timeout=120, check=False
        )

    def json(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return cast("dict[str, Any]", json.loads(done.stdout))

    def kill_everything(self) -> None:
        run = read_run_file(self.home / "run.json")
        assert run is not None
        for mark in (run.workers, run.server):
            os.kill(mark.pid, signal.SIGKILL)

    def charges(self) -> list[tuple[str, int, float]]:
        """Committed turns: step, number of the turn, time of its commit."""
        with sqlite3.connect(f"file:{self.home / 'waystation.db'}?mode=ro", uri=True) as database:
            rows = database.execute("select run_id, key, at from charges where kind = 'turn'").fetchall()
        return [(run.split("/")[1], int(key.removeprefix("turn-")), _seconds(at)) for run, key, at in rows]


def _seconds(at: str) -> float:
    moment = datetime.fromisoformat(at)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


@contextmanager
def platform(home: Path, server: MessagesServer) -> Generator[Platform]:
    running = Platform(home, server.url)
    assert running.run("up").returncode == 0
    try:
        yield running
    finally:
        running.run("down")


def until(found: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(0.2)


@pytest.fixture
def long_documents(tmp_path: Path) -> Path:
    folder = tmp_path / "survey"
    folder.mkdir()
    for sheet in range(12):
        lines = [
            f"Harbour Nordvik {sheet}-{line} has a depth of {line % 17 + 3} metres at low water, as sheet {sheet} says."
            for line in range(150)
        ]
        (folder / f"sheet-{sheet:02}.md").write_text(f"# Sheet {sheet}\n\n" + "\n\n".join(lines) + "\n")
    return folder


@pytest.mark.timeout(300)
def test_a_task_survives_kill_9_of_everything_in_the_middle_of_a_leg(tmp_path: Path, long_documents: Path) -> None:
    with running_messages_server(delay=0.15) as server, platform(tmp_path / "home", server) as shell:
        submitted = shell.json(
            "submit", QUESTION, "--docs", str(long_documents), "--budget", "30k", "--window", "6k", "--detach"
        )
        task_id = str(submitted["task_id"])
        until(lambda: len(shell.charges()) >= 3, 60, "three committed turns")
        shell.kill_everything()
        answered_before = len(server.answered)
        assert shell.run("show", task_id).returncode in {0, 3}

        assert shell.run("up").returncode == 0
        until(lambda: shell.json("show", task_id)["phase"] == "paused", 120, "the pause")
        assert len(server.answered) > answered_before
        assert task_id in shell.run("approvals").stdout

        approve_until_over(shell, task_id)
        shown = shell.json("show", task_id)
        assert shown["phase"] in {"done", "partial"}
        assert "# " in shell.run("report", task_id).stdout
        assert_no_committed_turn_was_asked_again(server, shell)


def approve_until_over(shell: Platform, task_id: str) -> None:
    def over() -> bool:
        shown = shell.json("show", task_id)
        for approval in cast("list[dict[str, Any]]", shown["approvals"]):
            if approval["decision"] == "pending":
                request = str(approval["request_id"])
                done = shell.run("approve", task_id, "--request", request, "--add", "20k", "--note", "go on")
                assert done.returncode == 0, done.stderr
        return shown["phase"] in {"done", "partial", "failed", "cancelled"}

    until(over, 180, "the end of the task")


def assert_no_committed_turn_was_asked_again(server: MessagesServer, shell: Platform) -> None:
    committed = {(step, turn): at for step, turn, at in shell.charges()}
    assert committed
    again = [call for call in server.answered if call.at > committed.get((call.step, call.turn), call.at) + 0.001]
    assert again == []
