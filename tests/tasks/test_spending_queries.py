"""What all tasks have spent, day by day, and what their sessions have, over every database."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from tests.support.store_values import NOON, make_charge, make_intent, make_reply, make_task_request, make_task_row
from waystation.context.transcript import Charge, Fence
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import RunRef
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.progress import DayRange, SpendingLine
from waystation.tasks.task import TaskPhase, TaskRow, build_reader_scope

MIDNIGHT = datetime(2026, 11, 22, tzinfo=UTC)
WHOLE = DayRange(since=date(2026, 11, 1), until=date(2026, 11, 30))
MINE = build_reader_scope("local")


async def begun(
    store: SqlStore, name: str, *agents: tuple[str, str], tenant: str = "local", session: str = ""
) -> tuple[TaskRow, list[Fence]]:
    """A task and, for each step with its role, the fence of its agent."""
    made = make_task_row(make_task_request(name, tenant=tenant, session=session))
    kept = made.replace(ref=made.ref.replace(store_id=await store.get_store_id()))
    await store.register_task(kept, ())
    await store.save_task_title(kept.ref.task_id, f"Title of {name}")
    fences: list[Fence] = []
    for step, role in agents:
        run = RunRef(**kept.ref.model_dump(), step_id=step, role=role)
        await store.open_run(run)
        fences.append(await store.acquire_fence(run.run_id))
    return kept, fences


def on(moment: datetime, key: str, model: str = "model", cost: int | None = 7) -> Charge:
    return make_charge(key, cost=cost).replace(at=moment, model=model)


def told(line: SpendingLine) -> tuple[str, str, str, int, int, int]:
    return str(line.day), line.role, line.model, line.calls, line.cost_micro_usd, line.unpriced_calls


async def test_every_charge_counts_once_on_its_day_for_its_task_role_and_model(store: SqlStore) -> None:
    kept, (first, second, writer) = await begun(store, "a", ("r-1", "research"), ("r-2", "research"), ("w", "writing"))
    await store.commit_reply(first, 0, make_reply(1), on(MIDNIGHT - timedelta(microseconds=1), "turn-1"))
    await store.commit_charge(second, on(MIDNIGHT - timedelta(hours=1), "turn-1"))
    await store.commit_charge(first, on(MIDNIGHT, "turn-2", cost=None))
    await store.commit_charge(first, on(MIDNIGHT, "turn-3"))
    await store.commit_charge(writer, on(MIDNIGHT, "turn-1", "small"))
    found = await store.get_spending(WHOLE, MINE)
    assert [told(line) for line in found.lines] == [
        ("2026-11-21", "research", "model", 2, 14, 0),
        ("2026-11-22", "research", "model", 2, 7, 1),
        ("2026-11-22", "writing", "small", 1, 7, 0),
    ]
    assert found.titles == {kept.ref.task_id: "Title of a"}
    assert (found.total.calls, found.total.usage.fresh, found.total.cost_micro_usd) == (5, 5 * 35, 28)
    one_day = await store.get_spending(DayRange(since=date(2026, 11, 22), until=date(2026, 11, 22)), MINE)
    assert [line.day for line in one_day.lines] == [date(2026, 11, 22)] * 2


async def test_a_call_without_a_reply_may_have_been_billed_and_is_in_no_other_number(store: SqlStore) -> None:
    _, (agent,) = await begun(store, "a", ("w", "writing"))
    await store.record_and_count_intents(agent, make_intent("turn-1", 900))
    found = await store.get_spending(WHOLE, MINE)
    assert [told(line) for line in found.lines] == [("2026-11-21", "writing", "model", 0, 0, 0)]
    assert found.total.possibly_billed == Amount(tokens=900)


async def test_a_session_is_asked_for_alone_and_another_tenant_is_never_in_it(store: SqlStore) -> None:
    mine, (own,) = await begun(store, "a", ("w", "writing"), session="spring")
    _, (other,) = await begun(store, "b", ("w", "writing"), session="autumn")
    _, (foreign,) = await begun(store, "a", ("w", "writing"), tenant="other", session="spring")
    for agent in (own, other, foreign):
        await store.commit_charge(agent, on(NOON, "turn-1"))
    assert (await store.get_spending(WHOLE, MINE)).total.calls == 2
    assert [one.task_id for one in (await store.get_spending(WHOLE, build_reader_scope("local", "spring"))).lines] == [
        mine.ref.task_id
    ]


async def test_more_than_can_be_shown_is_refused_and_never_cut(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("waystation.tasks.task_repository", "waystation.tasks.progress"):
        monkeypatch.setattr(f"{module}.MAX_SPENDING_LINES", 2)
    # They would be one line: what the database was asked for is cut before that.
    _, agents = await begun(store, "a", *((f"w-{number}", "writing") for number in range(3)))
    for agent in agents[:2]:
        await store.commit_charge(agent, on(NOON, "turn-1"))
    assert (await store.get_spending(WHOLE, MINE)).total.calls == 2
    await store.commit_charge(agents[2], on(NOON, "turn-1"))
    with pytest.raises(BadInput, match="request fewer days"):
        await store.get_spending(WHOLE, MINE)


async def test_sessions_come_with_the_newest_first_and_what_their_tasks_spent(store: SqlStore) -> None:
    for name, session, tenant in (
        ("a", "spring", "local"), ("b", "autumn", "local"), ("c", "spring", "local"), ("d", "spring", "other")
    ):  # fmt: skip
        _, (agent,) = await begun(store, name, ("w", "writing"), session=session, tenant=tenant)
        await store.commit_charge(agent, on(NOON, "turn-1", cost=None if name == "c" else 7))
    spring, autumn = await store.list_sessions(MINE, 0, 10)
    assert (spring.session, spring.tasks, spring.last_at) == ("spring", 2, NOON)
    assert (spring.spent, spring.unpriced_calls) == (Amount(tokens=70, micro_usd=7), 1)
    assert (autumn.session, autumn.tasks, autumn.spent) == ("autumn", 1, Amount(tokens=35, micro_usd=7))
    assert await store.list_sessions(MINE, 0, 1) == (spring,)
    assert await store.list_sessions(MINE, 1, 10) == (autumn,)
    assert await store.list_sessions(MINE, 2, 10) == ()


async def test_tasks_that_their_session_refused_are_counted_apart_from_others_that_ended(store: SqlStore) -> None:
    kept, _ = await begun(store, "done", ("w", "writing"), session="S")
    early, _ = await begun(store, "early", session="S")
    refused, _ = await begun(store, "refused", session="S")
    for task, phase in ((kept, TaskPhase.DONE), (early, TaskPhase.FAILED), (refused, TaskPhase.REFUSED)):
        await store.save_task_progress(task.ref.task_id, task.build_stored_progress(phase))
    (session,) = await store.list_sessions(MINE, 0, 10)
    assert (session.tasks, session.refused) == (2, 1)


async def test_charges_of_all_days_are_read_as_they_lie(tmp_path: Path) -> None:
    asked: list[str] = []
    store = await SqlStore.open(f"sqlite+aiosqlite:///{tmp_path / 'store.db'}", lambda: NOON)
    listener: Callable[..., None] = lambda *said: asked.append(said[2])  # noqa: E731
    event.listen(Engine, "before_cursor_execute", listener)
    try:
        await store.get_spending(WHOLE, MINE)
    finally:
        event.remove(Engine, "before_cursor_execute", listener)
        await store.aclose()
    (paid,) = [one for one in asked if "FROM charges" in one]
    with closing(sqlite3.connect(tmp_path / "store.db")) as file:
        plan = [row[3] for row in file.execute(f"EXPLAIN QUERY PLAN {paid}", [""] * paid.count("?"))]
    assert "SCAN charges" in plan
