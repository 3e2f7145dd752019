"""A task: what a person asks for, under which terms, where it comes from, what it is told, and how far it is."""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator, Field, JsonValue, StringConstraints, model_validator

from waystation.agents.action_approvals import ActionQuestion, PlaceholderResolution, UnattendedPolicy
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.leg import AgentConfigByRole
from waystation.budgets.budget import (
    HIGHEST_BUDGET,
    HIGHEST_BUDGET_MICRO_USD,
    LOWEST_BUDGET,
    LOWEST_BUDGET_MICRO_USD,
    BudgetMode,
    RunUsage,
)
from waystation.context.compaction import AgentCompaction, CompactionTotals, ContextEdit
from waystation.context.policy import StrategyName
from waystation.context.transcript import Message, Text
from waystation.documents.documents import DocumentsUpdate, RecordedDocumentsUpdate, SkippedItem
from waystation.documents.procedures import Procedures
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.ids import short_hash
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import SessionScope, TenantScope
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.memory.passages import MemoryScope
from waystation.planning.plan import PLANNING_ID, PlanRevision, ReportReview
from waystation.privacy.policy import RedactionPolicy
from waystation.security.untrusted import ServerNames, is_blank


class ForkOrigin(Value):
    """The beginning of a task that reuses finished steps of another one."""

    task_id: str
    """Of the other one."""
    step: str
    """Id of the step that begins anew, with all that builds on it."""


class ReusedWork(Value):
    """Agents of another task whose work counts as done in this one, and costs nothing here."""

    task_id: str
    agents: tuple[str, ...]
    """Ids of steps, and of their subagents."""
    payers: Mapping[str, str] = {}
    """By agent: the task that paid for it, where that task reused it, too."""

    def get_payer(self, agent: str) -> str:
        """The task that paid for this agent."""
        return self.payers.get(agent, self.task_id)

    def format_sentences(self, agents: Iterable[str]) -> tuple[str, ...]:
        """Where these agents come from and who paid for them, by payer."""
        paid: dict[str, list[str]] = {}
        for agent in agents:
            paid.setdefault(self.get_payer(agent), []).append(agent)
        return tuple(
            f"reused from {self.task_id}, {'where it was paid' if payer == self.task_id else f'paid in {payer}'}: "
            f"{', '.join(names)}"
            for payer, names in paid.items()
        ) or (f"reused from {self.task_id}: nothing",)


MAX_MESSAGE_CHARACTERS = 4_000
"""Characters of one. The newest is in no compaction: it must leave room for work in a small window, too."""


