"""Task states of all kinds, for tests of a task's state."""

from datetime import UTC, datetime

from waystation.agents.leg import AgentConfig, AgentFinished, BudgetExhausted, LegOutcome, LegState
from waystation.budgets.budget import BudgetAccount, BudgetMode, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import TaskRef
from waystation.kernel.usage import Usage
from waystation.planning.plan import Plan, build_standard_plan
from waystation.tasks import approvals
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskConfig

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REF = TaskRef(store_id="s", tenant="t", session="s", task_id="task-1")
TASK_CONFIG = TaskConfig(
    budget=Limit(tokens=200_000),
    agent_budget=Limit(tokens=30_000),
    mode=BudgetMode.APPROVAL,
    default=AgentConfig(model="m", condense_model="c", window=15_000, trigger=11_250, target=5_625),
    plan_model="m",
    offline=False,
)
PLAN = build_standard_plan("Why?").without_goals()


def make_run_usage(tokens: int, *, cost: int | None = 7, possibly: int = 0) -> RunUsage:
    return RunUsage(usage=Usage(input=tokens), turns=1, cost_micro_usd=cost, possibly_billed=possibly)


def make_leg_state(tokens: int, *notes: str) -> LegState:
    return LegState(totals=make_run_usage(tokens), notes=notes)


def make_planned_state(budget: int = 200_000, plan: Plan = PLAN) -> TaskState:
    return TaskState(account=BudgetAccount(limit=Limit(tokens=budget))).with_plan(
        plan, make_run_usage(2_000), ("planned",), TASK_CONFIG.agent_budget
    )


def make_working_state(*step_ids: str, budget: int = 200_000) -> TaskState:
    """Make a planned state with these steps started."""
    state = make_planned_state(budget)
    for step_id in step_ids or ("research-1", "research-2"):
        state = state.start_step(PLAN.get_step(step_id), REF, TASK_CONFIG)
    return state


def apply_leg_outcome(state: TaskState, step_id: str, outcome: LegOutcome) -> TaskState:
    return state.with_run(state.runs[step_id].after_leg(outcome))


def exhaust_budget(state: TaskState, step_id: str, tokens: int = 29_500, needed: int = 900) -> TaskState:
    return apply_leg_outcome(
        state, step_id, BudgetExhausted(state=make_leg_state(tokens), needed=Amount(tokens=needed))
    )


def finish_agent(state: TaskState, step_id: str, tokens: int = 10_000) -> TaskState:
    return apply_leg_outcome(state, step_id, AgentFinished(state=make_leg_state(tokens)))


def request_budgets(state: TaskState, *step_ids: str) -> TaskState:
    """Exhaust the budgets of these agents, with a pending request for each."""
    for step_id in step_ids:
        state = exhaust_budget(state, step_id)
        state = state.with_approval_request(state.build_budget_request(step_id, NOON))
    return state


def make_approval_context(state: TaskState) -> approvals.ApprovalContext:
    """Make the context in which answers are checked."""
    return approvals.ApprovalContext(approvals=state.approvals, limit=state.account.limit, ending=state.is_ending)
