"""Tasks as people and programs see them.

The JSON of these values is public: `--json`, the HTTP API, the MCP server and the Python SDK return it. Amounts are in
tokens and dollars. References into the store stay out of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self, TypeVar

from pydantic import BeforeValidator, JsonValue, PlainSerializer, WithJsonSchema

from waystation.agents.action_approvals import ActionQuestion, PlaceholderResolution, restore_action_text
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.agent_status import AgentStatus
from waystation.agents.delegation import get_parent_id
from waystation.agents.deliverables import WorkCounts
from waystation.agents.prompt_sections import PromptAllocation
from waystation.context.audit import CompactionAudit
from waystation.context.compaction import (
    AgentCompaction,
    CompactionStatus,
    CompactionTotals,
    ContextEdit,
    ContextEditAction,
)
from waystation.context.transcript import Message
from waystation.documents.cited_sentences import CitedSentence
from waystation.documents.documents import DocumentsUpdate, SkippedItem
from waystation.documents.procedures import ProcedureSource
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit
from waystation.kernel.text import FORGOTTEN, format_count
from waystation.kernel.usage import Usage
from waystation.kernel.value import UtcMoment, Value
from waystation.memory.ports import Embedder, Memory
from waystation.models.profiles import OFFLINE_MODEL
from waystation.planning.plan import PLANNING_ID, PlanRevision, PlanVersion, ReportReview, SentenceJudgement
from waystation.privacy.policy import PLACEHOLDER_PATTERN, RedactionPolicy
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.approvals import AnswerOrigin
from waystation.tasks.progress import (
    CostBreakdown,
    CostLine,
    DayRange,
    SessionSummary,
    SpendingGrouping,
    SpendingLine,
    SpendingReport,
    TemporalActionCounts,
    UnansweredCall,
    list_spending_groups,
)
from waystation.tasks.task import (
    ApprovalRequest,
    AuditEntry,
    BudgetProgress,
    RejectedMessage,
    ReportVersion,
    ReusedWork,
    StepProgress,
    StepState,
    TaskPhase,
    TaskProgress,
    TaskRow,
)

MICRO = 1_000_000
"""Micro-dollars in a dollar."""
DELIVERED_PHASES = frozenset({TaskPhase.DONE, TaskPhase.PARTIAL})
"""Phases in which a task has delivered a report. The store knows them first."""


# ------------------------------------------------------------------------------------------------------------- amounts


def _parse_usd(given: JsonValue | Amount | Limit) -> JsonValue | Amount | Limit:
    """Return the units of an amount in JSON as the fields of `Amount` and `Limit`."""
    if not isinstance(given, dict) or "usd" not in given:
        return given
    usd = given["usd"]
    micro_usd = round(usd * MICRO) if isinstance(usd, int | float) else usd
    return {"micro_usd": micro_usd, **{unit: count for unit, count in given.items() if unit != "usd"}}


def _dump_usd(amount: Amount | Limit) -> dict[str, JsonValue]:
    return {"tokens": amount.tokens, "usd": amount.usd}


def _schema(*, limit: bool) -> WithJsonSchema:
    def one(kind: str) -> dict[str, JsonValue]:
        return {"anyOf": [{"type": kind}, {"type": "null"}]} if limit else {"type": kind}

    return WithJsonSchema(
        {
            "type": "object",
            "properties": {"tokens": one("integer"), "usd": one("number")},
            "required": ["tokens", "usd"],
            "description": "Null for a unit without a limit." if limit else "Fresh tokens and US dollars.",
        }
    )


ShownAmount = Annotated[Amount, BeforeValidator(_parse_usd), PlainSerializer(_dump_usd), _schema(limit=False)]
"""An amount whose JSON has tokens and dollars."""
ShownLimit = Annotated[Limit, BeforeValidator(_parse_usd), PlainSerializer(_dump_usd), _schema(limit=True)]
"""A limit whose JSON has tokens and dollars, null where there is no limit."""


def to_usd(micro_usd: int | None) -> float | None:
    """Return dollars; None for None."""
    return None if micro_usd is None else micro_usd / MICRO


def to_micro_usd(usd: float | None) -> int | None:
    """Return micro-dollars; None for None."""
    return None if usd is None else round(usd * MICRO)


class UsageView(Value):
    """Tokens by kind, and web searches."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    total: int
    cached_share: float
    """Share of the input that was read from the provider's cache, from 0 to 1."""
    searches: int
    """Web searches that the provider ran."""
    estimated: int
    """Tokens among these that the endpoint did not report: upper bounds."""

    @classmethod
    def from_usage(cls, usage: Usage) -> Self:
        """Build it with the sum and the cached share."""
        return cls(
            input=usage.input,
            cache_write=usage.cache_write,
            cache_read=usage.cache_read,
            output=usage.output,
            total=usage.total,
            cached_share=round(usage.cached_share, 4),
            searches=usage.searches,
            estimated=usage.estimated,
        )


