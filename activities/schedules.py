"""The activities of a scheduled run: its task handed in as a client would, looked after, and the schedule paused."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from temporalio import activity

from activities.attempts import beating, reported
from waystation.domain.amount import Amount
from waystation.domain.errors import BadInput, TextMissing, UnknownTask
from waystation.domain.ownership import OfTenant
from waystation.domain.schedules import (
    Begun,
    Looked,
    PauseOrder,
    RunOrder,
    ScheduledOutcome,
    ScheduleWish,
    in_month,
    last_told,
    over_month,
    own_rows,
    pause_note,
    would_repeat,
)
from waystation.domain.task import TaskRef, TaskRow
from waystation.ports import Clock, Intake, Store

MOST_TASKS = 100_000
"""Of a session: a month's runs are among them."""


@dataclass(frozen=True)
class ScheduleActivities:
    """All are safe to repeat."""

    store: Store
    intake: Intake
    clock: Clock

    @activity.defn(name="BeginScheduledRun")
    async def begin(self, order: RunOrder) -> Begun:
        """Read the documents as they are now and hand the task in; or say why there is none."""
        async with beating():
            with reported():
                return await self._begin(order)

    async def _begin(self, order: RunOrder) -> Begun:
        wish, session = await self._wish(order), order.own.reader.recalling("session")
        own = own_rows(await self.store.tasks(session, MOST_TASKS), order.own.task_id)
        if known := next((row for row in own if row.request.request_id == order.request_id), None):
            await self.intake.admit(known)
            return Begun(how=known.ref)
        read = await asyncio.to_thread(self.intake.read, wish.paths)
        last = last_told(own, wish.request.question)
        since = last.ref.task_id if last is not None else None
        asked = {"request_id": order.request_id, "left_out": read.left_out, "since": since}
        row = await self.intake.row(wish.request.model_copy(update=asked))
        if last is not None and would_repeat(
            last, row, await self.store.documents(last.ref.task_id, session), read.documents
        ):
            return _without_task("unchanged", "the same question, terms and documents", last.ref.task_id)
        if reason := over_month(wish.monthly, await self._spent(own, session), row.terms.budget):
            return _without_task("over the month", reason)
        await self.store.register(row, read.documents)
        await self.intake.admit(row)
        return Begun(how=row.ref)

    async def _wish(self, order: RunOrder) -> ScheduleWish:
        try:
            return ScheduleWish.model_validate_json(await self.store.get_text(order.wish, order.own.reader))
        except TextMissing:
            raise BadInput("what this schedule asks is not in the store any more: remove it, and add it anew") from None

    async def _spent(self, own: Sequence[TaskRow], session: OfTenant) -> Amount:
        now = self.clock()
        return sum([await self._held(row, session) for row in own if in_month(row, now)], Amount())

    async def _held(self, row: TaskRow, session: OfTenant) -> Amount:
        """What a task has spent; of one at work at least what it may."""
        if row.progress is not None and row.progress.phase.over:
            return row.progress.budget.spent
        runs = await self.store.run_ids(row.ref.task_id, session)
        spent = sum([(await self.store.totals(run)).spent for run in runs], Amount())
        return spent.at_least(row.terms.budget.amount) if await self.intake.runs(row.ref.task_id) else spent

    @activity.defn(name="LookAtScheduledTask")
    async def look(self, ref: TaskRef) -> Looked:
        """Whether it is over, and how it ended."""
        with reported():
            try:
                row = await self.store.task(ref.task_id, ref.reader)
            except UnknownTask:
                return Looked(over=True)
            if row.progress is not None and row.progress.phase.over:
                return Looked(over=True, phase=row.progress.phase)
            return Looked(over=not await self.intake.runs(ref.task_id))

    @activity.defn(name="PauseSchedule")
    async def pause(self, order: PauseOrder) -> None:
        """With a note that tells why. One that was removed meanwhile needs none."""
        with reported():
            await self.intake.pause(order.schedule_id, pause_note(order))


def _without_task(outcome: Literal["unchanged", "over the month"], reason: str, task_id: str = "") -> Begun:
    return Begun(how=ScheduledOutcome(outcome=outcome, task_id=task_id, reason=reason))
