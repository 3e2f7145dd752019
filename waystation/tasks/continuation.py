"""How a task starts, and how it continues from finished work: forks, reopened tasks, rewound conversations."""

from collections.abc import Iterable
from datetime import datetime

from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import get_parent_id, get_step_id
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.context.compaction import ContextEdit
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


def build_fork_state(ended: TaskState, origin: ForkOrigin, ref: TaskRef, config: TaskConfig) -> TaskState:
    """Build the state in which a fork starts.

    The plan is the other task's as last revised; its messages from people apply here, too. Raises BadInput for a step
    that the plan does not have.
    """
    plan = _plan_with_step(ended, origin)
    again = _again(ended, plan, origin.step)
    kept = {agent: _kept(run, ref) for agent, run in ended.runs.items() if get_step_id(agent) not in again}
    begun = TaskState(account=BudgetAccount(limit=config.budget), runs=kept)
    begun = begun.replace(task_messages=ended.task_messages, document_updates=ended.document_updates)
    reused = ReusedWork(task_id=origin.task_id, agents=tuple(kept), payers=_payers(ended, kept))
    steps = [step.id for step in plan.steps if step.id in kept]
    notes = tuple(f"{sentence[0].upper()}{sentence[1:]}." for sentence in reused.format_sentences(steps))
    remaining = Plan(steps=tuple(step for step in plan.steps if step.id in again))
    planned = reserve_oversight_budget(begun, RunUsage(), config).with_plan(
        remaining, RunUsage(), notes, config.agent_budget
    )
    oversight = _oversight(ended, again, plan).replace(shares=planned.oversight.shares)
    return planned.replace(plan=plan, reused=reused, oversight=oversight)


def _plan_with_step(ended: TaskState, origin: ForkOrigin) -> Plan:
    if ended.plan is None:
        raise BadInput(
            f"{origin.task_id} ended before it had a plan: there is no step to reuse. Submit its question again"
        )
    if all(step.id != origin.step for step in ended.plan.steps):
        names = ", ".join(step.id for step in ended.plan.steps)
        raise BadInput(f"{origin.task_id} has no step {origin.step!r}; it has {names}")
    return ended.plan


def _again(ended: TaskState, plan: Plan, first: str) -> frozenset[str]:
    """Return the step, all unfinished steps, and all that build on one of those."""
    unfinished = (step.id for step in plan.steps if not _finished(ended, step.id))
    return frozenset(
        after for step_id in (first, *unfinished) for after in (step_id, *plan.list_dependent_ids(step_id))
    )


def _finished(ended: TaskState, step_id: str) -> bool:
    """Return whether a step is finished. A step that was partial because its task was cancelled is not."""
    run = ended.runs.get(step_id)
    return run is not None and run.phase == "delivered" and not (run.partial and ended.cancelled)


def _payers(ended: TaskState, kept: Iterable[str]) -> dict[str, str]:
    """Map agents to the tasks that paid for them, if the other task had reused them itself."""
    earlier = ended.reused
    return {} if earlier is None else {agent: earlier.get_payer(agent) for agent in kept if agent in earlier.agents}


def _kept(run: AgentRun, ref: TaskRef) -> AgentRun:
    """Return the same work under the new task, without its cost, which was paid there."""
    own = run.run.replace(store_id=ref.store_id, tenant=ref.tenant, session=ref.session, task_id=ref.task_id)
    return run.replace(run=own, totals=RunUsage())


def _oversight(ended: TaskState, again: frozenset[str], plan: Plan) -> OversightState:
    """Return the oversight: a revision that saw only reused findings is not repeated."""
    research = {step.id for step in plan.steps if step.role == "research"}
    revisions = () if again & research else ended.oversight.revisions
    return OversightState(revisions=revisions)


