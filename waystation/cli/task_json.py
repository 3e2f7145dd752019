"""What `--json` prints of a task: keys that stay."""

from datetime import datetime
from pathlib import Path

from waystation.cli.approval_json import ApprovalJson
from waystation.domain.budget import Usage
from waystation.domain.fork import Reused
from waystation.domain.plan_change import PlanVersion
from waystation.domain.task import BudgetProgress, StepProgress, TaskPhase
from waystation.domain.value import Value
from waystation.seen import TaskView


class UsageJson(Value):
    """Tokens by kind, and searches."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    total: int
    cached_share: float
    """Of the input, what was read from the provider's cache, from 0 to 1."""
    searches: int
    """Of the web, by the provider."""

    @classmethod
    def of(cls, usage: Usage) -> "UsageJson":
        """The usage with its sum."""
        return cls(**usage.model_dump(), total=usage.total, cached_share=round(usage.cached_share, 4))


class CompactionJson(Value):
    """One compaction. Token counts are of the whole request."""

    id: str
    """What `waystation restore --compaction` takes."""
    agent: str
    status: str
    tokens_before: int
    tokens_after: int
    passages: int
    redactions: int


class BudgetJson(Value):
    """The task's account. A limit is null in a unit that is not limited."""

    limit_tokens: int | None
    limit_usd: float | None
    spent_tokens: int
    spent_usd: float
    reserved_tokens: int
    reserved_usd: float

    @classmethod
    def of(cls, budget: BudgetProgress) -> "BudgetJson":
        """The account in tokens and dollars."""
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
    def of(cls, step: StepProgress) -> "StepJson":
        """The step, its budget in tokens and dollars."""
        return cls(
            usage=UsageJson.of(step.usage),
            limit_tokens=step.limit.tokens,
            limit_usd=step.limit.usd,
            spent_tokens=step.spent.tokens,
            spent_usd=step.spent.usd,
            **step.model_dump(include={"id", "role", "state", "legs", "reason"}),
        )


class DoingJson(Value):
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


class PlanJson(Value):
    """One version of the plan, without goals. `made_by`: the agent run of the planning, or of a revision."""

    version: int
    made_by: str
    reason: str
    steps: tuple[PlanStepJson, ...]

    @classmethod
    def of(cls, version: PlanVersion) -> "PlanJson":
        """The version as it is shown."""
        steps = tuple(PlanStepJson(**step.model_dump(exclude={"goal"})) for step in version.plan.steps)
        return cls(version=version.number, made_by=version.made_by, reason=version.reason, steps=steps)


class ReviewJson(Value):
    """One review of the report."""

    number: int
    faults: int
    sent_back: bool


class ToldJson(Value):
    """What a person told the task at work. `by` is a name as given; `heard_by` are ids of agents."""

    number: int
    by: str
    told_at: datetime
    text: str
    heard_by: tuple[str, ...]


class UpdateJson(Value):
    """New versions of the task's documents that a person gave it. `kept` is false until the store has them."""

    number: int
    by: str
    updated_at: datetime
    kept: bool
    changed: int
    added: int
    removed: int


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
    """A task. `cost_usd` is null where a model without a known price was used."""

    task_id: str
    workflow_id: str
    run_id: str | None
    ui_url: str | None
    report_path: Path | None
    phase: TaskPhase
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
    told: tuple[ToldJson, ...]
    updates: tuple[UpdateJson, ...]
    resolutions: tuple[ResolutionJson, ...]
    reused: Reused | None
    notes: tuple[str, ...]
    privacy: str | None
    waits: tuple[str, ...]
    doing: tuple[DoingJson, ...]
    passages_waiting: int
    passages_refused: tuple[str, ...]
    characters_not_remembered: int
    procedures: tuple[ProcedureJson, ...]
    session: str


def task_json(view: TaskView, report_path: Path | None) -> TaskJson:
    """The view as it is printed."""
    progress = view.progress
    micro_usd = progress.totals.cost_micro_usd
    return TaskJson(
        task_id=progress.task_id,
        workflow_id=progress.task_id,
        run_id=view.run_id,
        ui_url=view.ui_url,
        report_path=report_path,
        phase=progress.phase,
        model=progress.model,
        models=progress.models,
        usage=UsageJson.of(progress.totals.usage),
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        legs=progress.legs,
        compactions=tuple(
            CompactionJson(id=compaction.compaction_id, **compaction.model_dump())
            for compaction in progress.compactions
        ),
        approvals=tuple(
            ApprovalJson.of(approval, view.origins.get(approval.request_id)) for approval in progress.approvals
        ),
        steps=tuple(map(StepJson.of, progress.steps)),
        plans=tuple(map(PlanJson.of, view.plans)),
        reviews=tuple(ReviewJson(**review.model_dump(exclude={"found"})) for review in progress.reviews),
        budget=BudgetJson.of(progress.budget),
        told=tuple(ToldJson(**told.model_dump()) for told in view.tellings),
        updates=tuple(UpdateJson(**update.model_dump()) for update in progress.updates),
        resolutions=tuple(ResolutionJson(**one.model_dump()) for one in view.resolutions),
        reused=progress.reused,
        notes=progress.notes,
        privacy=progress.privacy,
        waits=view.waits,
        doing=tuple(DoingJson(**one.model_dump()) for one in view.doing),
        passages_waiting=view.passages_waiting,
        passages_refused=view.passages_refused,
        characters_not_remembered=view.characters_not_remembered,
        procedures=tuple(ProcedureJson(name=one.name, sha256=one.digest) for one in view.procedures),
        session=view.session,
    )
