"""Connections and transactions, the translation of database errors into ours, and the base class of repositories.

Several processes share one database without losing a write. Database messages are not quoted if they may contain a row:
PostgreSQL's details and complaints about arguments do.
"""

import asyncio
import sqlite3
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from functools import cache, wraps
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    FromClause,
    Insert,
    RowMapping,
    Select,
    Table,
    and_,
    bindparam,
    cast,
    func,
    select,
    true,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from waystation.kernel.cipher import Cipher
from waystation.kernel.clock import Clock
from waystation.kernel.errors import BadInput, StoreError, StoreUnavailable, WaystationError, WrongStore
from waystation.kernel.scopes import ReadScope, SessionScope, SystemScope, TaskScope
from waystation.store.encryption import UNENCRYPTED, EncryptionConfig, get_encryption, set_encryption
from waystation.store.event_numbering import discard_queued_events, insert_queued_events, queue_event
from waystation.store.events import UnnumberedEvent
from waystation.store.sqlite import BEGIN_STATEMENT_OPTION, create_sqlite_engine

ANSWER_TIMEOUT_S = 30
"""Maximum time of one statement on PostgreSQL, including waiting for locks."""
MAX_VALUES_PER_STATEMENT = 500
"""Maximum values in one statement: databases limit the number of parameters."""