class TaskRewind(Value):
    """Request to continue a finished task from a message of one of its agents."""

    ref: TaskRef
    agent: str
    """ID of the agent's step."""
    message: str
    keep_message: bool
    """Whether the message itself stays."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    note: str = ""
    requested_at: datetime


def build_reopened_state(ended: TaskState, rewind: TaskRewind, agent_budget: Limit) -> tuple[TaskState, ContextEdit]:
    """Build the state from which the task continues, and the edit that it records as done. Spending stays booked.

    What the task has left is shared among the agents that work again; one with too little requests more. The plan stays
    as revised, even if research that a revision has seen is rewound: that is noted. Raises BadInput for an agent that
    never began, and for a subagent, whose work is part of its step's result.
    """
    plan = _plan_with_agent(ended, rewind.agent)
    missing = (step.id for step in plan.steps if step.id not in ended.runs)
    again = tuple(dict.fromkeys((rewind.agent, *plan.list_dependent_ids(rewind.agent), *missing)))
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
    edit = _edit(reopened[rewind.agent], rewind)
    agent = reopened.pop(rewind.agent).with_edit(edit)
    untouched = {step_id: run for step_id, run in ended.runs.items() if step_id not in again}
    state = ended.replace(
        phase=TaskPhase.WORKING,
        account=account,
        runs={**untouched, rewind.agent: agent},
        suspended_runs=reopened,
        initial_step_limit=share,
        approvals=tuple(_closed(approval, rewind) for approval in ended.approvals),
        oversight=ended.oversight.after_reopening(shares),
        notes=(*ended.notes, edit.text, *_revised(ended, rewind.agent)),
        cancelled=False,
        delivery_requested=False,
        report=None,
    )
    return state, edit


def _plan_with_agent(ended: TaskState, agent: str) -> Plan:
    plan = ended.plan or Plan(steps=())
    if agent not in ended.runs:
        raise BadInput(f"no agent {agent!r} has worked; agents that have worked: {', '.join(ended.runs) or 'none'}")
    if get_parent_id(agent) is not None:
        raise BadInput(
            f"{agent} is a subagent, and {get_step_id(agent)} has used its findings: rewind "
            f"{get_step_id(agent)} instead"
        )
    return plan


def _revised(ended: TaskState, agent: str) -> tuple[str, ...]:
    """Return a note if a revision saw the agent's work.

    It is not undone: the steps that it added may be done and paid for.
    """
    made = [revision for revision in ended.oversight.revisions if revision.version and agent in revision.reviewed_steps]
    return (f"The rewind does not undo revision {made[-1].number} of the plan.",) if made else ()


def _closed(approval: ApprovalRequest, rewind: TaskRewind) -> ApprovalRequest:
    """Close a request that was open at the task's end; an agent that works again makes a new one."""
    if approval.decision != "pending":
        return approval
    return approval.replace(decision="expired", note="the task had ended", answered_at=rewind.requested_at)


def _edit(run: AgentRun, rewind: TaskRewind) -> ContextEdit:
    return ContextEdit(
        id=run.next_edit_id,
        agent=rewind.agent,
        action="rewind",
        message=rewind.message,
        keep_message=rewind.keep_message,
        by=rewind.by,
        note=rewind.note,
        requested_at=rewind.requested_at,
        state="done",
        reason="the task continues after the rewind, and steps that used the agent's result start again",
    )


class TaskWorkflowInput(Value):
    """Input of the Task workflow: references and configuration."""

    ref: TaskRef
    config: TaskConfig
    title: str
    search_attributes: bool
    notifications: bool = False
    """Whether people are notified by webhook."""
    privacy: RedactionPolicy | None = None
    """How much the worker that admitted the task redacts."""
    requires_encrypted_messages: bool = False
    """Whether people's messages must be encrypted with the workers' key; set by the worker that admitted the task, if
    it encrypts.
    """
    approvers: tuple[str, ...] = ()
    """Names whose verified answers alone take effect; set by the worker that admitted the task."""
    documents: int = 0
    """Number of documents."""
    scheduled_run: str = ""
    """ID of the workflow of the scheduled run that waits for the task; empty if none does."""
    rewind: TaskRewind | None = None
    """Set if the task has ended before and continues from here."""
    forked: bool = False
    """Whether the store has a state to continue from: another task's, as far as this one reuses it."""
    state: StateRef | None = None
    """State to continue from, stored by the previous run. Never the state itself: it grows with the task."""
    deferred_signals: tuple[DeferredSignal, ...] = ()
    """Messages that arrived while that state was being stored, in order."""
