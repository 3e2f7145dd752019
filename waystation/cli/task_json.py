"""What `--json` prints of a task: keys that stay."""

from pathlib import Path

from waystation.domain.budget import Usage
from waystation.domain.task import BudgetProgress, TaskPhase
from waystation.domain.value import Value
from waystation.seen import TaskView


class UsageJson(Value):
    """Tokens by kind."""

    input: int
    cache_write: int
    cache_read: int
    output: int
    total: int

    @classmethod
    def of(cls, usage: Usage) -> "UsageJson":
        """The usage with its sum."""
        return cls(**usage.model_dump(), total=usage.total)


class CompactionJson(Value):
    """One compaction. Token counts are of the whole request."""

    agent: str
    status: str
    tokens_before: int
    tokens_after: int
    passages: int
    redactions: int


class ApprovalJson(Value):
    """One request for money and its answer."""

    request_id: str
    agent: str
    asked_tokens: int
    granted_tokens: int
    decision: str
    by: str
    note: str


class StepJson(Value):
    """One step."""

    id: str
    role: str
    state: str
    legs: int
    usage: UsageJson


class TaskJson(Value):
    """A task. `cost_usd` is null where a model without a known price was used."""

    task_id: str
    workflow_id: str
    run_id: str | None
    ui_url: str | None
    report_path: Path | None
    phase: TaskPhase
    model: str
    usage: UsageJson
    cost_usd: float | None
    legs: int
    compactions: tuple[CompactionJson, ...]
    approvals: tuple[ApprovalJson, ...]
    steps: tuple[StepJson, ...]
    budget: BudgetProgress


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
        usage=UsageJson.of(progress.totals.usage),
        cost_usd=None if micro_usd is None else micro_usd / 1_000_000,
        legs=progress.legs,
        compactions=tuple(CompactionJson(**compaction.model_dump()) for compaction in progress.compactions),
        approvals=tuple(ApprovalJson(**approval.model_dump()) for approval in progress.approvals),
        steps=tuple(
            StepJson(id=step.id, role=step.role, state=step.state, legs=step.legs, usage=UsageJson.of(step.usage))
            for step in progress.steps
        ),
        budget=progress.budget,
    )
