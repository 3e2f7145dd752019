"""Events over HTTP: a client that is cut off again and again, while the server is killed and started anew."""

import asyncio
import json
import subprocess
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from tests.end_to_end.test_serve import begun
from tests.ports import free_port
from tests.store_contract.values import charge, reply, request, row
from waystation.adapters.store import SqlStore
from waystation.domain.leg import RunRef
from waystation.domain.task import reader_of
from waystation.settings import Settings
from waystation.stores import opened_store

EVENTS, AT_ONCE, KILLED_AT = 120, 10, (30, 70)
ENOUGH = 2 + EVENTS


async def write(store: SqlStore, seen: list[int]) -> None:
    """A task whose agent goes on as long as the client follows: two dozen turns ahead at most."""
    task = row(request())
    await store.register(task, [])
    ref = {**task.ref.model_dump(), "store_id": await store.store_id()}
    run = RunRef.model_validate({**ref, "step_id": "research-1", "role": "research"})
    await store.open_run(run)
    fence = await store.take_fence(run.run_id)
    for turn in range(EVENTS):
        while turn > len(seen) + 2 * AT_ONCE:
            await asyncio.sleep(0.01)
        await store.commit_reply(fence, turn, reply(turn), charge(f"turn-{turn}"))


@asynccontextmanager
async def listened(port: int, token: str, last: int) -> AsyncGenerator[AsyncGenerator[int]]:
    """Numbers of events, as they come."""
    headers = {"Authorization": f"Bearer {token}", "Last-Event-ID": str(last)}
    async with (
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
        client.stream("GET", "/v1/events", headers=headers) as answer,
    ):
        assert answer.status_code == 200

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
        port = free_port()
        with begun(home, port) as (server, token):
            try:
                while len(seen) < ENOUGH and not (kills and len(seen) >= kills[0]):
                    async with listened(port, token, seen[-1] if seen else 0) as numbers:
                        taken = [await anext(numbers) for _ in range(min(AT_ONCE, ENOUGH - len(seen)))]
                    seen.extend(taken)
                kills = kills[1:]
            finally:
                _kill(server)


def _kill(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()


@pytest.mark.timeout(180)
async def test_a_client_that_is_cut_off_at_every_tenth_event_has_each_once_in_order(tmp_path: Path) -> None:
    seen: list[int] = []
    settings = Settings.model_validate({"home": tmp_path, "offline": True})
    async with aclosing(await opened_store(settings)) as store:
        writing = asyncio.create_task(write(store, seen))
        while not await store.newest_event(reader_of("local")):
            await asyncio.sleep(0.01)
        await follow(tmp_path, seen)
        await writing
    assert seen == list(range(1, ENOUGH + 1))
