"""JSON of a task, its requests and their answers, as `--json` prints it and `waystation serve` returns it.

Its keys are stable.
"""

from datetime import datetime
from pathlib import Path
from typing import Self

from waystation.agents.action_approvals import ActionQuestion
from waystation.agents.agent_run import BudgetForecast
from waystation.context.compaction import AgentCompaction
from waystation.context.transcript import Message
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.planning.plan import PlanVersion, ReportReview, Step
from waystation.reports.blocks import NumberedSource
from waystation.tasks.approvals import AnswerOrigin
from waystation.tasks.details import format_denial_effect, get_known_cost
from waystation.tasks.task import (
    ApprovalRequest,
    BudgetProgress,
    ReportVersion,
    ReusedWork,
    StepProgress,
    TaskPhase,
    TaskProgress,
)
from waystation.tasks.view import TaskView


class BudgetForecastJson(Value):
    """What a request's money is for, as it was when it was made. `calls_worth`: how many calls it pays, about.
    `finishing_…`: what the agent and all steps to come may need on top of what they have, at the pace so far.
    """

    calls: int
    call_tokens: int
    call_usd: float
    calls_worth: int
    finishing_tokens: int
    finishing_usd: float
    steps_finished: int
    steps_to_come: int
    kept_tokens: int
    kept_usd: float
    notes: int
    findings: int
    sections: int
    denial: str

    @classmethod
    def from_forecast(cls, seen: BudgetForecast, agent: str) -> "BudgetForecastJson":
        """Flatten a forecast, with a sentence on what a denial would deliver."""
        return cls(
            calls=seen.calls,
            call_tokens=seen.each.tokens,
            call_usd=seen.each.usd,
            calls_worth=seen.worth,
            finishing_tokens=seen.finishing.tokens,
            finishing_usd=seen.finishing.usd,
            steps_finished=seen.finished,
            steps_to_come=seen.to_come,
            kept_tokens=seen.kept.tokens,
            kept_usd=seen.kept.usd,
            denial=format_denial_effect(seen, agent),
            **seen.made.model_dump(),
        )


class OriginJson(Value):
    """Where an answer came from. The identities are claims; principals are whom the server authenticated."""

    identities: tuple[str, ...]
    principals: tuple[str, ...]


class ActionJson(Value):
    """A call of a tool that a person decides on. `text` is redacted; so many characters of it are `hidden`."""

    tool: str
    text: str
    hidden: int

    @classmethod
    def from_question(cls, question: ActionQuestion) -> "ActionJson":
        """Build it from what a person reads of the call."""
        return cls(tool=question.tool, text=question.text, hidden=question.hidden)


class ApprovalJson(Value):
    """One request for money, or for the call that `action` is, and its answer. `by` is a name as given unless it is
    `verified`. `sent_from` is null where it is not known, and where `show` did not ask the server.
    """

    request_id: str
    agent: str
    action: ActionJson | None
    asked_tokens: int
    asked_usd: float
    granted_tokens: int
    granted_usd: float
    needed_tokens: int
    needed_usd: float
    spent_tokens: int
    spent_usd: float
    decision: str
    by: str
    verified: str
    note: str
    requested_at: datetime | None
    answer_by: datetime | None
    answered_at: datetime | None
    outlook: BudgetForecastJson | None
    sent_from: OriginJson | None

    @classmethod
    def from_approval(cls, approval: ApprovalRequest, origin: AnswerOrigin | None = None) -> "ApprovalJson":
        """Build it from a request, with amounts in tokens and dollars."""
        return cls(
            action=None if approval.action is None else ActionJson.from_question(approval.action),
            asked_tokens=approval.asked.tokens,
            asked_usd=approval.asked.usd,
            granted_tokens=approval.granted.tokens,
            granted_usd=approval.granted.usd,
            needed_tokens=approval.needed.tokens,
            needed_usd=approval.needed.usd,
            spent_tokens=approval.spent.tokens,
            spent_usd=approval.spent.usd,
            outlook=None
            if approval.outlook is None
            else BudgetForecastJson.from_forecast(approval.outlook, approval.agent),
            sent_from=None if origin is None else OriginJson(**origin.model_dump()),
            request_id=approval.request_id,
            agent=approval.agent,
            decision=approval.decision,
            by=approval.by,
            verified=approval.verified,
            note=approval.note,
            requested_at=approval.requested_at,
            answer_by=approval.answer_by,
            answered_at=approval.answered_at,
        )


class UsageJson(Value):
    """Tokens by kind, and searches."""

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
    def from_usage(cls, usage: Usage) -> "UsageJson":
        """Build it from a usage, with the sum."""
        return cls(**usage.model_dump(), total=usage.total, cached_share=round(usage.cached_share, 4))


