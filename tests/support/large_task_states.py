"""States of tasks with many agents, and one change of them: to test and measure what a change costs."""

import sys
from collections.abc import Callable
from types import FrameType

from pydantic import BaseModel

from tests.support.task_states import REF, TASK_CONFIG, make_leg_state, make_run_usage
from waystation.agents.delegation import SubagentOrder
from waystation.agents.leg import TurnLimitReached
from waystation.budgets.budget import BudgetAccount
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.kernel.amount import Limit
from waystation.planning.plan import Plan, Step
from waystation.tasks.state import TaskState

COMPACTIONS = 40
_PLAN = Plan(
    steps=(
        Step(id="harbours", role="research", title="Harbours", goal=""),
        Step(id="write", role="writing", title="Write", goal="", needs=("harbours",)),
    )
)


def make_large_state(agents: int) -> TaskState:
    """Make the state of a task whose first step has so many agents: its own, and subagents with 40 compactions each."""
    empty = TaskState(account=BudgetAccount(limit=Limit(tokens=200_000_000)))
    state = empty.with_plan(_PLAN, make_run_usage(2_000), (), TASK_CONFIG.agent_budget)
    state = state.start_step(_PLAN.get_step("harbours"), REF, TASK_CONFIG)
    step = state.runs["harbours"]
    names = [f"harbours.{number}" for number in range(1, agents)]
    orders = [SubagentOrder(id=name, call_id=name, role="research", title="A", limit=step.limit) for name in names]
    subagent = step
    for number in range(COMPACTIONS):
        subagent = subagent.after_compaction(_make_compaction(number))
    subagents = {name: subagent.replace(run=step.run.replace(step_id=name)) for name in names}
    return state.replace(runs={"harbours": step.replace(subagent_orders=tuple(orders)), **subagents})


def _make_compaction(number: int) -> CompactionOutcome:
    return CompactionOutcome(
        compaction_id=f"{number:064x}",
        status=CompactionStatus.COMPRESSED,
        strategy="window",
        tokens_before=90_000,
        tokens_after=30_000,
        covered=80,
        passages=12,
        totals=make_run_usage(1_000),
    )


def change_state(state: TaskState) -> TaskState:
    """Apply the end of a leg as a workflow does, which then reads what it shows as search attributes."""
    run = state.runs[next(reversed(state.runs))]
    changed = state.with_run(run.after_leg(TurnLimitReached(state=make_leg_state(5_000))))
    assert not changed.pending_approvals
    assert changed.totals.spent.tokens > state.totals.spent.tokens
    return changed


def list_validated_values(work: Callable[[], object]) -> list[str]:
    """Return the kinds of the values that are made and validated meanwhile, which is the same on every machine."""
    kinds = list[str]()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code is BaseModel.__init__.__code__:
            kinds.append(type(frame.f_locals["self"]).__name__)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return kinds
