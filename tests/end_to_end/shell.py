"""The product as a person uses it: commands in a shell, workers as processes, and what the store says they paid."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.end_to_end.messages_server import MessagesServer
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import TaskView

ROOT = Path(__file__).parents[2]
WAYSTATION = (sys.executable, "-m", "waystation.cli.main")
"""Run from the root, this is the code beside these tests, whatever is installed."""
POLL_SECONDS, CLIENT_POLL_SECONDS = 1.0, 0.2
"""Seconds between two looks: by a command, which costs as much processor time itself, and by a client."""


class PaidTurn(NamedTuple):
    """One committed turn."""

    step: str
    turn: int
    at: float
    """Time of its commit, in seconds since the epoch."""


class Shell:
    """A home folder and an environment in which commands run."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        self.home = home
        self.settings = settings

    def with_settings(self, **settings: str) -> "Shell":
        """The same shell with other settings beside its own."""
        return Shell(self.home, {**self.settings, **settings})

    def run(self, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
        """The command, with what it reads on standard input, if it does."""
        return subprocess.run(
            [*WAYSTATION, *arguments],
            cwd=ROOT,
            env=self.environment,
            input=typed,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """A command that goes on in the background."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [*WAYSTATION, *arguments],
                cwd=ROOT,
                env={**self.environment, "PYTHONFAULTHANDLER": "1"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )

    def run_json(self, *arguments: str) -> dict[str, Any]:
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return cast("dict[str, Any]", json.loads(done.stdout))

    def list_paid_turns(self) -> list[PaidTurn]:
        """Committed turns of all tasks."""
        return asyncio.run(self._paid_turns())

    def approve_until_over(self, task_id: str, add: str = "40k") -> str:
        """Approve whatever the task asks for until it has ended; returns its phase. `add`: what each request gets."""
        deadline = time.monotonic() + 600
        while True:
            seen = self.wait_for_task(task_id, is_over_or_asking, deadline - time.monotonic(), "the end of the task")
            if seen.phase.over:
                return seen.phase
            for request in list_pending_requests(seen):
                done = self.run("approve", task_id, "--request", request, "--add", add, "--note", "go on")
                if done.returncode != 0:
                    # Money may have come free in this moment, or the task is ending: then nobody has to answer.
                    self.wait_for_task(
                        task_id, partial(_is_answer_needless, request), 60, f"a request not to wait: {done.stderr}"
                    )

    def wait_for_task(self, task_id: str, met: Callable[[TaskView], bool], seconds: float, what: str) -> TaskView:
        """Wait for a state of a task, and return it; fails with `what` where it does not come.

        In this process: a command for each look would take from the workers the processor that they need to get there.
        """
        with self.own_environment():
            return asyncio.run(_task_in_state(task_id, met, seconds, what))

    @contextmanager
    def own_environment(self) -> Generator[None]:
        """This process has the shell's settings until the block ends."""
        with pytest.MonkeyPatch.context() as environment:
            for name, value in self._own_env.items():
                environment.setenv(name, value)
            yield

    @property
    def environment(self) -> dict[str, str]:
        """Of every command."""
        return {**os.environ, **self._own_env}

    @property
    def _own_env(self) -> dict[str, str]:
        # A process more, which takes as long to load as the workers do.
        return {"WAYSTATION_HOME": str(self.home), "WAYSTATION_PAGES": "false", **self.settings}

    def total_cost_micro_usd(self) -> int:
        """Millionths of a dollar of all charges in the store."""
        return int(asyncio.run(self._query_store("select sum(cost_micro_usd) from charges"))[0][0])

    async def _paid_turns(self) -> list[PaidTurn]:
        rows = await self._query_store("select run_id, key, at from charges where kind = 'turn'")
        return [PaidTurn(run.split("/")[1], int(key.removeprefix("turn-")), _seconds(at)) for run, key, at in rows]

    async def _query_store(self, query: str) -> list[tuple[Any, ...]]:
        url = self.settings.get("DATABASE_URL")
        engine = create_async_engine(Settings(home=self.home, store_url=url).database_url)
        try:
            async with engine.connect() as connection:
                return [tuple(row) for row in await connection.execute(text(query))]
        finally:
            await engine.dispose()


def list_pending_requests(seen: TaskView) -> list[str]:
    """Ids of the requests that nobody has answered."""
    return [approval.request_id for approval in seen.approvals if approval.decision == "pending"]


def _is_answer_needless(request: str, seen: TaskView) -> bool:
    """Whether an answer to the request would change nothing any more."""
    return seen.phase.over or request not in list_pending_requests(seen)


def is_over_or_asking(seen: TaskView) -> bool:
    return seen.phase.over or bool(list_pending_requests(seen))


def is_paused(seen: TaskView) -> bool:
    return seen.phase is TaskPhase.PAUSED


async def _task_in_state(task_id: str, met: Callable[[TaskView], bool], seconds: float, what: str) -> TaskView:
    # Connected for each wait: after `waystation up` the server has another address.
    async with await Client.connect(Settings()) as client:
        seen = await client.get_task(task_id)
        try:
            async with asyncio.timeout(seconds):
                while not met(seen):
                    await asyncio.sleep(CLIENT_POLL_SECONDS)
                    seen = await client.get_task(task_id)
        except TimeoutError:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}; it is {seen.phase}") from None
        return seen


def wait_until(found: Callable[[], bool], seconds: float, what: str) -> None:
    """Wait for a state; fails with `what` where it does not come."""
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain: {what}"
        time.sleep(POLL_SECONDS)


def wait_for_exit(process: subprocess.Popen[bytes], log: Path, seconds: float = 120) -> int:
    """The exit code of a command that ends by itself. One that does not is made to say where it is."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        process.wait(10)
        raise AssertionError(f"it goes on after {seconds} s: {log.read_text()[-6000:]}") from None


def terminate(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to stop; returns its exit code."""
    process.send_signal(signal.SIGTERM)
    return process.wait(60)


def assert_no_committed_turn_repeated(server: MessagesServer, shell: Shell) -> None:
    committed = {(turn.step, turn.turn): turn.at for turn in shell.list_paid_turns()}
    assert committed
    again = [call for call in server.answered if call.at > committed.get((call.step, call.turn), call.at) + 0.001]
    assert again == []


def _seconds(at: str | datetime) -> float:
    moment = datetime.fromisoformat(at) if isinstance(at, str) else at
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
