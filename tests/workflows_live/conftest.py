from collections.abc import AsyncIterator, Iterator

import pytest
from temporalio.client import Client

from tests.running import KEY, dev_server
from waystation.adapters.presidio.redactor import PresidioRedactor


@pytest.fixture(scope="session")
def redactor() -> Iterator[PresidioRedactor]:
    """Loading its engines takes seconds, so all tests share them."""
    opened = PresidioRedactor(KEY)
    yield opened
    opened.close()


@pytest.fixture
async def server() -> AsyncIterator[Client]:
    async with dev_server() as client:
        yield client
