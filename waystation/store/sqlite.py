"""Creates the engine of SQLite: one file with one writer at a time, and readers that never wait."""

import asyncio
import logging
from pathlib import Path
from sqlite3 import OperationalError

from sqlalchemy import Connection, event
from sqlalchemy.engine import URL
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.util import await_only

from waystation.kernel.errors import BadInput, StoreError
from waystation.kernel.files import create_private_folder, ensure_private_file, make_path_private
from waystation.store.storable_text import replace_unstorable_text

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
    event.listen(engine.sync_engine, "before_cursor_execute", replace_unstorable_text, retval=True)
    event.listen(engine.sync_engine, "connect", _set_pragmas)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _make_private(database: Path) -> None:
    """Create the file for this user alone, or close it to others; SQLite gives its other files the same mode."""
    try:
        create_private_folder(database.parent)
    except OSError as error:
        raise StoreError(f"the folder of the database cannot be created: {error}") from error
    if str(database).startswith("file:"):
        return
    try:
        ensure_private_file(database)
        for beside in ("-wal", "-shm", "-journal"):
            make_path_private(database.with_name(database.name + beside))
    except OSError as error:
        raise StoreError(f"the database cannot be created or opened: {error}") from error


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
