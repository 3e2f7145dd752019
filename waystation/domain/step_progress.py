"""One step of a task as people see it."""

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Limit, used_text
from waystation.domain.budget import Usage
from waystation.domain.plan import Step
from waystation.domain.request_text import counted
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
    """A step that was started. `asked`: a person is asked for money for it, or for a call."""
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


def run_details(run: AgentRun, title: str) -> str:
    """A subagent's current details in the Temporal UI: no text from the work."""
    lines = [
        f"**{run.run.step_id}** {title} ({run.run.role}): {_state_of(run, asked=run.phase in {'spent', 'asking'})}",
        "",
        f"- {counted(run.leg - 1, 'leg')}, {used_text(run.totals.spent, run.limit)}",
        *(f"- {note}" for note in run.notes),
        *([f"- {run.reason}"] if run.reason else []),
    ]
    return "\n".join(lines)


def _state_of(run: AgentRun, *, asked: bool) -> StepState:
    if run.phase == "delivered":
        return "partial" if run.partial else "done"
    if asked:
        return "paused"
    if run.phase == "delegating":
        return "delegating"
    return "compacting" if run.phase == "full" else "working"