class TaskBudgetView(Value):
    """The task's budget account: limit, spent and reserved. What is left is limit less both."""

    limit: ShownLimit
    spent: ShownAmount
    reserved: ShownAmount

    @classmethod
    def from_progress(cls, budget: BudgetProgress) -> Self:
        """Build it from the account that the workflow reports."""
        return cls(limit=budget.limit, spent=budget.spent, reserved=budget.reserved)


# ---------------------------------------------------------------------------------------------------- steps and agents


class StepView(Value):
    """One step of the plan with the run of its agent, or the run of a subagent.

    The ID of a subagent begins with that of the agent that started it: `research-1.2`.
    """

    id: str
    role: str
    title: str
    state: StepState
    legs: int
    usage: UsageView
    cost_usd: float | None
    """Null if a model without a known price was used."""
    limit: ShownLimit
    spent: ShownAmount
    drawable: ShownAmount
    """What the agent could draw from its task now, beyond its limit. The budget left that an agent sees includes it."""
    reason: str
    """Why it ended early."""

    @classmethod
    def from_progress(cls, step: StepProgress) -> Self:
        """Build it from the step that the workflow reports."""
        return cls(
            id=step.id,
            role=step.role,
            title=step.title,
            state=step.state,
            legs=step.legs,
            usage=UsageView.from_usage(step.usage),
            cost_usd=to_usd(step.cost_micro_usd),
            limit=step.limit,
            spent=step.spent,
            drawable=step.drawable,
            reason=step.reason,
        )


class AgentCompactionView(Value):
    """One compaction. Token counts are of the whole request."""

    id: str
    """The ID that `waystation restore --compaction` takes."""
    agent: str
    status: CompactionStatus
    tokens_before: int
    tokens_after: int
    passages: int
    passages_waiting: int
    """Number of its passages that memory did not have yet."""
    redactions: int

    @classmethod
    def from_compaction(cls, compaction: AgentCompaction) -> Self:
        """Build it without strategy, notes and totals."""
        return cls(
            id=compaction.compaction_id,
            agent=compaction.agent,
            status=compaction.status,
            tokens_before=compaction.tokens_before,
            tokens_after=compaction.tokens_after,
            passages=compaction.passages,
            passages_waiting=compaction.passages_waiting,
            redactions=compaction.redactions,
        )


class ContextEditView(Value):
    """A person's edit of an agent's context."""

    id: str
    agent: str
    action: ContextEditAction
    by: str
    """The name that the person gave: a claim, not a proof."""
    requested_at: datetime
    state: Literal["waiting", "done", "refused"]
    text: str
    """Who asked for what, and the result, in one line."""

    @classmethod
    def from_edit(cls, edit: ContextEdit) -> Self:
        """Build it from an edit that the workflow reports."""
        return cls(
            id=edit.id,
            agent=edit.agent,
            action=edit.action,
            by=edit.by,
            requested_at=edit.requested_at,
            state=edit.state,
            text=edit.text,
        )


# ----------------------------------------------------------------------------------------------------------- approvals


class BudgetForecastView(Value):
    """What a requested budget pays for, estimated when the request was made."""

    calls: int
    """Turns of the agent so far."""
    average_call: ShownAmount
    affordable_calls: int
    """Approximate number of further turns that the requested amount pays for."""
    needed_to_finish: ShownAmount
    """What the agent and all later steps may need beyond what they have, at the pace so far."""
    steps_finished: int
    steps_to_come: int
    reserved_for_later: ShownAmount
    """Reserved for the steps that have not started."""
    work: WorkCounts
    """What the agent could deliver now."""
    grantable: ShownLimit
    """What may still be granted below the task's ceiling."""
    can_be_granted: bool
    """Whether that covers the agent's next call."""
    unanswered_call: str
    """Why its last call brought no reply, if that call spent its budget."""
    if_denied: str
    """What a denial without cancellation delivers, as a sentence."""

    @classmethod
    def from_forecast(cls, forecast: BudgetForecast, agent: str) -> Self:
        """Build it from the forecast of this agent's request."""
        return cls(
            calls=forecast.turns,
            average_call=forecast.average_turn_cost,
            affordable_calls=forecast.turns_covered,
            needed_to_finish=forecast.cost_to_finish,
            steps_finished=forecast.finished_steps,
            steps_to_come=forecast.pending_steps,
            reserved_for_later=forecast.reserved_for_pending,
            work=forecast.work_counts,
            grantable=forecast.headroom,
            can_be_granted=forecast.covers_next_call,
            unanswered_call=forecast.no_reply_reason,
            if_denied=format_denial_effect(forecast, agent),
        )


