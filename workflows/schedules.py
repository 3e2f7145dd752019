"""A scheduled run: starts its task in the session, waits for it, and counts failures until the schedule pauses itself.

The task is a child of its session and outlives the run. The run's result, which the Temporal UI shows, is the outcome.
"""

from contextlib import suppress
from datetime import timedelta
from typing import NoReturn

from pydantic import JsonValue
from temporalio import workflow
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

from waystation.activities.schedules import ScheduleActivities
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import DEPLOYMENT_CHANGED, SCHEDULED_RUN_WORKFLOW, SESSION_CONTINUES, TASK_ENDED
from waystation.tasks.notifications import ScheduleEvent, ScheduleNotification
from waystation.tasks.schedules import (
    PauseScheduleRequest,
    ScheduledRunBeginning,
    ScheduledRunInput,
    ScheduledRunOutcome,
    ScheduledTaskStatus,
    make_run_request_id,
    make_run_workflow_id,
)
from waystation.tasks.session import AdmissionAnswer, AdmissionRequest
from waystation.tasks.signals import parse_signal_input
from waystation.tasks.task import TaskPhase
from waystation.workflows.notification import NotificationWorkflow
from waystation.workflows.options import (
    DOCUMENTS,
    SESSION_ANSWER,
    SHORT,
    UPGRADE,
    Interval,
    is_continue_as_new_due,
    with_summary,
)
from waystation.workflows.task_runtime import start_detached_child

LOOK: Interval = {"timeout": timedelta(minutes=15), "timeout_summary": "check whether the task was terminated"}
"""A task reports its end to the run. One that is terminated reports nothing."""
FAILED = "ScheduledRunFailed"


