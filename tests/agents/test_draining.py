"""Passages that waited for memory come in when it is back, whether or not any task does something."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from tests.agents.office import NOON, Office
from tests.agents.test_archive import commit_passages
from waystation.kernel.errors import StoreUnavailable
from waystation.memory.ports import Use
from waystation.store.ports import Store
from workers.memory import run_drain_loop

AT_ONCE = timedelta(milliseconds=5)


async def until_stored(office: Office, count: int) -> None:
    async with asyncio.timeout(20):
        while len(office.memory.passages) < count:
            await asyncio.sleep(0.005)


async def test_what_waits_is_written_when_memory_is_back_without_a_task(office: Office) -> None:
    await commit_passages(office, 3)
    office.memory.failing = True
    async with run_drain_loop(office.archive, AT_ONCE):
        await asyncio.sleep(0.1)
        assert office.memory.passages == {}
        assert await office.store.get_oldest_pending_time() == NOON
        office.memory.failing = False
        await until_stored(office, 3)
    assert (await office.store.count_pending_passages(), await office.store.get_oldest_pending_time()) == (0, None)


async def test_nothing_is_asked_of_memory_while_nothing_waits_and_nothing_embedded_while_it_is_away(
    office: Office,
) -> None:
    asked: list[str] = []

    class Watching(type(office.memory)):
        async def count(self, tenant: str) -> int:
            asked.append(tenant)
            return await super().count(tenant)

    class Embedder(type(office.embedder)):
        async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:
            raise AssertionError("memory is away")

    office.memory, office.embedder = Watching(), Embedder()
    office.memory.failing = True
    async with run_drain_loop(office.archive, AT_ONCE):
        await asyncio.sleep(0.05)
        assert asked == []
        await commit_passages(office, 1)
        async with asyncio.timeout(20):
            while len(asked) < 3:
                await asyncio.sleep(0.005)


async def test_a_store_that_does_not_answer_now_is_asked_again(office: Office) -> None:
    await commit_passages(office, 1)
    store, failures = office.store, [1, 2]

    class Away:
        def __getattr__(self, name: str) -> object:
            return getattr(store, name)

        async def waiting(self, limit: int, run_id: str | None = None) -> object:
            if failures:
                failures.pop()
                raise StoreUnavailable("not now")
            return await store.waiting(limit, run_id)

    away: Store = Away()  # pyright: ignore[reportAssignmentType]: it has all that the store has
    archive = type(office.archive)(
        store=away, embedder=office.embedder, memory=office.memory, redactor=office.archive.redactor
    )
    async with run_drain_loop(archive, AT_ONCE):
        await until_stored(office, 1)
    assert failures == []