def format_work_counts(work: WorkCounts) -> str:
    """Format the counts: `3 notes and 1 section`; `nothing`."""
    counts = ((work.notes, "note"), (work.findings, "finding"), (work.sections, "section"))
    return _listed([format_count(number, noun) for number, noun in counts if number]) or "nothing"


def format_denial_effect(forecast: BudgetForecast, agent: str) -> str:
    """Format what a denial without cancellation delivers; follows `if denied`."""
    has = format_work_counts(forecast.work_counts)
    with_it = "without a result" if has == "nothing" else "with this result"
    if (parent := get_parent_id(agent)) is not None:
        return f"{agent} returns {has} to {parent}, which continues {with_it}; the report is partial"
    if forecast.dependent_steps:
        continue_ = "continues" if len(forecast.dependent_steps) == 1 else "continue"
        return (
            f"{agent} ends with {has}; {_listed(forecast.dependent_steps)} {continue_} {with_it}; the report is partial"
        )
    return f"{agent} ends with {has}; the report is partial and lists the findings of the other steps"


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


class ToolCallView(Value):
    """A tool call that needs a person's approval."""

    tool: str
    text: str
    """What the tool asks for, redacted. Clients of people show the values that the call sends."""
    hidden: int
    """Number of characters that did not fit."""
    replaced: tuple[int, ...] = ()
    """Which placeholders in the text, counted from 0, stand for values that the call sends. It sends the others as they
    are.
    """

    @classmethod
    def from_question(cls, question: ActionQuestion) -> Self:
        """Build it from what a person reads of the call."""
        return cls(
            tool=question.tool, text=question.text, hidden=question.hidden_characters, replaced=question.replaced
        )

    def list_replaced_placeholders(self) -> tuple[str, ...]:
        """Return the placeholders that stand for values which the call sends."""
        found = PLACEHOLDER_PATTERN.findall(self.text) if self.replaced else []
        return tuple([one for number, one in enumerate(found) if number in self.replaced])

    def with_originals(self, originals: Mapping[str, str]) -> Self:
        """Return the call with the values that it sends."""
        restored = restore_action_text(self.text, self.replaced, originals)
        return self.replace(text=restored.text, replaced=restored.replaced)


class ApprovalView(Value):
    """A request for budget, for a tool call or for a plan, with its answer."""

    request_id: str
    agent: str
    action: ToolCallView | None
    """The call to approve; null for other requests."""
    requested: ShownAmount
    granted: ShownAmount
    needed: ShownAmount
    """What its next call may need beyond its limit: a smaller grant lets it do nothing."""
    spent: ShownAmount
    """What the agent had spent when it asked."""
    limit: ShownLimit
    """The agent's limit at that time."""
    task_spent: ShownAmount
    steps_left: int
    """Number of steps that were not finished when it asked, including this one."""
    forecast: BudgetForecastView | None
    reason: str
    """Why nothing goes on, if the cause is not a spent budget."""
    decision: Literal["pending", "approved", "denied", "expired", "withdrawn"]
    by: str
    """A name as given, unless it is verified."""
    verified: str
    """How the name was verified; empty: it is a claim."""
    note: str
    requested_at: datetime | None
    answer_by: datetime | None
    answered_at: datetime | None
    sent_from: AnswerOrigin | None = None
    """Where the answer came from; null if it is not known, or was not looked up."""

    @classmethod
    def from_request(cls, request: ApprovalRequest, sent_from: AnswerOrigin | None = None) -> Self:
        """Build it from a request as the workflow keeps it."""
        forecast = request.forecast
        return cls(
            request_id=request.request_id,
            agent=request.agent,
            action=None if request.action is None else ToolCallView.from_question(request.action),
            requested=request.requested,
            granted=request.granted,
            needed=request.needed,
            spent=request.spent,
            limit=request.limit,
            task_spent=request.task_spent,
            steps_left=request.steps_left,
            forecast=None if forecast is None else BudgetForecastView.from_forecast(forecast, request.agent),
            reason=request.reason,
            decision=request.decision,
            by=request.by,
            verified=request.verified,
            note=request.note,
            requested_at=request.requested_at,
            answer_by=request.answer_by,
            answered_at=request.answered_at,
            sent_from=sent_from,
        )

    @property
    def is_editable_plan(self) -> bool:
        """Whether it is about a plan that a person may replace: not a revision, whose new steps cost something."""
        return self.about_plan and self.requested.is_zero

    @property
    def about_plan(self) -> bool:
        """Whether it asks for approval of the plan, before anything is spent on it."""
        return self.agent == PLANNING_ID

    @property
    def about_budget(self) -> bool:
        """Whether an agent asks for budget: a revised plan also names an amount, for its new steps."""
        return not (self.about_plan or self.requested.is_zero)

    def format_requested(self) -> str:
        """Format the requested amount, tool call or agreement."""
        if self.action is not None:
            return f"{self.action.tool}: {self.action.text}"
        return "agreement to its plan" if self.requested.is_zero else format_amount(self.requested)


