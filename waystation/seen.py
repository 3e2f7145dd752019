"""Tasks as people see them from outside: what the client gives back, and what it concludes from two looks."""

from typing import Literal

from waystation.domain.task import Approval, BudgetProgress, TaskPhase, TaskProgress, TaskRow
from waystation.domain.value import Value


class Submitted(Value):
    """A task that was accepted."""

    task_id: str
    workflow_id: str
    run_id: str | None
    """None where the task ended so long ago that the server has forgotten it."""
    ui_url: str | None
    warnings: tuple[str, ...] = ()


class TaskView(Value):
    """A task as it can be seen now. Its workflow id is its task id."""

    progress: TaskProgress
    run_id: str | None = None
    ui_url: str | None = None
    remark: str = ""
    """Why this is not the live state, where it is not."""


class PendingApproval(Value):
    """A request for money that waits for an answer."""

    task_id: str
    title: str
    approval: Approval


class Answer(Value):
    """What became of an approval or a denial that was sent."""

    outcome: Literal["approved", "denied", "refused", "unseen"]
    """`unseen`: it was sent and will be read, but no worker has read it yet."""
    reason: str = ""


def effect(answer_id: str, now: TaskProgress) -> Answer | None:
    """What the answer that was sent with this id has led to; None: nothing yet."""
    for refusal in now.refusals:
        if refusal.answer_id == answer_id:
            return Answer(outcome="refused", reason=refusal.reason)
    for approval in now.approvals:
        if approval.answer_id == answer_id and approval.decision != "pending":
            return Answer(outcome=approval.decision, reason=approval.note)
    return None


def as_stored(row: TaskRow, phase: TaskPhase) -> TaskProgress:
    """What the store alone can say of a task that has not ended there."""
    if row.progress is not None:
        return row.progress.model_copy(update={"phase": phase})
    return TaskProgress(
        task_id=row.ref.task_id,
        phase=phase,
        title=row.title,
        model=row.terms.agent.model,
        budget=BudgetProgress(limit=row.terms.budget, spent=0, reserved=0),
    )
