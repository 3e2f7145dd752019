"""Passages on their way to the memory and out of it: written with their compaction, marked when it has them."""

from collections.abc import Sequence, Set
from datetime import datetime

from sqlalchemy import Select, bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_missing
from waystation.adapters.store.part import StorePart, owned, reading, writing
from waystation.adapters.store.schema import passages, runs
from waystation.adapters.store.sealed import bound
from waystation.domain.memory import Passage
from waystation.domain.ownership import Reader
from waystation.patterns import proven

_ID_PREFIX = proven(r"[0-9a-f]{8}[0-9a-f-]{0,28}")
_WAITS = (passages.c.stored_at.is_(None), passages.c.gone_at.is_(None), passages.c.refused_at.is_(None))


async def add_passages(connection: AsyncConnection, added: Sequence[Passage]) -> None:
    """Let these passages wait."""
    rows = [
        {
            "passage_id": passage.id,
            "run_id": passage.run_id,
            "task_id": passage.task_id,
            "body": bound(passage.model_dump_json(), passage.id),
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


def _of(reader: Reader) -> Select[str]:
    """What passages of the reader say."""
    return select(passages.c.body).join(runs, runs.c.run_id == passages.c.run_id).where(owned(runs, reader))


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

    @reading
    async def oldest_waiting(self, connection: AsyncConnection) -> datetime | None:
        """When the passage was made that waits longest; None where none waits."""
        oldest = select(passages.c.body).where(*_WAITS).order_by(passages.c.ordinal).limit(1)
        body = (await connection.execute(oldest)).scalar_one_or_none()
        return None if body is None else Passage.model_validate_json(body).created

    @writing
    async def stored(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """These are in the memory now. Ids that do not wait are left as they are."""
        if not passage_ids:
            return
        # In one order everywhere: two workers that empty the outbox must not wait for each other.
        waits = (passages.c.passage_id == bindparam("stored_id"), passages.c.stored_at.is_(None))
        marked = update(passages).where(*waits).values(stored_at=self._clock())
        await connection.execute(marked, [{"stored_id": passage_id} for passage_id in sorted(passage_ids)])

    @writing
    async def put_aside(self, connection: AsyncConnection, passage_ids: Sequence[str]) -> None:
        """Memory does not take these: they wait no more, and stay in the store."""
        aside = update(passages).where(passages.c.passage_id == bindparam("refused_id"), passages.c.stored_at.is_(None))
        if passage_ids:
            refused = [{"refused_id": passage_id} for passage_id in sorted(passage_ids)]
            await connection.execute(aside.values(refused_at=self._clock()), refused)

    @reading
    async def refused(self, connection: AsyncConnection, task_id: str | None = None) -> tuple[str, ...]:
        """Ids of the passages that were put aside, of one task or of all."""
        aside = (passages.c.refused_at.is_not(None), passages.c.stored_at.is_(None), passages.c.gone_at.is_(None))
        found = select(passages.c.passage_id).where(*aside).order_by(passages.c.ordinal)
        if task_id is not None:
            found = found.where(passages.c.task_id == task_id)
        return tuple((await connection.execute(found)).scalars())

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
    async def passages_named(self, connection: AsyncConnection, prefix: str, reader: Reader) -> tuple[Passage, ...]:
        """The reader's passages whose ids begin like this: eight hexadecimal digits or more."""
        if not _ID_PREFIX.fullmatch(prefix):
            return ()
        # A range, since LIKE uses no index where the collation of the database is not plain.
        begins = (passages.c.passage_id >= prefix, passages.c.passage_id < f"{prefix}g")
        found = _of(reader).where(*begins, passages.c.gone_at.is_(None))
        return tuple(Passage.model_validate_json(body) for body in (await connection.execute(found)).scalars())

    @reading
    async def passage_ids(self, connection: AsyncConnection, *, refused: bool = False) -> frozenset[str]:
        """Of all passages that count, of all tenants; those that were put aside only if they are asked for."""
        counts = select(passages.c.passage_id).where(passages.c.gone_at.is_(None))
        if not refused:
            counts = counts.where(passages.c.refused_at.is_(None) | passages.c.stored_at.is_not(None))
        return frozenset((await connection.execute(counts)).scalars())

    @reading
    async def gone_passage_ids(self, connection: AsyncConnection) -> frozenset[str]:
        """Of all passages that count no more, of all tenants."""
        gone = select(passages.c.passage_id).where(passages.c.gone_at.is_not(None))
        return frozenset((await connection.execute(gone)).scalars())

    @reading
    async def passages_with(
        self, connection: AsyncConnection, passage_ids: Sequence[str], reader: Reader
    ) -> tuple[Passage, ...]:
        """Those of these, a few hundred at most, that count."""
        counts = (passages.c.passage_id.in_(passage_ids), passages.c.gone_at.is_(None))
        bodies = (await connection.execute(_of(reader).where(*counts))).scalars().all()
        return tuple(Passage.model_validate_json(body) for body in bodies)

    @reading
    async def passages_of(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[Passage, ...]:
        """All passages of a task, also those that memory has: what a search in memory can find of it."""
        counts = (passages.c.task_id == task_id, passages.c.gone_at.is_(None))
        kept = _of(reader).where(*counts).order_by(passages.c.ordinal)
        return tuple(Passage.model_validate_json(body) for body in (await connection.execute(kept)).scalars())
