"""Where a run that spent its budget gets more: from its parent, its task, and what other runs can spare.

Budget may be released while it waits for a person: then it goes on with that, and its request is withdrawn.
"""

from datetime import datetime

from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import get_parent_id
from waystation.budgets.budget import BudgetMode
from waystation.kernel.amount import Amount
from waystation.planning.plan import Step
from waystation.tasks.state import OVERSIGHT_RESERVATION, TaskState
from waystation.tasks.task import ApprovalRequest, TaskConfig

RESET_NOTE = "the provider has reset the account's spending limit, and the agent continues"
FREED_BUDGET_NOTE = "budget was released elsewhere, and the agent continues with it"


def with_reallocation_config(state: TaskState, config: TaskConfig) -> TaskState:
    """Return the state with the settings for sharing budget between agents."""
    return state.replace(minimum_reserve=config.minimum_reserve, minimum_reserves=config.minimum_reserves)


def draw_budget(state: TaskState, step_id: str) -> TaskState | None:
    """Return the state in which the run goes on; None if nothing it may draw on covers its next call."""
    if (helped := _from_parent(state, step_id)) is not None:
        return helped
    state, amount = draw_from_task(state, step_id)
    if amount.is_zero:
        return None
    return state.with_run(state.runs[step_id].after_grant(amount))


def draw_from_task(state: TaskState, step_id: str) -> tuple[TaskState, Amount]:
    """Draw budget from the task for a run that spent its own: what is unreserved, then what others can spare.

    Returns:
        The state and the amount; zero if both together do not cover the next call.
    """
    run, free = state.runs[step_id], state.account.unreserved.amount
    amount = _taken(run, free)
    if amount.is_zero and (spare := _spare(state, step_id)):
        amount = _taken(run, free + sum(spare.values(), Amount()))
        state = _borrowed(state, step_id, amount.subtract_clamped(free), spare)
    account, _ = state.account.reserve_available(step_id, free.min_with(amount))
    return state.replace(account=account), amount


def compute_drawable_budget(state: TaskState, step_id: str, mode: BudgetMode) -> Amount:
    """Return all that a run could draw now: released by siblings, unreserved, and what others can spare.

    In mode `hard`, a run draws nothing.
    """
    if mode is BudgetMode.HARD:
        return Amount()
    parent = state.runs.get(get_parent_id(step_id) or "")
    handed_back = parent.released_budget if parent is not None and parent.phase == "delegating" else Amount()
    return sum(_spare(state, step_id).values(), handed_back + state.account.unreserved.amount)


def _to_come(state: TaskState) -> list[Step]:
    """Return the steps that have not begun, except those with a share given by a person."""
    begun, given = state.runs.keys() | state.suspended_runs.keys(), state.oversight.shares
    steps = () if state.plan is None else state.plan.steps
    return [step for step in steps if step.id not in begun and not (step.share and step.id in given)]


LEARNED_RESERVE_DIVISOR = 4
"""A later step keeps 1/4 of what the task's cheapest finished step has spent."""
ACTIVE_PHASES = frozenset({"running", "full"})
"""Phases of a run that proceeds on its own."""


def should_wait_for_release(state: TaskState, step_id: str) -> bool:
    """Return whether a run that spent its budget waits before a person is asked.

    It waits while another run is active and may leave it something, or for what other waiting runs can spare; among
    those, the first by ID does not wait.
    """
    if state.minimum_reserve is None or state.runs[step_id].halt_reason:
        return False
    if any(other != step_id and run.phase in ACTIVE_PHASES for other, run in state.runs.items()):
        return True
    spare = _spare(state, step_id)
    left = sum(spare.values(), state.account.unreserved.amount)
    before = any(other < step_id and other in state.runs for other in spare)
    return before and state.runs[step_id].needed.subtract_clamped(left).is_zero


