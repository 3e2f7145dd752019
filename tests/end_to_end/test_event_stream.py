"""Events over HTTP: a client that is cut off again and again, while what it follows is killed and started anew."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import httpx2
import pytest

from tests.end_to_end.messages_server import MessagesServer, run_server
from tests.end_to_end.shell import Shell, wait_until
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_crash_recovery import run_local_platform
from tests.end_to_end.test_serve import start_server_process
from tests.support.free_ports import find_free_port
from tests.support.store_values import make_charge, make_reply, make_task_request, make_task_row
from waystation.config.settings import Settings
from waystation.kernel.refs import RunRef
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import open_store
from waystation.runtime.temporal.run_file import read_run_file
from waystation.tasks.task import build_reader_scope

EVENTS, AT_ONCE, KILLED_AT = 120, 10, (30, 70)
ENOUGH = 2 + EVENTS


async def write(store: SqlStore, seen: list[int]) -> None:
    """A task whose agent goes on as long as the client follows: two dozen turns ahead at most."""
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    ref = {**task.ref.model_dump(), "store_id": await store.get_store_id()}
    run = RunRef.model_validate({**ref, "step_id": "research-1", "role": "research"})
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    for turn in range(EVENTS):
        while turn > len(seen) + 2 * AT_ONCE:
            await asyncio.sleep(0.01)
        await store.commit_reply(fence, turn, make_reply(turn), make_charge(f"turn-{turn}"))


@asynccontextmanager
async def listened(port: int, token: str, last: int, path: str = "/v1/events") -> AsyncGenerator[AsyncGenerator[int]]:
    """Numbers of events, as they come; none where there will be no more."""
    headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": str(last)}
    async with (
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        client.stream("GET", path, headers=headers) as answer,
    ):
        assert answer.status_code in {200, 204}

        async def numbers() -> AsyncGenerator[int]:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield int(json.loads(line.removeprefix("data: "))["number"])

        async with aclosing(numbers()) as found:
            yield found


async def follow(home: Path, seen: list[int]) -> None:
    """Take ten events, hang up, come back; twice kill the server in between, and start it anew."""
    kills = list(KILLED_AT)
    while len(seen) < ENOUGH:
        port = find_free_port()
        with start_server_process(home, port) as (server, token):
            try:
                while len(seen) < ENOUGH and not (kills and len(seen) >= kills[0]):
                    async with listened(port, token, seen[-1] if seen else 0) as numbers:
                        taken = [await anext(numbers) for _ in range(min(AT_ONCE, ENOUGH - len(seen)))]
                    seen.extend(taken)
                kills = kills[1:]
            finally:
                _kill(server)


async def follow_task(shell: Shell, task_id: str, seen: list[int]) -> None:
    """Ten events of a task at a time, to its end; worker, server and `serve` are killed in turn, and started again."""
    killed = [partial(kill_part, shell, "workers"), partial(kill_part, shell, "server"), None]
    path = f"/v1/tasks/{task_id}/events"
    over = False
    while not over:
        port = find_free_port()
        with start_server_process(shell.home, port, shell.settings) as (server, token):
            try:
                while not over:
                    async with listened(port, token, seen[-1] if seen else 0, path) as numbers:
                        taken = await at_most(AT_ONCE, numbers)
                    seen.extend(taken)
                    over = not taken
                    if killed and taken:
                        kill = killed.pop(0)
                        if kill is None:
                            break
                        await asyncio.to_thread(kill)
            finally:
                _kill(server)


def kill_part(shell: Shell, part: Literal["workers", "server"]) -> None:
    """Kill it, and start the platform anew."""
    run = read_run_file(shell.home / "run.json")
    assert run is not None
    os.kill(getattr(run, part).pid, signal.SIGKILL)
    wait_until(lambda: shell.run("up").returncode == 0, 180, "the platform")


async def at_most(count: int, numbers: AsyncGenerator[int]) -> list[int]:
    """The next ones, fewer where they end."""
    taken: list[int] = []
    async for number in numbers:
        taken.append(number)
        if len(taken) == count:
            break
    return taken


def _kill(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


@pytest.mark.timeout(180)
async def test_a_client_that_is_cut_off_at_every_tenth_event_has_each_once_in_order(tmp_path: Path) -> None:
    seen: list[int] = []
    settings = Settings.model_validate({"home": tmp_path, "offline": True})
    async with aclosing(await open_store(settings)) as store:
        writing = asyncio.create_task(write(store, seen))
        while not await store.get_newest_event_number(build_reader_scope("local")):
            await asyncio.sleep(0.01)
        await follow(tmp_path, seen)
        await writing
    assert seen == list(range(1, ENOUGH + 1))


@pytest.mark.timeout(600)
def test_whoever_follows_a_task_has_each_event_once_in_order_while_worker_server_and_serve_are_killed_in_turn(
    tmp_path: Path,
) -> None:
    survey = write_survey_documents(tmp_path / "survey")
    seen: list[int] = []
    with run_server(MessagesServer(delay=0.3)) as model, run_local_platform(tmp_path / "home", model) as shell:
        asked = ("submit", QUESTION, "--docs", str(survey), "--budget", "300k", "--window", "11k", "--detach")
        task_id = str(shell.run_json(*asked)["task_id"])
        asyncio.run(follow_task(shell, task_id, seen))
        there = asyncio.run(told(shell.home, task_id))
        assert shell.run_json("show", task_id)["phase"] in {"done", "partial"}
    assert len(there) > 4 * AT_ONCE
    assert seen == there


async def told(home: Path, task_id: str) -> list[int]:
    """Numbers of all events of a task, as the store has them."""
    async with aclosing(await open_store(Settings(home=home, offline=True))) as store:
        page = await store.list_events(build_reader_scope("local"), 0, 1_000, task_id)
    return [one.number for one in page.events]
