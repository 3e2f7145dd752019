"""Tasks as people see them from outside: what the client gives back, and what it concludes from two looks."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from statistics import quantiles
from typing import Literal

from pydantic import JsonValue

from waystation.domain.amount import Amount
from waystation.domain.approvals import Origin
from waystation.domain.plan import Plan, PlanVersion
from waystation.domain.procedures import GivenProcedure
from waystation.domain.progress import Doing
from waystation.domain.task import (
    Approval,
    AuditEntry,
    BudgetProgress,
    Resolution,
    StepProgress,
    TaskPhase,
    TaskProgress,
    TaskRow,
)
from waystation.domain.value import Value


class Submitted(Value):
    """A task that was accepted."""

    task_id: str
    workflow_id: str
    run_id: str | None
    """None where the task ended so long ago that the server has forgotten it."""
    ui_url: str | None
    warnings: tuple[str, ...] = ()
    procedures: tuple[GivenProcedure, ...] = ()
    """What its agents follow beside the question and the instructions."""


class SeenTelling(Value):
    """What a person told a task at work."""

    number: int
    by: str
    """The name that the person gave: a claim, not a proof."""
    told_at: datetime
    text: str
    heard_by: tuple[str, ...]
    """Agents, by the ids of their steps. Others hear it at their next turn, if they have one."""


class TaskView(Value):
    """A task as it can be seen now. Its workflow id is its task id."""

    progress: TaskProgress
    run_id: str | None = None
    ui_url: str | None = None
    remark: str = ""
    """Why this is not the live state, where it is not."""
    waits: tuple[str, ...] = ()
    """Why work is tried again, where a server could be asked."""
    doing: tuple[Doing, ...] = ()
    """What agents are at in this moment, where a server could be asked."""
    origins: dict[str, Origin] = {}
    """By request id: where its answer came from. Only where it was asked for, and the server still knows."""
    passages_waiting: int = 0
    """Passages that memory does not have yet. Only where it was asked for, as the next."""
    passages_refused: tuple[str, ...] = ()
    """Ids of passages that memory does not take."""
    characters_not_remembered: int = 0
    """Of its documents, beyond what its terms let into memory."""
    plans: tuple[PlanVersion, ...] = ()
    """The task's plans, oldest first."""
    tellings: tuple[SeenTelling, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    """What its tools were given of the vault, by placeholder. Only where it was asked for."""
    procedures: tuple[GivenProcedure, ...] = ()
    """What its agents were told to follow."""
    session: str = ""
    """By which later tasks go on with what it found. Only where it was asked for."""


class Draft(Value):
    """What a task would deliver if it ended now."""

    phase: TaskPhase
    markdown: str


class PendingApproval(Value):
    """A request for money that waits for an answer."""

    task_id: str
    title: str
    approval: Approval
    task_budget: BudgetProgress | None = None
    """The task's account as it is now; None where no worker answers for the task."""
    then: Literal["partial", "wait"] | None = None
    """What happens at its deadline; None where it is not known here."""
    steps: tuple[StepProgress, ...] = ()
    """Of the plan that a request is about, each with its share."""

    @property
    def urgency(self) -> tuple[datetime, datetime, str, str]:
        """For sorting: the next deadline first, then the oldest request."""
        asked = self.approval.requested_at or datetime.min.replace(tzinfo=UTC)
        deadline = self.approval.answer_by or datetime.max.replace(tzinfo=UTC)
        return deadline, asked, self.task_id, self.approval.request_id


def pending(progress: TaskProgress, then: Literal["partial", "wait"] | None = None) -> tuple[PendingApproval, ...]:
    """A task's requests that can still be answered. `then`: what happens at their deadlines, where it is known."""
    return tuple(
        PendingApproval(
            task_id=progress.task_id,
            title=progress.title,
            approval=approval,
            task_budget=progress.budget,
            then=then,
            steps=progress.steps if approval.about_plan else (),
        )
        for approval in progress.approvals
        if approval.decision == "pending" and not progress.phase.over
    )


FEW, EARLIER = 5, 50
"""Tasks: fewer tell nothing of what is usual; of more, the newest count."""


class Usual(Value):
    """What a step of a tenant's earlier tasks has spent, in tokens: every tenth task spent less than the least, every
    tenth more than the most.
    """

    tasks: int
    least: int
    middle: int
    most: int


def usual(rows: Iterable[TaskRow]) -> Usual | None:
    """None where there are too few tasks that ended as they should."""
    ended = (row.progress for row in rows if row.progress is not None and row.progress.phase is TaskPhase.DONE)
    each = [one.budget.spent.tokens // len(one.steps) for one in ended if one.steps]
    if len(each) < FEW:
        return None
    tenths = [round(tenth) for tenth in quantiles(each, n=10, method="inclusive")]
    return Usual(tasks=len(each), least=tenths[0], middle=tenths[4], most=tenths[-1])


class PlannedTask(Value):
    """A plan, and what a person wants to know who is to agree to it."""

    plan: Plan
    """With its goals."""
    progress: TaskProgress
    documents: tuple[str, ...]
    """Names of what the task may read."""
    usual: Usual | None


def still_open(trail: Iterable[AuditEntry]) -> tuple[Approval, ...]:
    """The requests of an audit trail that nobody has answered."""
    newest = {entry.request_id: entry for entry in trail if isinstance(entry, Approval)}
    return tuple(approval for approval in newest.values() if approval.decision == "pending")


def as_stored(row: TaskRow, phase: TaskPhase) -> TaskProgress:
    """What the store alone can say of a task that has not ended there."""
    if row.progress is not None:
        return row.progress.model_copy(update={"phase": phase})
    return TaskProgress(
        task_id=row.ref.task_id,
        phase=phase,
        title=row.title,
        model=row.terms.agent.model,
        models=row.terms.models,
        budget=BudgetProgress(limit=row.terms.budget, spent=Amount(), reserved=Amount()),
    )


def with_kept_reports(row: TaskRow, live: TaskProgress) -> TaskProgress:
    """What a workflow says of itself, with the reports that the store has and it does not know: it has just begun anew
    after a rewind, or came to nothing before it read what it goes on from.
    """
    kept = row.progress.versions if row.progress is not None else ()
    return live.model_copy(update={"reports": kept}) if len(kept) > len(live.versions) else live


def given(answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The fields of an answer that say something."""
    return {name: value for name, value in answer.items() if value is not None and value != ""}
