"""One step of a task as people see it."""

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Limit
from waystation.domain.budget import Usage
from waystation.domain.plan import Step
from waystation.domain.task import StepProgress, StepState


def not_begun(step: Step, share: Limit, *, skipped: bool) -> StepProgress:
    """A step that was not started, and will not be where it is skipped. `share`: what is reserved for it."""
    return StepProgress(
        id=step.id,
        role=step.role,
        title=step.title,
        state="skipped" if skipped else "waiting",
        legs=0,
        usage=Usage(),
        limit=share,
    )


def begun(step: Step, run: AgentRun, *, asked: bool) -> StepProgress:
    """A step that was started. `asked`: a person is asked for money for it."""
    return StepProgress(
        id=step.id,
        role=step.role,
        title=step.title,
        state=_state_of(run, asked=asked),
        legs=run.leg - 1,
        usage=run.totals.usage,
        cost_micro_usd=run.totals.cost_micro_usd,
        limit=run.limit,
        spent=run.totals.spent,
        reason=run.reason,
    )


def _state_of(run: AgentRun, *, asked: bool) -> StepState:
    if run.phase == "delivered":
        return "partial" if run.partial else "done"
    if asked:
        return "paused"
    return "compacting" if run.phase == "full" else "working"
