"""What two workers do to one row at the same time: each test fails where a write only looks before it writes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable

import pytest

from tests.adapters.conftest import store_clock
from tests.readers import ANYONE, TASK_1
from tests.store_contract.values import (
    NOON,
    charge,
    intent,
    note,
    opened_run,
    passage,
    question,
    reply,
    request,
    row,
    summary,
)
from waystation.agents.deliverables import Finding, ResearchFindings
from waystation.agents.leg import AgentFinished, LegState, TurnLimit
from waystation.agents.run_repository import hold
from waystation.budgets.budget import RunUsage
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount
from waystation.kernel.errors import RequestConflict, StaleFenceError, VersionConflict
from waystation.planning.plan import standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import Approval

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
    fence = await opened_run(store)
    async with store.database.write() as connection:
        assert await hold(connection, fence) == 0
        takeover = asyncio.create_task(other.take_fence(fence.run_id))
        done, _ = await asyncio.wait([takeover], timeout=BLOCKED_S)
        assert not done
    assert (await takeover).number == fence.number + 1
    with pytest.raises(StaleFenceError):
        await store.commit_message(fence, 0, question(1))


async def test_a_write_that_waited_for_a_takeover_has_lost_its_fence(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    writes = [store.record_intent(fence, intent(f"turn-{n}")) for n in range(WRITERS)]
    results = await outcomes([other.take_fence(fence.run_id), *writes])
    counted = (await store.totals(fence.run_id)).possibly_billed
    assert [type(result) for result in results[1:]].count(StaleFenceError) == WRITERS - counted // 1_000
    assert (await store.take_fence(fence.run_id)).number == fence.number + 2


async def test_every_taker_of_a_fence_has_another_number(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    taken = await asyncio.gather(*((store, other)[n % 2].take_fence(fence.run_id) for n in range(WRITERS)))
    assert {newer.number - fence.number for newer in taken} == set(range(1, WRITERS + 1))


async def test_one_commit_at_a_version_of_the_transcript_wins(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    results = await outcomes([(store, other)[n % 2].commit_message(fence, 0, question(n)) for n in range(WRITERS)])
    assert results.count(None) == 1
    assert kinds(results) == [type(None), VersionConflict]
    transcript = await store.load(fence.run_id, ANYONE)
    assert (transcript.version, transcript.messages) == (1, (question(results.index(None)),))


async def test_the_same_reply_twice_at_once_is_one_reply_and_one_charge(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    for _ in range(2):
        await store.record_intent(fence, intent("turn-1"))
    commits = [(store, other)[n % 2].commit_reply(fence, 0, reply(1), charge("turn-1")) for n in range(WRITERS)]
    assert kinds(await outcomes(commits)) == [type(None)]
    assert (await store.load(fence.run_id, ANYONE)).messages == (reply(1),)
    totals = await store.totals(fence.run_id)
    assert (totals.turns, totals.possibly_billed) == (1, 1_000)


async def test_the_same_compaction_twice_at_once_happens_once(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    passages = [passage(f"p-{n}") for n in range(5)]
    commits = [
        (store, other)[n % 2].commit_compaction(fence, 0, summary(), passages, charge("summary-1"))
        for n in range(WRITERS)
    ]
    assert kinds(await outcomes(commits)) == [type(None)]
    assert (await store.load(fence.run_id, ANYONE)).records == (summary(after=0),)
    assert await store.waiting(10) == tuple(passages)
    assert (await store.totals(fence.run_id)).usage == charge("summary-1").usage


async def test_one_of_two_attempts_is_the_first_to_run_a_tool(store: SqlStore, other: SqlStore) -> None:
    fence = await opened_run(store)
    asked = await outcomes([(store, other)[n % 2].record_tool_intent(fence, "call-1") for n in range(WRITERS)])
    assert (asked.count(True), asked.count(False)) == (1, WRITERS - 1)


async def test_what_may_be_said_once_is_said_once(store: SqlStore, other: SqlStore) -> None:
    fence, task = await opened_run(store), row(request())
    await store.register(task, [])
    approval = Approval(request_id="ask-1", agent="research-1", asked=Amount(tokens=1_000), requested_at=NOON)
    ends = (AgentFinished(standing=LegState(totals=RunUsage(turns=3))), TurnLimit(standing=LegState(totals=RunUsage())))
    said: list[Awaitable[object]] = []
    for n, writer in enumerate((store, other) * 3):
        said.append(writer.audit(task.ref.task_id, approval))
        said.append(writer.add_note(fence, "task-1", note("note-1", fence.run_id)))
        said.append(
            writer.hand_in(fence, "task-1", ResearchFindings(findings=(Finding(claim=f"claim {n}", citations=()),)))
        )
        said.append(writer.commit_outcome(fence, 1, ends[n % 2]))
        said.append(writer.save_plan(task.ref.task_id, standard_plan(f"plan {n}")))
        said.append(writer.put_text("the same", TASK_1))
    assert kinds(await outcomes(said)) == [type(None), str]
    assert await store.list_audit_entries(task.ref.task_id, ANYONE) == (approval,)
    assert await store.notes("task-1", ANYONE) == (note("note-1", fence.run_id),)
    assert await store.get_deliverable(fence.run_id, ANYONE) is not None
    assert await store.outcome(fence.run_id, 1, ANYONE) in ends
    first = await store.plan(task.ref.task_id, ANYONE)
    await store.save_plan(task.ref.task_id, standard_plan("late"))
    assert await store.plan(task.ref.task_id, ANYONE) == first


async def test_the_same_request_at_once_is_one_task(store: SqlStore, other: SqlStore) -> None:
    documents = [SourceDocument(name=f"{n}.md", text=f"Document {n}") for n in range(20)]
    task = row(request())
    registered = await outcomes([(store, other)[n % 2].register(task, documents) for n in range(WRITERS)])
    assert (registered.count(True), registered.count(False)) == (1, WRITERS - 1)
    assert len(await store.documents(task.ref.task_id, ANYONE)) == 20


async def test_of_two_contents_of_a_request_one_is_refused(store: SqlStore, other: SqlStore) -> None:
    asked = [row(request("first", question=f"Question {n}")) for n in range(WRITERS)]
    results = await outcomes([(store, other)[n % 2].register(task, []) for n, task in enumerate(asked)])
    assert (results.count(True), kinds(results)) == (1, [RequestConflict, bool])
    assert await store.tasks(ANYONE) == (asked[results.index(True)],)


async def test_tasks_and_workers_that_write_the_same_rows_in_other_orders_do_not_stop_each_other(
    store: SqlStore, other: SqlStore
) -> None:
    documents = [SourceDocument(name=f"{n}.md", text=f"Document {n}") for n in range(60)]
    fence = await opened_run(store)
    await store.commit_compaction(fence, 0, summary(), [passage(f"p-{n:03}") for n in range(200)], None)
    ids = [waiting.id for waiting in await store.waiting(200)]
    results = await outcomes(
        [
            store.register(row(request("one")), documents),
            other.register(row(request("two")), documents[::-1]),
            store.stored(ids),
            other.stored(ids[::-1]),
        ]
    )
    assert results == [True, True, None, None]
    assert await store.count_pending_passages() == 0