class TaskMessage(Value):
    """One thing that was said: a reference, no text."""

    number: int
    """Counted in the task, from 1. In a task that was forked those of the first task come before its own."""
    text: str = ""
    """Content hash of the words in the store; empty while they are put there."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    answer_id: str = ""
    told_at: datetime


class TaskNews(NamedTuple):
    """What has come to a task at work, each in the order of its numbers."""

    messages: tuple[TaskMessage, ...] = ()
    updates: tuple[RecordedDocumentsUpdate, ...] = ()
    """Of its documents."""


def build_transcript_message(message_id: str, number: int, words: str) -> Message:
    """How an agent hears it: nothing but the words."""
    return Message(id=message_id, role="user", blocks=(Text(text=words),), told=number)


def list_received_message_numbers(said: Iterable[Message]) -> frozenset[int]:
    """Numbers of what an agent has been told, by the messages of its conversation that count."""
    return frozenset(message.told for message in said if message.told)


MIN_WINDOW_TOKENS, MAX_WINDOW_TOKENS = 2_000, 1_000_000
OWN_SESSION_DIGITS = 12
"""Hexadecimal digits in the name of a session that one task has for itself."""


def _in_range(budget: Limit) -> Limit:
    if budget.is_unlimited:
        raise ValueError("a budget is limited in tokens, in dollars, or in both")
    if budget.tokens is not None and not LOWEST_BUDGET <= budget.tokens <= HIGHEST_BUDGET:
        raise ValueError(f"from {LOWEST_BUDGET:,} to {HIGHEST_BUDGET:,} tokens")
    dollars = budget.micro_usd
    if dollars is not None and not LOWEST_BUDGET_MICRO_USD <= dollars <= HIGHEST_BUDGET_MICRO_USD:
        raise ValueError("from $0.001 to $1,000,000")
    return budget


TaskBudget = Annotated[Limit, AfterValidator(_in_range)]


def _legible(text: str) -> str:
    if is_blank(text):
        raise ValueError("it is blank: there is nothing in it that anybody can read")
    return text


class Preset(StrEnum):
    """Kinds of work."""

    QA = "qa"
    """Short questions: a small window, compacted often."""
    DEBUGGING = "debugging"
    """Long looks at details: a large window, of which much stays."""
    LONG = "long"
    """Agents that work for days: compacted by the number of messages, and bounded by it."""


class TaskRequest(Value):
    """One thing asked for. The same `request_id` finds the same task again, also after it has finished."""

    question: Annotated[
        str, StringConstraints(strip_whitespace=True, min_length=1, max_length=20_000), AfterValidator(_legible)
    ]
    instructions: str = Field(default="", max_length=100_000)
    accept: tuple[str, ...] = ()
    """Criteria that the report must meet."""
    tenant: str = Field(default="local", min_length=1, max_length=200)
    session: str = Field(default="", min_length=1, max_length=200)
    """Without one the task has one of its own: what a document of one task said is not recalled in another."""
    request_id: str = Field(min_length=1, max_length=200)
    preset: Preset | None = None
    """Beats the settings; what is None from here on is left to it, then to them."""
    budget: TaskBudget | None = None
    """Fresh tokens, dollars or both for the whole task; by default 600,000 tokens."""
    agent_budget: TaskBudget | None = None
    """What one agent starts with, at most; by default 100,000 tokens, or a sixth of a budget in dollars."""
    ceiling: Limit = Limit()
    """What grants may raise the budget to; without one, a person may grant anything."""
    unattended: UnattendedPolicy = UnattendedPolicy()
    """What happens to requests for money while nobody looks."""
    mode: BudgetMode | None = None
    """By default `approval`."""
    review_plan: bool | None = None
    window: int | None = Field(default=None, ge=MIN_WINDOW_TOKENS, le=MAX_WINDOW_TOKENS)
    """Working window of each agent in tokens; by default half of its budget, 200,000 at most."""
    strategy: StrategyName | None = None
    """How compactions choose what a summary is to stand for; by default `window`."""
    memory: MemoryScope | None = None
    """By default that of the settings."""
    left_out: tuple[SkippedItem, ...] = ()
    """What was given with the documents and could not be used. The report names it."""
    forked_from: ForkOrigin | None = None
    since: str | None = None
    """An earlier task of the session: the report opens with what changed since its report."""
    servers: ServerNames | None = None
    """Tool servers of the workers that its agents may use; by default as the session's newest task."""
    procedures: Procedures = ()
    """What agents are to follow, beside the instructions. Nothing among the documents is."""

    @model_validator(mode="before")
    @classmethod
    def _of_its_own(cls, given: JsonValue) -> JsonValue:
        if isinstance(given, dict) and "session" not in given:
            return {**given, "session": make_own_session_name(str(given.get("request_id", "")))}
        return given


def make_own_session_name(request_id: str) -> str:
    """The session of a task that was handed in without one: the same request finds it again."""
    return f"own-{short_hash('own session', request_id)[:OWN_SESSION_DIGITS]}"


def tenant_hash(tenant: str) -> str:
    """The tenant as it appears in ids and search attributes."""
    return short_hash("tenant", tenant)


def session_hash(tenant: str, session: str) -> str:
    """The session as it appears in ids and search attributes."""
    return short_hash("session", tenant, session)


def build_reader_scope(tenant: str, session: str | None = None) -> TenantScope:
    """A person of this tenant, who looks at all of it, or at one session."""
    if session is None:
        return TenantScope(tenant=tenant_hash(tenant))
    return SessionScope(tenant=tenant_hash(tenant), session=session_hash(tenant, session))


def make_session_workflow_id(tenant: str, session: str) -> str:
    """Workflow id of a session."""
    return f"session-{session_hash(tenant, session)}"


def make_task_id(request: TaskRequest) -> str:
    """Id of the task and of its workflow."""
    return f"task-{short_hash('task', request.tenant, request.session, request.request_id)}"


