"""Notifications that several tests use."""

from datetime import UTC, datetime

from waystation.kernel.amount import Amount, Limit
from waystation.tasks.notifications import NotificationEvent, TaskNotification
from waystation.tasks.task import ApprovalRequest, TaskPhase

AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PENDING_APPROVAL = ApprovalRequest(
    request_id="harbours-1",
    agent="harbours",
    requested=Amount(tokens=2_387),
    answer_by=datetime(2026, 11, 22, tzinfo=UTC),
)
REQUEST_NOTICE = TaskNotification(
    event=NotificationEvent.ASKED,
    task_id="task-0123456789abcdef",
    title="How is the bar <crossed> & when?",
    phase=TaskPhase.PAUSED,
    at=AT,
    spent=Amount(tokens=9_000, micro_usd=12_500),
    limit=Limit(tokens=10_000),
    request=PENDING_APPROVAL,
)


def make_end_notice(phase: TaskPhase, reason: str = "") -> TaskNotification:
    """Make the notification of the task's end."""
    event = NotificationEvent.FAILED if phase is TaskPhase.FAILED else NotificationEvent.FINISHED
    return REQUEST_NOTICE.replace(event=event, phase=phase, request=None, reason=reason)
