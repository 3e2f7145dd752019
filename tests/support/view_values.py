"""A paused task with budgets in tokens and in dollars, for tests of output."""

from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import AgentCompaction, CompactionStatus
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.tasks.task import ApprovalRequest, BudgetProgress, StepProgress, TaskPhase, TaskProgress
from waystation.tasks.view import TaskView

USAGE = Usage(input=1_000, cache_write=200, cache_read=3_000, output=400)
PENDING_APPROVAL_FORECAST = BudgetForecast(
    turns=7,
    average_turn_cost=Amount(tokens=4_214),
    turns_covered=7,
    finished_steps=1,
    pending_steps=2,
    reserved_for_pending=Amount(tokens=60_000),
    work_counts=WorkCounts(notes=3),
    dependent_steps=("analysis",),
)
PENDING_APPROVAL = ApprovalRequest(
    request_id="r1",
    agent="research-1",
    requested=Amount(tokens=30_000),
    spent=Amount(tokens=29_500),
    limit=Limit(tokens=30_000),
    needed=Amount(tokens=900),
    task_spent=Amount(tokens=41_200),
    steps_left=3,
    forecast=PENDING_APPROVAL_FORECAST,
)
VIEWED_PROGRESS = TaskProgress(
    task_id="task-0123456789abcdef",
    phase=TaskPhase.PAUSED,
    title="Which licences [red]do[/red] they carry?",
    model="claude-sonnet-5-5",
    steps=(
        StepProgress(
            id="research-1",
            role="research",
            state="paused",
            legs=2,
            usage=USAGE,
            limit=Limit(tokens=30_000),
            spent=Amount(tokens=29_500),
        ),
        StepProgress(id="writing", role="writing", state="waiting", legs=0, usage=Usage()),
    ),
    budget=BudgetProgress(limit=Limit(tokens=200_000), spent=Amount(tokens=41_200), reserved=Amount(tokens=90_000)),
    totals=RunUsage(usage=USAGE, turns=4, cost_micro_usd=123_456),
    legs=2,
    compactions=(
        AgentCompaction(
            agent="research-1",
            compaction_id="c1",
            status=CompactionStatus.COMPRESSED,
            strategy="window",
            tokens_before=9_100,
            tokens_after=4_300,
            covered=14,
            passages=6,
            passages_waiting=6,
            redactions=2,
            totals=RunUsage(),
        ),
    ),
    approvals=(PENDING_APPROVAL,),
    notes=("memory is down",),
)
PAUSED_VIEW = TaskView.from_progress(VIEWED_PROGRESS).replace(
    run_id="run-1", ui_url="http://127.0.0.1:8233/namespaces/default/workflows/task-0123456789abcdef"
)

PAUSED_PROGRESS_IN_DOLLARS = VIEWED_PROGRESS.replace(
    steps=(
        VIEWED_PROGRESS.steps[0].replace(
            limit=Limit(micro_usd=500_000), spent=Amount(tokens=29_500, micro_usd=450_000)
        ),
    ),
    budget=BudgetProgress(
        limit=Limit(tokens=200_000, micro_usd=2_000_000),
        spent=Amount(tokens=41_200, micro_usd=700_000),
        reserved=Amount(tokens=90_000, micro_usd=1_000_000),
    ),
    approvals=(
        PENDING_APPROVAL.replace(
            requested=Amount(micro_usd=500_000),
            spent=Amount(tokens=29_500, micro_usd=450_000),
            limit=Limit(micro_usd=500_000),
            needed=Amount(micro_usd=12_345),
            task_spent=Amount(tokens=41_200, micro_usd=700_000),
            forecast=PENDING_APPROVAL_FORECAST.replace(
                average_turn_cost=Amount(micro_usd=64_285), reserved_for_pending=Amount(micro_usd=1_000_000)
            ),
        ),
    ),
)
