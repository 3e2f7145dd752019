"""How activities are scheduled: queues, time-outs, retries, and what a cancellation of their workflow does."""

import asyncio
from datetime import timedelta
from typing import TypedDict

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from waystation.kernel.temporal_names import AGENTS_QUEUE, CONTEXT_QUEUE, WORKFLOWS_QUEUE

PATIENT = RetryPolicy(
    initial_interval=timedelta(seconds=1), backoff_coefficient=2.0, maximum_interval=timedelta(minutes=1)
)
"""Retried until it works: a provider may be down for hours, and a task that waits costs nothing. What cannot work is
marked as final where it is raised."""
HEARTBEAT = timedelta(seconds=45)
"""Maximum time until a dead worker is detected. Heartbeats reach the server every 20 seconds: one may be lost."""

LEG = ActivityConfig(
    task_queue=AGENTS_QUEUE,
    start_to_close_timeout=timedelta(minutes=30),
    heartbeat_timeout=HEARTBEAT,
    retry_policy=PATIENT,
    cancellation_type=ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
)
CONTEXT: ActivityConfig = {**LEG, "task_queue": CONTEXT_QUEUE}
DOCUMENTS: ActivityConfig = {**LEG, "task_queue": WORKFLOWS_QUEUE}
"""Reading the files of a scheduled run. Admissions wait for the few slots of the queue `context`, and many schedules
share a moment: this must not be in their way."""
SHORT = ActivityConfig(
    task_queue=WORKFLOWS_QUEUE,
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=PATIENT,
)
"""Reading and writing the store."""
RECONCILIATION: ActivityConfig = {**SHORT, "heartbeat_timeout": HEARTBEAT}
"""Asking the server and the store about some of a session's tasks."""
CONTEXT_SHORT: ActivityConfig = {**SHORT, "task_queue": CONTEXT_QUEUE}
"""The same, with redaction."""
REPORT: ActivityConfig = {
    **CONTEXT_SHORT,
    "start_to_close_timeout": timedelta(minutes=30),
    "heartbeat_timeout": HEARTBEAT,
}
"""The same: the names of all documents may have to be redacted first, and all that is cited."""
ACCOUNT: ActivityConfig = {**SHORT, "start_to_close_timeout": timedelta(seconds=20)}
"""Reading and writing a session's account, for which all who submit wait: where a worker dies in between, not long."""
ADMISSION = ActivityConfig(
    task_queue=CONTEXT_QUEUE,
    start_to_close_timeout=timedelta(minutes=2),
    heartbeat_timeout=HEARTBEAT,
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=500), maximum_interval=timedelta(seconds=10)),
)
NOTICE = ActivityConfig(
    task_queue=WORKFLOWS_QUEUE,
    start_to_close_timeout=timedelta(seconds=90),
    schedule_to_close_timeout=timedelta(hours=24),
    retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(minutes=10)),
)
"""A webhook that is away for a day is not told any more."""
SESSION_ANSWER = timedelta(minutes=1)
"""So long a task waits for its session before it asks a person."""


class Interval(TypedDict):
    """A wait that ends by itself, with the summary that the Temporal UI shows of its timer."""

    timeout: timedelta
    timeout_summary: str


RECONCILE: Interval = {"timeout": timedelta(minutes=5), "timeout_summary": "look after open tasks"}


def with_summary(config: ActivityConfig, summary: str) -> ActivityConfig:
    """The same options, with the summary that the Temporal UI shows on the timeline (400 bytes at most)."""
    return {**config, "summary": summary}


def raise_if_cancelled() -> None:
    """Raises CancelledError where the workflow is to end, and an activity was done before it heard of that: its caller
    gets the result then, and nothing else.
    """
    if workflow.cancellation_reason() is not None:
        raise asyncio.CancelledError