class CompactionJson(Value):
    """One compaction. Token counts are of the whole request."""

    id: str
    """The id that `waystation restore --compaction` takes."""
    agent: str
    status: str
    tokens_before: int
    tokens_after: int
    passages: int
    redactions: int

    @classmethod
    def from_compaction(cls, compaction: AgentCompaction) -> "CompactionJson":
        """Build it without strategy, notes and totals."""
        return cls(
            id=compaction.compaction_id,
            agent=compaction.agent,
            status=compaction.status,
            tokens_before=compaction.tokens_before,
            tokens_after=compaction.tokens_after,
            passages=compaction.passages,
            redactions=compaction.redactions,
        )


class BudgetJson(Value):
    """The task's account. A limit is null in a unit that is not limited."""

    limit_tokens: int | None
    limit_usd: float | None
    spent_tokens: int
    spent_usd: float
    reserved_tokens: int
    reserved_usd: float

    @classmethod
    def from_progress(cls, budget: BudgetProgress) -> "BudgetJson":
        """Build it with amounts in tokens and dollars."""
        return cls(
            limit_tokens=budget.limit.tokens,
            limit_usd=budget.limit.usd,
            spent_tokens=budget.spent.tokens,
            spent_usd=budget.spent.usd,
            reserved_tokens=budget.reserved.tokens,
            reserved_usd=budget.reserved.usd,
        )


class StepJson(Value):
    """One step."""

    id: str
    role: str
    state: str
    legs: int
    usage: UsageJson
    limit_tokens: int | None
    limit_usd: float | None
    spent_tokens: int
    spent_usd: float
    reason: str
    """Why it ended early."""

    @classmethod
    def from_progress(cls, step: StepProgress) -> "StepJson":
        """Build it with the budget in tokens and dollars."""
        return cls(
            usage=UsageJson.from_usage(step.usage),
            limit_tokens=step.limit.tokens,
            limit_usd=step.limit.usd,
            spent_tokens=step.spent.tokens,
            spent_usd=step.spent.usd,
            id=step.id,
            role=step.role,
            state=step.state,
            legs=step.legs,
            reason=step.reason,
        )


class AgentStatusJson(Value):
    """What an agent does at this moment: `what` is `model`, `tool` or `between`. `seen`: when it was last heard of."""

    agent: str
    what: str
    turn: int | None
    tool: str
    since: datetime
    seen: datetime | None


class PlanStepJson(Value):
    """A step as it was planned."""

    id: str
    role: str
    title: str
    needs: tuple[str, ...]

    @classmethod
    def from_step(cls, step: Step) -> "PlanStepJson":
        """Build it without the goal and the share."""
        return cls(id=step.id, role=step.role, title=step.title, needs=step.needs)


class PlanJson(Value):
    """One version of the plan, without goals. `made_by`: the agent run of the planning, or of a revision."""

    version: int
    made_by: str
    reason: str
    steps: tuple[PlanStepJson, ...]

    @classmethod
    def from_version(cls, version: PlanVersion) -> "PlanJson":
        """Build it from a plan version."""
        steps = tuple(map(PlanStepJson.from_step, version.plan.steps))
        return cls(version=version.number, made_by=version.made_by, reason=version.reason, steps=steps)


class ReviewJson(Value):
    """One review of the report."""

    number: int
    faults: int
    sent_back: bool

    @classmethod
    def from_review(cls, review: ReportReview) -> "ReviewJson":
        """Build it without the reference to the findings."""
        return cls(number=review.number, faults=review.faults, sent_back=review.sent_back)


class TaskMessageJson(Value):
    """A message of a person to the task. `by` is a name as given; `received_by` are ids of agents."""

    number: int
    by: str
    sent_at: datetime
    text: str
    received_by: tuple[str, ...]


class DocumentUpdateJson(Value):
    """New versions of the task's documents that a person gave it. `kept` is false until the store has them."""

    number: int
    by: str
    updated_at: datetime
    kept: bool
    changed: int
    added: int
    removed: int

    @classmethod
    def from_update(cls, update: DocumentsUpdate) -> "DocumentUpdateJson":
        """Build it without the references to the documents."""
        return cls(
            number=update.number,
            by=update.by,
            updated_at=update.updated_at,
            kept=update.kept,
            changed=update.changed,
            added=update.added,
            removed=update.removed,
        )


class ResolutionJson(Value):
    """What a tool was given of the vault, by placeholder."""

    agent: str
    tool: str
    call_id: str
    placeholders: tuple[str, ...]


class ProcedureJson(Value):
    """What agents were told to follow."""

    name: str
    sha256: str


