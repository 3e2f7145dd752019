"""How a finished task goes on: an agent is taken back, those that built on it begin anew, the money is held again."""

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Limit
from waystation.domain.compaction.edit import ContextEdit
from waystation.domain.delegation import parent_of, step_of
from waystation.domain.errors import BadInput
from waystation.domain.plan import Plan, share_out
from waystation.domain.rewind import TaskRewind
from waystation.domain.task import Approval, TaskPhase
from waystation.domain.task_state import TaskState


def going_on(ended: TaskState, asked: TaskRewind, agent_budget: Limit) -> tuple[TaskState, ContextEdit]:
    """The state to go on from, and the edit that stands in it as done. What was spent stays spent.

    What the task has left is shared out among the agents that work again; one that gets too little asks for more. The
    plan stays as it was revised, also where research is taken back that a revision has seen: that is noted.
    Raises BadInput for an agent that never began, and for a subagent, whose work is part of what its step handed in.
    """
    plan = _plan(ended, asked.agent)
    missing = (step.id for step in plan.steps if step.id not in ended.runs)
    again = tuple(dict.fromkeys((asked.agent, *plan.after(asked.agent), *missing)))
    worked = {run.run.step_id: run for run in ended.all_runs if run.run.step_id in again}
    account = ended.account
    for step_id, run in worked.items():
        account = account.take_back(step_id, run.totals.spent)
    share = share_out(account.unreserved, agent_budget, len(again))
    for step_id in again:
        account = account.reserve(step_id, share.amount)
    reopened = {step_id: run.reopened(share) for step_id, run in worked.items()}
    edit = _edit(reopened[asked.agent], asked)
    agent = reopened.pop(asked.agent).with_edit(edit)
    untouched = {step_id: run for step_id, run in ended.runs.items() if step_id not in again}
    state = ended.with_(
        phase=TaskPhase.WORKING,
        account=account,
        runs={**untouched, asked.agent: agent},
        shelved=reopened,
        share=share,
        approvals=tuple(_closed(approval, asked) for approval in ended.approvals),
        oversight=ended.oversight.taken_up_again(),
        notes=(*ended.notes, edit.text, *_revised(ended, asked.agent)),
        cancelled=False,
        report=None,
    )
    return state, edit


def _plan(ended: TaskState, agent: str) -> Plan:
    plan = ended.plan or Plan(steps=())
    if agent not in ended.runs:
        raise BadInput(f"there is no agent {agent!r} that has worked; there are: {', '.join(ended.runs) or 'none'}")
    if parent_of(agent) is not None:
        raise BadInput(
            f"{agent} is a subagent, and {step_of(agent)} has used what it found: take {step_of(agent)} back"
        )
    return plan


def _revised(ended: TaskState, agent: str) -> tuple[str, ...]:
    """A revision is not taken back: steps that it added may have been done, and paid."""
    made = [revision for revision in ended.oversight.revisions if revision.version and agent in revision.seen]
    return (f"The plan stays as revision {made[-1].number} of it left it.",) if made else ()


def _closed(approval: Approval, asked: TaskRewind) -> Approval:
    """A request that the end of the task came before is answered by nobody: whoever works again asks again."""
    if approval.decision != "pending":
        return approval
    return approval.model_copy(
        update={"decision": "expired", "note": "the task had ended", "answered_at": asked.asked_at}
    )


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
