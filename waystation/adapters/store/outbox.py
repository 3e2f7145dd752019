"""Passages on their way to the memory and out of it: written with their compaction, marked when it has them."""

from collections.abc import Sequence, Set
from datetime import datetime

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import passages
from waystation.domain.memory import Passage

_WAITS = (passages.c.stored_at.is_(None), passages.c.gone_at.is_(None))


async def add_passages(connection: AsyncConnection, added: Sequence[Passage]) -> None:
    """Let these passages wait."""
    rows = [
        {
            "passage_id": passage.id,
            "run_id": passage.run_id,
            "task_id": passage.task_id,
            "body": passage.model_dump_json(),
        }
        for passage in added
    ]
    await add_missing(connection, passages, rows)


async def take_passages_back(connection: AsyncConnection, run_id: str, gone: Set[str], now: datetime) -> None:
    """Passages that begin or end with one of these messages count no more. The memory may have any of them."""
    kept = select(passages.c.body).where(passages.c.run_id == run_id, passages.c.gone_at.is_(None))
    found = [Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars()]
    ids = sorted(passage.id for passage in found if gone & {passage.first_message, passage.last_message})
    taken = update(passages).where(passages.c.passage_id == bindparam("gone_id")).values(gone_at=now, stored_at=now)
    if ids:
        await connection.execute(taken, [{"gone_id": passage_id} for passage_id in ids])


class SqlOutbox(StorePart):
    """The port `Outbox`."""

    @reading
    async def waiting(self, connection: AsyncConnection, limit: int, run_id: str | None = None) -> tuple[Passage, ...]:
        """The oldest first."""
        oldest = select(passages.c.body).where(*_WAITS).order_by(passages.c.ordinal)
        if run_id is not None:
            oldest = oldest.where(passages.c.run_id == run_id)
        bodies = (await connection.execute(oldest.limit(limit))).scalars().all()
        return tuple(Passage.model_validate_json(body) for body in bodies)

    @reading
    async def count_waiting(self, connection: AsyncConnection, task_id: str | None = None) -> int:
        """How many wait, of one task or of all."""
        counted = select(func.count()).select_from(passages).where(*_WAITS)
        if task_id is not None:
            counted = counted.where(passages.c.task_id == task_id)
        return (await connection.execute(counted)).scalar_one()

    @writing
    async def stored(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """These are in the memory now. Ids that do not wait are left as they are."""
        if not passage_ids:
            return
        # In one order everywhere: two workers that empty the outbox must not wait for each other.
        waits = (passages.c.passage_id == bindparam("stored_id"), passages.c.stored_at.is_(None))
        marked = update(passages).where(*waits).values(stored_at=self._clock())
        await connection.execute(marked, [{"stored_id": passage_id} for passage_id in sorted(passage_ids)])

    @reading
    async def taken_back(self, connection: AsyncConnection, limit: int) -> tuple[str, ...]:
        """Ids of passages that count no more and may still be in the memory."""
        still_there = select(passages.c.passage_id).where(
            passages.c.gone_at.is_not(None), passages.c.stored_at.is_not(None)
        )
        return tuple((await connection.execute(still_there.limit(limit))).scalars())

    @writing
    async def forgotten(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """The memory has these no more."""
        gone = update(passages).where(passages.c.passage_id == bindparam("gone_id")).values(stored_at=None)
        if passage_ids:
            await connection.execute(gone, [{"gone_id": passage_id} for passage_id in sorted(passage_ids)])

    @reading
    async def passages_of(self, connection: AsyncConnection, task_id: str) -> tuple[Passage, ...]:
        """All passages of a task, also those that memory has: what a search in memory can find of it."""
        counts = (passages.c.task_id == task_id, passages.c.gone_at.is_(None))
        kept = select(passages.c.body).where(*counts).order_by(passages.c.ordinal)
        return tuple(Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars())
