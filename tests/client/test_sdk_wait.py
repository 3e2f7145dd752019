"""How long the Python client waits for a task."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from waystation.config.settings import Settings
from waystation.sdk import AsyncWaystation
from waystation.tasks.view import TaskView


class TimedOutClient:
    """A client whose connection times out by itself."""

    async def resolve_task_id(self, task: str) -> str:
        return task

    async def watch(self, task: str) -> AsyncGenerator[TaskView]:
        raise TimeoutError(f"the connection timed out for {task}")
        yield


async def test_a_timeout_of_the_connection_is_not_taken_for_the_end_of_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with AsyncWaystation(settings=Settings(home=tmp_path)) as ws:
        monkeypatch.setattr(ws, "_get_client", TimedOutClient)
        with pytest.raises(TimeoutError, match="the connection timed out for task-1"):
            await ws.wait("task-1", seconds=60)
