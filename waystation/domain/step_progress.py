"""One step of a task as people see it, and what its agent does at this moment."""

from datetime import datetime, timedelta
from typing import Literal

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Limit, used_text
from waystation.domain.budget import Usage
from waystation.domain.plan import Step
from waystation.domain.request_text import counted
from waystation.domain.task import StepProgress, StepState
from waystation.domain.value import Value

SILENT = timedelta(seconds=12)
"""Three heartbeats: whoever has not been heard of for so long may be gone."""


class Doing(Value):
    """What an agent does inside of an activity, as its heartbeats tell: numbers and names of tools, never text."""

    agent: str
    """Id of its step, or of a subagent, planning or review."""
    what: Literal["model", "tool", "between"]
    """It waits for the model, or for a tool; or it redacts, commits and measures in between."""
    turn: int | None = None
    """Number of the turn, where it is one."""
    tool: str = ""
    since: datetime
    seen: datetime | None = None
    """When the server last heard of it."""

    def text(self, now: datetime) -> str:
        """One sentence, without the full stop."""
        turn = f"turn {self.turn:,}, " if self.turn is not None else ""
        match self.what:
            case "model":
                doing = "waiting for the model"
            case "tool":
                doing = f"calling {self.tool}"
            case "between":
                doing = "at work"
        said = f"{self.agent}: {turn}{doing} since {elapsed(self.since, now)}"
        silent = self.seen is not None and now - self.seen > SILENT
        return f"{said}; no sign of life since {elapsed(self.seen or now, now)}" if silent else said


def elapsed(since: datetime, now: datetime) -> str:
    """How long it has been: 12 s, 3 min 5 s, 2 h 10 min."""
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"


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
