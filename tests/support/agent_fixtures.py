"""An agent environment for each test, on a copy of a store that is prepared once."""

import asyncio
import shutil
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.agent_environment import AgentEnvironment, ManualClock
from tests.support.full_context import estimate_request_size, make_conversation
from waystation.runtime.sql_store import SqlStore


@asynccontextmanager
async def open_agent_environment(path: Path) -> AsyncGenerator[AgentEnvironment]:
    """Open the environment on the store at this path; a new one if there is none."""
    clock = ManualClock()
    store = await SqlStore.open(f"sqlite+aiosqlite:///{path}", clock)
    try:
        yield AgentEnvironment(store=store, clock=clock, store_id=await store.get_store_id())
    finally:
        await store.aclose()


@asynccontextmanager
async def open_agent_environment_copy(store: Path, folder: Path) -> AsyncGenerator[AgentEnvironment]:
    """Open the environment on a copy of the store, made in the folder."""
    shutil.copy(store, folder / "waystation.db")
    async with open_agent_environment(folder / "waystation.db") as env:
        yield env


@pytest.fixture(scope="session")
def prepared_stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of stores to copy: empty, with a planned task, and with an agent whose context is full."""
    folder = tmp_path_factory.mktemp("stores")

    async def prepare() -> None:
        async with open_agent_environment(folder / "bare.db"):
            pass
        shutil.copy(folder / "bare.db", folder / "planned.db")
        async with open_agent_environment(folder / "planned.db") as env:
            await env.open_task()
        shutil.copy(folder / "planned.db", folder / "full.db")
        async with open_agent_environment(folder / "full.db") as env:
            await env.commit_conversation(make_conversation())
            assert await estimate_request_size(env) > env.terms.trigger

    asyncio.run(prepare())
    return folder


@pytest.fixture
async def bare_env(prepared_stores: Path, tmp_path: Path) -> AsyncIterator[AgentEnvironment]:
    """An environment without a task."""
    async with open_agent_environment_copy(prepared_stores / "bare.db", tmp_path) as env:
        yield env


@pytest.fixture
async def env(prepared_stores: Path, tmp_path: Path) -> AsyncIterator[AgentEnvironment]:
    """An environment with a planned task."""
    async with open_agent_environment_copy(prepared_stores / "planned.db", tmp_path) as env:
        yield env


@pytest.fixture
async def full_env(prepared_stores: Path, tmp_path: Path) -> AsyncIterator[AgentEnvironment]:
    """An environment with an agent whose context is full."""
    async with open_agent_environment_copy(prepared_stores / "full.db", tmp_path) as env:
        yield env
