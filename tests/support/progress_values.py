"""A task in the middle of its life with something of everything, for tests of reports and details."""

from datetime import UTC, datetime

from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import AgentCompaction, CompactionStatus
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.tasks.task import (
    ApprovalRequest,
    BudgetProgress,
    RejectedMessage,
    StepProgress,
    StepState,
    TaskPhase,
    TaskProgress,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
USAGE = Usage(input=12_000, cache_write=3_000, cache_read=90_000, output=4_500)
PENDING_APPROVAL = ApprovalRequest(
    request_id="research-2-1",
    agent="research-2",
    requested=Amount(tokens=30_000),
    spent=Amount(tokens=29_500),
    task_spent=Amount(tokens=41_200),
    limit=Limit(tokens=30_000),
    needed=Amount(tokens=900),
    steps_left=3,
    forecast=BudgetForecast(
        turns=7,
        average_turn_cost=Amount(tokens=4_214),
        turns_covered=7,
        finished_steps=1,
        pending_steps=2,
        reserved_for_pending=Amount(tokens=60_000),
        work_counts=WorkCounts(notes=3),
        dependent_steps=("analysis",),
    ),
    requested_at=NOON,
)
APPROVED_APPROVAL = ApprovalRequest(
    request_id="research-1-1",
    agent="research-1",
    requested=Amount(tokens=20_000),
    granted=Amount(tokens=15_000),
    decision="approved",
    by="Ada",
    note="go on",
)
DENIED_APPROVAL = ApprovalRequest(
    request_id="research-1-2", agent="research-1", requested=Amount(tokens=20_000), decision="denied", by="Ada"
)


def make_step_progress(step_id: str, state: StepState, *, legs: int = 0) -> StepProgress:
    role = step_id.partition("-")[0]
    return StepProgress(id=step_id, role=role, title=f"The {role}", state=state, legs=legs, usage=Usage())


def with_budget(step: StepProgress, limit: int, spent: int = 0, reason: str = "") -> StepProgress:
    """Return the step with this limit and spending, in tokens."""
    return step.replace(limit=Limit(tokens=limit), spent=Amount(tokens=spent), reason=reason)


def make_compaction(status: CompactionStatus = CompactionStatus.COMPRESSED) -> AgentCompaction:
    return AgentCompaction(
        agent="research-1",
        compaction_id="c1",
        status=status,
        strategy="window",
        tokens_before=40_000,
        tokens_after=18_000,
        covered=14,
        passages=6,
        redactions=2,
        totals=RunUsage(),
    )


PAUSED_PROGRESS = TaskProgress(
    task_id="task-0123456789abcdef",
    phase=TaskPhase.PAUSED,
    title="Why did the harbour silt up?",
    model="claude-sonnet-5-5",
    steps=(
        with_budget(
            make_step_progress("research-1", "partial", legs=3),
            limit=35_000,
            spent=11_700,
            reason="a person denied it more",
        ),
        with_budget(make_step_progress("research-2", "paused", legs=1), limit=30_000, spent=29_500),
        with_budget(make_step_progress("analysis", "waiting"), limit=30_000),
        with_budget(make_step_progress("writing", "waiting"), limit=30_000),
    ),
    budget=BudgetProgress(limit=Limit(tokens=200_000), spent=Amount(tokens=41_200), reserved=Amount(tokens=60_500)),
    totals=RunUsage(usage=USAGE, turns=14, possibly_billed=2_500, cost_micro_usd=123_456),
    legs=4,
    compactions=(make_compaction(), make_compaction(CompactionStatus.NOOP)),
    approvals=(APPROVED_APPROVAL, DENIED_APPROVAL, PENDING_APPROVAL),
    rejected_messages=(
        RejectedMessage(signal="approve_budget", reason="tokens: Input should be greater than 0", at=NOON),
    ),
    notes=("Memory did not answer a search; the agent continued without it.",),
)
