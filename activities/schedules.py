"""The activities of a scheduled run: its task handed in as a client would, looked after, and the schedule paused."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from temporalio import activity

from activities.attempts import heartbeating, translating_errors
from waystation.kernel.amount import Amount
from waystation.kernel.clock import Clock
from waystation.kernel.errors import BadInput, TextNotFoundError, UnknownTask
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import TenantScope
from waystation.store.ports import Store
from waystation.tasks.ports import Intake
from waystation.tasks.schedules import (
    Begun,
    Looked,
    MonthlyBudget,
    PauseOrder,
    RunOrder,
    ScheduledOutcome,
    ScheduleWish,
    in_month,
    last_told,
    own_rows,
    pause_note,
    run_workflow_id,
    would_repeat,
)
from waystation.tasks.session import AdmissionRequest
from waystation.tasks.task import TaskRow

MOST_TASKS = 100_000
"""Of a session: a month's runs are among them."""
RUNS_READ_AT_ONCE = 2
"""Runs of which a worker reads the documents at the same time; others wait."""


@dataclass(frozen=True)
class ScheduleActivities:
    """All are safe to repeat."""

    store: Store
    intake: Intake
    clock: Clock
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RUNS_READ_AT_ONCE))
    """Schedules often share a moment, and reading documents takes processors."""

    @activity.defn(name="BeginScheduledRun")
    async def begin(self, order: RunOrder) -> Begun:
        """Read the documents as they are now and store the task; or say why there is none."""
        async with heartbeating(), self.reading:
            with translating_errors():
                return await self._begin(order)

    @activity.defn(name="RequestAdmission")
    async def request_admission(self, request: AdmissionRequest) -> None:
        """Ask the task's session to admit it. The session answers the workflow: an activity that waited would hold a
        slot that the admission may need.
        """
        with translating_errors():
            await self.intake.request_admission(request)

    async def _begin(self, order: RunOrder) -> Begun:
        wish, session = await self._wish(order), order.own.reader.get_recall_scope("session")
        own = own_rows(await self.store.tasks(session, MOST_TASKS), order.own.task_id)
        if known := next((row for row in own if row.request.request_id == order.request_id), None):
            return Begun(how=known.ref)
        read = await asyncio.to_thread(self.intake.read, wish.paths)
        last = last_told(own, wish.request.question)
        since = last.ref.task_id if last is not None else None
        row = await self.intake.row(
            wish.request.replace(request_id=order.request_id, left_out=read.left_out, since=since)
        )
        if last is not None and would_repeat(
            last, row, await self.store.documents(last.ref.task_id, session), read.documents
        ):
            return _without_task("unchanged", "the same question, terms and documents", last.ref.task_id)
        month = await self._month(wish, own, session)
        if reason := await self.store.register_scheduled(row, read.documents, month):
            return _without_task("over the month", reason)
        return Begun(how=row.ref)

    async def _wish(self, order: RunOrder) -> ScheduleWish:
        try:
            return ScheduleWish.model_validate_json(await self.store.get_text(order.wish, order.own.reader))
        except TextNotFoundError:
            raise BadInput("what this schedule asks is not in the store any more: remove it, and add it anew") from None

    async def _month(self, wish: ScheduleWish, own: Sequence[TaskRow], session: TenantScope) -> MonthlyBudget:
        """The budget of this month, with what its runs so far have spent or hold."""
        now, schedule = self.clock(), wish.schedule_id
        counted = {
            row.ref.task_id: await self._held(row, schedule, session)
            for row in own
            if in_month(row, now) and not wish.monthly.unlimited
        }
        return MonthlyBudget(schedule_id=schedule, limit=wish.monthly, at=now, counted=counted)

    async def _held(self, row: TaskRow, schedule: str, session: TenantScope) -> Amount:
        """What a task has spent; until it is settled, at least what it may spend."""
        ended = row.progress.budget if row.progress is not None and row.progress.phase.over else None
        if await self._may_spend(row, schedule):
            held = row.terms.budget if ended is None else ended.limit
            return (await self._spent(row, session)).at_least(held.amount)
        return await self._spent(row, session) if ended is None else ended.spent

    async def _may_spend(self, row: TaskRow, schedule: str) -> bool:
        """Whether it is at work, or the run that registered it has yet to submit it. Asked in this order, a task that
        is submitted meanwhile is seen.
        """
        registering = run_workflow_id(schedule, row.request.request_id)
        return await self.intake.is_open(registering) or await self.intake.is_open(row.ref.task_id)

    async def _spent(self, row: TaskRow, session: TenantScope) -> Amount:
        runs = await self.store.run_ids(row.ref.task_id, session)
        return sum([(await self.store.totals(run)).spent for run in runs], Amount())

    @activity.defn(name="LookAtScheduledTask")
    async def look(self, ref: TaskRef) -> Looked:
        """Whether it is over, and how it ended."""
        with translating_errors():
            try:
                row = await self.store.task(ref.task_id, ref.reader)
            except UnknownTask:
                return Looked(over=True)
            if row.progress is not None and row.progress.phase.over:
                return Looked(over=True, phase=row.progress.phase)
            return Looked(over=not await self.intake.is_open(ref.task_id))

    @activity.defn(name="PauseSchedule")
    async def pause(self, order: PauseOrder) -> None:
        """With a note that tells why. One that was removed meanwhile needs none."""
        with translating_errors():
            await self.intake.pause(order.schedule_id, pause_note(order))


def _without_task(outcome: Literal["unchanged", "over the month"], reason: str, task_id: str = "") -> Begun:
    return Begun(how=ScheduledOutcome(outcome=outcome, task_id=task_id, reason=reason))
