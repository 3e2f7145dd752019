"""A task: its request, configuration, origin, progress, and stored row."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, model_validator

from waystation.agents.action_approvals import ActionQuestion, PlaceholderResolution, UnattendedPolicy
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import ReportLength
from waystation.agents.leg import AgentConfigByRole
from waystation.agents.task_messages import TaskMessage
from waystation.budgets.budget import (
    MAX_BUDGET_MICRO_USD,
    MAX_BUDGET_TOKENS,
    MIN_BUDGET_MICRO_USD,
    MIN_BUDGET_TOKENS,
    BudgetMode,
    RunUsage,
)
from waystation.context.compaction import AgentCompaction, CompactionTotals, ContextEdit
from waystation.context.policy import StrategyName
from waystation.documents.documents import DocumentsUpdate, RecordedDocumentsUpdate, SkippedItem
from waystation.documents.procedures import Procedures
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.identifiers import Identifier
from waystation.kernel.ids import short_hash
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import SessionScope, TenantScope
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.memory.passages import MemoryScope
from waystation.models.profiles import Effort
from waystation.planning.plan import PLANNING_ID, PlanRevision, ReportReview, SentenceJudgement
from waystation.privacy.policy import RedactionPolicy
from waystation.security.untrusted import ServerNames, is_blank


class ForkOrigin(Value):
    """Origin of a task that reuses finished steps of another one."""

    task_id: Identifier
    """ID of the other task."""
    step: Identifier
    """ID of the step that restarts, with all that build on it."""


class ReusedWork(Value):
    """Agents whose work was done in another task, and costs nothing in this one."""

    task_id: Identifier
    agents: tuple[Identifier, ...]
    """IDs of steps, and of their subagents."""
    payers: Mapping[str, Identifier] = {}
    """By agent: the task that paid for it, if the other task had reused it, too."""

    def get_payer(self, agent: str) -> str:
        """Return the task that paid for this agent."""
        return self.payers.get(agent, self.task_id)

    def format_sentences(self, agents: Iterable[str]) -> tuple[str, ...]:
        """Format where these agents come from and which task paid for them, by payer."""
        paid: dict[str, list[str]] = {}
        for agent in agents:
            paid.setdefault(self.get_payer(agent), []).append(agent)
        return tuple(
            f"reused from {self.task_id} (paid {'there' if payer == self.task_id else f'in {payer}'}): "
            f"{', '.join(names)}"
            for payer, names in paid.items()
        ) or (f"reused from {self.task_id}: nothing",)


MIN_WINDOW_TOKENS, MAX_WINDOW_TOKENS = 2_000, 1_000_000
OWN_SESSION_DIGITS = 12
"""Hexadecimal digits in the name of a session that a task has for itself."""


def _in_range(budget: Limit) -> Limit:
    if budget.is_unlimited:
        raise ValueError("give a budget in tokens, in dollars, or in both")
    if budget.tokens is not None and not MIN_BUDGET_TOKENS <= budget.tokens <= MAX_BUDGET_TOKENS:
        raise ValueError(f"it should be from {MIN_BUDGET_TOKENS:,} to {MAX_BUDGET_TOKENS:,} tokens")
    dollars = budget.micro_usd
    if dollars is not None and not MIN_BUDGET_MICRO_USD <= dollars <= MAX_BUDGET_MICRO_USD:
        raise ValueError("it should be from $0.001 to $1,000,000")
    return budget


TaskBudget = Annotated[Limit, AfterValidator(_in_range)]


def _legible(text: str) -> str:
    if is_blank(text):
        raise ValueError("it has no readable characters")
    return text


class Preset(StrEnum):
    """Kinds of work."""

    QA = "qa"
    """Short questions: a small window, compacted often."""
    DEBUGGING = "debugging"
    """Long looks at details: a large window, much of which stays."""
    LONG = "long"
    """Agents that work for days: compacted and bounded by the number of messages."""
    WEB = "web"
    """Web research that asks no one: searches and pages are approved in advance, within limits."""


class TaskRequest(Value):
    """One thing asked for. The same `request_id` finds the same task again, even after it has finished."""

    question: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000), AfterValidator(_legible)
    ]
    instructions: str = Field(default="", max_length=100_000)
    accept: tuple[str, ...] = ()
    """Criteria that the report must meet."""
    length: ReportLength | None = None
    """How long the report should be; by default as its material needs."""
    tenant: Identifier = Field(default="local", min_length=1, max_length=200)
    session: Identifier = Field(default="", min_length=1, max_length=200)
    """By default the task has a session of its own: what a document of one task said is not recalled in another."""
    request_id: Identifier = Field(min_length=1, max_length=200)
    preset: Preset | None = None
    """Takes precedence over the settings. Fields below that are None are left to it, then to the settings."""
    budget: TaskBudget | None = None
    """Fresh tokens, dollars or both for the whole task; by default 600,000 tokens."""
    agent_budget: TaskBudget | None = None
    """Maximum that one agent starts with; by default 100,000 tokens, or a sixth of a budget in dollars."""
    ceiling: Limit = Limit()
    """Upper bound for raising the budget by grants; by default there is none."""
    unattended: UnattendedPolicy = UnattendedPolicy()
    """What happens to budget requests that no one answers."""
    mode: BudgetMode | None = None
    """By default `approval`."""
    review_plan: bool | None = None
    window: int | None = Field(default=None, ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)
    """Working window of each agent in tokens; by default half of its budget, at most 200,000."""
    strategy: StrategyName | None = None
    """How compactions choose what a summary replaces; by default `window`."""
    memory: MemoryScope | None = None
    """By default as in the settings."""
    skipped_items: tuple[SkippedItem, ...] = ()
    """Items given with the documents that could not be used. The report names them."""
    forked_from: ForkOrigin | None = None
    since: str | None = None
    """An earlier task of the session: the report opens with what changed since its report."""
    servers: ServerNames | None = None
    """Tool servers of the workers that its agents may use; by default as in the session's newest task."""
    procedures: Procedures = ()
    """Procedures for the agents, in addition to the instructions. None of them is a document."""

    @model_validator(mode="before")
    @classmethod
    def _of_its_own(cls, given: JsonValue) -> JsonValue:
        if isinstance(given, dict) and "session" not in given:
            return {**given, "session": make_own_session_name(str(given.get("request_id", "")))}
        return given


