"""Ports to notification services, to the data of traces, and to the intake of scheduled tasks."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from waystation.context.transcript import Transcript
from waystation.kernel.scopes import ReadScope
from waystation.tasks.notifications import TaskNotification
from waystation.tasks.schedules import ScheduleDocuments
from waystation.tasks.session import AdmissionRequest
from waystation.tasks.task import TaskRequest, TaskRow
from waystation.tasks.traces import TaskTraceData, TraceCursor


class TraceSource(Protocol):
    """Data of traces, and how far they were sent. Idempotent."""

    async def acquire_trace_lease(self, holder: str, lease: timedelta) -> bool:
        """Acquire or renew the lease to send spans. Return whether this process holds it. Raises StoreError."""
        ...

    async def list_unsent_tenant_traces(self, limit: int) -> tuple[TraceCursor, ...]:
        """Return the next unsent events of each tenant that has some, at most `limit` each. Raises StoreError."""
        ...

    async def load_task_trace_data(self, place: TraceCursor, task_id: str) -> tuple[TaskTraceData, int] | None:
        """Load the data of a task's trace, without transcripts, and the event number up to which its spans were sent.

        Returns:
            None if the tenant has no such task.

        Raises:
            StoreError: The store does not answer.
        """
        ...

    async def load_transcript(self, run_id: str, reader: ReadScope) -> Transcript:
        """Load a transcript as a `Store` does."""
        ...

    async def mark_traces_sent(self, place: TraceCursor) -> None:
        """Mark everything up to the cursor as sent. Raises StoreError."""
        ...


class TaskIntake(Protocol):
    """Where a scheduled run submits its task, as a client does. Idempotent."""

    def read_documents(self, paths: Sequence[str]) -> ScheduleDocuments:
        """Read the current documents at these paths; slow. Raises BadInput, which names none of them."""
        ...

    async def build_row(self, request: TaskRequest) -> TaskRow:
        """Build the task to be stored. Raises BadInput for a configuration that cannot work."""
        ...

    async def request_admission(self, request: AdmissionRequest) -> None:
        """Have a stored task's session admit it and answer a workflow, without waiting. Raises Unreachable."""
        ...

    async def is_workflow_open(self, workflow_id: str) -> bool:
        """Return whether the newest run of this workflow is open."""
        ...

    async def pause_schedule(self, schedule_id: str, note: str) -> None:
        """Pause a schedule. Does nothing if it was removed."""
        ...


class Notifier(Protocol):
    """Notifies one addressee of a task's events."""

    @property
    def name(self) -> str:
        """Name of the addressee: unique, the same on every worker, and without secrets."""
        ...

    async def send(self, notice: TaskNotification, link: str | None) -> None:
        """Send the notification; it may be sent again if the answer is lost, with the same `delivery_id`.

        Args:
            notice: The notification.
            link: The task's page.

        Raises:
            WebhookUnavailable: Another attempt may help.
            WebhookRejectedError: Another attempt changes nothing.
        """
        ...
