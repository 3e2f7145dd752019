"""Creates the engines of the two databases, SQLite and PostgreSQL.

PostgreSQL works with any team's URL, and through PgBouncer. SQLite is one file with one writer at a time, and readers
that never wait.
"""

import asyncio
import logging
from pathlib import Path
from sqlite3 import OperationalError

from asyncpg import Connection as AsyncpgConnection
from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, ExecutionContext
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection
from sqlalchemy.util import await_only

from waystation.kernel.errors import BadInput, StoreError
from waystation.kernel.files import create_private_folder, ensure_private_file, make_path_private
from waystation.kernel.value import replace_surrogates

POOL_SIZE = 10
"""Maximum connections of one process. All its agents share them: they wait for the model far longer than for this."""

CONNECT_TIMEOUT_S = 10
POOL_TIMEOUT_S = 30

PREPARED_STATEMENTS_PARAMETER = "prepared_statements"
"""Of the URL, `true` or `false`. Without it they are used, unless `pgbouncer=true` says that a pooler comes first."""
CLIENT_ONLY_PARAMETERS = {"connect_timeout", "pgbouncer", PREPARED_STATEMENTS_PARAMETER}
"""Parameters that we or other drivers read out of a URL. asyncpg would hand them to the server, which refuses them."""
MAX_PREPARED_STATEMENTS = 250
"""Of each connection: more than there are for agents at work."""


_Parameters = list[tuple[object, ...]] | tuple[object, ...]
"""Parameters of one statement: one row, or several."""


def create_postgresql_engine(url: URL, answer_timeout_s: float | None) -> AsyncEngine:
    """Nothing is opened yet. asyncpg itself reads the URL, and so understands `sslmode` and the like as libpq does."""
    kept_statements = MAX_PREPARED_STATEMENTS if allows_prepared_statements(url) else 0
    engine = create_async_engine(
        "postgresql+asyncpg://",
        connect_args={
            "dsn": _dsn(url),
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": answer_timeout_s,
            # SQLAlchemy keeps them, but asyncpg gives them names only where it would keep some, too. 0: no names. In
            # PgBouncer's transaction mode the next transaction may have another connection, which knows none of them.
            "statement_cache_size": kept_statements,
            "prepared_statement_cache_size": kept_statements,
        },
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=POOL_TIMEOUT_S,
        # Parameters are conversation and document text: an error must never print them.
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "before_cursor_execute", _storable, retval=True)
    event.listen(engine.sync_engine, "checkout", _require_open)
    return engine


def allows_prepared_statements(url: URL) -> bool:
    """Whether each connection keeps the statements that it has prepared. Raises BadInput where the URL is unclear."""
    said = url.query.get(PREPARED_STATEMENTS_PARAMETER)
    if said is None:
        return str(url.query.get("pgbouncer", "false")).lower() not in {"true", "1"}
    if said not in {"true", "false"}:
        raise BadInput(f"{PREPARED_STATEMENTS_PARAMETER} in DATABASE_URL is neither true nor false: write one of them")
    return said == "true"


def _require_open(connection: DBAPIConnection, _entry: ConnectionPoolEntry, _proxy: PoolProxiedConnection) -> None:
    """Have the pool replace a connection that is known to be closed. What is not known yet shows in its first use."""
    driver = connection.driver_connection
    if isinstance(driver, AsyncpgConnection) and driver.is_closed():
        raise DisconnectionError


def _storable(
    _connection: Connection,
    _cursor: DBAPICursor,
    statement: str,
    parameters: _Parameters,
    _context: ExecutionContext | None,
    _many: bool,
) -> tuple[str, _Parameters]:
    """Replace what a database rejects in texts that are compared or written: NUL characters in PostgreSQL, and lone
    surrogates in both. They become replacement characters.
    """
    if isinstance(parameters, list):
        return statement, [tuple(map(_storable_value, row)) for row in parameters]
    return statement, tuple(map(_storable_value, parameters))


def _storable_value(value: object) -> object:
    return replace_surrogates(value.replace("\x00", "\ufffd")) if isinstance(value, str) else value


def _dsn(url: URL) -> str:
    query = {name: value for name, value in url.query.items() if name not in CLIENT_ONLY_PARAMETERS}
    if "ssl" in query:  # as SQLAlchemy's users write it
        query["sslmode"] = query.pop("ssl")
    return url.set(drivername="postgresql", query=query).render_as_string(hide_password=False)


BUSY_TIMEOUT_S = 30
"""Maximum time a writer waits for others. Stalls of up to 2.4 s were measured with three processes writing at once."""

SWITCH_TRIES, SWITCH_PAUSE_S = 100, 0.05
"""Attempts at, and pauses before, switching a new database to a write-ahead log."""

BEGIN_STATEMENT_OPTION = "waystation_begin"
"""Execution option with the statement that begins a transaction."""


logging.getLogger("aiosqlite").setLevel(logging.INFO)
"""Below INFO it logs every statement with its parameters, which are texts."""


def create_sqlite_engine(url: URL) -> AsyncEngine:
    """Create the engine, and the database's folder and file with private modes.

    Raises:
        BadInput: the URL names no file.
        StoreError: the folder cannot be created.
    """
    if url.database in {None, "", ":memory:"}:
        raise BadInput("the store needs a database file, because several processes share it: name one in the URL")
    _make_private(Path(str(url.database)))
    # isolation_level None: the driver must not begin its own transactions, late and without the write lock.
    arguments = {"isolation_level": None, "timeout": BUSY_TIMEOUT_S}
    engine = create_async_engine(url, hide_parameters=True, connect_args=arguments)
    event.listen(engine.sync_engine, "before_cursor_execute", _storable, retval=True)
    event.listen(engine.sync_engine, "connect", _set_pragmas)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _make_private(database: Path) -> None:
    """Create the file for this user alone, or close it to others; SQLite gives its other files the same mode."""
    try:
        create_private_folder(database.parent)
    except OSError as error:
        raise StoreError(f"the folder of the database cannot be made: {error}") from error
    if str(database).startswith("file:"):
        return
    try:
        ensure_private_file(database)
        for beside in ("-wal", "-shm", "-journal"):
            make_path_private(database.with_name(database.name + beside))
    except OSError as error:
        raise StoreError(f"the database cannot be made or opened: {error}") from error


def _set_pragmas(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    _use_write_ahead_log(cursor)
    # NORMAL: a commit survives the death of any process. Only a loss of power can take the last commits back, and never
    # leaves a torn file. FULL waits for the disk at every commit, twice a turn.
    cursor.execute("PRAGMA synchronous = NORMAL")
    cursor.execute("PRAGMA foreign_keys = ON")
    # Deleted content is overwritten with zeros, so that what was forgotten is not in the file either.
    cursor.execute("PRAGMA secure_delete = ON")
    cursor.close()


def _use_write_ahead_log(cursor: DBAPICursor) -> None:
    # Whatever the busy time-out, SQLite does not wait if another process is switching the same new file right now.
    for _ in range(SWITCH_TRIES - 1):
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
        except OperationalError:
            await_only(asyncio.sleep(SWITCH_PAUSE_S))
        else:
            return
    cursor.execute("PRAGMA journal_mode = WAL")


def _begin(connection: Connection) -> None:
    # With a plain BEGIN, two writers read the same state and one write is lost or fails half-way: take the lock first.
    connection.exec_driver_sql(connection.get_execution_options().get(BEGIN_STATEMENT_OPTION, "BEGIN"))
