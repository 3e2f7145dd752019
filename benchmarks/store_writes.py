"""Measures turns per second in the same run: SQLite against PostgreSQL, and each encrypted at rest against plain.

`python -m benchmarks.store_writes [DATABASE_URL]`.

Each process writes to an agent run of its own, as workers do: an intent, then the reply with its charge. Without a URL
PostgreSQL is a server of the tests, which does not wait for the disk; neither does the store's SQLite.
"""

import asyncio
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime

from tests.support.postgres_server import run_postgres_server
from waystation.config.settings import Settings
from waystation.context.transcript import CallIntent, Charge, Message, Text
from waystation.kernel.amount import Amount
from waystation.kernel.refs import RunRef
from waystation.kernel.usage import Usage
from waystation.privacy.keys import AesGcmCipher
from waystation.runtime.sql_store import SqlStore, migrate
from waystation.store.encryption import EncryptionConfig

TURNS = 300
PLAIN, ENCRYPTED = "plain", "encrypted"
REPLY = "A reply of some length. " * 100


def now() -> datetime:
    return datetime.now(UTC)


async def write(url: str, writer: str, how: str) -> None:
    """One process: says when it is ready, and then how many seconds its turns took."""
    at_rest = EncryptionConfig(AesGcmCipher(bytes(32), "rest"), encrypts=how == ENCRYPTED)
    store = await SqlStore.open(url, now, at_rest=at_rest)
    run = RunRef(
        store_id=await store.get_store_id(), tenant="t", session="s", task_id=writer, step_id="x", role="research"
    )
    await store.open_run(run)
    fence = await store.acquire_fence(run.run_id)
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.perf_counter()
    for turn in range(TURNS):
        key = f"turn-{turn}"
        await store.record_and_count_intents(
            fence, CallIntent(key=key, model="model", worst_case=Amount(tokens=1_000), at=now())
        )
        charge = Charge(key=key, kind="turn", model="model", usage=Usage(output=1), cost_micro_usd=1, at=now())
        await store.commit_reply(fence, turn, Message(id=key, role="assistant", blocks=(Text(text=REPLY),)), charge)
    print(time.perf_counter() - start)
    await store.aclose()


async def rate(url: str, label: str, processes: int, how: str) -> float:
    """Turns a second of all processes together."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "benchmarks.store_writes", "--write", url)
    writers = [
        await asyncio.create_subprocess_exec(*command, f"{label}-{processes}-{how}-{n}", how, stdin=pipe, stdout=pipe)
        for n in range(processes)
    ]
    for writer in writers:
        assert writer.stdout is not None
        await writer.stdout.readline()
    seconds = [float(out) for out, _ in await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers))]
    return processes * TURNS / max(seconds)


async def compare(sqlite: str, postgres: str) -> None:
    for url in (sqlite, postgres):
        await migrate(url, now)
    for processes in (1, 3):
        mark = f"{time.time_ns()}"
        lite, server = [
            {how: await rate(url, mark, processes, how) for how in (PLAIN, ENCRYPTED)} for url in (sqlite, postgres)
        ]
        print(
            f"{processes} processes: SQLite {lite[PLAIN]:,.0f} turns/s, PostgreSQL {server[PLAIN]:,.0f}: "
            f"{server[PLAIN] / lite[PLAIN]:.2f} times; encrypted {lite[ENCRYPTED] / lite[PLAIN]:.2f} times (SQLite), "
            f"{server[ENCRYPTED] / server[PLAIN]:.2f} times (PostgreSQL)"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        asyncio.run(write(*sys.argv[2:]))
    else:
        with ExitStack() as stack:
            given = sys.argv[1] if sys.argv[1:] else stack.enter_context(run_postgres_server()).new_database()
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            both = (Settings(store_url=url).database_url for url in (f"sqlite:///{folder}/waystation.db", given))
            asyncio.run(compare(*both))