class RejectedMessageView(Value):
    """A message to the task that had no effect."""

    signal: str
    reason: str
    at: datetime
    request_id: str
    """ID of the request that it was for, if one message answered several."""

    @classmethod
    def from_rejection(cls, rejected: RejectedMessage) -> Self:
        """Build it from the message that the workflow keeps."""
        return cls(signal=rejected.signal, reason=rejected.reason, at=rejected.at, request_id=rejected.request_id)


# ------------------------------------------------------------------------------------- messages, documents, reports


class TaskMessageView(Value):
    """A person's message to a running task."""

    number: int
    by: str
    """The name that the person gave: a claim, not a proof."""
    sent_at: datetime
    text: str
    received_by: tuple[str, ...]
    """Agents that have received it, by step ID. Others receive it at their next turn, if they have one."""


class DocumentsUpdateView(Value):
    """A person's update of a task's documents, in numbers."""

    number: int
    by: str
    """The name that the person gave: a claim, not a proof."""
    updated_at: datetime
    stored: bool
    """False until the store has them."""
    changed: int
    added: int
    removed: int
    text: str
    """What the update did, in words."""

    @classmethod
    def from_update(cls, update: DocumentsUpdate) -> Self:
        """Build it without the references to the documents."""
        return cls(
            number=update.number,
            by=update.by,
            updated_at=update.updated_at,
            stored=update.stored,
            changed=update.changed,
            added=update.added,
            removed=update.removed,
            text=update.text,
        )


class ReportReviewView(Value):
    """A review of the report against the findings."""

    number: int
    faults: int
    sent_back: bool
    """Whether its writer was to fix the faults."""
    text: str
    """The result in a sentence."""

    @classmethod
    def from_review(cls, review: ReportReview) -> Self:
        """Build it without the reference to the faults."""
        return cls(number=review.number, faults=review.faults, sent_back=review.sent_back, text=review.text)


class SentenceJudgementView(Value):
    """A model's verdicts on the cited sentences that code could not decide, in numbers."""

    number: int
    supported: int
    unsupported: int
    undecided: int
    text: str
    """The result in a sentence."""

    @classmethod
    def from_judgement(cls, judgement: SentenceJudgement) -> Self:
        """Build it without the reference to the verdicts."""
        return cls(
            number=judgement.number,
            supported=judgement.supported,
            unsupported=judgement.unsupported,
            undecided=judgement.undecided,
            text=judgement.text,
        )


class ReportVersionView(Value):
    """A version of the report. Later versions, after a rewind, do not replace it."""

    number: int
    """From 1 on."""
    phase: TaskPhase
    """Phase in which the task ended with it."""
    stored_at: datetime | None

    @classmethod
    def from_version(cls, version: ReportVersion) -> Self:
        """Build it without the reference to the text."""
        return cls(number=version.number, phase=version.phase, stored_at=version.stored_at)


_VersionT = TypeVar("_VersionT", ReportVersion, ReportVersionView)


def select_shown_version(versions: Sequence[_VersionT]) -> _VersionT | None:
    """Return the version to show: the newest delivered one, or the newest of all if none was delivered.

    A report of a cancelled or failed task is no delivery. The shown version stays while a reopened task is running.
    """
    newest = versions[::-1]
    return next((one for one in newest if one.phase in DELIVERED_PHASES), next(iter(newest), None))


class ProcedureView(Value):
    """A procedure or a skill that agents follow."""

    name: str
    display_name: str
    """Name of a skill as agents know it, with its folder if that has a different name."""
    sha256: str
    files: tuple[str, ...]
    """Names of a skill's files; empty for a procedure."""

    @classmethod
    def from_source(cls, source: ProcedureSource) -> Self:
        """Build it without the texts."""
        return cls(
            name=source.name,
            display_name=source.display_name if source.skill else source.name,
            sha256=source.digest,
            files=source.file_names if source.skill else (),
        )


class SubmittedTask(Value):
    """A task that was accepted."""

    task_id: str
    run_id: str | None
    """None if the task ended so long ago that the server has forgotten it."""
    ui_url: str | None
    warnings: tuple[str, ...] = ()
    procedures: tuple[ProcedureView, ...] = ()
    """Procedures of its agents, in addition to question and instructions."""


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


# -------------------------------------------------------------------------------------------------------------- a task