class TaskJson(Value):
    """A task. `cost_usd` is null where a model without a known price was used, `servers` where it names none."""

    task_id: str
    run_id: str | None
    ui_url: str | None
    report_path: str | None
    title: str
    """The redacted question, shortened."""
    phase: TaskPhase
    submitted_at: datetime | None
    ended_at: datetime | None
    """Null while the task works or waits, and if it was terminated."""
    model: str
    models: dict[str, str]
    usage: UsageJson
    cost_usd: float | None
    legs: int
    compactions: tuple[CompactionJson, ...]
    approvals: tuple[ApprovalJson, ...]
    steps: tuple[StepJson, ...]
    plans: tuple[PlanJson, ...]
    reviews: tuple[ReviewJson, ...]
    budget: BudgetJson
    messages: tuple[TaskMessageJson, ...]
    updates: tuple[DocumentUpdateJson, ...]
    resolutions: tuple[ResolutionJson, ...]
    reused: ReusedWork | None
    notes: tuple[str, ...]
    privacy: str | None
    waits: tuple[str, ...]
    doing: tuple[AgentStatusJson, ...]
    passages_waiting: int
    passages_refused: tuple[str, ...]
    characters_not_remembered: int
    procedures: tuple[ProcedureJson, ...]
    servers: tuple[str, ...] | None
    session: str


def build_task_json(view: TaskView, report_path: Path | None) -> TaskJson:
    """Build the JSON of a task view."""
    progress = view.progress
    micro_usd = get_known_cost(progress)
    return TaskJson(
        task_id=progress.task_id,
        run_id=view.run_id,
        ui_url=view.ui_url,
        submitted_at=view.submitted_at,
        ended_at=view.ended_at,
        report_path=report_path and str(report_path),
        title=progress.title,
        phase=progress.phase,
        model=progress.model,
        models=progress.models,
        usage=UsageJson.from_usage(progress.totals.usage),
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        legs=progress.legs,
        compactions=tuple(map(CompactionJson.from_compaction, progress.compactions)),
        approvals=tuple(
            ApprovalJson.from_approval(approval, view.origins.get(approval.request_id))
            for approval in progress.approvals
        ),
        steps=tuple(map(StepJson.from_progress, progress.steps)),
        plans=tuple(map(PlanJson.from_version, view.plans)),
        reviews=tuple(map(ReviewJson.from_review, progress.reviews)),
        budget=BudgetJson.from_progress(progress.budget),
        messages=tuple(TaskMessageJson(**message.model_dump()) for message in view.task_messages),
        updates=tuple(map(DocumentUpdateJson.from_update, progress.updates)),
        resolutions=tuple(ResolutionJson(**one.model_dump()) for one in view.resolutions),
        reused=progress.reused,
        notes=progress.notes,
        privacy=progress.privacy,
        waits=view.waits,
        doing=tuple(AgentStatusJson(**one.model_dump()) for one in view.doing),
        passages_waiting=view.passages_waiting,
        passages_refused=view.passages_refused,
        characters_not_remembered=view.characters_not_remembered,
        procedures=tuple(ProcedureJson(name=one.name, sha256=one.digest) for one in view.procedures),
        servers=view.servers,
        session=view.session,
    )


class ReportVersionJson(Value):
    """A version of a report; `phase`: how the task ended with it."""

    number: int
    phase: TaskPhase
    stored_at: datetime | None


class ReportJson(Value):
    """A report as Markdown, and how its task ended."""

    task_id: str
    phase: TaskPhase
    """Current phase of the task: after a rewind it runs again."""
    version: int | None
    """Version of the report, from 1; null for a draft."""
    versions: tuple[ReportVersionJson, ...] = ()
    """All versions, oldest first."""
    report: str


def build_report_json(progress: TaskProgress, version: ReportVersion, text: str) -> ReportJson:
    """Build the JSON of one report version, with the list of all versions."""
    each = [
        ReportVersionJson(number=one.number, phase=one.phase, stored_at=one.stored_at)
        for one in progress.report_versions
    ]
    number, versions = version.number, tuple(each)
    return ReportJson(task_id=progress.task_id, phase=progress.phase, version=number, versions=versions, report=text)


class ExportJson(ReportJson):
    """A report with its citations as data."""

    title: str
    stored_at: datetime | None
    model: str
    checked: str
    """Result of the citation check, as a sentence."""
    sources: tuple[NumberedSource, ...]
    """Sources in the order in which the report first cites them."""


class AgentJson(Value):
    """An agent of a task."""

    id: str
    role: str


class ModelViewJson(Value):
    """What the model sees."""

    run_id: str
    messages: tuple[Message, ...]


class CancelJson(Value):
    """What `cancel` prints. `asked` is false where the task was over already; `phase` is as it was before."""

    task_id: str
    phase: str
    asked: bool

    @classmethod
    def from_phase(cls, task_id: str, phase: TaskPhase) -> Self:
        """Build it from the phase that the task had before."""
        return cls(task_id=task_id, phase=phase.value, asked=not phase.over)


class SessionJson(Value):
    """What `session set` prints. A limit is null in a unit that is not limited."""

    session: str
    limit_tokens: int | None
    limit_usd: float | None
