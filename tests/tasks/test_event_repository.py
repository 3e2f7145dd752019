"""What happened to tasks, in the order of the store's commits: each reader has each event once, whoever writes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    make_charge,
    make_intent,
    make_note,
    make_question,
    make_reply,
    make_summary,
    make_task_request,
    make_task_row,
)
from waystation.agents.leg import AgentFinished, LegState
from waystation.context.transcript import Fence
from waystation.documents.documents import SourceDocument
from waystation.kernel.refs import RunRef
from waystation.kernel.scopes import TenantScope
from waystation.planning.plan import build_standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.store.event_numbering import queue_event
from waystation.store.events import UnnumberedEvent
from waystation.tasks.events import TaskEvent
from waystation.tasks.task import TaskRow, build_reader_scope

LOCAL = build_reader_scope("local")
WRITERS, TURNS = 6, 8


@pytest.fixture
async def other(store: SqlStore, store_url: str) -> AsyncIterator[SqlStore]:
    """The store of another process, with connections of its own."""
    opened = await SqlStore.open(store_url, store_clock)
    yield opened
    await opened.aclose()


async def register_task(store: SqlStore, name: str = "first", *, tenant: str = "local", session: str = "") -> TaskRow:
    task = make_task_row(make_task_request(name, tenant=tenant, session=session))
    await store.register_task(task, [SourceDocument(name="sky.md", text="Blue light scatters.")])
    return task


async def take_run_fence(store: SqlStore, task: TaskRow, step: str = "research-1") -> Fence:
    ref = {**task.ref.model_dump(), "store_id": await store.get_store_id()}
    run = RunRef.model_validate({**ref, "step_id": step, "role": "research"})
    await store.open_run(run)
    return await store.acquire_fence(run.run_id)


async def read(store: SqlStore, after: int = 0, page: int = 500, reader: TenantScope = LOCAL) -> list[TaskEvent]:
    """All of them, page by page."""
    found: list[TaskEvent] = []
    while True:
        seen = await store.list_events(reader, after, page)
        if seen.upto == after:
            return found
        found.extend(seen.events)
        after = seen.upto


def told(events: list[TaskEvent]) -> list[tuple[str, str, str, str]]:
    return [(one.kind, one.agent, one.reference, one.detail) for one in events]


async def test_a_task_has_details_in_references_and_numbers_alone(store: SqlStore) -> None:
    task = await register_task(store)
    await store.save_task_title(task.ref.task_id, "Sky")
    await store.save_plan(task.ref.task_id, build_standard_plan("Why?"))
    fence = await take_run_fence(store, task)
    await store.record_and_count_intents(fence, make_intent("turn-1"))
    await store.commit_message(fence, 0, make_question(1))
    await store.commit_reply(fence, 1, make_reply(1), make_charge("turn-1"))
    await store.add_note(fence, task.ref.task_id, make_note("note-1", fence.run_id))
    await store.commit_compaction(fence, 2, make_summary(), [], make_charge("summary-1"))
    await store.commit_outcome(fence, 1, AgentFinished(state=LegState.model_validate({"totals": {}})))
    events = await read(store)
    assert told(events) == [
        ("submitted", "", "", ""),
        ("admitted", "", "", ""),
        ("planned", "", "1", ""),
        ("taken", "research-1", "1", ""),
        ("called", "research-1", "turn-1", ""),
        ("given", "research-1", "question-1", ""),
        ("replied", "research-1", "reply-1", "turn"),
        ("noted", "research-1", "note-1", ""),
        ("compacted", "research-1", "summary-1", "summarised"),
        ("charged", "research-1", "summary-1", "summary"),
        ("left", "research-1", "1", "finished"),
    ]
    assert [one.number for one in events] == list(range(1, len(events) + 1))
    assert {one.task_id for one in events} == {task.ref.task_id}
    answered = events[6]
    assert (answered.tokens, answered.context, answered.micro_usd) == (65, 60, 7)


async def test_what_is_committed_again_is_told_once(store: SqlStore) -> None:
    task = await register_task(store)
    await register_task(store)
    for _ in range(2):
        await store.save_plan(task.ref.task_id, build_standard_plan("Why?"))
    fence = await take_run_fence(store, task)
    await store.commit_reply(fence, 0, make_reply(1), make_charge("turn-1"))
    await store.commit_reply(fence, 1, make_reply(1), make_charge("turn-1"))
    assert [one.kind for one in await read(store)] == ["submitted", "planned", "taken", "replied"]


async def test_an_undone_transaction_tells_nothing_and_neither_does_the_next_on_its_connection(store: SqlStore) -> None:
    task = await register_task(store)

    async def undone() -> None:
        async with store.database.write() as connection:
            queue_event(connection, task.ref.task_id, UnnumberedEvent(kind="messaged"), store_clock())
            raise LookupError

    with pytest.raises(LookupError):
        await undone()
    await store.save_task_title(task.ref.task_id, "Sky")
    assert [one.kind for one in await read(store)] == ["submitted", "admitted"]


async def test_what_is_committed_later_has_the_higher_number_whichever_began_first(
    store: SqlStore, other: SqlStore, store_url: str
) -> None:
    if store_url.startswith("sqlite"):
        pytest.skip("it has one writer")
    task = await register_task(store)
    seen = 1
    async with store.database.write() as connection:
        queue_event(connection, task.ref.task_id, UnnumberedEvent(kind="messaged"), store_clock())
        await other.save_task_title((await register_task(other, "second")).ref.task_id, "Other")
        between = await read(other, seen)
        seen = between[-1].number
    assert [one.kind for one in between] == ["submitted", "admitted"]
    assert [one.kind for one in await read(other, seen)] == ["messaged"]


async def test_a_reader_has_each_event_of_writers_side_by_side_once_and_in_order(
    store: SqlStore, other: SqlStore
) -> None:
    task = await register_task(store)

    async def write(number: int) -> None:
        own = store if number % 2 else other
        fence = await take_run_fence(own, task, f"research-{number}")
        for turn in range(TURNS):
            await own.commit_reply(fence, turn, make_reply(turn), make_charge(f"turn-{turn}"))

    writing = asyncio.gather(*map(write, range(WRITERS)))
    seen: list[TaskEvent] = []
    while not writing.done():
        # A client that comes back: all it knows is the last number that it had.
        seen += await read(other, seen[-1].number if seen else 0, page=3)
        await asyncio.sleep(0)
    await writing
    seen += await read(store, seen[-1].number if seen else 0)
    assert [one.number for one in seen] == list(range(1, 1 + 1 + WRITERS * (1 + TURNS)))
    for number in range(WRITERS):
        own = [one.reference for one in seen if one.agent == f"research-{number}"]
        assert own == ["1", *(f"reply-{turn}" for turn in range(TURNS))]


@pytest.mark.parametrize("page", range(1, 6))
async def test_pages_of_any_size_leave_no_gap(store: SqlStore, page: int) -> None:
    for number in range(5):
        await register_task(store, f"request-{number}")
    assert [one.number for one in await read(store, page=page)] == [1, 2, 3, 4, 5]


async def test_no_event_is_read_by_another_tenant_or_counted_for_it(store: SqlStore) -> None:
    await register_task(store)
    theirs = await register_task(store, "second", tenant="other")
    assert [one.task_id for one in await read(store, reader=build_reader_scope("other"))] == [theirs.ref.task_id]
    assert (
        await store.get_newest_event_number(LOCAL),
        await store.get_newest_event_number(build_reader_scope("other")),
    ) == (1, 1)
    assert (await store.list_events(LOCAL, 0, 10, theirs.ref.task_id)).events == ()


async def test_a_session_is_told_of_its_own_tasks_and_is_not_held_up_by_others(store: SqlStore) -> None:
    await register_task(store, session="here")
    there = await register_task(store, "second", session="there")
    reader = build_reader_scope("local", "there")
    assert [one.task_id for one in await read(store, page=1, reader=reader)] == [there.ref.task_id]
