"""What two workers do to one row at the same time: each test fails where a write only looks before it writes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable

import pytest

from tests.support.scopes import SYSTEM_SCOPE, TASK_1_SCOPE
from tests.support.store_fixtures import store_clock
from tests.support.store_values import (
    NOON,
    make_charge,
    make_intent,
    make_note,
    make_passage,
    make_question,
    make_reply,
    make_summary,
    make_task_request,
    make_task_row,
    open_run,
)
from waystation.agents.deliverables import Finding, ResearchFindings
from waystation.agents.leg import AgentFinished, LegState, TurnLimitReached
from waystation.agents.run_repository import lock_run
from waystation.budgets.budget import RunUsage
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount
from waystation.kernel.errors import RequestConflict, StaleFenceError, VersionConflict
from waystation.planning.plan import build_standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import ApprovalRequest

WRITERS = 8
BLOCKED_S = 0.3
"""Nobody waits as long as this for anything but a lock."""


@pytest.fixture
async def other(store: SqlStore, store_url: str) -> AsyncIterator[SqlStore]:
    """The store of another worker, with connections of its own."""
    opened = await SqlStore.open(store_url, store_clock)
    yield opened
    await opened.aclose()


async def outcomes(attempts: Iterable[Awaitable[object]]) -> list[object]:
    """Results and errors of attempts that start at once, in their order."""
    return await asyncio.gather(*attempts, return_exceptions=True)


def kinds(results: list[object]) -> list[type]:
    return sorted({type(result) for result in results}, key=lambda kind: kind.__name__)


async def test_a_run_is_not_taken_over_between_the_check_of_a_fence_and_the_write(
    store: SqlStore, other: SqlStore
) -> None:
    fence = await open_run(store)
    async with store.database.write() as connection:
        assert await lock_run(connection, fence) == 0
        takeover = asyncio.create_task(other.acquire_fence(fence.run_id))
        done, _ = await asyncio.wait([takeover], timeout=BLOCKED_S)
        assert not done
    assert (await takeover).number == fence.number + 1
    with pytest.raises(StaleFenceError):
        await store.commit_message(fence, 0, make_question(1))


async def test_a_write_that_waited_for_a_takeover_has_lost_its_fence(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    writes = [store.record_and_count_intents(fence, make_intent(f"turn-{n}")) for n in range(WRITERS)]
    results = await outcomes([other.acquire_fence(fence.run_id), *writes])
    counted = (await store.get_run_usage(fence.run_id)).possibly_billed
    assert [type(result) for result in results[1:]].count(StaleFenceError) == WRITERS - counted // 1_000
    assert (await store.acquire_fence(fence.run_id)).number == fence.number + 2


async def test_every_taker_of_a_fence_has_another_number(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    taken = await asyncio.gather(*((store, other)[n % 2].acquire_fence(fence.run_id) for n in range(WRITERS)))
    assert {newer.number - fence.number for newer in taken} == set(range(1, WRITERS + 1))


async def test_one_commit_at_a_version_of_the_transcript_wins(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    results = await outcomes([(store, other)[n % 2].commit_message(fence, 0, make_question(n)) for n in range(WRITERS)])
    assert results.count(None) == 1
    assert kinds(results) == [type(None), VersionConflict]
    transcript = await store.load_transcript(fence.run_id, SYSTEM_SCOPE)
    assert (transcript.version, transcript.messages) == (1, (make_question(results.index(None)),))


async def test_the_same_reply_twice_at_once_is_one_reply_and_one_charge(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    for _ in range(2):
        await store.record_and_count_intents(fence, make_intent("turn-1"))
    commits = [
        (store, other)[n % 2].commit_reply(fence, 0, make_reply(1), make_charge("turn-1")) for n in range(WRITERS)
    ]
    assert kinds(await outcomes(commits)) == [RunUsage]
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).messages == (make_reply(1),)
    totals = await store.get_run_usage(fence.run_id)
    assert (totals.turns, totals.possibly_billed) == (1, 1_000)


async def test_the_same_compaction_twice_at_once_happens_once(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    passages = [make_passage(f"p-{n}") for n in range(5)]
    commits = [
        (store, other)[n % 2].commit_compaction(fence, 0, make_summary(), passages, make_charge("summary-1"))
        for n in range(WRITERS)
    ]
    assert kinds(await outcomes(commits)) == [type(None)]
    assert (await store.load_transcript(fence.run_id, SYSTEM_SCOPE)).records == (make_summary(after=0),)
    assert (await store.load_outbox_batch(10)).pending == tuple(passages)
    assert (await store.get_run_usage(fence.run_id)).usage == make_charge("summary-1").usage


async def test_one_of_two_attempts_is_the_first_to_run_a_tool(store: SqlStore, other: SqlStore) -> None:
    fence = await open_run(store)
    asked = await outcomes([(store, other)[n % 2].record_tool_intent(fence, "call-1") for n in range(WRITERS)])
    assert (asked.count(True), asked.count(False)) == (1, WRITERS - 1)


async def test_what_may_be_said_once_is_said_once(store: SqlStore, other: SqlStore) -> None:
    fence, task = await open_run(store), make_task_row(make_task_request())
    await store.register_task(task, [])
    approval = ApprovalRequest(
        request_id="ask-1", agent="research-1", requested=Amount(tokens=1_000), requested_at=NOON
    )
    ends = (
        AgentFinished(state=LegState(totals=RunUsage(turns=3))),
        TurnLimitReached(state=LegState(totals=RunUsage())),
    )
    said: list[Awaitable[object]] = []
    for n, writer in enumerate((store, other) * 3):
        said.append(writer.add_audit_entry(task.ref.task_id, approval))
        said.append(writer.add_note(fence, "task-1", make_note("note-1", fence.run_id)))
        said.append(
            writer.commit_deliverable(
                fence, "task-1", ResearchFindings(findings=(Finding(claim=f"claim {n}", citations=()),))
            )
        )
        said.append(writer.commit_outcome(fence, 1, ends[n % 2]))
        said.append(writer.save_plan(task.ref.task_id, build_standard_plan(f"plan {n}")))
        said.append(writer.put_text("the same", TASK_1_SCOPE))
    assert kinds(await outcomes(said)) == [type(None), int, str]
    assert await store.list_audit_entries(task.ref.task_id, SYSTEM_SCOPE) == (approval,)
    assert await store.list_notes("task-1", SYSTEM_SCOPE) == (make_note("note-1", fence.run_id),)
    assert await store.get_deliverable(fence.run_id, SYSTEM_SCOPE) is not None
    assert await store.get_leg_outcome(fence.run_id, 1, SYSTEM_SCOPE) in ends
    first = await store.get_newest_plan(task.ref.task_id, SYSTEM_SCOPE)
    await store.save_plan(task.ref.task_id, build_standard_plan("late"))
    assert await store.get_newest_plan(task.ref.task_id, SYSTEM_SCOPE) == first


async def test_the_same_request_at_once_is_one_task(store: SqlStore, other: SqlStore) -> None:
    documents = [SourceDocument(name=f"{n}.md", text=f"Document {n}") for n in range(20)]
    task = make_task_row(make_task_request())
    registered = await outcomes([(store, other)[n % 2].register_task(task, documents) for n in range(WRITERS)])
    assert (registered.count(True), registered.count(False)) == (1, WRITERS - 1)
    assert len(await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)) == 20


async def test_of_two_contents_of_a_request_one_is_refused(store: SqlStore, other: SqlStore) -> None:
    asked = [make_task_row(make_task_request("first", question=f"Question {n}")) for n in range(WRITERS)]
    results = await outcomes([(store, other)[n % 2].register_task(task, []) for n, task in enumerate(asked)])
    assert (results.count(True), kinds(results)) == (1, [RequestConflict, bool])
    assert await store.list_tasks(SYSTEM_SCOPE) == (asked[results.index(True)],)


async def test_tasks_and_workers_that_write_the_same_rows_in_other_orders_do_not_stop_each_other(
    store: SqlStore, other: SqlStore
) -> None:
    documents = [SourceDocument(name=f"{n}.md", text=f"Document {n}") for n in range(60)]
    fence = await open_run(store)
    await store.commit_compaction(fence, 0, make_summary(), [make_passage(f"p-{n:03}") for n in range(200)], None)
    ids = [waiting.id for waiting in (await store.load_outbox_batch(200)).pending]
    results = await outcomes(
        [
            store.register_task(make_task_row(make_task_request("one")), documents),
            other.register_task(make_task_row(make_task_request("two")), documents[::-1]),
            store.mark_passages_stored(ids),
            other.mark_passages_stored(ids[::-1]),
        ]
    )
    assert results == [True, True, None, None]
    assert await store.count_pending_passages() == 0