def make_own_session_name(request_id: str) -> str:
    """Return the session of a task submitted without one: the same request finds it again."""
    return f"own-{short_hash('own session', request_id)[:OWN_SESSION_DIGITS]}"


def tenant_hash(tenant: str) -> str:
    """Return the tenant as in IDs and search attributes."""
    return short_hash("tenant", tenant)


def session_hash(tenant: str, session: str) -> str:
    """Return the session as in IDs and search attributes."""
    return short_hash("session", tenant, session)


def build_reader_scope(tenant: str, session: str | None = None) -> TenantScope:
    """Return the scope of a person of this tenant, for all of it or for one session."""
    if session is None:
        return TenantScope(tenant=tenant_hash(tenant))
    return SessionScope(tenant=tenant_hash(tenant), session=session_hash(tenant, session))


def make_session_workflow_id(tenant: str, session: str) -> str:
    """Return the workflow ID of a session."""
    return f"session-{session_hash(tenant, session)}"


def make_task_id(request: TaskRequest) -> str:
    """Return the ID of the task and of its workflow."""
    return f"task-{short_hash('task', request.tenant, request.session, request.request_id)}"


class TaskConfig(AgentConfigByRole):
    """The configuration of a task that the workflow needs: numbers and settings, no text."""

    budget: Limit
    agent_budget: Limit
    ceiling: Limit = Limit()
    """Upper bound for raising the budget by grants."""
    unattended: UnattendedPolicy = UnattendedPolicy()
    mode: BudgetMode
    plan_model: str
    plan_effort: Effort | None = None
    """Effort of planning and of revisions; None here and in `review_effort`: the provider's default."""
    remembered_characters: int = 0
    """Maximum characters of its documents that are indexed into memory."""
    review_model: str = ""
    """By default the planning model."""
    review_effort: Effort | None = None
    judge_model: str = ""
    """Empty: no model judges the cited sentences that code cannot decide."""
    judge_effort: Effort | None = None
    revisions: int = 0
    """Maximum number of plan revisions after the research."""
    revision_percent: int | None = None  # Percentage of the budget for new steps that needs no approval; None: any.
    review_plan: bool = False
    minimum_reserve: Amount | None = None
    """What a later step of any role keeps when others borrow from it; None: borrowing is off."""
    minimum_reserves: dict[str, Amount] = {}
    """Minimum that a step starts with, by role: it is never lent."""
    reviews: int = 0
    """Maximum number of times that a review may send the report back."""
    resume_at_reset: bool = False
    """Whether agents go on by themselves when their provider's exhausted account is reset."""
    offline: bool
    """Whether no LLM is used: the built-in extractive model does the work, and every report says so."""


