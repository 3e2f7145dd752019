"""Ports to tasks and sessions in the store, notification services, data of traces, and the intake of scheduled runs."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Protocol

from waystation.context.transcript import Transcript
from waystation.documents.documents import SourceDocument
from waystation.kernel.scopes import ReadScope
from waystation.tasks.notifications import Notification
from waystation.tasks.progress import TaskCharges
from waystation.tasks.schedules import MonthlyBudget, ScheduleDocuments
from waystation.tasks.session import AdmissionRequest, SessionKey, StoredSession
from waystation.tasks.task import AuditEntry, TaskProgress, TaskRequest, TaskRow
from waystation.tasks.traces import TaskTraceData, TraceCursor


class TaskReader(Protocol):
    """Tasks, each visible to those who own it."""

    async def get_store_id(self) -> str:
        """Return the id of this store, made when it was created."""
        ...

    async def get_task(self, task_id: str, reader: ReadScope) -> TaskRow:
        """Return the task.

        Raises:
            UnknownTask: the reader has no such task; it does not reveal whether someone else has.
        """
        ...

    async def find_task_ids(self, prefix: str, reader: ReadScope) -> tuple[str, ...]:
        """Return the ids of the reader's tasks that start with the prefix."""
        ...

    async def list_tasks(
        self,
        reader: ReadScope,
        limit: int = 50,
        *,
        ended_before: datetime | None = None,
        since: datetime | None = None,
        ended_only: bool = False,
    ) -> tuple[TaskRow, ...]:
        """Return the reader's tasks, newest first.

        Args:
            reader: whose tasks.
            limit: maximum number of tasks.
            ended_before: only tasks that ended before this moment and are not completely forgotten. A task without a
                recorded end (terminated, or still running) counts from its submission.
            since: only tasks that were submitted since this moment.
            ended_only: only tasks with a recorded end.
        """
        ...


class TaskRepository(TaskReader, Protocol):
    """Tasks, and how they ended."""

    async def register_scheduled_task(
        self, row: TaskRow, documents: Sequence[SourceDocument], month: MonthlyBudget
    ) -> str:
        """Store a run of a schedule with its documents, unless it would exceed the monthly budget of the schedule.

        Counting and storing are one transaction, so that runs that start together do not exceed it together.

        Returns:
            Why it was not stored; empty if it was stored, now or before.

        Raises:
            RequestConflict: the request id was used for a different question, documents or config.
        """
        ...

    async def save_task_title(self, task_id: str, title: str) -> None:
        """Store the redacted title."""
        ...

    async def save_task_progress(self, task_id: str, progress: TaskProgress) -> None:
        """Store how the task ended."""
        ...


class CostReader(Protocol):
    """Costs of tasks, call by call."""

    async def list_task_charges(self, task_id: str, reader: ReadScope) -> TaskCharges:
        """Return every call of the task that was billed or may have been; none if the task is not the reader's."""
        ...


class SessionRepository(Protocol):
    """States of sessions, each written by the newest epoch of its workflow."""

    async def take_over_session(self, key: SessionKey) -> StoredSession:
        """Begin a new epoch of the session and return its last saved state; an empty one if there is none."""
        ...

    async def save_session(self, key: SessionKey, stored: StoredSession) -> bool:
        """Save the state. Returns False if another epoch or a newer version is stored, which then stays."""
        ...


class AuditRepository(Protocol):
    """The audit trail of tasks."""

    async def add_audit_entry(self, task_id: str, entry: AuditEntry) -> None:
        """Append an approval or an edit (each twice: requested, and settled), a task message, or a rejected message."""
        ...


class TraceSource(Protocol):
    """Data of traces, and how far they were sent. Idempotent."""

    async def acquire_trace_lease(self, holder: str, lease: timedelta) -> bool:
        """Acquire or renew the lease to send spans. Return whether this process holds it. Raises StoreError."""
        ...

    async def list_unsent_tenant_traces(self, limit: int) -> tuple[TraceCursor, ...]:
        """Return the next unsent events of each tenant that has some, at most `limit` each. Raises StoreError."""
        ...

    async def load_task_trace_data(self, cursor: TraceCursor, task_id: str) -> tuple[TaskTraceData, int] | None:
        """Load the data of a task's trace, without transcripts, and the event number up to which its spans were sent.

        Returns:
            None if the tenant has no such task.

        Raises:
            StoreError: The store does not answer.
        """
        ...

    async def load_transcript(self, run_id: str, reader: ReadScope) -> Transcript:
        """Load a transcript as a `TranscriptReader` does."""
        ...

    async def mark_traces_sent(self, cursor: TraceCursor) -> None:
        """Mark everything up to the cursor as sent. Raises StoreError."""
        ...


class TaskIntake(Protocol):
    """Where a scheduled run submits its task, as a client does. Idempotent."""

    def read_documents(self, paths: Sequence[str]) -> ScheduleDocuments:
        """Read the current documents at these paths; slow. Raises BadInput, which names none of them."""
        ...

    @property
    def sends_notifications(self) -> bool:
        """Whether notifications are configured."""
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
    """Notifies one addressee of the events of tasks and schedules."""

    @property
    def name(self) -> str:
        """Name of the addressee: unique, the same on every worker, and without secrets."""
        ...

    async def send(self, notice: Notification, link: str | None) -> None:
        """Send the notification; it may be sent again if the answer is lost, with the same `delivery_id`.

        Args:
            notice: The notification.
            link: The page of the task or schedule.

        Raises:
            WebhookUnavailable: Another attempt may help.
            WebhookRejectedError: Another attempt changes nothing.
        """
        ...
