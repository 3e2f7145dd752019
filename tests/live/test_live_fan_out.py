"""Many agents at once under one limit, with a model that spends the worst case of every call."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.budget_exhausting_model import MODEL, BudgetExhaustingModel, make_fan_out_plan
from tests.support.prices import PRICES
from tests.support.temporal_platform import make_task_request, run_platform
from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount, Limit
from waystation.models.profiles import filter_prices
from waystation.tasks.task import TaskConfig, TaskPhase
from waystation.testing.doubles import PlainRedactor
from waystation.workflows.session import SessionWorkflow

TASKS, RESEARCHERS = 4, 8
TASK, AGENT, SESSION = 500_000, 50_000, 2_200_000
AGENT_TERMS = AgentConfig(
    model=MODEL,
    condense_model=MODEL,
    window=400_000,
    trigger=300_000,
    target=150_000,
    backpressure=False,
    prices=filter_prices((MODEL,), PRICES),
)


def in_tokens(count: int) -> Limit:
    return Limit(tokens=count)


def in_dollars(count: int) -> Limit:
    """About as tight."""
    return Limit(micro_usd=3 * count)


@pytest.mark.parametrize("limit", [in_tokens, in_dollars])
async def test_32_agents_at_once_spend_nothing_over_the_limits_of_their_tasks_and_their_session(
    limit: Callable[[int], Limit], server: Client, tmp_path: Path
) -> None:
    terms = TaskConfig(
        budget=limit(TASK),
        agent_budget=limit(AGENT),
        mode=BudgetMode.SOFT,
        default=AGENT_TERMS,
        plan_model=MODEL,
        offline=False,
    )
    spender = BudgetExhaustingModel(make_fan_out_plan(RESEARCHERS), together=TASKS * RESEARCHERS)
    async with run_platform(server, tmp_path, PlainRedactor({}), spender) as counter:
        await counter.set_session_limit(limit(SESSION))
        names = [f"task-{number}" for number in range(TASKS)]
        for name in names:
            await counter.submit(make_task_request(name, question=f"What of {name}?"), under=terms)
        ended = await asyncio.gather(*(counter.get_task_handle(name).result() for name in names))
        account = await counter.session.query(SessionWorkflow.account)
    assert spender.most_at_once == TASKS * RESEARCHERS
    assert [task.phase for task in ended] == [TaskPhase.PARTIAL] * TASKS
    assert spender.spent == account.spent == sum((task.budget.spent for task in ended), Amount())
    assert limit(SESSION).can_cover(spender.spent)
    for task in ended:
        assert task.budget.limit.can_cover(task.budget.spent)
        assert all(step.limit.can_cover(step.spent) for step in task.steps)
    assert any(task.budget.limit != limit(TASK) for task in ended), "some drew on their session"