class TaskPhase(StrEnum):
    """The phase of a task."""

    SUBMITTED = "submitted"
    PLANNING = "planning"
    WORKING = "working"
    PAUSED = "paused"
    """Nothing can go on until a person answers."""
    REPORTING = "reporting"
    DONE = "done"
    PARTIAL = "partial"
    """It ended with an incomplete report, which says what is missing."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"
    """Its session rejected it: it never began. The same request may be submitted again."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        ended = {TaskPhase.DONE, TaskPhase.PARTIAL, TaskPhase.CANCELLED, TaskPhase.FAILED, TaskPhase.REFUSED}
        return self in ended


class ApprovalRequest(Value):
    """A request to raise a budget, or to let an agent call a tool; and its answer once there is one."""

    request_id: Identifier
    agent: Identifier
    """ID of the step whose agent asks, or of a subagent."""
    action: ActionQuestion | None = None
    """The call to approve; None for a budget request."""
    requested: Amount
    granted: Amount = Amount()
    decision: Literal["pending", "approved", "denied", "expired", "withdrawn"] = "pending"
    """Expired: no one answered by the deadline. Withdrawn: its agent no longer needs an answer; the note says why."""
    by: str = ""
    verified: str = ""  # How the name was verified; empty: it is a claim.
    note: str = ""
    finish: Literal["partial", "cancel"] = "partial"
    """What a denial delivers. For a call, `partial` means that its agent goes on without it."""
    spent: Amount = Amount()
    """What the agent had spent when it asked."""
    task_spent: Amount = Amount()
    steps_left: int = 0
    """Number of steps that were not finished when it asked, including this one."""
    limit: Limit = Limit()
    """The agent's limit at the time of the request."""
    needed: Amount = Amount()
    """What its next call may need beyond that: a smaller grant lets it do nothing."""
    forecast: BudgetForecast | None = None
    """What the budget is for; None if it is not a budget request."""
    answer_id: Identifier = ""
    reason: str = ""
    """Why nothing goes on, if the cause is not a spent budget."""
    answer_by: datetime | None = None
    """The deadline, if one was set at submission."""
    requested_at: datetime | None = None
    answered_at: datetime | None = None

    @property
    def about_plan(self) -> bool:
        """Whether it asks for approval of the plan, before anything is spent on it."""
        return self.agent == PLANNING_ID


class RejectedMessage(Value):
    """A message without effect: malformed, late, for an unknown request or agent, or with an impossible amount."""

    signal: Identifier
    reason: str
    at: datetime
    answer_id: Identifier = ""
    request_id: Identifier = ""
    """ID of the request that it was for, if one message answered several."""


AuditEntry = (
    ApprovalRequest | RejectedMessage | ContextEdit | TaskMessage | RecordedDocumentsUpdate | PlaceholderResolution
)
"""Entries of the audit trail: decisions, messages, and originals given to tools. An edit has two:
requested and done.
"""

StepState = Literal["waiting", "working", "compacting", "delegating", "paused", "done", "partial", "skipped"]


