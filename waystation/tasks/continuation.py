"""How a task begins, and how it goes on from work that is done: forked, reopened, taken back.

How a task begins with finished steps of another one: those count as done, all others begin anew with new money.

How a finished task goes on: an agent is taken back, those that built on it begin anew, the money is held again.

Taking a conversation back: what goes with the messages that count no more, and what stays.

What a task's workflow is started with.
"""

from collections.abc import Iterable
from datetime import datetime

from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import get_parent_id, get_step_id
from waystation.agents.deliverables import Deliverable
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.context.compaction import ContextEdit
from waystation.context.history import build_rewind_record, get_effective_transcript, with_record
from waystation.context.transcript import RewindRecord, Transcript
from waystation.kernel.amount import Limit
from waystation.kernel.deferred_signals import DeferredSignal
from waystation.kernel.errors import BadInput
from waystation.kernel.json_chunks import StateRef
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.planning.plan import OversightState, Plan, compute_even_share, compute_shares_with_reserves
from waystation.privacy.policy import RedactionPolicy
from waystation.tasks.reviews import reserve_oversight_budget
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, ForkOrigin, ReusedWork, TaskConfig, TaskPhase


def build_fork_state(ended: TaskState, origin: ForkOrigin, ref: TaskRef, terms: TaskConfig) -> TaskState:
    """The state in which the new task begins. The plan is that of the other one as it was last revised, and what people
    told that one is told to this one, too. Raises BadInput for a step that the plan does not have.
    """
    plan = _plan_with_step(ended, origin)
    again = _again(ended, plan, origin.step)
    kept = {agent: _kept(run, ref) for agent, run in ended.runs.items() if get_step_id(agent) not in again}
    begun = TaskState(account=BudgetAccount(limit=terms.budget), runs=kept)
    begun = begun.replace(tellings=ended.tellings, updates=ended.updates)
    reused = ReusedWork(task_id=origin.task_id, agents=tuple(kept), payers=_payers(ended, kept))
    steps = [step.id for step in plan.steps if step.id in kept]
    notes = tuple(f"{sentence[0].upper()}{sentence[1:]}." for sentence in reused.format_sentences(steps))
    remaining = Plan(steps=tuple(step for step in plan.steps if step.id in again))
    planned = reserve_oversight_budget(begun, RunUsage(), terms).with_plan(
        remaining, RunUsage(), notes, terms.agent_budget
    )
    oversight = _oversight(ended, again, plan).replace(shares=planned.oversight.shares)
    return planned.replace(plan=plan, reused=reused, oversight=oversight)


def _plan_with_step(ended: TaskState, origin: ForkOrigin) -> Plan:
    if ended.plan is None:
        raise BadInput(f"{origin.task_id} ended before it had a plan: there is no step to reuse; submit it anew")
    if all(step.id != origin.step for step in ended.plan.steps):
        names = ", ".join(step.id for step in ended.plan.steps)
        raise BadInput(f"{origin.task_id} has no step {origin.step!r}; it has {names}")
    return ended.plan


def _again(ended: TaskState, plan: Plan, first: str) -> frozenset[str]:
    """The step, all that are not finished, and all that build on one of those."""
    unfinished = (step.id for step in plan.steps if not _finished(ended, step.id))
    return frozenset(
        after for step_id in (first, *unfinished) for after in (step_id, *plan.list_dependent_ids(step_id))
    )


def _finished(ended: TaskState, step_id: str) -> bool:
    """What was partial when its task was cancelled had not been finished: nobody was content with it."""
    run = ended.runs.get(step_id)
    return run is not None and run.phase == "delivered" and not (run.partial and ended.cancelled)


def _payers(ended: TaskState, kept: Iterable[str]) -> dict[str, str]:
    """Of what that task had not paid itself."""
    earlier = ended.reused
    return {} if earlier is None else {agent: earlier.get_payer(agent) for agent in kept if agent in earlier.agents}


def _kept(run: AgentRun, ref: TaskRef) -> AgentRun:
    """The same work under the new task. What it cost was paid there."""
    own = run.run.replace(store_id=ref.store_id, tenant=ref.tenant, session=ref.session, task_id=ref.task_id)
    return run.replace(run=own, totals=RunUsage())


def _oversight(ended: TaskState, again: frozenset[str], plan: Plan) -> OversightState:
    """A revision that saw only findings that are kept is not made again."""
    research = {step.id for step in plan.steps if step.role == "research"}
    revisions = () if again & research else ended.oversight.revisions
    return OversightState(revisions=revisions)


class TranscriptRewind(Value):
    """One transcript taken back. Charges stay, and so does what was said: it only counts no more."""

    record: RewindRecord
    gone: frozenset[str]
    """Ids of the messages that count no more: passages that have any of them go."""
    calls: frozenset[str]
    """Ids of the tool calls in them: notes that they took go."""
    handed_in: Deliverable | None = None
    """What the calls that still count have handed in."""


