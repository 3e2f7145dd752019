"""Tasks as seen from outside: what the client returns."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

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
    """None if the task ended so long ago that the server has forgotten it."""
    ui_url: str | None
    warnings: tuple[str, ...] = ()
    procedures: tuple[ProcedureSource, ...] = ()
    """Procedures of its agents, in addition to question and instructions."""


class TaskMessageView(Value):
    """A person's message to a running task."""

    number: int
    by: str
    """The name that the person gave: a claim, not a proof."""
    sent_at: datetime
    text: str
    received_by: tuple[str, ...]
    """Agents that have received it, by step ID. Others receive it at their next turn, if they have one."""


DELIVERED_PHASES = frozenset({TaskPhase.DONE, TaskPhase.PARTIAL})
"""Phases that the store knows first."""


class TaskFilter(Value):
    """Filter of tasks. An omitted field filters nothing."""

    session: str | None = None
    phases: frozenset[TaskPhase] = frozenset()
    """Any of these; empty: any phase."""
    since: UtcMoment | None = None
    """Submitted at this time or later."""
    text: str = ""
    """Case-insensitive part of the title: what is hidden there (a name, what was cut off) finds nothing."""

    @property
    def narrows(self) -> bool:
        """Whether all matching tasks are meant, and not only the newest of a session or tenant."""
        return bool(self.phases or self.since or self.text)

    def matches_phase(self, phase: TaskPhase) -> bool:
        """Return whether the phase matches."""
        return not self.phases or phase in self.phases

    def may_match(self, row: TaskRow) -> bool:
        """Return whether the task may match, as far as the store knows.

        The server knows the phase of a task that has not ended in the store: it may have been terminated, but has
        delivered nothing.
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
    """None while it is running or waiting, and if it was terminated."""
    remark: str = ""
    """Why this is not the live state, if it is not."""
    waits: tuple[str, ...] = ()
    """Why activities are being retried, if a server could be asked."""
    doing: tuple[AgentStatus, ...] = ()
    """What agents are doing at this moment, if a server could be asked."""
    origins: dict[str, AnswerOrigin] = {}
    """Origins of answers by request ID. Only if requested, while the server still knows."""
    passages_waiting: int = 0
    """Number of passages that memory does not have yet. Only if requested, as the next field."""
    passages_refused: tuple[str, ...] = ()
    """IDs of passages that memory rejects."""
    characters_not_remembered: int = 0
    """Characters of its documents beyond its limit for memory."""
    plans: tuple[PlanVersion, ...] = ()
    """The task's plans, oldest first."""
    task_messages: tuple[TaskMessageView, ...] = ()
    resolutions: tuple[PlaceholderResolution, ...] = ()
    """Originals that its tools received, by placeholder. Only if requested."""
    procedures: tuple[ProcedureSource, ...] = ()
    """Procedures of its agents."""
    servers: tuple[str, ...] | None = None
    """Tool servers that it names; None if it names none."""
    session: str = ""
    """Session in which later tasks build on its findings."""
    left_out: tuple[SkippedItem, ...] = ()
    """Items given with its documents that are in none. Only if requested."""

    def lasted(self, now: datetime) -> timedelta | None:
        """Return how long it took, or has been running; None if unknown."""
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
    """The task's current account; None if no worker answers for the task."""
    then: Literal["partial", "wait"] | None = None
    """What happens at its deadline; None if unknown here."""
    steps: tuple[StepProgress, ...] = ()
    """Steps of the plan that a request is about, each with its share."""

    @property
    def urgency(self) -> tuple[datetime, datetime, str, str]:
        """Sort key: the next deadline first, then the oldest request."""
        asked = self.approval.requested_at or datetime.min.replace(tzinfo=UTC)
        deadline = self.approval.answer_by or datetime.max.replace(tzinfo=UTC)
        return deadline, asked, self.task_id, self.approval.request_id


class PendingApprovals(Value):
    """What waits for an answer."""

    requests: tuple[PendingApproval, ...]


def list_pending_approvals(
    progress: TaskProgress, then: Literal["partial", "wait"] | None = None
) -> tuple[PendingApproval, ...]:
    """Return a task's requests that can still be answered. `then`: what happens at their deadlines, if known."""
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
    """Return the requests of an audit trail that no one has answered."""
    newest = {entry.request_id: entry for entry in trail if isinstance(entry, ApprovalRequest)}
    return tuple(approval for approval in newest.values() if approval.decision == "pending")


def as_stored(row: TaskRow, phase: TaskPhase) -> TaskProgress:
    """Return what the store alone knows of a task that has not ended there."""
    return row.build_stored_progress(phase)


def with_stored_details(view: TaskView, row: TaskRow) -> TaskView:
    """Add what the store knows: the task's session, procedures, tool servers and times."""
    return view.replace(
        submitted_at=row.submitted_at,
        ended_at=row.ended_at,
        procedures=row.request.procedures,
        servers=row.request.servers,
        session=row.request.session,
    )


def with_stored_reports(row: TaskRow, live: TaskProgress) -> TaskProgress:
    """Add stored reports that the workflow does not know.

    It has just started again after a rewind, or failed before it read the state to continue from.
    """
    kept = row.progress.report_versions if row.progress is not None else ()
    return live.replace(reports=kept) if len(kept) > len(live.report_versions) else live


class NextPromptView(Value):
    """The next request of one agent, by section."""

    agent: str
    model: str
    turn: int
    window: int
    trigger: int
    """Tokens at which the context counts as full."""
    cached_share: float
    """Share of the input of all its calls so far that was read from the provider's cache (0 to 1)."""
    system_known: bool
    """Whether system prompt and tools are as measured by a leg. Before the first leg has ended they are estimated,
    without tools of the web and of tool servers.
    """
    allocation: PromptAllocation


class MemoryWithEmbedder(NamedTuple):
    """Memory, opened by a process that may hold it, and the embedder that it was made with."""

    memory: Memory
    embedder: Embedder


class AgentCompactionAudits(Value):
    """The compactions that stand in one agent's view."""

    agent: str
    compactions: tuple[CompactionAudit, ...]
