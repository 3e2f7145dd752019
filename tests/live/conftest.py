from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.temporal_platform import KEY, TENANT, start_dev_server
from waystation.config.settings import Settings
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.privacy.ports import Redactor
from waystation.testing.doubles import PlainRedactor


@pytest.fixture
def redactor() -> Redactor:
    """Finds nothing: for tests whose subject is not privacy."""
    return PlainRedactor({})


@pytest.fixture(scope="session")
def presidio() -> Iterator[Redactor]:
    """The real one. Loading its engines takes seconds, so all tests share them."""
    opened = PresidioRedactor(KEY)
    yield opened
    opened.close()


@pytest.fixture
async def server() -> AsyncIterator[Client]:
    async with start_dev_server() as client:
        yield client


@pytest.fixture
def settings(server: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Settings under which everybody finds that server, and the store in this folder."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", server.service_client.config.target_host)
    return Settings(home=tmp_path, tenant=TENANT)


@pytest.fixture
def remote_settings(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The same with the store named by its address, as a client elsewhere names it."""
    monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{settings.home / 'waystation.db'}")
    return Settings(home=settings.home, tenant=TENANT)


@pytest.fixture
def cli_settings(remote_settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """The same as commands have it that a person types."""
    monkeypatch.setenv("WAYSTATION_HOME", str(remote_settings.home))
    monkeypatch.setenv("WAYSTATION_TENANT", remote_settings.tenant)
    return remote_settings
