"""The contract of a store for sessions, and for schedules that share a month's budget."""

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.store_values import NOON, make_task_request, make_task_row
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.amount import Amount, Limit
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.schedules import MonthlyBudget
from waystation.tasks.session import SessionKey, SessionState, StoredSession
from waystation.tasks.task import TaskRow

KEY = SessionKey(tenant="t", session="s")
SPENT = SessionState(account=BudgetAccount(limit=Limit(tokens=1_000), spent=Amount(tokens=300)), open_tasks=("task-1",))
NEWER = SPENT.replace(account=BudgetAccount(limit=Limit(tokens=1_000), spent=Amount(tokens=400)))


async def test_a_session_comes_back_as_it_was_saved_last(store: SqlStore) -> None:
    fresh = await store.take_over_session(KEY)
    assert (fresh.state, fresh.version) == (SessionState(), 0)
    assert await store.save_session(KEY, StoredSession(epoch=fresh.epoch, version=1, state=SPENT))
    again = await store.take_over_session(KEY)
    assert again == StoredSession(epoch=fresh.epoch + 1, version=1, state=SPENT)
    assert (await store.take_over_session(SessionKey(tenant="t", session="other"))).state == SessionState()


async def test_an_earlier_execution_of_a_session_and_an_attempt_that_comes_late_save_nothing(store: SqlStore) -> None:
    earlier = await store.take_over_session(KEY)
    now = await store.take_over_session(KEY)
    assert not await store.save_session(KEY, StoredSession(epoch=earlier.epoch, version=9, state=SPENT))
    assert await store.save_session(KEY, StoredSession(epoch=now.epoch, version=2, state=NEWER))
    assert not await store.save_session(KEY, StoredSession(epoch=now.epoch, version=1, state=SPENT))
    assert await store.save_session(KEY, StoredSession(epoch=now.epoch, version=2, state=NEWER))
    assert (await store.take_over_session(KEY)).state == NEWER


def scheduled(number: int, schedule: str = "weekly") -> TaskRow:
    task = make_task_row(make_task_request(f"{schedule}@{number}", session="s"))
    return task.replace(config=task.config.replace(budget=Limit(tokens=40_000)))


def month(tokens: int, counted: Mapping[str, Amount] = MappingProxyType({})) -> MonthlyBudget:
    return MonthlyBudget(schedule_id="weekly", limit=Limit(tokens=tokens), at=NOON, amounts=counted)


async def test_runs_that_are_registered_at_once_do_not_pass_the_budget_of_their_month_together(
    store: SqlStore,
) -> None:
    answers = await asyncio.gather(
        *(store.register_scheduled_task(scheduled(number), [], month(120_000)) for number in range(10))
    )
    assert sum(not answer for answer in answers) == 3
    assert len(await store.list_tasks(SYSTEM_SCOPE)) == 3
    assert {answer for answer in answers if answer} == {
        "this month's runs have spent or reserved 120,000 tokens, and another run with a budget of 40,000 "
        "tokens would exceed the monthly budget of 120,000 tokens"
    }


async def test_of_a_month_s_budget_a_run_takes_what_it_was_found_to_hold_and_others_take_nothing(
    store: SqlStore,
) -> None:
    settled, last_month = scheduled(1), scheduled(2).replace(submitted_at=NOON - timedelta(days=40))
    for one in (settled, last_month, scheduled(3, "daily")):
        await store.register_task(one, [])
    counted = month(50_000, {settled.ref.task_id: Amount(tokens=10_000)})
    assert await store.register_scheduled_task(scheduled(4), [], counted) == ""
    assert await store.register_scheduled_task(scheduled(4), [], counted) == ""  # an attempt after one that was lost
    assert "spent or reserved 50,000 tokens" in await store.register_scheduled_task(scheduled(5), [], counted)