class TaskView(Value):
    """The current state of a task."""

    task_id: str
    title: str
    """The question, shortened: with its names for people, with placeholders for models."""
    phase: TaskPhase
    session: str = ""
    """Session in which later tasks build on its findings."""
    submitted_at: datetime | None = None
    ended_at: datetime | None = None
    """None while it is running or waiting, and if it was terminated."""
    remark: str = ""
    """Why this is not the live state, if it is not."""
    run_id: str | None = None
    ui_url: str | None = None
    report_path: str | None = None
    """File of the report, where a command has written it."""
    model: str
    """Model of the agents; if they differ, of research."""
    models: dict[str, str]
    """Models by role, if they differ."""
    budget: TaskBudgetView
    usage: UsageView
    """Of all agents, planning, revisions, reviews and judgements together."""
    cost_usd: float | None
    """Null if a model without a known price was used."""
    possibly_billed: ShownAmount
    """Maximum cost of calls whose reply was never stored; counted as spent."""
    turns: int
    """Number of model turns."""
    legs: int
    steps: tuple[StepView, ...]
    """Each step of the plan, followed by its subagents."""
    activity: tuple[AgentStatus, ...] = ()
    """What agents are doing at this moment, if a server could be asked."""
    waiting_for: tuple[str, ...] = ()
    """Why activities are being retried, if a server could be asked."""
    approvals: tuple[ApprovalView, ...]
    rejected_messages: tuple[RejectedMessageView, ...]
    messages: tuple[TaskMessageView, ...] = ()
    """Messages that people sent to the task. Only with details."""
    document_updates: tuple[DocumentsUpdateView, ...]
    """Updates of its documents while it was running."""
    context_edits: tuple[ContextEditView, ...]
    """People's edits of agents' contexts, including waiting and refused ones."""
    compactions: tuple[AgentCompactionView, ...]
    """The newest compactions of each agent, oldest first."""
    compaction_totals: dict[str, CompactionTotals]
    """Totals of all compactions, by agent."""
    plans: tuple[PlanVersion, ...] = ()
    """The task's plans, oldest first. Only with details, as all fields below that have a default."""
    revisions: tuple[PlanRevision, ...]
    """Revisions of the plan after the research."""
    reviews: tuple[ReportReviewView, ...]
    judgements: tuple[SentenceJudgementView, ...]
    reports: tuple[ReportVersionView, ...]
    """All stored versions of the report, oldest first."""
    reused_work: ReusedWork | None
    notes: tuple[str, ...]
    privacy: RedactionPolicy | None
    """How much is redacted; None if unknown."""
    procedures: tuple[ProcedureView, ...] = ()
    """Procedures of its agents."""
    tool_servers: tuple[str, ...] | None = None
    """Tool servers that it names; None if it names none."""
    resolved_placeholders: tuple[PlaceholderResolution, ...] = ()
    """Placeholders whose originals its tools received."""
    passages_pending: int = 0
    """Number of passages that memory does not have yet."""
    passages_rejected: tuple[str, ...] = ()
    """IDs of passages that memory rejects."""
    unindexed_characters: int = 0
    """Characters of its documents beyond its limit for memory."""
    skipped_items: tuple[SkippedItem, ...] = ()
    """Items given with its documents that are in none."""

    @classmethod
    def from_progress(cls, progress: TaskProgress) -> Self:
        """Build it from what the workflow reports, or stored when the task ended."""
        totals = progress.totals
        return cls(
            task_id=progress.task_id,
            title=progress.title,
            phase=progress.phase,
            model=progress.model,
            models=progress.models,
            budget=TaskBudgetView.from_progress(progress.budget),
            usage=UsageView.from_usage(totals.usage),
            cost_usd=to_usd(_get_known_cost(progress)),
            possibly_billed=Amount(tokens=totals.possibly_billed, micro_usd=totals.possibly_billed_micro_usd),
            turns=totals.turns,
            legs=progress.legs,
            steps=tuple(map(StepView.from_progress, progress.steps)),
            approvals=tuple(map(ApprovalView.from_request, progress.approvals)),
            rejected_messages=tuple(map(RejectedMessageView.from_rejection, progress.rejected_messages)),
            document_updates=tuple(map(DocumentsUpdateView.from_update, progress.document_updates)),
            context_edits=tuple(map(ContextEditView.from_edit, progress.context_edits)),
            compactions=tuple(map(AgentCompactionView.from_compaction, progress.compactions)),
            compaction_totals=_sum_compactions_by_agent(progress),
            revisions=progress.revisions,
            reviews=tuple(map(ReportReviewView.from_review, progress.reviews)),
            judgements=tuple(map(SentenceJudgementView.from_judgement, progress.judgements)),
            reports=tuple(map(ReportVersionView.from_version, progress.report_versions)),
            reused_work=progress.reused,
            notes=progress.notes,
            privacy=progress.privacy,
        )

    @property
    def over(self) -> bool:
        """Whether the task has ended."""
        return self.phase.over

    @property
    def forgotten(self) -> bool:
        """Whether its texts were deleted: only numbers, times and references remain."""
        return self.title == FORGOTTEN

    @property
    def shown_report(self) -> ReportVersionView | None:
        """See `select_shown_version`."""
        return select_shown_version(self.reports)

    @property
    def pending_approvals(self) -> tuple[ApprovalView, ...]:
        """Requests that can still be answered."""
        return () if self.over else tuple(one for one in self.approvals if one.decision == "pending")

    @property
    def pending_plan_limit(self) -> Limit | None:
        """What all steps of a plan that waits for approval have together; None if no plan waits."""
        if not any(one.about_plan and one.decision == "pending" for one in self.approvals):
            return None
        budget, held = self.budget, (step.limit.amount for step in self.steps)
        return budget.limit.remaining_after(budget.spent + budget.reserved).increase_by(sum(held, Amount()))

    def sum_compactions(self, agents: Collection[str] | None = None) -> CompactionTotals:
        """Return the totals of all compactions of these agents; of all agents by default."""
        totals = self.compaction_totals.items()
        return sum((one for agent, one in totals if agents is None or agent in agents), CompactionTotals())

    def format_drawable_budget(self) -> str:
        """Format what agents may draw beyond their limits, as a sentence; empty if that is nothing."""
        most = Amount()
        for step in self.steps:
            most = most.max_with(step.drawable)
        if self.over or most.is_zero:
            return ""
        return (
            f"Beyond its limit, an agent may draw up to {format_amount(most)} from what the task has left. "
            "The budget that agents see includes this amount."
        )

    def lasted(self, now: datetime) -> timedelta | None:
        """Return how long it took, or has been running; None if unknown."""
        end = self.ended_at if self.over else now
        return None if self.submitted_at is None or end is None else end - self.submitted_at

    def with_report_path(self, path: Path | None) -> Self:
        """Return the view with the file of the report; None if there is none."""
        return self.replace(report_path=None if path is None else str(path))

    def with_origins(self, origins: Mapping[str, AnswerOrigin]) -> Self:
        """Return the view with the origins of answers, by request ID."""
        return self.replace(
            approvals=tuple(one.replace(sent_from=origins.get(one.request_id)) for one in self.approvals)
        )

    def with_stored_request(self, row: TaskRow) -> Self:
        """Return the view with what the store alone knows: title as its reader sees it, session, procedures, tool
        servers and times.
        """
        return self.replace(
            title=row.title or self.title,
            submitted_at=row.submitted_at,
            ended_at=row.ended_at,
            procedures=tuple(map(ProcedureView.from_source, row.request.procedures)),
            tool_servers=row.request.servers,
            session=row.request.session,
        )

    def __str__(self) -> str:
        spent, limit = format_amount(self.budget.spent), format_limit(self.budget.limit)
        return replace_control_characters(f"{self.task_id} {self.phase}: {spent} of {limit}; {self.title}")

    def __repr__(self) -> str:
        return str(self)


