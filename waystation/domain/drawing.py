"""What a run that spent its budget draws without a person: what its parent got back, then what its task has left over.

Money may come free while it waits for a person: then it goes on with that, and its request is withdrawn.
"""

from datetime import datetime

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Amount
from waystation.domain.delegation import parent_of
from waystation.domain.task import Approval
from waystation.domain.task_state import TaskState

FREED = "money came free, and it goes on with that"


def drawn(state: TaskState, step_id: str, *, from_parent: bool = True) -> TaskState | None:
    """The state in which the run goes on; None where nothing that it may draw on has enough for its next call."""
    if from_parent and (helped := _from_parent(state, step_id)) is not None:
        return helped
    state, amount = from_task(state, step_id)
    return None if amount.nothing else state.with_run(state.runs[step_id].after_grant(amount))


def from_task(state: TaskState, step_id: str) -> tuple[TaskState, Amount]:
    """What a task has left unreserved, held for a run that spent its own; nothing where that pays for no call."""
    account, amount = state.account.draw(step_id, _taken(state.runs[step_id], state.account.unreserved.amount))
    return state.with_(account=account), amount


def freed(state: TaskState, step_id: str) -> TaskState | None:
    """The same for a run that waits for a person, while it waits for money and for nothing else."""
    run = state.runs[step_id]
    return drawn(state, step_id) if run.phase == "spent" and not run.halted else None


def withdrawn(state: TaskState, step_id: str, now: datetime) -> tuple[Approval, ...]:
    """The run's open requests for money, closed: it has some."""
    return tuple(
        asked.model_copy(update={"decision": "withdrawn", "note": FREED, "answered_at": now})
        for asked in state.pending
        if asked.agent == step_id and asked.action is None
    )


def _from_parent(state: TaskState, step_id: str) -> TaskState | None:
    """Of what siblings handed back. A parent keeps its own part, to go on with."""
    parent = state.runs.get(parent_of(step_id) or "")
    if parent is None or parent.phase != "delegating":
        return None
    run, parent_id = state.runs[step_id], parent.run.step_id
    amount = _taken(run, parent.spare)
    if amount.nothing:
        return None
    account = state.account.carve(parent_id, step_id, amount)
    return state.with_(account=account, runs={**state.runs, parent_id: parent.carving(amount)}).with_run(
        run.after_grant(amount)
    )


def _taken(run: AgentRun, left: Amount) -> Amount:
    """What a run takes of what somebody has left; nothing where that is too little for its next call.

    Half of what it wants, so that several can draw before one is refused.
    """
    if not run.needed.less(left).nothing:
        return Amount()
    half = Amount(tokens=run.wanted.tokens // 2, micro_usd=run.wanted.micro_usd // 2)
    return half.at_least(run.needed).at_most(left)
