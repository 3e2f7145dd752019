"""Connections and transactions: how several processes share one database without losing a write."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from sqlite3 import OperationalError
from typing import TypeVar

from sqlalchemy import Connection, Table, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.exc import ArgumentError, InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only

from waystation.domain.errors import BadInput

BUSY_TIMEOUT_S = 30
"""How long a writer waits for the others. Stalls of up to 2.4 s were measured with three processes writing at once."""

SWITCH_TRIES, SWITCH_PAUSE_S = 100, 0.05
"""For the switch of a new database to a write-ahead log."""

_BEGIN = "waystation_begin"

T = TypeVar("T")


class Database:
    """Read and write transactions on one database."""

    def __init__(self, url: str) -> None:
        """Raises BadInput for a URL that no installed driver takes. Nothing is opened yet."""
        self._engine = _engine(url)
        is_sqlite = self._engine.dialect.name == "sqlite"
        # In WAL mode a SQLite read sees one snapshot; PostgreSQL has to be asked for it.
        self._reading = self._engine if is_sqlite else self._engine.execution_options(isolation_level="REPEATABLE READ")
        self._writing = self._engine.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})
        # SQLite has one writer, for which it sleeps and tries again. Within a process a lock is fairer and quicker.
        self._turn_to_write = asyncio.Lock() if is_sqlite else nullcontext()

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

    async def aclose(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


async def to_its_end(work: Coroutine[object, object, T]) -> T:
    """Let the work end before a cancellation of the caller takes effect.

    A statement runs in its connection's thread and cannot be cancelled: SQLAlchemy would give the connection up while
    the thread still takes the write lock, and nobody could write until the busy time-out had passed.
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


def _insert(connection: AsyncConnection, table: Table) -> sqlite.Insert | postgresql.Insert:
    # One standard clause, which SQLAlchemy has only by dialect.
    if connection.dialect.name == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()


def _engine(url: str) -> AsyncEngine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite_engine(parsed)
        # Parameters are conversation and document text: an error must never print them.
        return create_async_engine(parsed, hide_parameters=True)
    except (ArgumentError, InvalidRequestError, ImportError) as error:
        message = "the database URL cannot be used: write it as sqlite+aiosqlite:////folder/waystation.db"
        raise BadInput(message) from error


def _sqlite_engine(url: URL) -> AsyncEngine:
    if url.database in {None, "", ":memory:"}:
        raise BadInput("the store needs a database file, because several processes share it: name one in the URL")
    Path(str(url.database)).parent.mkdir(parents=True, exist_ok=True)
    # isolation_level None: the driver must not begin transactions of its own, late and without the write lock.
    arguments = {"isolation_level": None, "timeout": BUSY_TIMEOUT_S}
    engine = create_async_engine(url, hide_parameters=True, connect_args=arguments)
    event.listen(engine.sync_engine, "connect", _set_pragmas)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _set_pragmas(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    # NORMAL: a commit survives the death of any process. Only a loss of power can take the last commits back, and never
    # leaves a torn file. FULL waits for the disk at every commit, four times a turn.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _use_write_ahead_log(cursor: DBAPICursor) -> None:
    # SQLite does not wait, whatever the busy time-out, where another process switches the same new file just now.
    for _ in range(SWITCH_TRIES - 1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except OperationalError:
            await_only(asyncio.sleep(SWITCH_PAUSE_S))
        else:
            return
    cursor.execute("PRAGMA journal_mode = WAL")


def _begin(connection: Connection) -> None:
    # With a plain BEGIN, two writers read the same state and one write is lost or fails half-way: the lock comes first.
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))
