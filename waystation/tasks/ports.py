"""Ports to those who are told of tasks, to what spans are made of, and to where scheduled runs hand theirs in."""

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
    """What spans are made of, and how far they were sent. Safe to repeat."""

    async def acquire_trace_lease(self, holder: str, lease: timedelta) -> bool:
        """Whether this process is the one that sends spans, for so long from now on. Raises StoreError."""
        ...

    async def list_unsent_traces(self, limit: int) -> tuple[TraceCursor, ...]:
        """Of each tenant that has any the next events, so many at most. Raises StoreError."""
        ...

    async def load_task_trace_data(self, place: TraceCursor, task_id: str) -> tuple[TaskTraceData, int] | None:
        """What the task's trace is made of, but for its transcripts; and up to which number its spans went out. None:
        there is no such task of the tenant. Raises StoreError.
        """
        ...

    async def load_transcript(self, run_id: str, reader: ReadScope) -> Transcript:
        """As a `Store` has it."""
        ...

    async def mark_traces_sent(self, place: TraceCursor) -> None:
        """Everything of the place has gone out. Raises StoreError."""
        ...


class TaskIntake(Protocol):
    """Where a scheduled run hands its task in, as a client does. All of it is safe to repeat."""

    def read_documents(self, paths: Sequence[str]) -> ScheduleDocuments:
        """The documents at these places, as they are now; it takes its time. Raises BadInput, which names none."""
        ...

    async def build_row(self, request: TaskRequest) -> TaskRow:
        """The task as it is to be stored. Raises BadInput for terms that cannot work."""
        ...

    async def request_admission(self, request: AdmissionRequest) -> None:
        """Have a stored task's session admit it and answer a workflow. Nothing is waited for. Raises Unreachable."""
        ...

    async def is_workflow_open(self, workflow_id: str) -> bool:
        """Whether the newest run of this workflow is open."""
        ...

    async def pause_schedule(self, schedule_id: str, note: str) -> None:
        """Pause a schedule. Nothing happens where it was removed."""
        ...


class Notifier(Protocol):
    """Tells somebody of one event of a task."""

    @property
    def name(self) -> str:
        """Who that is: another one for each, the same on every worker, and without secrets."""
        ...

    async def send(self, notice: TaskNotification, link: str | None) -> None:
        """Deliver it, once or, where the answer is lost, again; `delivery_id` tells repeats. `link`: the task's page.

        Raises:
            WebhookUnavailable: worth another attempt.
            WebhookRejectedError: another attempt changes nothing.
        """
        ...
