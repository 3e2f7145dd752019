"""Brings a database to this program's schema when it is opened, and refuses one that is newer."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, column, func, insert, inspect, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import Database
from waystation.adapters.store.schema import REVISION, identity
from waystation.domain.errors import StoreError
from waystation.ports import Clock

_UPGRADE_LOCK = 0x57415953
"""Key of the advisory lock under which a PostgreSQL database is upgraded."""

_APPLIED = table("alembic_version", column("version_num"))


async def upgrade(database: Database, clock: Clock, new_store_id: Callable[[], str]) -> str:
    """The database's store id, after every missing migration.

    Several processes may do this at once: the upgrade is one write transaction, which they take in turn, and a crash
    leaves the database as it was. Raises StoreError if a newer version of the software has written the database.
    """
    async with database.read() as connection:
        current = await connection.run_sync(_revision)
        store_id = await _store_id(connection) if current == REVISION else None
    if store_id is not None:
        return store_id
    async with database.write() as connection:
        await _wait_for_turn(connection)
        await connection.run_sync(_migrate)
        store_id = await _store_id(connection)
        if store_id is None:
            store_id = new_store_id()
            await connection.execute(insert(identity).values(store_id=store_id, created_at=clock()))
    return store_id


def _migrate(connection: Connection) -> None:
    applied = _revision(connection)
    if applied > REVISION:
        raise StoreError(
            f"the database has schema {applied}, this version of Waystation knows schemas up to {REVISION}: "
            "update Waystation, or choose another database"
        )
    # Only a database that is behind needs Alembic, which is a quarter of what opening a store has to import.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, REVISION)


def _revision(connection: Connection) -> str:
    """The newest migration that was applied; empty for a new database."""
    if not inspect(connection).has_table(_APPLIED.name):
        return ""
    return connection.execute(select(_APPLIED.c.version_num)).scalar_one_or_none() or ""


async def _wait_for_turn(connection: AsyncConnection) -> None:
    # A write transaction on SQLite has the whole file to itself from its first statement; PostgreSQL needs a lock.
    if connection.dialect.name == "postgresql":
        await connection.execute(select(func.pg_advisory_xact_lock(_UPGRADE_LOCK)))


async def _store_id(connection: AsyncConnection) -> str | None:
    return (await connection.execute(select(identity.c.store_id))).scalar_one_or_none()
