"""One table from what the database and its drivers raise to our errors.

What they say is not quoted where it may hold a row: PostgreSQL details and complaints about arguments do.
"""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from asyncpg.exceptions import ClientConfigurationError
from sqlalchemy.exc import DBAPIError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from waystation.domain.errors import BadInput, StoreError, StoreUnavailable, WaystationError

CONFLICTS = {"40001", "40P01"}
"""Serialization failure and deadlock: the transaction was undone because of another one, and may be repeated."""

PASSING = {
    "08": "the connection was lost",
    "25006": "it takes no writes now, as a standby does",
    "40": "other transactions came between",
    "53": "it has run out of connections, memory or disk",
    "55P03": "others hold a lock for too long",
    "57": "it is starting, was shut down, or cancelled the statement",
    "58": "its machine fails it",
}
"""SQLSTATE, or the class that its first two characters are, of what may be gone at the next attempt."""

TO_MEND = {
    "28": "the database refuses the user or the password of DATABASE_URL: put them right",
    "3D000": "the server has no database of the name in DATABASE_URL: create it, or put the name right",
    "42501": "the user of DATABASE_URL may not do this: give it the right to create and write tables",
    "42704": "the server does not know a parameter of DATABASE_URL: leave it out",
    "42P01": "a table of the database is missing: restore it from a backup, or choose an empty database",
    "42P07": "the database has tables of another program: give Waystation a database of its own",
}

_SQLITE_PASSING = {"SQLITE_BUSY", "SQLITE_LOCKED"}


@contextmanager
def translated() -> Generator[None]:
    """Raise the errors of the database as ours, without a cause: it would bring the statement into logs."""
    try:
        yield
    except (DBAPIError, PoolTimeout, OSError) as error:
        raise store_error(error) from None
    except StatementError as error:
        if isinstance(error.orig, WaystationError):  # our own, of a value that is not to be written
            raise error.orig from None
        raise


def store_error(error: DBAPIError | PoolTimeout | OSError) -> WaystationError:
    """The error as the rest of the program knows it."""
    match error:
        case OSError():
            return unavailable(error.strerror or str(error) or "no answer in time")
        case PoolTimeout():
            return unavailable("every connection of this process is in use")
        case DBAPIError():
            return _driver_error(error)


def is_conflict(error: DBAPIError) -> bool:
    """Whether the transaction was undone only because of another one."""
    return _sqlstate(error) in CONFLICTS


def unavailable(reason: str) -> StoreUnavailable:
    """Worth trying again."""
    return StoreUnavailable(
        f"the database does not answer ({reason}): see that it runs and that DATABASE_URL names it, then try again"
    )


def _driver_error(error: DBAPIError) -> WaystationError:
    driver, state = error.driver_exception, _sqlstate(error)
    if isinstance(driver, sqlite3.Error):
        return _sqlite_error(driver)
    if isinstance(driver, ClientConfigurationError):
        return BadInput(f"the database URL cannot be used: {driver}")
    if state is not None:
        return _postgresql_error(state, type(driver).__name__)
    if error.connection_invalidated:
        return unavailable("the connection was lost")
    return StoreError(f"the database's driver failed ({type(driver).__name__})")


def _postgresql_error(state: str, name: str) -> StoreError:
    for key in (state, state[:2]):
        if key in PASSING:
            return unavailable(f"{PASSING[key]}, SQLSTATE {state}")
        if key in TO_MEND:
            return StoreError(f"{TO_MEND[key]} (SQLSTATE {state})")
    return StoreError(f"the database refused a statement ({name}, SQLSTATE {state})")


def _sqlite_error(error: sqlite3.Error) -> StoreError:
    # SQLite names tables and columns, never values. An error of the driver itself has no code.
    if getattr(error, "sqlite_errorname", "") in _SQLITE_PASSING:
        return unavailable(str(error))
    return StoreError(f"the database file cannot be used ({error}): check the file, its folder and the disk")


def _sqlstate(error: DBAPIError) -> str | None:
    # Only PostgreSQL's errors have one, and SQLAlchemy's types do not say so.
    return getattr(error.orig, "sqlstate", None)