class StepProgress(Value):
    """One step as people see it."""

    id: Identifier
    role: Identifier
    title: str = ""
    state: StepState
    legs: int
    usage: Usage
    cost_micro_usd: int | None = None
    limit: Limit = Limit()
    spent: Amount = Amount()
    drawable: Amount = Amount()
    """What the agent could draw from its task now, beyond its limit."""
    reason: str = ""


class BudgetProgress(Value):
    """The task's account."""

    limit: Limit
    spent: Amount
    reserved: Amount


class ReportVersion(Value):
    """A report stored at a task's end. Later versions, after a rewind, do not replace it."""

    number: int
    """From 1 on."""
    report: Identifier
    """Content hash of the report in the store."""
    phase: TaskPhase
    """Phase in which the task ended with it."""
    stored_at: datetime | None = None
    """None if unknown."""


class TaskProgress(Value):
    """Result of the task's `progress` query, also stored when the task ends. No text from the work."""

    task_id: Identifier
    phase: TaskPhase
    title: str
    """The redacted question, shortened."""
    model: Identifier
    """Model of the agents; if they differ, of research."""
    models: dict[str, Identifier] = {}
    """Models by role, if they differ."""
    steps: tuple[StepProgress, ...] = ()
    budget: BudgetProgress
    totals: RunUsage = RunUsage()
    """Usage of all agents, planning, revisions, reviews and judgements together."""
    legs: int = 0
    compactions: tuple[AgentCompaction, ...] = ()
    """The newest compactions of each agent, oldest first."""
    earlier_compactions: dict[str, CompactionTotals] = {}
    """Totals of all earlier compactions, by agent."""
    approvals: tuple[ApprovalRequest, ...] = ()
    rejected_messages: tuple[RejectedMessage, ...] = ()
    context_edits: tuple[ContextEdit, ...] = ()
    """People's edits of agents' contexts, including waiting and refused ones."""
    task_messages: tuple[TaskMessage, ...] = ()
    """People's messages to the running task."""
    document_updates: tuple[DocumentsUpdate, ...] = ()
    """Updates of its documents while it was running."""
    reused: ReusedWork | None = None
    revisions: tuple[PlanRevision, ...] = ()
    reviews: tuple[ReportReview, ...] = ()
    judgements: tuple[SentenceJudgement, ...] = ()
    notes: tuple[str, ...] = ()
    privacy: RedactionPolicy | None = None
    """How much is redacted; None if unknown."""
    report: Identifier | None = None
    """Content hash of the report in the store."""
    reports: tuple[ReportVersion, ...] = ()
    """All stored versions including that one, oldest first."""
    state: Identifier | None = None
    """Content hash of the state in which the task ended, from which a rewind continues."""

    @property
    def report_versions(self) -> tuple[ReportVersion, ...]:
        """Versions of the report, oldest first."""
        if self.reports or self.report is None:
            return self.reports
        return (ReportVersion(number=1, report=self.report, phase=self.phase),)


class TaskRow(Value):
    """A task as stored."""

    ref: TaskRef
    request: TaskRequest
    config: TaskConfig
    title: str = ""
    submitted_at: datetime
    ended_at: datetime | None = None
    """None while it is running or waiting, and if it was terminated."""
    progress: TaskProgress | None = None
    """Set when the task has ended (or, after a rewind, as last stored)."""

    @property
    def was_refused(self) -> bool:
        """Whether its session rejected it, so that it spent nothing and reserves nothing."""
        return self.progress is not None and self.progress.phase is TaskPhase.REFUSED

    def build_stored_progress(self, phase: TaskPhase) -> TaskProgress:
        """Build what the store alone knows of the task in this phase."""
        if self.progress is not None:
            return self.progress.replace(phase=phase)
        return TaskProgress(
            task_id=self.ref.task_id,
            phase=phase,
            title=self.title,
            model=self.config.default.model,
            models=self.config.models,
            budget=BudgetProgress(limit=self.config.budget, spent=Amount(), reserved=Amount()),
        )