def _get_known_cost(progress: TaskProgress) -> int | None:
    """Return the cost in micro-USD; None if a model without a known price was used.

    Also None if no call has a reply and the possibly billed ones have no price. Under a budget in dollars all models
    have a price, and free replies show that their models are free.
    """
    totals, budgeted = progress.totals, progress.budget.limit.micro_usd is not None
    silent = totals.possibly_billed > 0 and not totals.possibly_billed_micro_usd and not totals.usage.total
    unpriced = silent and not budgeted and progress.model != OFFLINE_MODEL
    return None if unpriced else totals.cost_micro_usd


def _sum_compactions_by_agent(progress: TaskProgress) -> dict[str, CompactionTotals]:
    totals = dict(progress.earlier_compactions)
    for one in progress.compactions:
        totals[one.agent] = totals.get(one.agent, CompactionTotals()) + CompactionTotals.from_outcomes((one,))
    return totals


class PendingApproval(Value):
    """A request that waits for an answer."""

    task_id: str
    title: str
    approval: ApprovalView
    task_budget: TaskBudgetView | None = None
    """The task's current account; None if no worker answers for the task."""
    at_deadline: Literal["partial", "wait"] | None = None
    """What happens at its deadline; None if unknown here."""
    steps: tuple[StepView, ...] = ()
    """Steps of the plan that a request is about, each with its share."""

    @property
    def urgency(self) -> tuple[datetime, datetime, str, str]:
        """Sort key: the next deadline first, then the oldest request."""
        asked = self.approval.requested_at or datetime.min.replace(tzinfo=UTC)
        deadline = self.approval.answer_by or datetime.max.replace(tzinfo=UTC)
        return deadline, asked, self.task_id, self.approval.request_id

    def __str__(self) -> str:
        one = self.approval
        return replace_control_characters(
            f"request {one.request_id} of {self.task_id} asks for {one.format_requested()}"
        )

    def __repr__(self) -> str:
        return str(self)


class PendingApprovals(Value):
    """What waits for an answer."""

    requests: tuple[PendingApproval, ...]