class TaskConfig(AgentConfigByRole):
    """The terms of a task that the workflow needs: numbers and settings, no text."""

    budget: Limit
    agent_budget: Limit
    ceiling: Limit = Limit()
    """What grants may raise the budget to."""
    unattended: UnattendedPolicy = UnattendedPolicy()
    mode: BudgetMode
    plan_model: str
    remembered_characters: int = 0
    """Of its documents, so many characters go into memory."""
    review_model: str = ""
    """By default the one that plans."""
    revisions: int = 0
    """How often the plan may be revised after the research."""
    revision_percent: int | None = None  # Of the budget: what new steps may have that nobody agreed to; None: anything.
    review_plan: bool = False
    floor: Amount | None = None
    """What a step to come of any role keeps when others borrow from it; None: nothing is lent."""
    minimum_reserves: dict[str, Amount] = {}
    """By role, what a step of it starts with at least: it is never lent."""
    reviews: int = 0
    """How often a review may send the report back."""
    offline: bool
    """No LLM: the built-in extractive model does the work, and every report says so."""


class TaskPhase(StrEnum):
    """How far a task is."""

    SUBMITTED = "submitted"
    PLANNING = "planning"
    WORKING = "working"
    PAUSED = "paused"
    """Nothing can go on until a person answers."""
    REPORTING = "reporting"
    DONE = "done"
    PARTIAL = "partial"
    """It ended with a report that lacks something; the report says what."""
    CANCELLED = "cancelled"
    FAILED = "failed"
    REFUSED = "refused"
    """Its session did not take it: it never began. The same request may be submitted again."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        ended = {TaskPhase.DONE, TaskPhase.PARTIAL, TaskPhase.CANCELLED, TaskPhase.FAILED, TaskPhase.REFUSED}
        return self in ended


class ApprovalRequest(Value):
    """A request to raise a budget, or to let an agent call a tool; and its answer once there is one."""

    request_id: str
    agent: str
    """Id of the step whose agent ran out, or asks for a call; or of a subagent."""
    action: ActionQuestion | None = None
    """The call that a person decides on; None where it is money."""
    asked: Amount
    granted: Amount = Amount()
    decision: Literal["pending", "approved", "denied", "expired", "withdrawn"] = "pending"
    """Expired: nobody answered until the deadline. Withdrawn: its agent needs no answer any more; the note says why."""
    by: str = ""
    verified: str = ""  # By what the name was proved; empty: it is a claim.
    note: str = ""
    finish: Literal["partial", "cancel"] = "partial"
    """What a denial delivers. Of a call `partial` means that its agent goes on without it."""
    spent: Amount = Amount()
    """What the agent had spent when it asked."""
    task_spent: Amount = Amount()
    steps_left: int = 0
    """Steps that were not finished when it asked, this one included."""
    limit: Limit = Limit()
    """What the agent may spend in all, as long as nobody grants it more."""
    needed: Amount = Amount()
    """How much over that its next call may need: a smaller grant lets it do nothing."""
    outlook: BudgetForecast | None = None
    """What the money is for; None where it is no money."""
    answer_id: str = ""
    reason: str = ""
    """Why nothing goes on, where it is not a spent budget."""
    answer_by: datetime | None = None
    """The deadline, where one was set at submit."""
    requested_at: datetime | None = None
    answered_at: datetime | None = None

    @property
    def about_plan(self) -> bool:
        """Whether it is the plan that a person agrees to, before anything is spent on it."""
        return self.agent == PLANNING_ID


class RejectedMessage(Value):
    """An answer or an edit that had no effect: malformed, late, for an unknown request or agent, with an impossible
    amount.
    """

    signal: str
    reason: str
    at: datetime
    answer_id: str = ""
    request_id: str = ""
    """Of the request that it was for, where one message answered several."""


AuditEntry = (
    ApprovalRequest | RejectedMessage | ContextEdit | TaskMessage | RecordedDocumentsUpdate | PlaceholderResolution
)
"""What the store keeps of decisions, words and what tools were given of the vault; an edit twice: asked for, done."""

StepState = Literal["waiting", "working", "compacting", "delegating", "paused", "done", "partial", "skipped"]


class StepProgress(Value):
    """One step as people see it."""

    id: str
    role: str
    title: str = ""
    state: StepState
    legs: int
    usage: Usage
    cost_micro_usd: int | None = None
    limit: Limit = Limit()
    spent: Amount = Amount()
    reason: str = ""


class BudgetProgress(Value):
    """The task's account."""

    limit: Limit
    spent: Amount
    reserved: Amount


