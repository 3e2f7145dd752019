"""Checks the schema version of a database and upgrades it to this program's."""

from collections.abc import Callable
from itertools import chain, count
from pathlib import Path
from shlex import quote

from sqlalchemy import Connection, column, func, insert, inspect, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.kernel.clock import Clock
from waystation.kernel.errors import StoreError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.store.engine import Database
from waystation.store.schema import FIRST_REVISION, REVISION, identity

_UPGRADE_LOCK = 0x57415953
"""Key of the advisory lock under which a PostgreSQL database is upgraded."""

_REVISION = compile_bounded(r"\d{4}")
_HOME_FILES = ("key", "memory", "temporal.db", "run.json")
"""Other contents of a Waystation home folder. A database next to one of these is set aside with the whole folder, since
Temporal and memory refer to tasks that no other store has.
"""
_APPLIED = table("alembic_version", column("version_num"))


class SchemaState(Value):
    """Schema version and store id of a database."""

    revision: str
    """The newest migration that was applied; empty for an empty database."""
    store_id: str | None
    file: str | None = None
    """Path of a SQLite database."""

    @property
    def is_ready(self) -> bool:
        """Whether this program can work on it."""
        return self.revision == REVISION and self.store_id is not None

    def require_known(self) -> None:
        """Raise StoreError if an unreleased or newer version, or another program, has written the database."""
        if self.revision and not _REVISION.fullmatch(self.revision):
            raise StoreError("the database belongs to another program: give Waystation a separate database")
        if self.revision and self.revision < FIRST_REVISION:
            raise StoreError(
                f"the database has schema {self.revision}, which an unreleased version of Waystation wrote and "
                f"no other version can read. {self._set_aside()}. The database was not changed"
            )
        if self.revision > REVISION:
            raise StoreError(
                f"the database has schema {self.revision}, but this version of Waystation only knows schemas up to "
                f"{REVISION}: update Waystation, or choose another database"
            )
        if self.revision and self.store_id is None:
            raise StoreError(
                "another program has emptied the database's table `identity`, which contains the store's id. "
                "Restore the database from a backup"
            )

    def require_ready(self) -> None:
        """Raise StoreError if the database has to be upgraded first, or cannot be."""
        self.require_known()
        if not self.is_ready:
            found = f"has schema {self.revision}" if self.revision else "is empty"
            raise StoreError(
                f"the database {found}, but this version of Waystation needs schema {REVISION}: "
                "run `waystation store migrate`"
            )

    def _set_aside(self) -> str:
        """Return the advice for a database that no version can read."""
        if self.file is None:
            return "Create a new database for Waystation, and name it in WAYSTATION_STORE_URL or DATABASE_URL"
        file = Path(self.file).absolute()
        in_home = file.name == "waystation.db" and any((file.parent / name).exists() for name in _HOME_FILES)
        aside = file.parent if in_home else file
        names = chain([f"{aside}.old"], (f"{aside}.old-{number}" for number in count(2)))
        free = next(name for name in names if not Path(name).exists())
        what = "home folder" if in_home else "database"
        return f"To continue with an empty {what}, rename the old one: `mv {quote(str(aside))} {quote(free)}`"


async def read_schema_state(database: Database) -> SchemaState:
    """Read the current schema of the database."""
    async with database.read() as connection:
        return await _schema(connection)


async def open_ready_store(database: Database, clock: Clock, new_store_id: Callable[[], str]) -> str:
    """Make sure that the database is ready and return its store id.

    A SQLite file is upgraded at once. A PostgreSQL database is not: workers of another version may be using it, and the
    operator decides when they are replaced.

    Raises:
        StoreError: the database is not ready, or cannot be upgraded.
    """
    found = await read_schema_state(database)
    if database.backend == "sqlite" and not found.is_ready:
        found = (await upgrade_schema(database, clock, new_store_id))[1]
    found.require_ready()
    return str(found.store_id)


async def upgrade_schema(
    database: Database, clock: Clock, new_store_id: Callable[[], str]
) -> tuple[SchemaState, SchemaState]:
    """Apply every missing migration and return the schema before and after.

    Several processes may do this at once: the upgrade is one write transaction, which they take in turn, and a crash
    leaves the database as it was.

    Raises:
        StoreError: the database is newer, or another program's.
    """
    async with database.write() as connection:
        await _wait_for_turn(connection)
        before = await _schema(connection)
        before.require_known()
        if before.revision != REVISION:
            await connection.run_sync(_migrate)
        if before.store_id is None:
            await connection.execute(insert(identity).values(store_id=new_store_id(), created_at=clock()))
        return before, await _schema(connection)


def _migrate(connection: Connection) -> None:
    # Only an outdated database needs Alembic, which is a quarter of the imports of opening a store.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)


async def _schema(connection: AsyncConnection) -> SchemaState:
    revision = await connection.run_sync(_revision)
    # Other programs and older schemas need not have the table.
    known = _REVISION.fullmatch(revision) and revision >= FIRST_REVISION
    store_id = (await connection.execute(select(identity.c.store_id))).scalar_one_or_none() if known else None
    file = connection.engine.url.database if connection.dialect.name == "sqlite" else None
    return SchemaState(revision=revision, store_id=store_id, file=file)


def _revision(connection: Connection) -> str:
    if not inspect(connection).has_table(_APPLIED.name):
        return ""
    return connection.execute(select(_APPLIED.c.version_num)).scalar_one_or_none() or ""


async def _wait_for_turn(connection: AsyncConnection) -> None:
    # A write transaction on SQLite has the whole file to itself from its first statement; PostgreSQL needs a lock.
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))
