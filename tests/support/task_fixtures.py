import asyncio

import pytest

from tests.support.finished_tasks import store_finished_task
from waystation.config.settings import Settings


@pytest.fixture
def ended_id(without_server: Settings) -> str:
    """Id of a task that has ended, in a store whose server does not answer."""
    return asyncio.run(store_finished_task(without_server))
