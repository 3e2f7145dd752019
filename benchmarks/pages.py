"""Measures the pages of a long task, and hundreds of listeners: `python -m benchmarks.pages`.

A task of 200 legs and 5,000 messages is written to a store that `waystation serve` serves: time to a page's first and
last byte, its size, and the server's memory. Then an agent continues to write, first without listeners, then with 500,
in the same run: duration of its commits, and latency of events.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import datetime
from pathlib import Path

import httpx2
import psutil

from tests.support.finished_tasks import make_task_row
from tests.support.free_ports import find_free_port
from waystation.agents.leg import Interrupted, LegState
from waystation.budgets.budget import RunUsage
from waystation.config.settings import Settings
from waystation.context.transcript import CallIntent, Charge, Fence, Message, Text, build_user_message
from waystation.kernel.amount import Amount
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.usage import Usage
from waystation.planning.plan import build_standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import open_store
from waystation.tasks.task import TaskRequest

AGENTS, LEGS, TURNS = 10, 20, 250
"""Of agents of the task; each turn is a reply and what comes back."""
LOOKS, WRITES, LISTENERS = 50, 200, 500
PAUSE, LAST_SECONDS = 0.1, 2
"""Seconds between two commits, as of some fifty agents at once, and until the last events have arrived."""
WORDS = "Sheet 4 gives a depth of four fathoms at low water, and the bar moves with every gale from the north. "


async def store_long_task(store: SqlStore, settings: Settings) -> TaskRef:
    """A task at work with so many legs and messages."""
    asked = TaskRequest(question="Which harbours are shallow?", session="pages", request_id="long")
    row = make_task_row(asked, settings, await store.get_store_id())
    await store.register_task(row, ())
    await store.save_task_title(row.ref.task_id, asked.question)
    await store.save_plan(row.ref.task_id, build_standard_plan(asked.question))
    for number in range(AGENTS):
        await store_agent(store, await open_run(store, row.ref, f"research-{number}"))
    return row.ref


async def open_run(store: SqlStore, task: TaskRef, agent: str) -> Fence:
    run = RunRef(**task.model_dump(), step_id=agent, role="research")
    await store.open_run(run)
    return await store.acquire_fence(run.run_id)


async def store_agent(store: SqlStore, fence: Fence) -> None:
    for turn in range(TURNS):
        await commit(store, fence, turn, 2 * turn)
        await store.commit_message(fence, 2 * turn + 1, build_user_message(f"m{turn}", WORDS * 3))
        if turn % (TURNS // LEGS) == TURNS // LEGS - 1:
            await store.commit_outcome(fence, turn * LEGS // TURNS, Interrupted(state=LegState(totals=RunUsage())))


async def commit(store: SqlStore, fence: Fence, turn: int, version: int) -> float:
    """One turn; the seconds that its reply took."""
    key = f"turn-{turn}"
    await store.record_and_count_intents(
        fence, CallIntent(key=key, model="model", worst_case=Amount(tokens=1_000), at=utc_now())
    )
    usage = Usage(input=900, cache_read=9_000, output=120)
    charge = Charge(key=key, kind="turn", model="model", usage=usage, cost_micro_usd=4_000, at=utc_now())
    began = time.perf_counter()
    await store.commit_reply(
        fence, version, Message(id=f"r{turn}", role="assistant", blocks=(Text(text=WORDS),)), charge
    )
    return time.perf_counter() - began


@asynccontextmanager
async def serving_pages(home: Path) -> AsyncGenerator[tuple[httpx2.AsyncClient, psutil.Process]]:
    """A client that is let in, and the server's process."""
    port = find_free_port()
    settings = {"WAYSTATION_HOME": str(home), "WAYSTATION_OFFLINE": "true", "TEMPORAL_ADDRESS": "127.0.0.1:9"}
    command = [sys.executable, "-m", "waystation.cli.main", "serve", "--listen", f"127.0.0.1:{port}"]
    process = await asyncio.create_subprocess_exec(*command, env={**os.environ, **settings}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        token = (await process.stdout.readline()).decode().strip().partition("token=")[2]
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {token}"},
            limits=httpx2.Limits(max_connections=None),
            timeout=60,
        ) as client:
            yield client, psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


async def time_request(client: httpx2.AsyncClient, path: str) -> tuple[float, float, int]:
    """Milliseconds to the first byte and to the last, and bytes as they were sent: packed."""
    began = time.perf_counter()
    async with client.stream("GET", path) as answer:
        answer.raise_for_status()
        first, size = 0.0, 0
        async for part in answer.aiter_raw():
            first = first or time.perf_counter() - began
            size += len(part)
    return 1_000 * first, 1_000 * (time.perf_counter() - began), size


async def listen(client: httpx2.AsyncClient, ready: asyncio.Semaphore, delays: list[float]) -> None:
    """Note how many milliseconds after its commit each event arrives."""
    async with client.stream("GET", "/v1/events") as answer:
        ready.release()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                at = datetime.fromisoformat(json.loads(line.removeprefix("data: "))["at"])
                delays.append(1_000 * (utc_now() - at).total_seconds())


async def time_commits(store: SqlStore, fence: Fence, first: int) -> list[float]:
    """Milliseconds of each commit."""
    taken: list[float] = []
    for turn in range(first, first + WRITES):
        taken.append(1_000 * await commit(store, fence, turn, turn))
        await asyncio.sleep(PAUSE)
    return taken


async def measure(home: Path) -> None:
    settings = Settings(home=home, offline=True)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await open_store(settings)))
        task = await store_long_task(store, settings)
        client, process = await stack.enter_async_context(serving_pages(home))
        print(f"{AGENTS * LEGS} legs, {2 * AGENTS * TURNS:,} messages; {LOOKS} looks at each, medians")
        for name, path in (("task", ""), ("an agent", "/agents/research-1"), ("run as one file", "/run.html")):
            seen = [await time_request(client, f"/tasks/{task.task_id}{path}") for _ in range(LOOKS)]
            first, last, size = (statistics.median(column) for column in zip(*seen, strict=True))
            print(f"{name:<16} first byte {first:6.0f} ms   whole {last:6.0f} ms   {size / 1_000:8.0f} kB")
        print(f"memory of `serve` after that: {process.memory_info().rss / 1e6:.0f} MB")
        await measure_listening(client, process, store, task)


async def measure_listening(
    client: httpx2.AsyncClient, process: psutil.Process, store: SqlStore, task: TaskRef
) -> None:
    fence = await open_run(store, task, "writing")
    alone = statistics.median(await time_commits(store, fence, 0))
    ready, delays = asyncio.Semaphore(0), list[float]()
    listeners = [asyncio.create_task(listen(client, ready, delays)) for _ in range(LISTENERS)]
    for _ in listeners:
        await ready.acquire()
    before = sum(process.cpu_times()[:2])
    beside = statistics.median(await time_commits(store, fence, WRITES))
    await asyncio.sleep(LAST_SECONDS)
    used = sum(process.cpu_times()[:2]) - before
    for one in listeners:
        one.cancel()
    await asyncio.gather(*listeners, return_exceptions=True)
    print(f"{WRITES} replies: alone {alone:.1f} ms a commit, with {LISTENERS} listeners {beside:.1f} ms:", end=" ")
    print(f"{beside / alone:.2f} times")
    middle, slowest = statistics.median(delays), max(delays)
    print(f"{len(delays):,} events arrived {middle:.0f} ms after their commit at the median, the last {slowest:.0f} ms")
    print(f"`serve` took {used:.1f} s of processor for that, and has {process.memory_info().rss / 1e6:.0f} MB")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder)))
