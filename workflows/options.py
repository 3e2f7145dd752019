"""Activity options: queues, timeouts, retries, and what a cancellation of the workflow does to the activity."""

import asyncio
from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig, ContinueAsNewVersioningBehavior

from waystation.kernel.temporal_names import AGENTS_QUEUE, CONTEXT_QUEUE, WORKFLOWS_QUEUE

UNLIMITED_RETRIES = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(minutes=1)
)
"""Retries without end: a provider may be down for hours, and a waiting task costs nothing. Errors that retries cannot
fix are marked non-retryable where they are raised.
"""
HEARTBEAT = timedelta(seconds=45)
"""Maximum time until a dead worker is detected. Heartbeats reach the server every 20 seconds, so one may be lost."""

LEG = ActivityConfig(
    task_queue=AGENTS_QUEUE,
    start_to_close_timeout=timedelta(minutes=30),
    heartbeat_timeout=HEARTBEAT,
    retry_policy=UNLIMITED_RETRIES,
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)
JUDGEMENT: ActivityConfig = {**LEG, "schedule_to_close_timeout": timedelta(hours=1)}
"""Options for judging cited sentences. The report is complete by then, and its verdicts by code stand: it does not wait
for hours until a busy endpoint answers.
"""
CONTEXT: ActivityConfig = {**LEG, "task_queue": CONTEXT_QUEUE}
DOCUMENTS: ActivityConfig = {**LEG, "task_queue": WORKFLOWS_QUEUE}
"""Options for reading the files of a scheduled run, on the workflows queue: admissions wait for the few slots of the
queue `context`, and many schedules fire at the same moment.
"""
SHORT = ActivityConfig(
    task_queue=WORKFLOWS_QUEUE,
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=UNLIMITED_RETRIES,
)
"""Options for reads and writes of the store."""
CACHE_REFRESH = ActivityConfig(
    task_queue=CONTEXT_QUEUE,
    schedule_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(maximum_attempts=1),
)
"""Options for reading a cached prefix once more. A second attempt would come too late."""
RECONCILIATION: ActivityConfig = {**SHORT, "heartbeat_timeout": HEARTBEAT}
"""Options for checking some of a session's tasks against the server and the store."""
CONTEXT_SHORT: ActivityConfig = {**SHORT, "task_queue": CONTEXT_QUEUE}
"""Options for short activities that redact."""
REPORT: ActivityConfig = {
    **CONTEXT_SHORT,
    "start_to_close_timeout": timedelta(minutes=30),
    "heartbeat_timeout": HEARTBEAT,
}
"""Options for storing a report: all document names and all cited text may have to be redacted first."""
ACCOUNT: ActivityConfig = {**SHORT, "start_to_close_timeout": timedelta(seconds=20)}
"""Options for a session's account. The time-out is short because all submitters wait if a worker dies in between."""
ADMISSION = ActivityConfig(
    task_queue=CONTEXT_QUEUE,
    start_to_close_timeout=timedelta(minutes=2),
    heartbeat_timeout=HEARTBEAT,
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10)),
)
NOTIFICATION = ActivityConfig(
    task_queue=WORKFLOWS_QUEUE,
    start_to_close_timeout=timedelta(seconds=90),
    schedule_to_close_timeout=timedelta(hours=24),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=10)),
)
"""A webhook that is down for a day no longer gets the notification."""
SESSION_ANSWER = timedelta(minutes=1)
"""Maximum time that a task waits for its session before it asks a person."""


class Interval(TypedDict):
    """Timeout of a wait, with the timer's summary for the Temporal UI."""

    timeout: timedelta
    timeout_summary: str


RECONCILE: Interval = {"timeout": timedelta(minutes=5), "timeout_summary": "check open tasks"}


def with_summary(config: ActivityConfig, summary: str) -> ActivityConfig:
    """Return the options with a summary for the timeline of the Temporal UI (at most 400 bytes)."""
    return {**config, "summary": summary}


UPGRADE = ContinueAsNewVersioningBehavior.AUTO_UPGRADE
"""The next run of a workflow goes to the current build, even if this one is pinned to its own."""


def is_continue_as_new_due() -> bool:
    """Return whether the history is long, or another build than this workflow's has become the current one."""
    info = workflow.info()
    return info.is_continue_as_new_suggested() or info.is_target_worker_deployment_version_changed()


def raise_if_cancelled() -> None:
    """Raise CancelledError if the workflow was cancelled while an activity completed.

    An activity that completes before it learns of the cancellation returns its result, so its caller sees no error.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
