"""Notices that several tests look at."""

from datetime import UTC, datetime

from waystation.kernel.amount import Amount, Limit
from waystation.tasks.notices import Event, Notice
from waystation.tasks.task import Approval, TaskPhase

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
REQUEST = Approval(
    request_id="harbours-1", agent="harbours", asked=Amount(tokens=2_387), answer_by=datetime(2026, 11, 22, tzinfo=UTC)
)
ASKED = Notice(
    event=Event.ASKED,
    task_id="task-0123456789abcdef",
    title="How is the bar <crossed> & when?",
    phase=TaskPhase.PAUSED,
    at=AT,
    spent=Amount(tokens=9_000, micro_usd=12_500),
    limit=Limit(tokens=10_000),
    request=REQUEST,
)


def ended(phase: TaskPhase, reason: str = "") -> Notice:
    """How the same task ends."""
    event = Event.FAILED if phase is TaskPhase.FAILED else Event.FINISHED
    return ASKED.replace(event=event, phase=phase, request=None, reason=reason)
