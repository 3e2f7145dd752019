"""What planning, revisions and reviews may spend together: a share of the task's budget, held from the beginning."""

from waystation.domain.amount import Amount, Limit
from waystation.domain.budget import RunTotals
from waystation.domain.task import TaskTerms
from waystation.domain.task_state import TaskState

PLANNING_PART = 10
"""They may spend a tenth of the task's budget."""
HELD_FOR = "(oversight)"
"""Among the reservations of the task's account; no step can be called so."""


def provided(state: TaskState, planning: RunTotals, terms: TaskTerms) -> TaskState:
    """What planning left of its share is held for revisions and reviews, before the steps get theirs."""
    if not (terms.revisions or terms.reviews):
        return state
    state = state.with_planning(planning)
    left = state.account.limit.part(PLANNING_PART).after(planning.spent)
    return state.with_(account=state.account.reserve(HELD_FOR, left.amount.at_most(state.account.unreserved.amount)))


def allowance(state: TaskState) -> Limit:
    """What the next revision or review may spend: the rest of the share, as far as it is held or unreserved."""
    used = sum((totals.spent for totals in (state.planning, *state.oversight.totals)), Amount())
    share = state.account.limit.part(PLANNING_PART).after(used)
    there = state.account.unreserved.raised(state.account.reserved.get(HELD_FOR, Amount()))
    return share.after(there.excess(share.amount))


def begun(state: TaskState, run_id: str) -> TaskState:
    """An agent run of the oversight is under way: whatever happens, its cost is to be booked."""
    return state.with_(oversight=state.oversight.with_(under_way=run_id))


def paid(state: TaskState, run_id: str, totals: RunTotals) -> TaskState:
    """What it cost in all, booked once; the rest stays held."""
    before = state.oversight.costs.get(run_id, RunTotals())
    spent = totals.spent.less(before.spent)
    held = state.account.reserved.get(HELD_FOR, Amount())
    account = state.account.settle(HELD_FOR, Amount()).spend(spent)
    rest = held.less(spent).at_most(account.unreserved.amount)
    costs = {**state.oversight.costs, run_id: totals}
    return state.with_(
        account=account.reserve(HELD_FOR, rest), oversight=state.oversight.with_(costs=costs, under_way="")
    )
