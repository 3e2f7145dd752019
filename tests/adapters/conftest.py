"""Stores for the contract tests: one fixture, so that another database joins them by one more parameter."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from waystation.adapters.store import SqlStore


def store_clock() -> datetime:
    return datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@pytest.fixture(params=["sqlite"])
def store_url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path}/waystation.db"


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[SqlStore]:
    opened = await SqlStore.open(store_url, store_clock)
    yield opened
    await opened.aclose()