def list_pending_approvals(
    view: TaskView, then: Literal["partial", "wait"] | None = None
) -> tuple[PendingApproval, ...]:
    """Return a task's requests that can still be answered. `then`: what happens at their deadlines, if known."""
    return tuple(
        PendingApproval(
            task_id=view.task_id,
            title=view.title,
            approval=approval,
            task_budget=view.budget,
            at_deadline=then,
            steps=view.steps if approval.about_plan else (),
        )
        for approval in view.pending_approvals
    )


def list_open_requests(trail: Iterable[AuditEntry]) -> tuple[ApprovalRequest, ...]:
    """Return the requests of an audit trail that no one has answered."""
    newest = {entry.request_id: entry for entry in trail if isinstance(entry, ApprovalRequest)}
    return tuple(approval for approval in newest.values() if approval.decision == "pending")


class CancelResult(Value):
    """The result of a request to stop a task."""

    task_id: str
    phase: TaskPhase
    """The phase that the task had before."""
    requested: bool
    """False if the task had ended already."""

    @classmethod
    def from_phase(cls, task_id: str, phase: TaskPhase) -> Self:
        """Build it from the phase that the task had before."""
        return cls(task_id=task_id, phase=phase, requested=not phase.over)


class SessionLimitView(Value):
    """A session and the limit that was set for it."""

    session: str
    limit: ShownLimit


# ------------------------------------------------------------------------------------------------------------- reports


class ReportView(Value):
    """A report, or the draft of one, as Markdown."""

    task_id: str
    phase: TaskPhase
    """Current phase of the task: after a rewind it runs again."""
    version: int | None
    """Version of the report, from 1; null for a draft."""
    versions: tuple[ReportVersionView, ...] = ()
    """All versions, oldest first."""
    model: str
    """Model of the agents that wrote it."""
    markdown: str
    sentences: tuple[CitedSentence, ...] = ()
    """Its sentences with citations, in order, each with the result of the comparison with its lines."""

    def __str__(self) -> str:
        return self.markdown


# -------------------------------------------------------------------------------------------------------------- agents


class AgentView(Value):
    """An agent of a task."""

    id: str
    role: str


class AgentMessagesView(Value):
    """The messages of an agent run that the model sees."""

    run_id: str
    messages: tuple[Message, ...]


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


class AgentCompactionAudits(Value):
    """The compactions in one agent's model view."""

    agent: str
    compactions: tuple[CompactionAudit, ...]


# --------------------------------------------------------------------------------------------------------------- costs


class CostLineView(Value):
    """Calls of one kind."""

    agent: str
    model: str
    kind: str
    calls: int
    usage: Usage
    cost_usd: float | None
    """Null if one of the calls has no known price."""
    answered_by: tuple[str, ...]
    """Models named in replies, if they differ from the requested one."""
    dropped_thinking: int
    """Number of thinking blocks that the provider dropped from requests."""
    cache_misses: dict[str, int]
    """Number of cache misses of the last request's prefix, by the provider's reason."""
    waited_ms: int
    """How long the calls waited because of the provider's rate limit, in milliseconds, added up."""

    @classmethod
    def from_line(cls, line: CostLine) -> Self:
        """Build the view of a line."""
        return cls(
            agent=line.agent,
            model=line.model,
            kind=line.kind,
            calls=line.calls,
            usage=line.usage,
            cost_usd=to_usd(line.cost_micro_usd),
            answered_by=line.answered_by,
            dropped_thinking=line.dropped_thinking,
            cache_misses=line.cache_misses,
            waited_ms=line.waited_ms,
        )


class UnansweredCallView(Value):
    """A call whose reply was never stored: it may have been billed."""

    agent: str
    key: str
    """Names the turn, the compaction, the plan or the tool call."""
    model: str
    at: datetime
    worst_case: ShownAmount
    """Maximum cost, which counts as spent."""

    @classmethod
    def from_call(cls, call: UnansweredCall) -> Self:
        """Build the view of a call."""
        intent = call.intent
        return cls(agent=call.agent, key=intent.key, model=intent.model, at=intent.at, worst_case=intent.worst_case)


class CostView(Value):
    """What a task has cost so far."""

    lines: tuple[CostLineView, ...]
    """By agent, model and kind; agents in the order of their first call."""
    compactions: tuple[CostLineView, ...]
    """The summaries one by one, with the charge's key as `kind`. Also included in `lines`."""
    total: CostLineView
    possibly_billed: tuple[UnansweredCallView, ...]
    reused: ReusedWork | None
    """Work of another task that counts as done here. That task has its cost."""
    temporal_actions: TemporalActionCounts | None = None
    """Only if requested, and while the Temporal server has the histories."""

    @classmethod
    def from_breakdown(cls, found: CostBreakdown, actions: TemporalActionCounts | None = None) -> Self:
        """Build the view of a cost breakdown and, if they were counted, of the task's Temporal actions."""
        return cls(
            lines=tuple(map(CostLineView.from_line, found.lines)),
            compactions=tuple(map(CostLineView.from_line, found.compactions)),
            total=CostLineView.from_line(found.total),
            possibly_billed=tuple(map(UnansweredCallView.from_call, found.possibly_billed)),
            reused=found.reused,
            temporal_actions=actions,
        )