class TaskRewind(Value):
    """A finished task is to go on from a message of one of its agents."""

    ref: TaskRef
    agent: str
    """Id of the agent's step."""
    message: str
    keep: bool
    """Whether the message itself stays."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    note: str = ""
    asked_at: datetime


def build_transcript_rewind(transcript: Transcript, message_id: str, record_id: str, *, keep: bool) -> TranscriptRewind:
    """The rewind to a message, and what goes with it. Raises BadInput for a message that does not count."""
    record = build_rewind_record(transcript, message_id, record_id, keep=keep)
    stays = {message.id for message in get_effective_transcript(with_record(transcript, record)).messages}
    gone = [message for message in get_effective_transcript(transcript).messages if message.id not in stays]
    return TranscriptRewind(
        record=record,
        gone=frozenset(message.id for message in gone),
        calls=frozenset(call.id for message in gone for call in message.tool_uses),
    )


def build_reopened_state(ended: TaskState, asked: TaskRewind, agent_budget: Limit) -> tuple[TaskState, ContextEdit]:
    """The state to go on from, and the edit that stands in it as done. What was spent stays spent.

    What the task has left is shared out among the agents that work again; one that gets too little asks for more. The
    plan stays as it was revised, also where research is taken back that a revision has seen: that is noted.
    Raises BadInput for an agent that never began, and for a subagent, whose work is part of what its step handed in.
    """
    plan = _plan_with_agent(ended, asked.agent)
    missing = (step.id for step in plan.steps if step.id not in ended.runs)
    again = tuple(dict.fromkeys((asked.agent, *plan.list_dependent_ids(asked.agent), *missing)))
    worked = {run.run.step_id: run for run in ended.all_runs if run.run.step_id in again}
    account = ended.account
    for step_id, run in worked.items():
        account = account.undo_settlement(step_id, run.totals.spent)
    share = compute_even_share(account.unreserved, agent_budget, len(again))
    roles = {step.id: step.role for step in plan.steps if step.id in again}
    shares = compute_shares_with_reserves(account.unreserved, agent_budget, roles, ended.minimum_reserves)
    for step_id in again:
        account = account.reserve(step_id, shares[step_id].amount)
    reopened = {step_id: run.reopen_run(shares[step_id]) for step_id, run in worked.items()}
    edit = _edit(reopened[asked.agent], asked)
    agent = reopened.pop(asked.agent).with_edit(edit)
    untouched = {step_id: run for step_id, run in ended.runs.items() if step_id not in again}
    state = ended.replace(
        phase=TaskPhase.WORKING,
        account=account,
        runs={**untouched, asked.agent: agent},
        shelved=reopened,
        share=share,
        approvals=tuple(_closed(approval, asked) for approval in ended.approvals),
        oversight=ended.oversight.after_reopening(),
        notes=(*ended.notes, edit.text, *_revised(ended, asked.agent)),
        cancelled=False,
        report=None,
    )
    return state, edit


def _plan_with_agent(ended: TaskState, agent: str) -> Plan:
    plan = ended.plan or Plan(steps=())
    if agent not in ended.runs:
        raise BadInput(f"there is no agent {agent!r} that has worked; there are: {', '.join(ended.runs) or 'none'}")
    if get_parent_id(agent) is not None:
        raise BadInput(
            f"{agent} is a subagent, and {get_step_id(agent)} has used what it found: take {get_step_id(agent)} back"
        )
    return plan


def _revised(ended: TaskState, agent: str) -> tuple[str, ...]:
    """A revision is not taken back: steps that it added may have been done, and paid."""
    made = [revision for revision in ended.oversight.revisions if revision.version and agent in revision.seen]
    return (f"The plan stays as revision {made[-1].number} of it left it.",) if made else ()


def _closed(approval: ApprovalRequest, asked: TaskRewind) -> ApprovalRequest:
    """A request that the end of the task came before is answered by nobody: whoever works again asks again."""
    if approval.decision != "pending":
        return approval
    return approval.replace(decision="expired", note="the task had ended", answered_at=asked.asked_at)


def _edit(run: AgentRun, asked: TaskRewind) -> ContextEdit:
    return ContextEdit(
        id=run.next_edit_id,
        agent=asked.agent,
        action="rewind",
        message=asked.message,
        keep=asked.keep,
        by=asked.by,
        note=asked.note,
        asked_at=asked.asked_at,
        state="done",
        reason="the task goes on from there, and what built on it begins anew",
    )


class TaskWorkflowInput(Value):
    """Input of the Task workflow: references and terms."""

    ref: TaskRef
    terms: TaskConfig
    title: str
    search_attributes: bool
    notices: bool = False
    """Whether people are told by a webhook."""
    privacy: RedactionPolicy | None = None
    """How much is replaced by the worker that admitted the task."""
    sealed_answers: bool = False
    """Whether what people send must have been encrypted with the key of the workers: said by the worker that admitted
    the task, which encrypts.
    """
    approvers: tuple[str, ...] = ()
    """Whose verified answers alone have an effect: said by the worker that admitted the task."""
    documents: int = 0
    """How many it has."""
    rewind: TaskRewind | None = None
    """The task has ended before, and goes on from here."""
    forked: bool = False
    """The store has the state to go on from: of another task, as far as this one reuses it."""
    state: StateRef | None = None
    """The state to go on from, which the run before has stored. Never the state itself: it grows with the task."""
    held: tuple[DeferredSignal, ...] = ()
    """What came while that state was being stored, in its order."""
