"""What all tests share: a clean environment, and one Temporal dev server and one PostgreSQL for the whole session."""

import asyncio
import gc
import os
import re
import signal
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from temporalio.client import Client

from tests.support.agent_fixtures import bare_env, env, full_env, prepared_stores
from tests.support.postgres_server import PostgresServer, run_postgres_server
from tests.support.store_fixtures import (
    emptied_database_url,
    migrated_database,
    postgres_url,
    shared_database_url,
    store,
    store_url,
)
from tests.support.task_fixtures import ended_id
from tests.tiers import part_of, waits
from waystation.config.settings import Settings
from waystation.runtime.temporal.connect import TemporalTarget, connect, ensure_search_attributes
from waystation.runtime.temporal.dev_server import run_dev_server

__all__ = [
    "bare_env",
    "emptied_database_url",
    "ended_id",
    "env",
    "full_env",
    "migrated_database",
    "postgres_url",
    "prepared_stores",
    "shared_database_url",
    "store",
    "store_url",
]

settings.register_profile("busy-machine", deadline=None)  # no test measures time: others may be at work here
settings.register_profile("quick", deadline=None, max_examples=25)
settings.load_profile("busy-machine")

FOREIGN = ("WAYSTATION_", "TEMPORAL_", "ANTHROPIC_", "QDRANT_", "DATABASE_URL")


def pytest_configure() -> None:
    """Signals end what tests start, also where the tests themselves run under `nohup` or in the background."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported with the tests stays: the garbage collector looks at none of it, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of `make test-part`."""
    parser.addoption("--part-of", metavar="COMMIT", help="of the tests that wait, those that run when it lands")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What waits for `make test-all` is marked so; with `--part-of` only what runs when that commit lands is kept."""
    waiting = [item for item in items if waits(item.path)]
    for item in waiting:
        item.add_marker(pytest.mark.whole)
    if commit := config.getoption("part_of"):
        if not re.fullmatch(r"[0-9a-f]{8,}", commit):
            raise pytest.UsageError(f"--part-of takes the hash of a commit, at least 8 hexadecimal digits: {commit!r}")
        landing = part_of(commit, {item.path.stem for item in waiting})
        kept = {item for item in waiting if item.path.stem in landing}
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = [item for item in items if item in kept]


def pytest_sessionfinish() -> None:
    """Native modules print what is never collected."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def environment_without_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(FOREIGN):
            monkeypatch.delenv(name)


@pytest.fixture
def without_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What commands find: a home folder that is not there yet, and a server that does not answer."""
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    return Settings()


@pytest.fixture(scope="session")
def temporal_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalTarget]:
    folder = tmp_path_factory.mktemp("temporal")
    with asyncio.Runner() as runner:
        server = run_dev_server(folder / "temporal.db", folder / "temporal.log", port=0, ui_port=0)
        started = runner.run(server.__aenter__())
        assert runner.run(ensure_search_attributes(started.client))
        yield started.target
        runner.run(server.__aexit__(None, None, None))


@pytest.fixture
async def temporal_client(temporal_server: TemporalTarget) -> Client:
    return await connect(temporal_server)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with run_postgres_server() as server:
        yield server
