"""What people see of a running task."""

from collections.abc import Iterator, Mapping

from waystation.domain.amount import Amount, Limit
from waystation.domain.budget import RunTotals, summed
from waystation.domain.compaction.outcome import AgentCompaction
from waystation.domain.plan import Step
from waystation.domain.privacy import Policy
from waystation.domain.step_progress import begun, not_begun
from waystation.domain.task import BudgetProgress, StepProgress, TaskProgress, TaskRef, TaskTerms
from waystation.domain.task_state import TaskState


def progress_of(
    state: TaskState, ref: TaskRef, terms: TaskTerms, title: str, privacy: Policy | None = None
) -> TaskProgress:
    """What people see."""
    runs = state.all_runs
    return TaskProgress(
        task_id=ref.task_id,
        phase=state.phase,
        title=title,
        model=terms.agent.model,
        models=terms.models,
        steps=tuple(_steps(state)),
        budget=BudgetProgress(
            limit=state.account.limit,
            spent=state.totals.spent,
            reserved=state.account.limit.counted((state.account.held + state.account.spent).less(state.totals.spent)),
        ),
        totals=state.totals,
        legs=sum(run.leg - 1 for run in runs),
        compactions=tuple(
            AgentCompaction(agent=run.run.step_id, **compaction.model_dump())
            for run in runs
            for compaction in run.compactions
        ),
        approvals=state.approvals,
        refusals=state.refusals,
        edits=tuple(edit for run in runs for edit in run.edits),
        tellings=state.tellings,
        updates=state.updates,
        reused=state.reused,
        revisions=state.oversight.revisions,
        reviews=state.oversight.reviews,
        notes=state.notes,
        privacy=privacy,
        report=state.report,
        reports=state.reports,
    )


def spending(progress: TaskProgress, spent: Mapping[str, RunTotals]) -> TaskProgress:
    """With what the store says that its agents have spent, by the ids of their steps. The workflow hears of it when a
    leg ends, and knows then which calls will have no answer any more: what it has counted never goes back.
    """
    known, totals = progress.totals, summed(tuple(spent.values()))
    totals = totals.model_copy(
        update={
            "possibly_billed": max(known.possibly_billed, totals.possibly_billed),
            "possibly_billed_micro_usd": max(known.possibly_billed_micro_usd, totals.possibly_billed_micro_usd),
        }
    )
    budget = progress.budget
    held = (budget.reserved + budget.spent).less(totals.spent)
    return progress.model_copy(
        update={
            "totals": totals,
            "budget": budget.model_copy(update={"spent": totals.spent, "reserved": budget.limit.counted(held)}),
            "steps": tuple(_spent(step, spent[step.id]) if step.id in spent else step for step in progress.steps),
        }
    )


def _spent(step: StepProgress, totals: RunTotals) -> StepProgress:
    spent = Amount(
        tokens=max(step.spent.tokens, totals.spent.tokens), micro_usd=max(step.spent.micro_usd, totals.spent.micro_usd)
    )
    return step.model_copy(update={"usage": totals.usage, "cost_micro_usd": totals.cost_micro_usd, "spent": spent})


def _steps(state: TaskState) -> Iterator[StepProgress]:
    """The plan's, each followed by its subagents."""
    for step in state.plan.steps if state.plan else ():
        yield _step(state, step)
        yield from _subagents(state, step.id)


def _subagents(state: TaskState, parent: str) -> Iterator[StepProgress]:
    run = state.runs.get(parent)
    for order in run.orders if run is not None else ():
        if order.id in state.runs:
            yield _step(state, Step(id=order.id, role=order.role, title=order.title))
            yield from _subagents(state, order.id)


def _step(state: TaskState, step: Step) -> StepProgress:
    run = state.runs.get(step.id)
    if run is None:
        return not_begun(step, state.share_of(step.id) or Limit(), skipped=state.phase.over or state.cancelled)
    return begun(step, run, asked=any(approval.agent == step.id for approval in state.pending))
