"""Stores for contract tests, the same for every database."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer
from waystation.config.settings import Settings
from waystation.runtime.sql_store import SqlStore, migrate
from waystation.store.schema import metadata


def store_clock() -> datetime:
    return datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="session")
def migrated_database(postgres: PostgresServer) -> str:
    """A database to copy, which takes less time than the migrations."""
    url = postgres.new_database()
    asyncio.run(migrate(Settings(store_url=url).database_url, store_clock))
    return url.rpartition("/")[2]


@pytest.fixture
def postgres_url(postgres: PostgresServer, migrated_database: str) -> str:
    """The URL of a database that the test may damage."""
    return Settings(store_url=postgres.new_database(migrated_database)).database_url


@pytest.fixture(scope="session")
def shared_database_url(postgres: PostgresServer, migrated_database: str) -> str:
    """The URL of a database for all tests that leave its tables unchanged: a copy for each would take too long."""
    return postgres.new_database(migrated_database)


@pytest.fixture
def emptied_database_url(postgres: PostgresServer, shared_database_url: str) -> str:
    rows = [table.name for table in reversed(metadata.sorted_tables) if table.name != "identity"]
    emptying = "; ".join(
        [
            "UPDATE identity SET key_check = NULL, sealed_since = NULL, row_key_check = NULL",
            *(f"DELETE FROM {name}" for name in rows),
        ]
    )
    postgres.run(emptying, shared_database_url.rpartition("/")[2])
    return Settings(store_url=shared_database_url).database_url


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path}/waystation.db"
    return str(request.getfixturevalue("emptied_database_url"))


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[SqlStore]:
    opened = await SqlStore.open(store_url, store_clock)
    yield opened
    await opened.aclose()
