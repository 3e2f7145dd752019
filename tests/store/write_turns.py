"""A process that writes to two agent runs with others: `write_turns.py URL TALLY_RUN RUN WRITER TURNS`."""

import asyncio
import sys
from datetime import UTC, datetime

from sqlalchemy import select, update

from tests.support.scopes import SYSTEM_SCOPE
from waystation.context.transcript import Charge, Fence, build_user_message
from waystation.kernel.errors import VersionConflict
from waystation.kernel.usage import Usage
from waystation.runtime.sql_store import SqlStore
from waystation.store.schema import runs


def now() -> datetime:
    return datetime.now(UTC)


async def increment_version(store: SqlStore, tally_run: str) -> None:
    """Read a number and write the next one, in one transaction: under the lock with which every fence is held."""
    mine = runs.c.run_id == tally_run
    async with store.database.write() as connection:
        number: int = (await connection.execute(select(runs.c.version).where(mine).with_for_update())).scalar_one()
        await connection.execute(update(runs).where(mine).values(version=number + 1))


async def write_turn(store: SqlStore, fence: Fence, message_id: str) -> None:
    """Append to the transcript by compare-and-set, until nobody came between."""
    message, usage = build_user_message(message_id, "text"), Usage(output=1)
    charge = Charge(key=f"turn-{message_id}", kind="turn", model="model", usage=usage, cost_micro_usd=1, at=now())
    while True:
        version = (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).version
        try:
            await store.commit_reply(fence, version, message, charge)
        except VersionConflict:
            continue
        return


async def main(url: str, tally_run: str, run: str, writer: str, turns: str) -> None:
    store = await SqlStore.open(url, now)
    fence = Fence(run_id=run, number=1)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(int(turns)):
        await increment_version(store, tally_run)
        await write_turn(store, fence, f"{writer}-{turn}")
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
