"""The contract of a task store: one task a request, its plan, its audit, its end."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.readers import ANYONE
from tests.store_contract.values import NOON, request, row
from waystation.budgets.budget import Mode
from waystation.documents.documents import Document, SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import RequestConflict, UnknownTask
from waystation.planning.plan import standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import Approval, BudgetProgress, Refusal, TaskPhase, TaskProgress, TaskRequest

SKY = SourceDocument(name="sky.md", text="Blue light\nscatters most.\n")
PENDING = Approval(request_id="ask-1", agent="research-1", asked=Amount(tokens=1_000), requested_at=NOON)
GRANTED = PENDING.replace(decision="approved", granted=Amount(tokens=500), answered_at=NOON)
LATE = Refusal(signal="approve_budget", reason="no request ask-9 waits", at=NOON)


def progress(phase: TaskPhase) -> TaskProgress:
    budget = BudgetProgress(limit=Limit(tokens=600_000), spent=Amount(tokens=1_234), reserved=Amount(tokens=0))
    return TaskProgress(task_id="task", phase=phase, title="Sky", model="model", budget=budget)


async def test_a_registered_task_comes_back_as_it_was_given(store: SqlStore) -> None:
    task = row(request().replace(instructions="Only physics", accept=("two sources",), window=50_000))
    assert await store.register(task, [SKY])
    assert await store.task(task.ref.task_id, ANYONE) == task


async def test_the_same_request_is_one_task_whatever_terms_the_software_gives_it(store: SqlStore) -> None:
    task = row(request())
    newer = task.replace(terms=task.terms.replace(plan_model="newer"))
    assert await store.register(task, [SKY])
    assert not await store.register(newer, [SKY])
    assert await store.tasks(ANYONE) == (task,)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(request().replace(question="Why is it dark at night?"), id="question"),
        pytest.param(request().replace(instructions="In one sentence"), id="instructions"),
        pytest.param(request().replace(accept=("a figure",)), id="accept"),
        pytest.param(request().replace(budget=Limit(tokens=5_000)), id="budget"),
        pytest.param(request().replace(agent_budget=Limit(tokens=5_000)), id="agent_budget"),
        pytest.param(request().replace(mode=Mode.HARD), id="mode"),
        pytest.param(request().replace(window=20_000), id="window"),
    ],
)
async def test_a_request_id_with_other_content_is_refused(store: SqlStore, other: TaskRequest) -> None:
    await store.register(row(request()), [SKY])
    with pytest.raises(RequestConflict, match=r"^the request id 'first' was used in this session before.*new request"):
        await store.register(row(other), [SKY])


async def test_a_request_id_with_other_documents_is_refused_and_leaves_no_trace(store: SqlStore) -> None:
    task = row(request())
    await store.register(task, [SKY])
    for documents in ([], [SKY, SKY], [SKY.replace(text="Green")]):
        with pytest.raises(RequestConflict):
            await store.register(task, documents)
    assert [document.name for document in await store.documents(task.ref.task_id, ANYONE)] == ["sky.md"]


async def test_the_same_request_id_in_another_session_is_another_task(store: SqlStore) -> None:
    here, there = row(request()), row(request(session="elsewhere", question="What else?"))
    assert await store.register(here, [])
    assert await store.register(there, [])
    assert await store.tasks(here.ref.reader.get_recall_scope("session")) == (here,)
    assert await store.tasks(there.ref.reader.get_recall_scope("session")) == (there,)


async def test_documents_are_listed_as_given_with_their_lines_and_characters(store: SqlStore) -> None:
    given = [
        SKY,
        SourceDocument(name="empty.md", text=""),
        SourceDocument(name="copy.md", text=SKY.text),
        SourceDocument(name="a.md", text="日本\x00語\r\nzwei"),
    ]
    task = row(request())
    await store.register(task, given)
    listed = await store.documents(task.ref.task_id, ANYONE)
    assert [(d.name, d.lines, d.characters) for d in listed] == [
        ("sky.md", 2, 26),
        ("empty.md", 1, 0),
        ("copy.md", 2, 26),
        ("a.md", 2, 10),
    ]
    assert listed[0].blob == listed[2].blob
    assert [await store.get_text(document.blob, ANYONE) for document in listed] == [document.text for document in given]


async def test_five_hundred_documents_and_five_megabytes_are_one_task(store: SqlStore) -> None:
    given = [SourceDocument(name=f"{n}.md", text=f"Document {n}\n") for n in range(499)]
    given.append(SourceDocument(name="large.md", text="x" * 5_000_000))
    task = row(request())
    await store.register(task, given)
    listed = await store.documents(task.ref.task_id, ANYONE)
    assert [document.name for document in listed] == [document.name for document in given]
    assert listed[-1] == Document(name="large.md", blob=listed[-1].blob, lines=1, characters=5_000_000)
    assert await store.get_text(listed[-1].blob, ANYONE) == given[-1].text


async def test_tasks_come_newest_first_and_are_found_by_the_start_of_their_id(store: SqlStore) -> None:
    tasks = [row(request(f"request-{n}")) for n in range(3)]
    for task in tasks:
        await store.register(task, [])
    assert await store.tasks(ANYONE) == tuple(reversed(tasks))
    assert await store.tasks(ANYONE, limit=2) == (tasks[2], tasks[1])
    assert await store.find_tasks(tasks[0].ref.task_id[:12], ANYONE) == (tasks[0].ref.task_id,)
    assert len(await store.find_tasks("task-", ANYONE)) == 3
    assert await store.find_tasks("TASK-", ANYONE) == await store.find_tasks("task%", ANYONE) == ()


async def test_title_and_end_are_kept_and_the_newest_end_stays(store: SqlStore) -> None:
    task = row(request())
    await store.register(task, [])
    await store.admit(task.ref.task_id, "Sky <PERSON_1>")
    await store.finish(task.ref.task_id, progress(TaskPhase.PARTIAL))
    await store.finish(task.ref.task_id, progress(TaskPhase.DONE))
    found = await store.task(task.ref.task_id, ANYONE)
    assert found == task.replace(title="Sky <PERSON_1>", progress=progress(TaskPhase.DONE), ended_at=found.ended_at)


async def test_tasks_are_found_by_when_they_ended_else_by_when_they_were_submitted(store: SqlStore) -> None:
    hour = timedelta(hours=1)
    ended, begun = (row(request(name)).replace(submitted_at=NOON - hour) for name in ("ended", "begun"))
    for task in (ended, begun):
        await store.register(task, [])
    await store.finish(ended.ref.task_id, progress(TaskPhase.DONE))
    assert (await store.task(ended.ref.task_id, ANYONE)).ended_at == NOON
    assert await store.tasks(ANYONE, ended_before=NOON - hour) == ()
    assert await store.tasks(ANYONE, ended_before=NOON) == (begun,)
    assert len(await store.tasks(ANYONE, ended_before=NOON + hour)) == 2
    await store.finish(ended.ref.task_id, progress(TaskPhase.WORKING))
    assert (await store.task(ended.ref.task_id, ANYONE)).ended_at is None


async def test_the_first_plan_stays(store: SqlStore) -> None:
    task = row(request())
    await store.register(task, [])
    assert await store.plan(task.ref.task_id, ANYONE) is None
    await store.save_plan(task.ref.task_id, standard_plan("first"))
    await store.save_plan(task.ref.task_id, standard_plan("second"))
    assert await store.plan(task.ref.task_id, ANYONE) == standard_plan("first")


async def test_the_audit_keeps_the_order_and_each_entry_once(store: SqlStore) -> None:
    task = row(request())
    await store.register(task, [])
    later = LATE.replace(at=NOON + timedelta(seconds=1))
    same_moment = LATE.replace(at=NOON.astimezone(timezone(timedelta(hours=2))))
    for entry in (PENDING, LATE, GRANTED, PENDING, same_moment, later):
        await store.audit(task.ref.task_id, entry)
    assert await store.list_audit_entries(task.ref.task_id, ANYONE) == (PENDING, LATE, GRANTED, later)


async def test_an_unknown_task_is_said_to_be_unknown(store: SqlStore) -> None:
    for attempt in (
        store.task("task-0", ANYONE),
        store.admit("task-0", "Title"),
        store.save_plan("task-0", standard_plan("Why?")),
        store.audit("task-0", LATE),
        store.finish("task-0", progress(TaskPhase.DONE)),
    ):
        with pytest.raises(UnknownTask, match=r"^no task task-0 in this store: list the tasks to see which there are$"):
            await attempt
    assert await store.plan("task-0", ANYONE) is None
    assert await store.list_audit_entries("task-0", ANYONE) == await store.documents("task-0", ANYONE) == ()


async def test_a_moment_keeps_its_time_zone(store: SqlStore) -> None:
    moment = datetime(2026, 11, 21, 23, 30, 15, 123_456, tzinfo=timezone(timedelta(hours=-5)))
    task = row(request()).replace(submitted_at=moment)
    await store.register(task, [])
    found = (await store.task(task.ref.task_id, ANYONE)).submitted_at
    assert (found, found.tzinfo) == (moment, UTC)
