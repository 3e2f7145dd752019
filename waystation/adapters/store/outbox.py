"""Passages on their way to the memory: written with their compaction, marked when the memory has them."""

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing
from waystation.adapters.store.part import StorePart, reading, writing
from waystation.adapters.store.schema import passages
from waystation.domain.memory import Passage


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


class SqlOutbox(StorePart):
    """The port `Outbox`."""

    @reading
    async def waiting(self, connection: AsyncConnection, limit: int, run_id: str | None = None) -> tuple[Passage, ...]:
        """The oldest first."""
        oldest = select(passages.c.body).where(passages.c.stored_at.is_(None)).order_by(passages.c.ordinal)
        if run_id is not None:
            oldest = oldest.where(passages.c.run_id == run_id)
        bodies = (await connection.execute(oldest.limit(limit))).scalars().all()
        return tuple(Passage.model_validate_json(body) for body in bodies)

    @reading
    async def count_waiting(self, connection: AsyncConnection, task_id: str | None = None) -> int:
        """How many wait, of one task or of all."""
        counted = select(func.count()).select_from(passages).where(passages.c.stored_at.is_(None))
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