class SpendingLineView(Value):
    """What the agents of one role in one task have spent on one model in one day."""

    day: date
    task_id: str
    session: str
    """Name of the task's session."""
    role: str
    model: str
    calls: int
    usage: Usage
    cost_usd: float
    """Cost of the calls whose price is known."""
    unpriced_calls: int
    """Number of calls without a known price, which are not in the cost."""
    possibly_billed: ShownAmount
    """Maximum cost of calls whose reply was never stored. In no other number here."""

    @classmethod
    def from_line(cls, line: SpendingLine) -> Self:
        """Build the view of a line."""
        return cls(
            day=line.day,
            task_id=line.task_id,
            session=line.session,
            role=line.role,
            model=line.model,
            calls=line.calls,
            usage=line.usage,
            cost_usd=line.cost_micro_usd / MICRO,
            unpriced_calls=line.unpriced_calls,
            possibly_billed=line.possibly_billed,
        )


class SpendingGroupView(Value):
    """The sum of a task, session, role or model over all days."""

    name: str
    """ID of the task, or name of the session, role or model."""
    calls: int
    usage: Usage
    cost_usd: float
    """Cost of the calls whose price is known."""
    unpriced_calls: int
    possibly_billed: ShownAmount


class SpendingView(Value):
    """What the tasks of a tenant or of a session have spent in a range of days."""

    days: DayRange
    lines: tuple[SpendingLineView, ...]
    """By day, task, role and model, in this order."""
    titles: dict[str, str]
    """The redacted questions, shortened, by task ID."""
    groups: tuple[SpendingGroupView, ...]
    """Sums by task, session, role or model, as requested, the highest cost first."""
    total: SpendingLineView

    @classmethod
    def from_report(cls, found: SpendingReport, by: SpendingGrouping) -> Self:
        """Build the view of a report."""
        return cls(
            days=found.days,
            groups=tuple(
                SpendingGroupView(
                    name=name,
                    calls=line.calls,
                    usage=line.usage,
                    cost_usd=line.cost_micro_usd / MICRO,
                    unpriced_calls=line.unpriced_calls,
                    possibly_billed=line.possibly_billed,
                )
                for name, line in list_spending_groups(found.lines, by)
            ),
            lines=tuple(map(SpendingLineView.from_line, found.lines)),
            titles={**found.titles},
            total=SpendingLineView.from_line(found.total),
        )


class SessionView(Value):
    """A session, with what its tasks have spent together."""

    session: str
    """Its name."""
    first_title: str
    """Title of its first task."""
    id: str
    """Its ID in search attributes and workflow IDs."""
    tasks: int
    """Number of tasks, without rejected ones."""
    refused: int
    """Number of tasks that it rejected."""
    last_at: datetime
    """When the newest task was submitted."""
    spent: ShownAmount
    """Fresh tokens, and cost where the price is known."""
    held: ShownAmount
    """Reserved for its running tasks; what they have spent of it is also in `spent`."""
    limit: ShownLimit
    """Limit of all its tasks together."""
    unpriced_calls: int

    @classmethod
    def from_summary(cls, found: SessionSummary) -> Self:
        """Build the view of a session."""
        return cls(
            session=found.session,
            first_title=found.first_title,
            id=found.id,
            tasks=found.tasks,
            refused=found.refused,
            last_at=found.last_at,
            spent=found.spent,
            held=found.held,
            limit=found.limit,
            unpriced_calls=found.unpriced_calls,
        )


# --------------------------------------------------------------------------------------------------- inside the client


class MemoryWithEmbedder(NamedTuple):
    """Memory, opened by a process that may hold it, and the embedder that it was made with."""

    memory: Memory
    embedder: Embedder


def as_stored(row: TaskRow, phase: TaskPhase) -> TaskProgress:
    """Return what the store alone knows of a task that has not ended there."""
    return row.build_stored_progress(phase)


def with_stored_reports(row: TaskRow, live: TaskProgress) -> TaskProgress:
    """Add stored reports that the workflow does not know.

    It has just started again after a rewind, or failed before it read the state to continue from.
    """
    kept = row.progress.report_versions if row.progress is not None else ()
    return live.replace(reports=kept) if len(kept) > len(live.report_versions) else live


def without_empty(answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the non-empty fields of an answer."""
    return {name: value for name, value in answer.items() if value is not None and value != ""}
