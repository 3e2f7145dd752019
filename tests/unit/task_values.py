"""Tasks in all states, as the tests of a task's state begin with them."""

from datetime import UTC, datetime

from waystation.agents.leg import AgentConfig, AgentFinished, BudgetExhausted, LegOutcome, LegState
from waystation.budgets.budget import BudgetAccount, Mode, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import TaskRef
from waystation.kernel.usage import Usage
from waystation.planning.plan import Plan, standard_plan
from waystation.tasks import approvals
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskTerms

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REF = TaskRef(store_id="s", tenant="t", session="s", task_id="task-1")
TERMS = TaskTerms(
    budget=Limit(tokens=200_000),
    agent_budget=Limit(tokens=30_000),
    mode=Mode.APPROVAL,
    agent=AgentConfig(model="m", condense_model="c", window=15_000, trigger=11_250, target=5_625),
    plan_model="m",
    offline=False,
)
PLAN = standard_plan("Why?").without_goals()


def totals(tokens: int, *, cost: int | None = 7, possibly: int = 0) -> RunUsage:
    return RunUsage(usage=Usage(input=tokens), turns=1, cost_micro_usd=cost, possibly_billed=possibly)


def standing(tokens: int, *notes: str) -> LegState:
    return LegState(totals=totals(tokens), notes=notes)


def planned(budget: int = 200_000, plan: Plan = PLAN) -> TaskState:
    return TaskState(account=BudgetAccount(limit=Limit(tokens=budget))).planned(
        plan, totals(2_000), ("planned",), TERMS.agent_budget
    )


def working(*step_ids: str, budget: int = 200_000) -> TaskState:
    """Planned, with these steps started."""
    state = planned(budget)
    for step_id in step_ids or ("research-1", "research-2"):
        state = state.started(PLAN.step(step_id), REF, TERMS)
    return state


def after_leg(state: TaskState, step_id: str, outcome: LegOutcome) -> TaskState:
    return state.with_run(state.runs[step_id].after_leg(outcome))


def spent(state: TaskState, step_id: str, tokens: int = 29_500, needed: int = 900) -> TaskState:
    return after_leg(state, step_id, BudgetExhausted(standing=standing(tokens), needed=Amount(tokens=needed)))


def finished(state: TaskState, step_id: str, tokens: int = 10_000) -> TaskState:
    return after_leg(state, step_id, AgentFinished(standing=standing(tokens)))


def asking(state: TaskState, *step_ids: str) -> TaskState:
    """These agents spent their budgets, and a person is asked for each."""
    for step_id in step_ids:
        state = spent(state, step_id)
        state = state.asked(state.request_for(step_id, NOON))
    return state


def standing_of(state: TaskState) -> approvals.Circumstances:
    """What an answer is held against."""
    return approvals.Circumstances(approvals=state.approvals, limit=state.account.limit, ending=state.ending)
