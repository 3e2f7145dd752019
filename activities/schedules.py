"""Activities of a scheduled run: submit its task as a client would, look at it, and pause the schedule."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from temporalio import activity

from waystation.activities.activity_errors import heartbeating, translating_errors
from waystation.agents.ports import ChargeRepository, TranscriptReader
from waystation.documents.ports import DocumentStore
from waystation.documents.stored_documents import load_source_documents
from waystation.kernel.amount import Amount
from waystation.kernel.clock import Clock
from waystation.kernel.errors import BadInput, TextNotFoundError, UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TenantScope
from waystation.tasks.ports import TaskIntake, TaskRepository
from waystation.tasks.schedules import (
    MonthlyBudget,
    PauseScheduleRequest,
    ScheduleDefinition,
    ScheduleDocuments,
    ScheduledRunBeginning,
    ScheduledRunOrder,
    ScheduledRunOutcome,
    ScheduledTaskStatus,
    filter_schedule_rows,
    find_last_reported_task,
    format_pause_note,
    is_in_month,
    make_run_workflow_id,
    would_repeat,
)
from waystation.tasks.session import AdmissionRequest
from waystation.tasks.task import TaskRow

MAX_TASKS = 100_000
"""Maximum number of a session's tasks that are read: a month's runs are among them."""
RUNS_READ_AT_ONCE = 2
"""Maximum number of runs whose documents a worker reads at the same time."""


class ScheduleStore(TaskRepository, DocumentStore, TranscriptReader, ChargeRepository, Protocol):
    """Tasks of schedules, with documents and costs."""


@dataclass(frozen=True)
class ScheduleActivities:
    """Activities of scheduled runs. Idempotent."""

    store: ScheduleStore
    intake: TaskIntake
    clock: Clock
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RUNS_READ_AT_ONCE))
    """Limits concurrent reads: schedules often fire at the same moment, and reading documents is CPU-bound."""

    @activity.defn(name="BeginScheduledRun")
    async def begin_run(self, order: ScheduledRunOrder) -> ScheduledRunBeginning:
        """Read the current documents and store the task, or return why there is none."""
        async with heartbeating(), self.reading:
            with translating_errors():
                return await self._begin(order)

    @activity.defn(name="RequestAdmission")
    async def request_admission(self, request: AdmissionRequest) -> None:
        """Ask the task's session to admit it.

        The session answers the workflow: an activity that waited would hold a slot that the admission may need.
        """
        with translating_errors():
            await self.intake.request_admission(request)

    async def _begin(self, order: ScheduledRunOrder) -> ScheduledRunBeginning:
        wish, session = await self._wish(order), order.session_ref.scope.get_recall_scope("session")
        own = filter_schedule_rows(await self.store.list_tasks(session, MAX_TASKS), order.session_ref.task_id)
        if known := next((row for row in own if row.request.request_id == order.request_id), None):
            return ScheduledRunBeginning(result=known.ref)
        read = await self._read_documents(wish, session)
        last = find_last_reported_task(own, wish.request.question)
        since = last.ref.task_id if last is not None else None
        row = await self.intake.build_row(
            wish.request.replace(request_id=order.request_id, skipped_items=read.skipped_items, since=since)
        )
        if last is not None and would_repeat(
            last, row, await self.store.list_documents(last.ref.task_id, session), read.documents
        ):
            return _without_task("unchanged", "the same question, configuration and documents", last.ref.task_id)
        month = await self._month(wish, own, session)
        if reason := await self.store.register_scheduled_task(row, read.documents, month):
            return _without_task("over the month", reason)
        return ScheduledRunBeginning(result=row.ref)

    async def _read_documents(self, wish: ScheduleDefinition, session: TenantScope) -> ScheduleDocuments:
        """Read the files of the schedule; without any, the stored documents of the session's newest task that has some.

        Raises BadInput.
        """
        if wish.paths:
            return await asyncio.to_thread(self.intake.read_documents, wish.paths)
        for row in await self.store.list_tasks(session, MAX_TASKS):
            if documents := await load_source_documents(self.store, row.ref.task_id, session):
                return ScheduleDocuments(documents=documents)
        raise BadInput("no task of its session has documents any more: remove the schedule, or add one with files")

    async def _wish(self, order: ScheduledRunOrder) -> ScheduleDefinition:
        try:
            return ScheduleDefinition.model_validate_json(
                await self.store.get_text(order.definition, order.session_ref.scope)
            )
        except TextNotFoundError:
            raise BadInput(
                "the question of this schedule is no longer in the store: remove the schedule and add it again"
            ) from None

    async def _month(
        self, definition: ScheduleDefinition, own: Sequence[TaskRow], session: TenantScope
    ) -> MonthlyBudget:
        """Return this month's budget, with what its runs so far have spent or hold."""
        now, schedule = self.clock(), definition.schedule_id
        counted = {
            row.ref.task_id: await self._held(row, schedule, session)
            for row in own
            if is_in_month(row, now) and not definition.monthly.is_unlimited
        }
        return MonthlyBudget(schedule_id=schedule, limit=definition.monthly, at=now, amounts=counted)

    async def _held(self, row: TaskRow, schedule: str, session: TenantScope) -> Amount:
        """Return what a task has spent; until it is settled, at least what it may spend."""
        ended = row.progress.budget if row.progress is not None and row.progress.phase.over else None
        if await self._may_spend(row, schedule):
            held = row.config.budget if ended is None else ended.limit
            return (await self._spent(row, session)).max_with(held.amount)
        return await self._spent(row, session) if ended is None else ended.spent

    async def _may_spend(self, row: TaskRow, schedule: str) -> bool:
        """Return whether the task is running, or the run that registered it has yet to submit it.

        The order of the two checks matters: a task that is submitted meanwhile is seen.
        """
        registering = make_run_workflow_id(schedule, row.request.request_id)
        return await self.intake.is_workflow_open(registering) or await self.intake.is_workflow_open(row.ref.task_id)

    async def _spent(self, row: TaskRow, session: TenantScope) -> Amount:
        runs = await self.store.list_run_ids(row.ref.task_id, session)
        return sum([(await self.store.get_run_usage(run)).spent for run in runs], Amount())

    @activity.defn(name="LookAtScheduledTask")
    async def get_task_status(self, ref: TaskRef) -> ScheduledTaskStatus:
        """Return whether the task is over, and how it ended."""
        with translating_errors():
            # Temporal is asked first: a task stores how it ended before its workflow closes.
            is_open = await self.intake.is_workflow_open(ref.task_id)
            try:
                row = await self.store.get_task(ref.task_id, ref.scope)
            except UnknownTask:
                return ScheduledTaskStatus(over=True)
            if row.progress is not None and row.progress.phase.over:
                return ScheduledTaskStatus(over=True, phase=row.progress.phase)
            return ScheduledTaskStatus(over=not is_open)

    @activity.defn(name="GetNotificationSetting")
    async def get_notification_setting(self) -> bool:
        """Return whether this worker has addresses to notify."""
        return self.intake.sends_notifications

    @activity.defn(name="PauseSchedule")
    async def pause_schedule(self, order: PauseScheduleRequest) -> None:
        """Pause the schedule with a note that says why. Does nothing if it was removed meanwhile."""
        with translating_errors():
            await self.intake.pause_schedule(order.schedule_id, format_pause_note(order))


def _without_task(
    outcome: Literal["unchanged", "over the month"], reason: str, task_id: str = ""
) -> ScheduledRunBeginning:
    return ScheduledRunBeginning(result=ScheduledRunOutcome(outcome=outcome, task_id=task_id, reason=reason))
