"""Connections and transactions: how several processes share one database without losing a write."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from typing import TypeVar

from sqlalchemy import Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from waystation.adapters.store.postgresql import postgresql_engine
from waystation.adapters.store.sealed import PLAIN, AtRest, keep_with, kept_with
from waystation.adapters.store.sqlite import BEGIN, sqlite_engine
from waystation.domain.errors import BadInput

ANSWER_TIMEOUT_S = 30
"""How long one statement may take on PostgreSQL, waiting for locks included."""
BATCH = 500
"""Values a statement: databases limit the number of parameters."""

_READS = {
    # In WAL mode a SQLite read sees one snapshot; PostgreSQL has to be asked for it.
    "sqlite": {},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
_WRITES = {
    "sqlite": {BEGIN: "BEGIN IMMEDIATE"},
    # Every statement sees what was committed before it. A write is one statement that decides on a unique key or a
    # condition, or it locks the row of its agent run first (`fences`) and then sees all that earlier holders committed.
    "postgresql": {"isolation_level": "READ COMMITTED"},
}

T = TypeVar("T")


class Database:
    """Read and write transactions on one database."""

    def __init__(self, url: str, answer_timeout_s: float | None = ANSWER_TIMEOUT_S, at_rest: AtRest = PLAIN) -> None:
        """Raises BadInput for a URL of neither backend. Nothing is opened yet."""
        self.url = parsed_url(url)
        self._engine = _engine(self.url, answer_timeout_s)
        keep_with(self._engine.dialect, at_rest)
        self._reading = self._engine.execution_options(**_READS[self.backend])
        self._writing = self._engine.execution_options(**_WRITES[self.backend])
        # SQLite has one writer, for which it sleeps and tries again. Within a process a lock is fairer and quicker.
        self._turn_to_write = asyncio.Lock() if self.backend == "sqlite" else nullcontext()

    @property
    def backend(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def strict(self) -> bool:
        """Whether what is not sealed to its row is refused."""
        return kept_with(self._engine.dialect).strict

    def seal_strictly(self) -> None:
        """From here on what is not sealed to its row is refused, read or written."""
        keep_with(self._engine.dialect, replace(kept_with(self._engine.dialect), strict=True))

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction that sees one snapshot and keeps nothing."""
        async with self._reading.connect() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncConnection]:
        """A transaction that is committed at the end, or rolled back as a whole when its block raises."""
        async with self._turn_to_write, self._writing.begin() as connection:
            yield connection

    async def empty_log(self) -> None:
        """Bring SQLite's write-ahead log into the file and cut it to nothing: it holds what was there before.

        Readers that look at an earlier state hold it back; it is then overwritten later. PostgreSQL needs none of it.
        """
        if self.backend == "sqlite":
            checkpoint = self._engine.execution_options(**{BEGIN: "PRAGMA wal_checkpoint(TRUNCATE)"})
            async with self._turn_to_write, checkpoint.begin():
                pass

    async def aclose(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


async def to_its_end(work: Coroutine[object, object, T]) -> T:
    """Let the work end before a cancellation of the caller takes effect.

    SQLite runs a statement in its connection's thread, where it cannot be cancelled: SQLAlchemy would give the
    connection up while the thread still takes the write lock, and nobody could write until the busy time-out had
    passed.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def add_once(connection: AsyncConnection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless one with a unique key of it is there. False: it was there, and stays as it is."""
    inserted = await connection.execute(_insert(connection, table).values(row))
    return inserted.rowcount == 1


async def add_missing(connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert those rows that are not there."""
    if rows:
        await connection.execute(_insert(connection, table), rows)


def batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Each value once, in order, so many at once as a statement takes."""
    ordered = sorted(set(values))
    return (ordered[first : first + BATCH] for first in range(0, len(ordered), BATCH))


def _insert(connection: AsyncConnection, table: Table) -> sqlite.Insert | postgresql.Insert:
    # One standard clause, which SQLAlchemy has only by dialect.
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def parsed_url(url: str) -> URL:
    """The URL in its parts. Raises BadInput, which does not quote it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        # Without its cause, which may quote the password.
        raise _unusable_url() from None
    if "@" in (parsed.host or ""):  # the end of a password, which would be shown as the host
        raise _unusable_url()
    return parsed


def _engine(url: URL, answer_timeout_s: float | None) -> AsyncEngine:
    match url.drivername:
        case "sqlite+aiosqlite":
            return sqlite_engine(url)
        case "postgresql+asyncpg":
            return postgresql_engine(url, answer_timeout_s)
        case _:
            raise _unusable_url()


def _unusable_url() -> BadInput:
    return BadInput(
        "the database URL cannot be used: write it as postgresql://user:password@host:5432/database, with %40 for @ "
        "and the like in the password, or as sqlite:////folder/waystation.db"
    )
