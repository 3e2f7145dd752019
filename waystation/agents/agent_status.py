"""What an agent is doing at this moment, as reported by the heartbeats of its activity."""

from datetime import datetime, timedelta
from typing import Literal

from waystation.kernel.value import Value

HEARTBEAT_STALE_AFTER = timedelta(seconds=30)
"""Age of the last heartbeat (one and a half intervals) after which an agent may be gone."""


AgentPhase = Literal["model", "tool", "between", "waiting"]
"""Waiting for the model; calling a tool; redacting, committing and measuring in between; waiting until the provider's
rate limit permits the next call.
"""


class AgentStatus(Value):
    """What an agent is doing now: numbers and names of tools, never text."""

    agent: str
    """ID of its step, or of a subagent, planning or review."""
    what: AgentPhase
    turn: int | None = None
    """Number of the turn, if it is one."""
    tool: str = ""
    since: datetime
    seen: datetime | None = None
    """When the server last received a heartbeat."""

    @property
    def doing(self) -> str:
        """What the agent does, in words that follow `is`."""
        match self.what:
            case "model":
                return "waiting for the model"
            case "tool":
                return f"calling {self.tool}"
            case "between":
                return "working"
            case "waiting":
                return "rate-limited by the provider"

    def text(self, now: datetime) -> str:
        """Return the status as one sentence, without the full stop."""
        turn = f"turn {self.turn:,}, " if self.turn is not None else ""
        said = f"{self.agent}: {turn}{self.doing} for {format_elapsed(self.since, now)}"
        silent = self.seen is not None and now - self.seen > HEARTBEAT_STALE_AFTER
        return f"{said}; no heartbeat for {format_elapsed(self.seen or now, now)}" if silent else said


def format_elapsed(since: datetime, now: datetime) -> str:
    """Format the elapsed time: 12 s, 3 min 5 s, 2 h 10 min."""
    seconds = max(0, int((now - since).total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60:,} h {minutes % 60} min"
