"""Loads what the agents of a task did."""

from collections.abc import Awaitable, Callable, Sequence

from waystation.context.transcript import Transcript
from waystation.kernel.text import FORGOTTEN
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.activity import ActivityFilter, ActivityView, build_activity_view
from waystation.tasks.events import EventPage, TaskEvent
from waystation.tasks.task import TaskRow, build_reader_scope
from waystation.tasks.view import TaskView

EVENTS_AT_ONCE = 5_000
"""Number of events that one read of the store returns."""


async def load_activity(
    store: SqlStore,
    row: TaskRow,
    view: TaskView,
    activity_filter: ActivityFilter | None = None,
    events: Sequence[TaskEvent] | None = None,
) -> ActivityView:
    """Load the activity of a task.

    Args:
        store: The store.
        row: The task.
        view: Its current state, which lists the newest compactions.
        activity_filter: What to return. None: everything.
        events: All events of the task, if they are known already.
    """
    wanted = activity_filter or ActivityFilter()
    known = await _list_events(store, row) if events is None else events
    # Of a forgotten task, only numbers and references remain.
    forgotten = row.title == FORGOTTEN
    agents = dict.fromkeys(one.agent for one in known if one.agent and wanted.matches_agent(one.agent))
    transcripts: dict[str, Transcript] = {}
    for agent in () if forgotten else agents:
        transcripts[agent] = await store.load_transcript(f"{row.ref.task_id}/{agent}", row.ref.scope)
    return build_activity_view(known, transcripts, view.compactions, wanted)


async def read_events_to_end(
    read_page: Callable[[int, int], Awaitable[EventPage]], known: Sequence[TaskEvent] = ()
) -> list[TaskEvent]:
    """Return all events of a task, in order: those that are `known`, and what the store has after them.

    `read_page`: reads the events after a number, up to so many.
    """
    found = list(known)
    while True:
        page = await read_page(found[-1].number if found else 0, EVENTS_AT_ONCE)
        found.extend(page.events)
        if len(page.events) < EVENTS_AT_ONCE:
            return found


async def _list_events(store: SqlStore, row: TaskRow) -> list[TaskEvent]:
    reader = build_reader_scope(row.request.tenant)
    return await read_events_to_end(lambda after, count: store.list_events(reader, after, count, row.ref.task_id))
