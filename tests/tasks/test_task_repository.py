"""The contract of a task store: one task a request, its plan, its audit, its end."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_task_request, make_task_row
from waystation.budgets.budget import BudgetMode
from waystation.documents.documents import Document, SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import RequestConflict, UnknownTask
from waystation.planning.plan import build_standard_plan
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import ApprovalRequest, BudgetProgress, RejectedMessage, TaskPhase, TaskProgress, TaskRequest

SKY = SourceDocument(name="sky.md", text="Blue light\nscatters most.\n")
PENDING = ApprovalRequest(request_id="ask-1", agent="research-1", requested=Amount(tokens=1_000), requested_at=NOON)
GRANTED = PENDING.replace(decision="approved", granted=Amount(tokens=500), answered_at=NOON)
LATE = RejectedMessage(signal="approve_budget", reason="no request ask-9 waits", at=NOON)


def progress(phase: TaskPhase) -> TaskProgress:
    budget = BudgetProgress(limit=Limit(tokens=600_000), spent=Amount(tokens=1_234), reserved=Amount(tokens=0))
    return TaskProgress(task_id="task", phase=phase, title="Sky", model="model", budget=budget)


async def test_a_registered_task_comes_back_as_it_was_given(store: SqlStore) -> None:
    task = make_task_row(
        make_task_request().replace(instructions="Only physics", accept=("two sources",), window=50_000)
    )
    assert await store.register_task(task, [SKY])
    assert await store.get_task(task.ref.task_id, SYSTEM_SCOPE) == task


async def test_the_same_request_is_one_task_whatever_terms_the_software_gives_it(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    newer = task.replace(config=task.config.replace(plan_model="newer"))
    assert await store.register_task(task, [SKY])
    assert not await store.register_task(newer, [SKY])
    assert await store.list_tasks(SYSTEM_SCOPE) == (task,)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(make_task_request().replace(question="Why is it dark at night?"), id="question"),
        pytest.param(make_task_request().replace(instructions="In one sentence"), id="instructions"),
        pytest.param(make_task_request().replace(accept=("a figure",)), id="accept"),
        pytest.param(make_task_request().replace(budget=Limit(tokens=5_000)), id="budget"),
        pytest.param(make_task_request().replace(agent_budget=Limit(tokens=5_000)), id="agent_budget"),
        pytest.param(make_task_request().replace(mode=BudgetMode.HARD), id="mode"),
        pytest.param(make_task_request().replace(window=20_000), id="window"),
    ],
)
async def test_a_request_id_with_other_content_is_refused(store: SqlStore, other: TaskRequest) -> None:
    await store.register_task(make_task_row(make_task_request()), [SKY])
    with pytest.raises(RequestConflict, match=r"^the request id 'first' was already used in this session.*new request"):
        await store.register_task(make_task_row(other), [SKY])


async def test_a_request_id_with_other_documents_is_refused_and_leaves_no_trace(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [SKY])
    for documents in ([], [SKY, SKY], [SKY.replace(text="Green")]):
        with pytest.raises(RequestConflict):
            await store.register_task(task, documents)
    assert [document.name for document in await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)] == ["sky.md"]


async def test_the_same_request_id_in_another_session_is_another_task(store: SqlStore) -> None:
    here, there = (
        make_task_row(make_task_request()),
        make_task_row(make_task_request(session="elsewhere", question="What else?")),
    )
    assert await store.register_task(here, [])
    assert await store.register_task(there, [])
    assert await store.list_tasks(here.ref.scope.get_recall_scope("session")) == (here,)
    assert await store.list_tasks(there.ref.scope.get_recall_scope("session")) == (there,)


async def test_documents_are_listed_as_given_with_their_lines_and_characters(store: SqlStore) -> None:
    given = [
        SKY,
        SourceDocument(name="empty.md", text=""),
        SourceDocument(name="copy.md", text=SKY.text),
        SourceDocument(name="a.md", text="日本\x00語\r\nzwei"),
    ]
    task = make_task_row(make_task_request())
    await store.register_task(task, given)
    listed = await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)
    assert [(d.name, d.lines, d.characters) for d in listed] == [
        ("sky.md", 2, 26),
        ("empty.md", 1, 0),
        ("copy.md", 2, 26),
        ("a.md", 2, 10),
    ]
    assert listed[0].blob == listed[2].blob
    assert [await store.get_text(document.blob, SYSTEM_SCOPE) for document in listed] == [
        document.text for document in given
    ]


async def test_five_hundred_documents_and_five_megabytes_are_one_task(store: SqlStore) -> None:
    given = [SourceDocument(name=f"{n}.md", text=f"Document {n}\n") for n in range(499)]
    given.append(SourceDocument(name="large.md", text="x" * 5_000_000))
    task = make_task_row(make_task_request())
    await store.register_task(task, given)
    listed = await store.list_documents(task.ref.task_id, SYSTEM_SCOPE)
    assert [document.name for document in listed] == [document.name for document in given]
    assert listed[-1] == Document(name="large.md", blob=listed[-1].blob, lines=1, characters=5_000_000)
    assert await store.get_text(listed[-1].blob, SYSTEM_SCOPE) == given[-1].text


async def test_tasks_come_newest_first_and_are_found_by_the_start_of_their_id(store: SqlStore) -> None:
    tasks = [make_task_row(make_task_request(f"request-{n}")) for n in range(3)]
    for task in tasks:
        await store.register_task(task, [])
    assert await store.list_tasks(SYSTEM_SCOPE) == tuple(reversed(tasks))
    assert await store.list_tasks(SYSTEM_SCOPE, limit=2) == (tasks[2], tasks[1])
    assert await store.find_task_ids(tasks[0].ref.task_id[:12], SYSTEM_SCOPE) == (tasks[0].ref.task_id,)
    assert len(await store.find_task_ids("task-", SYSTEM_SCOPE)) == 3
    assert await store.find_task_ids("TASK-", SYSTEM_SCOPE) == await store.find_task_ids("task%", SYSTEM_SCOPE) == ()


async def test_title_and_end_are_kept_and_the_newest_end_stays(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    await store.save_task_title(task.ref.task_id, "Sky <PERSON_1>")
    await store.save_task_progress(task.ref.task_id, progress(TaskPhase.PARTIAL))
    await store.save_task_progress(task.ref.task_id, progress(TaskPhase.DONE))
    found = await store.get_task(task.ref.task_id, SYSTEM_SCOPE)
    assert found == task.replace(title="Sky <PERSON_1>", progress=progress(TaskPhase.DONE), ended_at=found.ended_at)


async def test_tasks_are_found_by_when_they_ended_else_by_when_they_were_submitted(store: SqlStore) -> None:
    hour = timedelta(hours=1)
    ended, begun = (
        make_task_row(make_task_request(name)).replace(submitted_at=NOON - hour) for name in ("ended", "begun")
    )
    for task in (ended, begun):
        await store.register_task(task, [])
    await store.save_task_progress(ended.ref.task_id, progress(TaskPhase.DONE))
    assert (await store.get_task(ended.ref.task_id, SYSTEM_SCOPE)).ended_at == NOON
    assert await store.list_tasks(SYSTEM_SCOPE, ended_before=NOON - hour) == ()
    assert await store.list_tasks(SYSTEM_SCOPE, ended_before=NOON) == (begun,)
    assert len(await store.list_tasks(SYSTEM_SCOPE, ended_before=NOON + hour)) == 2
    await store.save_task_progress(ended.ref.task_id, progress(TaskPhase.WORKING))
    assert (await store.get_task(ended.ref.task_id, SYSTEM_SCOPE)).ended_at is None


async def test_the_first_plan_stays(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    assert await store.get_newest_plan(task.ref.task_id, SYSTEM_SCOPE) is None
    await store.save_plan(task.ref.task_id, build_standard_plan("first"))
    await store.save_plan(task.ref.task_id, build_standard_plan("second"))
    assert await store.get_newest_plan(task.ref.task_id, SYSTEM_SCOPE) == build_standard_plan("first")


async def test_the_audit_keeps_the_order_and_each_entry_once(store: SqlStore) -> None:
    task = make_task_row(make_task_request())
    await store.register_task(task, [])
    later = LATE.replace(at=NOON + timedelta(seconds=1))
    same_moment = LATE.replace(at=NOON.astimezone(timezone(timedelta(hours=2))))
    for entry in (PENDING, LATE, GRANTED, PENDING, same_moment, later):
        await store.add_audit_entry(task.ref.task_id, entry)
    assert await store.list_audit_entries(task.ref.task_id, SYSTEM_SCOPE) == (PENDING, LATE, GRANTED, later)


async def test_an_unknown_task_is_said_to_be_unknown(store: SqlStore) -> None:
    for attempt in (
        store.get_task("task-0", SYSTEM_SCOPE),
        store.save_task_title("task-0", "Title"),
        store.save_plan("task-0", build_standard_plan("Why?")),
        store.add_audit_entry("task-0", LATE),
        store.save_task_progress("task-0", progress(TaskPhase.DONE)),
    ):
        with pytest.raises(
            UnknownTask, match=r"^no task task-0 in this store: `waystation list` shows the newest tasks$"
        ):
            await attempt
    assert await store.get_newest_plan("task-0", SYSTEM_SCOPE) is None
    assert (
        await store.list_audit_entries("task-0", SYSTEM_SCOPE)
        == await store.list_documents("task-0", SYSTEM_SCOPE)
        == ()
    )


async def test_a_moment_keeps_its_time_zone(store: SqlStore) -> None:
    moment = datetime(2026, 11, 21, 23, 30, 15, 123_456, tzinfo=timezone(timedelta(hours=-5)))
    task = make_task_row(make_task_request()).replace(submitted_at=moment)
    await store.register_task(task, [])
    found = (await store.get_task(task.ref.task_id, SYSTEM_SCOPE)).submitted_at
    assert (found, found.tzinfo) == (moment, UTC)