_READS = {
    # In WAL mode a SQLite read sees one snapshot; PostgreSQL has to be asked for it.
    "sqlite": {},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
_WRITES = {
    "sqlite": {BEGIN_STATEMENT_OPTION: "BEGIN IMMEDIATE"},
    # Every statement sees what was committed before it. A write is one statement that decides on a unique key or a
    # condition, or it first locks the row of its agent run (its fence) and then sees everything that earlier holders
    # committed.
    "postgresql": {"isolation_level": "READ COMMITTED"},
}

_T = TypeVar("_T")


class Database:
    """Read and write transactions on one database."""

    def __init__(
        self, url: str, answer_timeout_s: float | None = ANSWER_TIMEOUT_S, at_rest: EncryptionConfig = UNENCRYPTED
    ) -> None:
        """Prepare the engine without opening a connection.

        Args:
            url: database URL.
            answer_timeout_s: maximum time of one statement on PostgreSQL, in seconds.
            at_rest: how texts are stored.

        Raises:
            BadInput: the URL is of neither SQLite nor PostgreSQL.
        """
        self.url = parse_database_url(url)
        self._engine = _engine(self.url, answer_timeout_s)
        set_encryption(self._engine.dialect, at_rest)
        self._reading = self._engine.execution_options(**_READS[self.backend])
        self._writing = self._engine.execution_options(**_WRITES[self.backend])
        # SQLite has one writer, for which others sleep and retry. Within a process a lock is fairer and quicker.
        self._turn_to_write = asyncio.Lock() if self.backend == "sqlite" else nullcontext()

    @property
    def backend(self) -> str:
        """`sqlite` or `postgresql`."""
        return self._engine.dialect.name

    @property
    def engine(self) -> AsyncEngine:
        """For whoever counts what is asked of the database."""
        return self._engine

    @property
    def requires_encryption(self) -> bool:
        """Whether values that are not encrypted for their row are rejected."""
        return get_encryption(self._engine.dialect).strict

    def enforce_encryption(self) -> None:
        """From now on, reject reading or writing values that are not encrypted for their row."""
        set_encryption(self._engine.dialect, replace(get_encryption(self._engine.dialect), strict=True))

    def replace_cipher(self, cipher: Cipher | None) -> None:
        """From now on, decrypt and encrypt values with this cipher."""
        set_encryption(self._engine.dialect, replace(get_encryption(self._engine.dialect), cipher=cipher))

    @asynccontextmanager
    async def read(self) -> AsyncGenerator[AsyncConnection]:
        """Open a transaction that sees one snapshot and writes nothing."""
        async with self._reading.connect() as connection:
            yield connection

    @asynccontextmanager
    async def write(self) -> AsyncGenerator[AsyncConnection]:
        """Open a transaction that is committed at the end, or rolled back completely if its block raises."""
        async with self._turn_to_write, self._writing.begin() as connection:
            discard_queued_events(connection)
            yield connection
            await insert_queued_events(connection)

    async def truncate_write_ahead_log(self) -> None:
        """Move SQLite's write-ahead log into the file and truncate it: it contains earlier content.

        Readers of an earlier snapshot prevent that; the log is then overwritten later. Not needed on PostgreSQL.
        """
        if self.backend == "sqlite":
            checkpoint = self._engine.execution_options(**{BEGIN_STATEMENT_OPTION: "PRAGMA wal_checkpoint(TRUNCATE)"})
            async with self._turn_to_write, checkpoint.begin():
                pass

    async def aclose(self) -> None:
        """Close every connection."""
        await self._engine.dispose()


async def run_to_completion(work: Coroutine[object, object, _T]) -> _T:
    """Let the work finish before a cancellation of the caller takes effect.

    SQLite runs a statement in its connection's thread, where it cannot be cancelled: SQLAlchemy would give up the
    connection while the thread still takes the write lock, and no one could write until the busy time-out had passed.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


async def insert_if_absent(connection: AsyncConnection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert a row unless one with a unique key of it is there. False: it was there, and stays as it is."""
    inserted = await connection.execute(_insert_absent(connection.dialect.name, table), row)
    return inserted.rowcount == 1


async def insert_missing(connection: AsyncConnection, table: Table, rows: Sequence[Mapping[str, object]]) -> None:
    """Insert the rows that do not exist yet."""
    if rows:
        await connection.execute(_insert_absent(connection.dialect.name, table), rows)


def iter_batches(values: Iterable[str]) -> Iterator[list[str]]:
    """Yield the distinct values in order, in batches that fit into one statement."""
    ordered = sorted(set(values))
    return (
        ordered[first : first + MAX_VALUES_PER_STATEMENT] for first in range(0, len(ordered), MAX_VALUES_PER_STATEMENT)
    )


async def iter_table_rows(connection: AsyncConnection, table: Table) -> AsyncIterator[RowMapping]:
    """Iterate over the rows of a table in batches. They may be rewritten meanwhile, but not their keys."""
    total = (await connection.execute(select(func.count()).select_from(table))).scalar_one()
    key = tuple(table.primary_key)
    for first in range(0, total, MAX_VALUES_PER_STATEMENT):
        batch = select(table).order_by(*key).limit(MAX_VALUES_PER_STATEMENT).offset(first)
        for row in (await connection.execute(batch)).mappings().all():
            yield row


@cache
def _insert_absent(dialect: str, table: Table) -> Insert:
    # One standard clause, which SQLAlchemy has only by dialect.
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415

    return postgresql.insert(table).on_conflict_do_nothing()


def parse_database_url(url: str) -> URL:
    """Parse the URL.

    Raises:
        BadInput: it is not a usable URL; the message does not quote it.
    """
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
            return create_sqlite_engine(url)
        case "postgresql+asyncpg":
            # Its driver and dialect are a seventh of what `waystation list` on SQLite would import.
            from waystation.store.postgresql import create_postgresql_engine  # noqa: PLC0415

            return create_postgresql_engine(url, answer_timeout_s)
        case _:
            raise _unusable_url()


def _unusable_url() -> BadInput:
    return BadInput(
        "the database URL cannot be used: write it as postgresql://user:password@host:5432/database, with %40 "
        "for each @ in the password, or as sqlite:////folder/waystation.db"
    )


CONFLICT_SQLSTATES = {"40001", "40P01"}
"""Serialization failure and deadlock: the transaction was undone because of another one, and can be repeated."""

_SHUTDOWN_SQLSTATES = {"57P01", "57P02"}
"""The server ends this connection: it was asked to, or another of its processes died."""

_PASSING = {
    "08": "the connection was lost",
    "25006": "it accepts no writes now; perhaps it is a standby server",
    "40": "other transactions conflicted",
    "53": "it has run out of connections, memory or disk",
    "55P03": "another transaction held a lock for too long",
    "57": "it is starting, was shut down, or cancelled the statement",
    "58": "its machine has a system error",
}
"""SQLSTATE codes, or their two-character classes, of errors that may be gone at the next attempt."""

_POOLER = (
    "a connection pooler uses another connection for each transaction. Add prepared_statements=false to DATABASE_URL"
)

OPERATOR_ERRORS = {
    "28": "the database rejects the user or the password of DATABASE_URL: correct them",
    "3D000": "the server has no database with the name in DATABASE_URL: create it, or correct the name",
    "42501": "the user of DATABASE_URL lacks a permission: grant it the right to create and write tables",
    "42704": "the server does not know a parameter of DATABASE_URL: remove it",
    "42P01": "a table of the database is missing: restore the database from a backup, or choose an empty database",
    "26000": f"the database does not know one of Waystation's prepared statements: {_POOLER}",
    "42P05": f"the database already has a prepared statement with the name of one of Waystation's: {_POOLER}",
    "42P07": "the database has tables of another program: give Waystation a separate database",
}

_SQLITE_PASSING = {"SQLITE_BUSY", "SQLITE_LOCKED"}


@contextmanager
def translate_database_errors() -> Generator[None]:
    """Raise database errors as ours, without a cause, which would bring the statement into logs."""
    try:
        yield
    except (DBAPIError, PoolTimeout, OSError) as error:
        raise convert_database_error(error) from None
    except StatementError as error:
        if isinstance(error.orig, WaystationError):  # our own error, about a value that must not be written
            raise error.orig from None
        raise


def convert_database_error(error: DBAPIError | PoolTimeout | OSError) -> WaystationError:
    """Convert a database error to ours."""
    match error:
        case OSError():
            return make_store_unavailable_error(error.strerror or str(error) or "no answer in time")
        case PoolTimeout():
            return StoreUnavailable("every database connection of this process is in use: try again")
        case DBAPIError():
            return _driver_error(error)


def is_conflict(error: DBAPIError) -> bool:
    """Whether the transaction was undone only because of another one."""
    return _sqlstate(error) in CONFLICT_SQLSTATES


def is_disconnect(error: DBAPIError) -> bool:
    """Whether the connection is gone; all of the pool that are as old are replaced then before they are used."""
    state = _sqlstate(error) or ""
    return error.connection_invalidated or state.startswith("08") or state in _SHUTDOWN_SQLSTATES


_CHECK = "check that it runs and that DATABASE_URL names it, then try again"
_STEPS = {"25006": "name the primary server in DATABASE_URL, or try again", "08": _CHECK, "57": _CHECK}
"""What to do, by keys of `_PASSING`; after the other errors, the database runs."""


def make_store_unavailable_error(reason: str, step: str = _CHECK) -> StoreUnavailable:
    """Build a retryable error. `step`: what to do."""
    return StoreUnavailable(f"the database is not available ({reason}): {step}")


def _driver_error(error: DBAPIError) -> WaystationError:
    driver, state = error.driver_exception, _sqlstate(error)
    if isinstance(driver, sqlite3.Error):
        return _sqlite_error(driver)
    from asyncpg.exceptions import ClientConfigurationError  # noqa: PLC0415 - see `_engine`

    if isinstance(driver, ClientConfigurationError):
        return BadInput(f"the database URL cannot be used: {driver}")
    if state is not None:
        return _postgresql_error(state, type(driver).__name__)
    if error.connection_invalidated:
        return make_store_unavailable_error("the connection was lost")
    return StoreError(f"the database's driver failed ({type(driver).__name__})")


def _postgresql_error(state: str, name: str) -> StoreError:
    for key in (state, state[:2]):
        if key in _PASSING:
            return make_store_unavailable_error(f"{_PASSING[key]}; SQLSTATE {state}", _STEPS.get(key, "try again"))
        if key in OPERATOR_ERRORS:
            return StoreError(f"{OPERATOR_ERRORS[key]} (SQLSTATE {state})")
    return StoreError(f"the database refused a statement ({name}, SQLSTATE {state})")


def _sqlite_error(error: sqlite3.Error) -> StoreError:
    # SQLite names tables and columns, never values. An error of the driver itself has no code.
    if getattr(error, "sqlite_errorname", "") in _SQLITE_PASSING:
        return make_store_unavailable_error(str(error), "try again")
    return StoreError(f"the database file cannot be used ({error}): check the file, its folder and the disk")


def _sqlstate(error: DBAPIError) -> str | None:
    # Only PostgreSQL's errors have one, and SQLAlchemy's types do not say so.
    return getattr(error.orig, "sqlstate", None)


CONFLICT_PAUSES_S = (0.01, 0.1, 0.5)
"""Pauses before repeating a transaction that PostgreSQL undid because of another one."""


class SqlRepository:
    """Base class of the repositories: each implements ports of one capability."""

    def __init__(self, database: Database, clock: Clock, store_id: str) -> None:
        self._clock, self._store_id = clock, store_id
        self.database = database

    def require_own_store(self, store_id: str) -> None:
        """Raise WrongStore unless this is the store's own id."""
        if store_id != self._store_id:
            raise WrongStore(store_id, self._store_id)

    def _tell(self, connection: AsyncConnection, place: str, happening: UnnumberedEvent) -> None:
        """Emit an event of this task or agent run with the transaction."""
        queue_event(connection, place, happening, self._clock())


def build_owner_filter(table: FromClause, reader: ReadScope) -> ColumnElement[bool]:
    """Return a filter for the rows that the reader may see, for a table with owners (`tasks`, `runs`,
    `text_owners`).
    """
    match reader:
        case SystemScope():
            return true()
        case TaskScope():
            own = (table.c.tenant == reader.tenant, table.c.session == reader.session)
            return and_(*own, table.c.task_id == reader.task_id)
        case SessionScope():
            return and_(table.c.tenant == reader.tenant, table.c.session == reader.session)
        case _:
            return table.c.tenant == reader.tenant


def build_bound_owner_filter(table: FromClause, kind: type[ReadScope]) -> ColumnElement[bool]:
    """As `build_owner_filter`, for a statement that is built once for all readers of a kind: who reads is said by the
    parameters of `bind_reader`.
    """
    named = [name for name in ("tenant", "session", "task_id") if name in kind.model_fields]
    return and_(true(), *(table.c[name] == bindparam(f"reader_{name}") for name in named))


def bind_reader(reader: ReadScope) -> dict[str, object]:
    """Parameters of a statement with `build_bound_owner_filter`."""
    return {f"reader_{name}": value for name, value in reader.model_dump().items()}


def build_task_filter(table: FromClause, task_id: str) -> ColumnElement[bool]:
    """Return a filter for the task's rows in a table with `run_id`.

    Their texts are bound to `run_id`, so it is checked too.
    """
    return and_(table.c.task_id == task_id, func.substr(table.c.run_id, 1, len(task_id) + 1) == f"{task_id}/")


def sum_or_zero(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return the sum, or 0 of no rows: PostgreSQL adds 64-bit integers up to a decimal number."""
    return cast(func.coalesce(func.sum(column), 0), BigInteger)


async def fetch_bodies(connection: AsyncConnection, chosen: Select[str, str]) -> list[str]:
    """Return the bodies of rows selected with their owner proofs.

    The proofs are read too, which raises if one is wrong.
    """
    return [body for body, _ in (await connection.execute(chosen)).all()]


P = ParamSpec("P")

_Part = TypeVar("_Part", bound=SqlRepository)

# `Any` fills the places of a coroutine that an `async def` leaves open; pyright puts it there itself.
TransactionMethod = Callable[Concatenate[_Part, P], "CoroutineType[Any, Any, _T]"]


def read_transaction(
    method: Callable[Concatenate[_Part, AsyncConnection, P], Awaitable[_T]],
) -> "TransactionMethod[_Part, P, _T]":
    """Give the method a connection that sees one snapshot."""

    @wraps(method)
    async def read(self: _Part, /, *args: P.args, **kwargs: P.kwargs) -> _T:
        async def transaction() -> _T:
            async with self.database.read() as connection:
                return await method(self, connection, *args, **kwargs)

        return await run_to_completion(_carried_out(transaction, lambda: True))

    return read


def write_transaction(
    method: Callable[Concatenate[_Part, AsyncConnection, P], Awaitable[_T]],
) -> "TransactionMethod[_Part, P, _T]":
    """Give the method a connection whose changes are committed when it returns, and undone when it raises.

    It may be called more than once: when another transaction made the database undo the first, and when the connection
    was lost before the commit was asked for.
    """

    @wraps(method)
    async def write(self: _Part, /, *args: P.args, **kwargs: P.kwargs) -> _T:
        ended = False

        async def transaction() -> _T:
            nonlocal ended
            ended = False
            async with self.database.write() as connection:
                result = await method(self, connection, *args, **kwargs)
                ended = True
            return result

        # Of a connection that is lost in a commit nobody knows what became of it: that is not repeated here.
        return await run_to_completion(_carried_out(transaction, lambda: not ended))

    return write


async def _carried_out(transaction: Callable[[], Coroutine[object, object, _T]], is_undone: Callable[[], bool]) -> _T:
    """`is_undone`: whether a transaction whose connection was lost certainly has changed nothing.

    That a connection is lost shows when it is used. To ask before each use takes three round trips a transaction; and
    the pool replaces those that are as old as one that was lost, so that a second attempt has a new one.
    """
    pauses, lost = iter(CONFLICT_PAUSES_S), False
    with translate_database_errors():
        while True:
            try:
                return await transaction()
            except DBAPIError as error:
                if is_disconnect(error) and is_undone() and not lost:
                    lost = True
                    continue
                if not is_conflict(error) or (pause := next(pauses, None)) is None:
                    raise
            await asyncio.sleep(pause)
