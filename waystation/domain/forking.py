"""How a task begins with finished steps of another one: those count as done, all others begin anew with new money."""

from collections.abc import Iterable

from waystation.domain.agent_run import AgentRun
from waystation.domain.budget import RunTotals
from waystation.domain.delegation import step_of
from waystation.domain.errors import BadInput
from waystation.domain.fork import ForkedFrom, Reused
from waystation.domain.ledger import Account
from waystation.domain.oversight import Oversight
from waystation.domain.oversight_budget import provided
from waystation.domain.plan import Plan
from waystation.domain.task import TaskRef, TaskTerms
from waystation.domain.task_state import TaskState


def forked(ended: TaskState, origin: ForkedFrom, ref: TaskRef, terms: TaskTerms) -> TaskState:
    """The state in which the new task begins. The plan is that of the other one as it was last revised, and what people
    told that one is told to this one, too. Raises BadInput for a step that the plan does not have.
    """
    plan = _plan(ended, origin)
    again = _again(ended, plan, origin.step)
    kept = {agent: _kept(run, ref) for agent, run in ended.runs.items() if step_of(agent) not in again}
    begun = TaskState(account=Account(limit=terms.budget), runs=kept)
    begun = begun.with_(tellings=ended.tellings, updates=ended.updates)
    reused = Reused(task_id=origin.task_id, agents=tuple(kept), payers=_payers(ended, kept))
    steps = [step.id for step in plan.steps if step.id in kept]
    notes = tuple(f"{sentence[0].upper()}{sentence[1:]}." for sentence in reused.sentences(steps))
    remaining = Plan(steps=tuple(step for step in plan.steps if step.id in again))
    planned = provided(begun, RunTotals(), terms).planned(remaining, RunTotals(), notes, terms.agent_budget)
    return planned.with_(plan=plan, reused=reused, oversight=_oversight(ended, again, plan))


def _plan(ended: TaskState, origin: ForkedFrom) -> Plan:
    if ended.plan is None:
        raise BadInput(f"{origin.task_id} ended before it had a plan: there is no step to reuse; submit it anew")
    if all(step.id != origin.step for step in ended.plan.steps):
        names = ", ".join(step.id for step in ended.plan.steps)
        raise BadInput(f"{origin.task_id} has no step {origin.step!r}; it has {names}")
    return ended.plan


def _again(ended: TaskState, plan: Plan, first: str) -> frozenset[str]:
    """The step, all that are not finished, and all that build on one of those."""
    unfinished = (step.id for step in plan.steps if not _finished(ended, step.id))
    return frozenset(after for step_id in (first, *unfinished) for after in (step_id, *plan.after(step_id)))


def _finished(ended: TaskState, step_id: str) -> bool:
    """What was partial when its task was cancelled had not been finished: nobody was content with it."""
    run = ended.runs.get(step_id)
    return run is not None and run.phase == "delivered" and not (run.partial and ended.cancelled)


def _payers(ended: TaskState, kept: Iterable[str]) -> dict[str, str]:
    """Of what that task had not paid itself."""
    earlier = ended.reused
    return {} if earlier is None else {agent: earlier.payer(agent) for agent in kept if agent in earlier.agents}


def _kept(run: AgentRun, ref: TaskRef) -> AgentRun:
    """The same work under the new task. What it cost was paid there."""
    own = run.run.model_copy(update=ref.model_dump())
    return run.model_copy(update={"run": own, "totals": RunTotals()})


def _oversight(ended: TaskState, again: frozenset[str], plan: Plan) -> Oversight:
    """A revision that saw only findings that are kept is not made again."""
    research = {step.id for step in plan.steps if step.role == "research"}
    revisions = () if again & research else ended.oversight.revisions
    return Oversight(revisions=revisions)