class ReportVersion(Value):
    """A report that was stored when its task ended. Later ones, after a rewind, stand beside it."""

    number: int
    """From 1 on."""
    report: str
    """Content hash of the report in the store."""
    phase: TaskPhase
    """How the task ended with it."""
    stored_at: datetime | None = None
    """None where it is not known."""

    @property
    def is_delivered(self) -> bool:
        """Whether the task delivered it; what there was when a task was cancelled or failed is no delivery."""
        return self.phase in {TaskPhase.DONE, TaskPhase.PARTIAL}


class TaskProgress(Value):
    """What the task's `progress` query returns, and what is stored when the task ends. No text from the work."""

    task_id: str
    phase: TaskPhase
    title: str
    """The redacted question, shortened."""
    model: str
    """Of the agents; where they differ, of those that research."""
    models: dict[str, str] = {}
    """By role, where they differ."""
    steps: tuple[StepProgress, ...] = ()
    budget: BudgetProgress
    totals: RunUsage = RunUsage()
    """Of all agents, the planning, revisions and reviews together."""
    legs: int = 0
    compactions: tuple[AgentCompaction, ...] = ()
    """The newest ones of each agent, its oldest first."""
    earlier_compactions: dict[str, CompactionTotals] = {}
    """All others, added up for each agent that has some."""
    approvals: tuple[ApprovalRequest, ...] = ()
    refusals: tuple[RejectedMessage, ...] = ()
    edits: tuple[ContextEdit, ...] = ()
    """What people changed, or wanted to change, in agents' contexts."""
    tellings: tuple[TaskMessage, ...] = ()
    """What people told the task at work."""
    updates: tuple[DocumentsUpdate, ...] = ()
    """Of its documents while it worked."""
    reused: ReusedWork | None = None
    revisions: tuple[PlanRevision, ...] = ()
    reviews: tuple[ReportReview, ...] = ()
    notes: tuple[str, ...] = ()
    privacy: RedactionPolicy | None = None
    """How much is replaced; None where it is not known."""
    report: str | None = None
    """Content hash of the report in the store."""
    reports: tuple[ReportVersion, ...] = ()
    """All that were stored, that one included, oldest first."""
    state: str | None = None
    """Content hash of the state in which the task ended: what a rewind goes on from."""

    @property
    def all_compactions(self) -> CompactionTotals:
        """Every compaction of all agents, added up."""
        return sum(self.earlier_compactions.values(), CompactionTotals.from_outcomes(self.compactions))

    def sum_compactions(self, agents: Container[str]) -> CompactionTotals:
        """Every compaction of these agents, added up."""
        earlier = (totals for agent, totals in self.earlier_compactions.items() if agent in agents)
        return sum(earlier, CompactionTotals.from_outcomes(one for one in self.compactions if one.agent in agents))

    @property
    def report_versions(self) -> tuple[ReportVersion, ...]:
        """Of the report, oldest first."""
        if self.reports or self.report is None:
            return self.reports
        return (ReportVersion(number=1, report=self.report, phase=self.phase),)

    @property
    def shown_report(self) -> ReportVersion | None:
        """The version that is shown: the newest that was delivered, also while the task goes on after a rewind, and
        where that was cancelled; the newest of all where none was.
        """
        newest = self.report_versions[::-1]
        return next((version for version in newest if version.is_delivered), next(iter(newest), None))


class TaskRow(Value):
    """A task as the store keeps it."""

    ref: TaskRef
    request: TaskRequest
    terms: TaskConfig
    title: str = ""
    submitted_at: datetime
    ended_at: datetime | None = None
    """None while it works or waits, and where it was terminated."""
    progress: TaskProgress | None = None
    """Set when the task has ended (or, after a rewrite of history, when it was last stored)."""

    @property
    def was_refused(self) -> bool:
        """Whether its session did not take it, so that it spent nothing and holds nothing."""
        return self.progress is not None and self.progress.phase is TaskPhase.REFUSED

    def build_stored_progress(self, phase: TaskPhase) -> TaskProgress:
        """What the store alone can say of the task in this phase."""
        if self.progress is not None:
            return self.progress.replace(phase=phase)
        return TaskProgress(
            task_id=self.ref.task_id,
            phase=phase,
            title=self.title,
            model=self.terms.agent.model,
            models=self.terms.models,
            budget=BudgetProgress(limit=self.terms.budget, spent=Amount(), reserved=Amount()),
        )
