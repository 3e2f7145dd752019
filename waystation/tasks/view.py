"""Tasks as people see them from outside: what the client gives back, and what it concludes from two looks."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from pydantic import JsonValue

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.agent_status import AgentStatus
from waystation.agents.prompt_sections import PromptAllocation
from waystation.context.audit import CompactionAudit
from waystation.documents.documents import SkippedItem
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.value import UtcMoment, Value
from waystation.memory.ports import Embedder, Memory
from waystation.planning.plan import PlanVersion
from waystation.tasks.approvals import AnswerOrigin
from waystation.tasks.task import (
    ApprovalRequest,
    AuditEntry,
    BudgetProgress,
    StepProgress,
    TaskPhase,
    TaskProgress,
    TaskRow,
)


class SubmittedTask(Value):
    """A task that was accepted."""

    task_id: str
    run_id: str | None
    """None where the task ended so long ago that the server has forgotten it."""
    ui_url: str | None
    warnings: tuple[str, ...] = ()
    procedures: tuple[ProcedureSource, ...] = ()
    """What its agents follow beside the question and the instructions."""


class TaskMessageView(Value):
    """What a person told a task at work."""

    number: int
    by: str
    """The name that the person gave: a claim, not a proof."""
    told_at: datetime
    text: str
    heard_by: tuple[str, ...]
    """Agents, by the ids of their steps. Others hear it at their next turn, if they have one."""


DELIVERED_PHASES = frozenset({TaskPhase.DONE, TaskPhase.PARTIAL})
"""Phases that the store knows first."""


class TaskFilter(Value):
    """Which tasks are looked for. What is not given narrows nothing."""

    session: str | None = None
    phases: frozenset[TaskPhase] = frozenset()
    """Any of these; empty means any at all."""
    since: UtcMoment | None = None
    """Submitted then or later."""
    text: str = ""
    """Stands in the title, in whatever case: what is hidden there (a name, what was cut off) finds nothing."""

    @property
    def narrows(self) -> bool:
        """Whether all tasks that it lets through are meant, and not only the newest of a session or tenant."""
        return bool(self.phases or self.since or self.text)

    def matches_phase(self, phase: TaskPhase) -> bool:
        """Whether it is one of those that are looked for."""
        return not self.phases or phase in self.phases

    def may_match(self, row: TaskRow) -> bool:
        """As far as the store knows. Of a task that has not ended there the server says the phase: it may have been
        ended by force, but nothing was delivered.
        """
        if self.text.casefold() not in row.title.casefold():
            return False
        if row.progress is not None and row.progress.phase.over:
            return self.matches_phase(row.progress.phase)
        return not self.phases or not self.phases <= DELIVERED_PHASES


class TaskView(Value):
    """A task as it can be seen now."""

    progress: TaskProgress
    run_id: str | None = None
    ui_url: str | None = None
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    """None while it works or waits, and where it was ended by force."""
    remark: str = ""
    """Why this is not the live state, where it is not."""
    waits: tuple[str, ...] = ()
    """Why work is tried again, where a server could be asked."""
    doing: tuple[AgentStatus, ...] = ()
    """What agents are at in this moment, where a server could be asked."""
    origins: dict[str, AnswerOrigin] = {}
    """By request id: where its answer came from. Only where it was asked for, and the server still knows."""
    passages_waiting: int = 0
    """Passages that memory does not have yet. Only where it was asked for, as the next."""
    passages_refused: tuple[str, ...] = ()
    """Ids of passages that memory does not take."""
    characters_not_remembered: int = 0
    """Of its documents, beyond what its terms let into memory."""
    plans: tuple[PlanVersion, ...] = ()
    """The task's plans, oldest first."""
    tellings: tuple[TaskMessageView, ...] = ()
    resolutions: tuple[PlaceholderResolution, ...] = ()
    """What its tools were given of the vault, by placeholder. Only where it was asked for."""
    procedures: tuple[ProcedureSource, ...] = ()
    """What its agents were told to follow."""
    servers: tuple[str, ...] | None = None
    """Tool servers that it names; None where it names none."""
    session: str = ""
    """By which later tasks go on with what it found."""
    left_out: tuple[SkippedItem, ...] = ()
    """What was given with its documents and is in none. Only where it was asked for."""

    def lasted(self, now: datetime) -> timedelta | None:
        """How long it took, or has been at work; None where that is not known."""
        end = self.ended_at if self.progress.phase.over else now
        return None if self.submitted_at is None or end is None else end - self.submitted_at


class UnfinishedReport(Value):
    """What a task would deliver if it ended now."""

    phase: TaskPhase
    markdown: str


class PendingApproval(Value):
    """A request for money that waits for an answer."""

    task_id: str
    title: str
    approval: ApprovalRequest
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


class PendingApprovals(Value):
    """What waits for an answer."""

    requests: tuple[PendingApproval, ...]


def list_pending_approvals(
    progress: TaskProgress, then: Literal["partial", "wait"] | None = None
) -> tuple[PendingApproval, ...]:
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


def list_open_requests(trail: Iterable[AuditEntry]) -> tuple[ApprovalRequest, ...]:
    """The requests of an audit trail that nobody has answered."""
    newest = {entry.request_id: entry for entry in trail if isinstance(entry, ApprovalRequest)}
    return tuple(approval for approval in newest.values() if approval.decision == "pending")


def as_stored(row: TaskRow, phase: TaskPhase) -> TaskProgress:
    """What the store alone can say of a task that has not ended there."""
    return row.build_stored_progress(phase)


def with_stored_details(view: TaskView, row: TaskRow) -> TaskView:
    """The view with what the store knows: the task's session, what its agents follow and may use, its times."""
    return view.replace(
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        procedures=row.request.procedures,
        servers=row.request.servers,
        session=row.request.session,
    )


def with_stored_reports(row: TaskRow, live: TaskProgress) -> TaskProgress:
    """What a workflow says of itself, with the reports that the store has and it does not know: it has just begun anew
    after a rewind, or came to nothing before it read what it goes on from.
    """
    kept = row.progress.report_versions if row.progress is not None else ()
    return live.replace(reports=kept) if len(kept) > len(live.report_versions) else live


def without_empty(answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The fields of an answer that say something."""
    return {name: value for name, value in answer.items() if value is not None and value != ""}


class AgentPromptView(Value):
    """The next request of one agent, in layers."""

    agent: str
    model: str
    turn: int
    window: int
    trigger: int
    """From so many tokens on the context counts as full."""
    cached_share: float
    """Of the input of all its calls so far, what was read from the provider's cache."""
    system_known: bool
    """Whether system prompt and tools are as a leg has measured them. Before the first has ended they are estimated
    without tools of the web and of tool servers.
    """
    allocation: PromptAllocation


class MemoryWithEmbedder(NamedTuple):
    """Memory, opened by whoever may hold it, and the embedder that it was made with."""

    memory: Memory
    embedder: Embedder


class AgentCompactionAudits(Value):
    """The compactions that stand in one agent's view."""

    agent: str
    compactions: tuple[CompactionAudit, ...]
