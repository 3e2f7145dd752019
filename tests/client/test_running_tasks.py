"""How the tasks are named that must end before a person can be erased."""

from types import SimpleNamespace
from typing import cast

import pytest

from waystation.client import Client
from waystation.client.erasure import require_tasks_finished
from waystation.client.person_search import PersonLocations
from waystation.config.settings import Settings
from waystation.erasure.erasure import ErasureMatch
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import BadInput


class AllRun:
    async def get_task(self, _: str) -> SimpleNamespace:
        return SimpleNamespace(over=False)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (2, "task-0, task-1 mention this person and are running: stop each"),
        (5, "task-0, task-1, task-2, task-3, task-4 mention this person and are running: stop each"),
        (7, "task-0, task-1, task-2, task-3, task-4, and 2 more mention this person and are running: stop each"),
    ],
)
async def test_five_running_tasks_are_named_and_the_others_counted(
    without_server: Settings, count: int, named: str
) -> None:
    places = tuple(
        ErasureMatch(place=ErasureLocation.NOTE, task_id=f"task-{number}", count=1) for number in range(count)
    )
    found = PersonLocations(known_as=(), recognised=True, types=(), traces=places, histories=(), finding="")
    with pytest.raises(BadInput, match=f"^{named}"):
        await require_tasks_finished(cast(Client, AllRun()), without_server, found)
