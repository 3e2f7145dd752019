"""When a task's plan is revised, for how many new steps there is room, and what becomes of the task by it."""

from waystation.domain.amount import Amount, Limit
from waystation.domain.budget import RunTotals
from waystation.domain.oversight import PlanRevision, revision_id
from waystation.domain.oversight_budget import allowance, paid
from waystation.domain.plan import MAX_STEPS, Plan, share_out
from waystation.domain.pricing import PRICES, Price
from waystation.domain.task import TaskRef, TaskTerms
from waystation.domain.task_state import TaskState, merged
from waystation.domain.value import Value

LEAST_PART = 2
"""A new step that would start with less than half of what the others had is not worth beginning."""


class RevisionRequest(Value):
    """One revision to carry out. Carried out again, it gives the same and asks nothing twice."""

    ref: TaskRef
    number: int
    model: str
    limit: Limit
    """What it may spend."""
    begun: tuple[str, ...]
    """Ids of the steps that stay as they are."""
    seen: tuple[str, ...]
    """Ids of the research steps, all of which are done."""
    room: int
    """For how many new steps there is budget."""
    prices: tuple[Price, ...] = PRICES


class Revised(Value):
    """What a revision led to."""

    revision: PlanRevision
    plan: Plan | None = None
    """Without goals; None: it was kept."""
    totals: RunTotals
    notes: tuple[str, ...] = ()


def revision_due(state: TaskState, terms: TaskTerms) -> bool:
    """Whether all research is done, by steps that no revision has seen, and there are steps that have not begun."""
    plan, revisions = state.plan, state.oversight.revisions
    if plan is None or state.cancelled or len(revisions) >= terms.revisions:
        return False
    research = _research(plan)
    seen = revisions[-1].seen if revisions else ()
    ahead = any(step.id not in _begun(state) for step in plan.steps)
    return ahead and state.done.issuperset(research) and not set(research) <= set(seen)


def revision_request(state: TaskState, ref: TaskRef, terms: TaskTerms) -> RevisionRequest:
    """The next revision of a plan that is there."""
    plan = state.plan or Plan(steps=())
    return RevisionRequest(
        ref=ref,
        number=len(state.oversight.revisions) + 1,
        model=terms.plan_model,
        limit=allowance(state),
        begun=tuple(step.id for step in plan.steps if step.id in _begun(state)),
        seen=_research(plan),
        room=_room(state, plan, terms.agent_budget),
        prices=terms.agent.prices,
    )


def revised(state: TaskState, made: Revised, agent_budget: Limit) -> TaskState:
    """The plan that holds from now on. What was held for dropped steps is free; new steps get their shares of that."""
    revision = made.revision
    state = paid(state, revision_id(revision.number), made.totals)
    account = state.account
    for step_id in revision.dropped:
        account = account.settle(step_id, Amount())
    share = share_out(account.unreserved, agent_budget, len(revision.added))
    for step_id in revision.added:
        account = account.reserve(step_id, share.amount)
    oversight = state.oversight.with_(
        revisions=(*state.oversight.revisions, revision),
        shares={**state.oversight.shares, **dict.fromkeys(revision.added, share)},
    )
    return state.with_(
        plan=made.plan or state.plan, account=account, oversight=oversight, notes=merged(state.notes, made.notes)
    )


def _research(plan: Plan) -> tuple[str, ...]:
    return tuple(step.id for step in plan.steps if step.role == "research")


def _begun(state: TaskState) -> frozenset[str]:
    """Also those that begin anew after a rewind: they know what they were to do."""
    return frozenset((*state.runs, *state.shelved))


def _room(state: TaskState, plan: Plan, agent_budget: Limit) -> int:
    least, left = (state.share or agent_budget).part(LEAST_PART), state.account.unreserved
    pairs = ((left.tokens, least.tokens), (left.micro_usd, least.micro_usd))
    affordable = [have // each for have, each in pairs if have is not None and each]
    return max(0, min((MAX_STEPS - len(plan.steps), *affordable)))
