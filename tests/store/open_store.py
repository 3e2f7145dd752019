"""A process that opens a store when it is told to, and says its id: `open_store.py URL`."""

import asyncio
import sys
from datetime import UTC, datetime

from waystation.runtime.sql_store import SqlStore


async def main(url: str) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = await SqlStore.open(url, lambda: datetime.now(UTC))
    print(await store.get_store_id(), flush=True)
    await store.aclose()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
