"""An office for each test, on a copy of a store that is prepared once."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agents.full_context import conversation, request_size
from tests.agents.office import MovingClock, Office
from waystation.runtime.sql_store import SqlStore


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[Office]:
    """The office on the store at this path; a new one where there is none."""
    clock = MovingClock()
    store = await SqlStore.open(f"sqlite+aiosqlite:///{path}", clock)
    try:
        yield Office(store=store, clock=clock, store_id=await store.store_id())
    finally:
        await store.aclose()


@asynccontextmanager
async def opened_copy(store: Path, folder: Path) -> AsyncGenerator[Office]:
    """The office on a copy of the store, made in the folder."""
    shutil.copy(store, folder / "waystation.db")
    async with opened(folder / "waystation.db") as office:
        yield office


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stores to copy: bare, with a planned task, and with an agent whose context is full."""
    folder = tmp_path_factory.mktemp("stores")

    async def prepare() -> None:
        async with opened(folder / "bare.db"):
            pass
        shutil.copy(folder / "bare.db", folder / "planned.db")
        async with opened(folder / "planned.db") as office:
            await office.open_task()
        shutil.copy(folder / "planned.db", folder / "full.db")
        async with opened(folder / "full.db") as office:
            await office.said(conversation())
            assert await request_size(office) > office.terms.trigger

    asyncio.run(prepare())
    return folder


@pytest.fixture
async def bare_office(stores: Path, tmp_path: Path) -> AsyncIterator[Office]:
    """Without a task."""
    async with opened_copy(stores / "bare.db", tmp_path) as office:
        yield office


@pytest.fixture
async def office(stores: Path, tmp_path: Path) -> AsyncIterator[Office]:
    """With a task that is planned."""
    async with opened_copy(stores / "planned.db", tmp_path) as office:
        yield office


@pytest.fixture
async def full(stores: Path, tmp_path: Path) -> AsyncIterator[Office]:
    """With an agent whose context is full."""
    async with opened_copy(stores / "full.db", tmp_path) as office:
        yield office