def _spare(state: TaskState, step_id: str) -> dict[str, Amount]:
    """Return what others can spare, by reservation.

    Those are later steps, other runs that wait for budget without an open request, and the reserve for revisions and
    reviews.
    """
    if state.minimum_reserve is None or state.plan is None:
        return {}
    finished = [run.totals.spent for run in state.runs.values() if run.phase == "delivered" and not run.partial]
    cheapest = min(finished, key=lambda spent: (spent.tokens, spent.micro_usd), default=Amount())
    learned = Amount(
        tokens=cheapest.tokens // LEARNED_RESERVE_DIVISOR, micro_usd=cheapest.micro_usd // LEARNED_RESERVE_DIVISOR
    )
    asked = {request.agent for request in state.pending_approvals}
    least = state.minimum_reserve.max_with(learned)
    keeps = {step.id: least.max_with(state.get_minimum_reserve(step)) for step in _to_come(state)}
    keeps[OVERSIGHT_RESERVATION] = state.planning.spent
    for name, run in state.runs.items():
        if run.phase == "spent" and not run.halt_reason and name != step_id and name not in asked:
            keeps[name] = run.totals.spent
    spare = {name: state.account.reserved.get(name, Amount()).subtract_clamped(least) for name, least in keeps.items()}
    return {name: amount for name, amount in spare.items() if not amount.is_zero}


def _borrowed(state: TaskState, step_id: str, amount: Amount, spare: dict[str, Amount]) -> TaskState:
    """Transfer reservations to the run: the same from each, as far as it can spare that."""
    left = dict(sorted(spare.items(), key=lambda item: (item[1].tokens, item[1].micro_usd, item[0])))
    account, runs = state.account, dict(state.runs)
    while left:
        name, lenders = next(iter(left)), len(left)
        even = Amount(tokens=-(-amount.tokens // lenders), micro_usd=-(-amount.micro_usd // lenders))
        part = left.pop(name).min_with(even)
        account, amount = account.transfer(name, step_id, part), amount.subtract_clamped(part)
        if name in runs:
            runs[name] = runs[name].after_reallocation(part)
    return state.replace(account=account, runs=runs)


def draw_freed_budget(state: TaskState, step_id: str) -> TaskState | None:
    """As `draw_budget`, for a run that waits for a person because of budget and nothing else."""
    run = state.runs[step_id]
    return draw_budget(state, step_id) if run.phase == "spent" and not run.halt_reason else None


def get_reset_time(state: TaskState, step_id: str) -> datetime | None:
    """Return when the account of a halted run's provider is reset; None if it is not known or the run is not halted."""
    run = state.runs.get(step_id)
    return run.halted_until if run is not None and run.phase == "spent" and run.halt_reason else None


def withdraw_budget_requests(
    state: TaskState, step_id: str, now: datetime, note: str = FREED_BUDGET_NOTE
) -> tuple[ApprovalRequest, ...]:
    """Return the run's open budget requests as withdrawn: it goes on without an answer, for the reason in the note."""
    return tuple(
        asked.replace(decision="withdrawn", note=note, answered_at=now)
        for asked in state.pending_approvals
        if asked.agent == step_id and asked.action is None
    )


def _from_parent(state: TaskState, step_id: str) -> TaskState | None:
    """Draw on what siblings released. A parent keeps its own part, to go on with."""
    parent = state.runs.get(get_parent_id(step_id) or "")
    if parent is None or parent.phase != "delegating":
        return None
    run, parent_id = state.runs[step_id], parent.run.step_id
    amount = _taken(run, parent.released_budget)
    if amount.is_zero:
        return None
    account = state.account.transfer(parent_id, step_id, amount)
    return state.replace(account=account, runs={**state.runs, parent_id: parent.after_transfer(amount)}).with_run(
        run.after_grant(amount)
    )


def _taken(run: AgentRun, remaining: Amount) -> Amount:
    """Return what a run takes of `remaining`; zero if that does not cover its next call.

    Beyond its next call it takes half of what it wants, so that several runs can draw before one is refused.
    """
    if not run.needed.subtract_clamped(remaining).is_zero:
        return Amount()
    more = run.top_up_amount.subtract_clamped(run.needed)
    return (run.needed + Amount(tokens=more.tokens // 2, micro_usd=more.micro_usd // 2)).min_with(remaining)
