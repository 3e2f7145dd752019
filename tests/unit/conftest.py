import asyncio

import pytest

from tests.ended_tasks import keep_ended_task
from waystation.config.settings import Settings


@pytest.fixture
def ended(without_server: Settings) -> str:
    """Id of a task that has ended, in a store whose server does not answer."""
    return asyncio.run(keep_ended_task(without_server))
