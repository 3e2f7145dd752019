"""What PostgreSQL lets transactions do to one another: those that it undoes are repeated, and not for ever; what one of
them reads, another may move meanwhile.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from tests.erasure.test_person_repository import store_task_with_person
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import make_passage, make_summary, open_run
from tests.support.stored_task import make_passage_ids
from waystation.erasure.forget_repository import iter_task_row_texts
from waystation.kernel.errors import StoreUnavailable
from waystation.memory.passages import Passage
from waystation.runtime.sql_store import SqlStore
from waystation.store.engine import CONFLICT_PAUSES_S, SqlRepository, write_transaction
from waystation.store.schema import passages, runs


class Crossing(SqlRepository):
    """Transactions that come between one another."""

    attempts = 0

    @write_transaction
    async def advance(self, connection: AsyncConnection, first: str, second: str, met: asyncio.Barrier) -> None:
        """One version on in two runs; the first two attempts have each locked a run when they go for the other's."""
        self.attempts += 1
        await connection.execute(update(runs).where(runs.c.run_id == first).values(version=runs.c.version + 1))
        if self.attempts <= 2:
            await met.wait()
        await connection.execute(update(runs).where(runs.c.run_id == second).values(version=runs.c.version + 1))

    @write_transaction
    async def never_in_turn(self, connection: AsyncConnection) -> None:
        self.attempts += 1
        await connection.execute(text("DO $$ BEGIN RAISE serialization_failure; END $$"))


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[SqlStore]:
    opened = await SqlStore.open(postgres_url, store_clock)
    yield opened
    await opened.aclose()


async def test_a_transaction_that_was_undone_for_a_deadlock_is_repeated(store: SqlStore) -> None:
    one, two = (await open_run(store, "one")).run_id, (await open_run(store, "two")).run_id
    crossing, met = Crossing(store.database, store_clock, "store"), asyncio.Barrier(2)
    await asyncio.gather(crossing.advance(one, two, met), crossing.advance(two, one, met))
    assert crossing.attempts >= 3  # one of them is undone, or, on a busy machine, each in turn
    assert [(await store.load_transcript(run_id, SYSTEM_SCOPE)).version for run_id in (one, two)] == [2, 2]


async def test_a_transaction_that_never_gets_its_turn_is_given_up(store: SqlStore) -> None:
    crossing = Crossing(store.database, store_clock, "store")
    with pytest.raises(StoreUnavailable, match="other transactions conflicted; SQLSTATE 40001"):
        await crossing.never_in_turn()
    assert crossing.attempts == len(CONFLICT_PAUSES_S) + 1


async def test_a_passage_that_leaves_the_outbox_while_a_person_is_erased_is_read_once(
    store: SqlStore, postgres_url: str
) -> None:
    task = await store_task_with_person(store, "first")
    run_id = f"{task.ref.task_id}/research-1"
    fence = await store.acquire_fence(run_id)
    waits = make_passage("waits", run_id, task.ref.task_id)
    await store.commit_compaction(fence, 4, make_summary("summary-2"), [waits], None)
    worker, read = await SqlStore.open(postgres_url, store_clock), list[str]()
    async with store.database.write() as connection:
        async for cell in iter_task_row_texts(connection, task.ref.tenant):
            if cell.source.column is passages.c.body:
                read.append(Passage.model_validate_json(cell.text).id)
                await worker.mark_passages_stored([waits.id])
    await worker.aclose()
    assert sorted(read) == [*make_passage_ids(task.ref.task_id), "waits"]
