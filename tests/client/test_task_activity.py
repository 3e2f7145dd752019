"""The events of one task, read from the store page by page."""

from datetime import UTC, datetime

import pytest

from waystation.client import activity
from waystation.client.activity import read_events_to_end
from waystation.tasks.events import EventPage, TaskEvent

NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
STORED = tuple(TaskEvent(kind="noted", number=number, task_id="task-1", at=NOON) for number in range(1, 6))


@pytest.mark.parametrize("known", [0, 2, 5])
async def test_events_are_read_to_the_last_one_after_those_that_are_known(
    monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    monkeypatch.setattr(activity, "EVENTS_AT_ONCE", 2)
    asked: list[int] = []

    async def read_page(after: int, count: int) -> EventPage:
        asked.append(after)
        return EventPage(events=STORED[after : after + count], upto=len(STORED))

    assert await read_events_to_end(read_page, STORED[:known]) == list(STORED)
    assert asked == [*range(known, 5, 2)] or asked == [5]