@workflow.defn(name=SCHEDULED_RUN_WORKFLOW)
class ScheduledRunWorkflow:
    """One run of a schedule. The history holds only references and numbers."""

    def __init__(self) -> None:
        self._answer: AdmissionAnswer | None = None
        self._task_has_ended = False

    @workflow.run
    async def run(self, start: ScheduledRunInput) -> ScheduledRunOutcome:
        """Run until the task ends. Fails if the task fails or could not be started."""
        try:
            begun = start.task or (await self._begin(start)).result
            if isinstance(begun, TaskRef) and start.task is None:
                await self._admit(start, begun)
            outcome = await self._ended(start, begun) if isinstance(begun, TaskRef) else begun
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise
            cause = error.cause if isinstance(error.cause, ApplicationError) else None
            kind, words = (cause.type or FAILED, cause.message) if cause is not None else (FAILED, "no answer")
            await self._fail(start, kind, words)
        if outcome.outcome == "over the month":
            await self._notify(start, ScheduleEvent.OVER_BUDGET, outcome.reason)
        workflow.set_current_details(outcome.text)
        return outcome

    @workflow.signal(description="What became of the request to admit the task. Sent by its session.")
    def admission_answer(self, *sent: JsonValue) -> None:
        """Receive the session's decision to admit or reject the task."""
        answer = parse_signal_input(AdmissionAnswer, sent)
        if answer is not None and answer.error != SESSION_CONTINUES:
            self._answer = answer

    @workflow.signal(name=TASK_ENDED, description="The task of this run has ended. Sent by the task.")
    def receive_task_end(self, *_: JsonValue) -> None:
        """Wake the run, which reads how the task ended. The input is ignored."""
        self._task_has_ended = True

    @workflow.signal(
        name=DEPLOYMENT_CHANGED, description="Another build has become the current one. Sent by `waystation deploy`."
    )
    def receive_deployment_change(self, *_: JsonValue) -> None:
        """Wake the workflow, which sees by itself which build is current. The input is ignored."""

    async def _admit(self, start: ScheduledRunInput, task: TaskRef) -> None:
        """Have the session admit the task. Asks again if the session is terminated meanwhile."""
        request = AdmissionRequest(ref=task, reply_to=workflow.info().workflow_id)
        while self._answer is None:
            await workflow.execute_activity_method(
                ScheduleActivities.request_admission, request, **with_summary(SHORT, f"submit {task.task_id}")
            )
            with suppress(TimeoutError):
                await workflow.wait_condition(
                    lambda: self._answer is not None, timeout=SESSION_ANSWER, timeout_summary="the session answers"
                )
        if self._answer.admission is None:
            await self._fail(start, BadInput.__name__, f"the session refused the task: {self._answer.reason}")

    async def _begin(self, start: ScheduledRunInput) -> ScheduledRunBeginning:
        request_id = make_run_request_id(start.order.session_ref.task_id, workflow.info().workflow_id)
        return await workflow.execute_activity_method(
            ScheduleActivities.begin_run,
            start.order.replace(request_id=request_id),
            **with_summary(DOCUMENTS, "read the documents"),
        )

    async def _ended(self, start: ScheduledRunInput, task: TaskRef) -> ScheduledRunOutcome:
        workflow.set_current_details(f"waits for {task.task_id}")
        while not (seen := await self._look(task)).over:
            if is_continue_as_new_due():
                following = start.replace(task=task, previous_failures=_failures_before(start))
                workflow.continue_as_new(following, initial_versioning_behavior=UPGRADE)
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda: self._task_has_ended or is_continue_as_new_due(), **LOOK)
        if seen.phase is None or seen.phase is TaskPhase.FAILED:
            how = "failed" if seen.phase is not None else "was ended in Temporal, without a report"
            # A task that failed has sent a notification itself; a terminated one could not.
            await self._fail(start, "TaskFailed", f"{task.task_id} {how}", is_notified=seen.phase is TaskPhase.FAILED)
        return ScheduledRunOutcome(outcome=seen.phase, task_id=task.task_id)

    async def _look(self, task: TaskRef) -> ScheduledTaskStatus:
        self._task_has_ended = False
        return await workflow.execute_activity_method(
            ScheduleActivities.get_task_status, task, **with_summary(SHORT, f"read the state of {task.task_id}")
        )

    async def _notify(self, start: ScheduledRunInput, event: ScheduleEvent, reason: str) -> None:
        """Notify people, without waiting for the delivery."""
        is_on = await workflow.execute_activity_method(
            ScheduleActivities.get_notification_setting, **with_summary(SHORT, "read whether notifications are on")
        )
        if not is_on:
            return
        schedule_id = start.order.session_ref.task_id
        request_id = make_run_request_id(schedule_id, workflow.info().workflow_id)
        notice = ScheduleNotification(
            event=event,
            schedule_id=schedule_id,
            run_id=make_run_workflow_id(schedule_id, request_id),
            at=workflow.now(),
            reason=reason,
        )
        await start_detached_child(NotificationWorkflow.run, notice, notice.delivery_id, notice.summary)

    async def _fail(self, start: ScheduledRunInput, kind: str, words: str, *, is_notified: bool = False) -> NoReturn:
        """Fail with the number of consecutive failures, which Temporal passes to the schedule's next run.

        `is_notified`: whether people know of the failure; a pause is reported in any case.
        """
        failures = _failures_before(start) + 1
        is_paused = failures >= start.max_failures
        if is_paused:
            order = PauseScheduleRequest(schedule_id=start.order.session_ref.task_id, max_failures=failures)
            await workflow.execute_activity_method(
                ScheduleActivities.pause_schedule, order, **with_summary(SHORT, "pause the schedule")
            )
        message = f"{words or kind} (failure {failures} in a row)"
        if is_paused or not is_notified:
            await self._notify(start, ScheduleEvent.PAUSED if is_paused else ScheduleEvent.RUN_FAILED, message)
        workflow.set_current_details(message)
        raise ApplicationError(message, failures, type=FAILED, non_retryable=True)


def _failures_before(start: ScheduledRunInput) -> int:
    """Return the number of consecutive failures up to the last run.

    A terminated run counts as one and resets the count.
    """
    if start.previous_failures is not None:
        return start.previous_failures
    last = workflow.get_last_failure()
    if last is None:
        return 0
    details = last.details if isinstance(last, ApplicationError) else ()
    return next((detail for detail in details if isinstance(detail, int)), 1)
