"""What all activities share: the attempt number, heartbeats, shutdown, and the translation of our errors to Temporal's.

A heartbeat says what the activity is doing. The server keeps the newest one with the activity, and none in the history.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import TracebackType

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory, TemporalError

from waystation.agents.agent_status import AgentStatus
from waystation.kernel.errors import (
    BadInput,
    ModelRejected,
    ModelUnavailable,
    RedactionAbandonedError,
    RequestConflict,
    WaystationError,
    WebhookRejectedError,
    WebhookUnavailable,
    WrongStore,
)
from waystation.kernel.temporal_names import UNEXPECTED_FAILURE


def get_current_attempt() -> int:
    """Return the attempt, from 1 on. Temporal also counts attempts that ended in a crash; 1 outside of activities."""
    return activity.info().attempt if activity.in_activity() else 1


NON_RETRYABLE_ERRORS = (
    BadInput,
    ModelRejected,
    RequestConflict,
    RedactionAbandonedError,
    WebhookRejectedError,
    WrongStore,
)
"""Errors that a retry cannot fix. StaleFenceError is not among them: the server only listens to the newest attempt, so
the attempt that took the fence was given up earlier, and the next one takes it back.
"""
_BUSY = (ModelUnavailable, WebhookUnavailable)
"""Errors of a busy external server, which may say when it is available again."""


MAX_UNEXPECTED_FAILURES = 8
"""Number of unexpected errors of one activity after which it is given up: about three minutes."""
_TRANSIENT = (OSError, TimeoutError)
"""Errors of the network and the machine, which may pass like our own."""
_COUNTED_ACTIVITIES = 10_000
LATE = timedelta(hours=1)


class UnexpectedFailureCounter:
    """Counts the unexpected errors of each activity in this process, whose attempts share one id.

    Temporal's number of the attempt would also count the attempts during an outage, which may last for days.
    """

    def __init__(self) -> None:
        self._failures: OrderedDict[str, int] = OrderedDict()

    def count(self, activity_key: str) -> int:
        """Count one more and return the number; the activity that failed longest ago is forgotten first."""
        self._failures[activity_key] = failures = self._failures.pop(activity_key, 0) + 1
        if len(self._failures) > _COUNTED_ACTIVITIES:
            self._failures.popitem(last=False)
        return failures

    def clear(self, activity_key: str) -> None:
        """Forget an activity that has succeeded or was given up."""
        self._failures.pop(activity_key, None)


_UNEXPECTED = UnexpectedFailureCounter()


@contextmanager
def translating_errors(*, gives_up: bool = False) -> Generator[None]:
    """Raise our errors as application errors. Their messages hold values, never content, so the history may keep them.

    An unexpected error may quote anything (pydantic quotes what it validates), so history and logs get only its type
    and traceback.

    Args:
        gives_up: Whether the activity ends with an `UNEXPECTED_FAILURE` after `MAX_UNEXPECTED_FAILURES`. Only for
            activities whose workflow then asks a person, or goes on without the result.
    """
    try:
        with ExitStack() as stack:
            stack.push(partial(_raise_without_text, gives_up))
            yield
    except Exception:
        _record_late_failure()
        raise
    if gives_up:
        _UNEXPECTED.clear(_get_activity_key())


def _raise_without_text(
    gives_up: bool, _kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    if isinstance(error, WaystationError):
        raise to_application_error(error) from None
    if isinstance(error, Exception) and not isinstance(error, TemporalError):
        raise _to_textless_error(error, gives_up=gives_up).with_traceback(trace) from None


def _to_textless_error(error: Exception, *, gives_up: bool) -> ApplicationError:
    kind = type(error).__name__
    hidden = f"{kind}: its message is not shown, because it may quote text"
    if not gives_up or isinstance(error, _TRANSIENT):
        return ApplicationError(hidden, type=kind)
    key = _get_activity_key()
    failures = _UNEXPECTED.count(key)
    if failures < MAX_UNEXPECTED_FAILURES:
        return ApplicationError(hidden, type=kind)
    _UNEXPECTED.clear(key)
    return ApplicationError(
        f"an unexpected error, {failures} times: {hidden}. The worker's log has the place",
        type=UNEXPECTED_FAILURE,
        non_retryable=True,
    )


def _get_activity_key() -> str:
    info = activity.info() if activity.in_activity() else None
    return f"{info.workflow_run_id}/{info.activity_id}" if info is not None else ""


def _record_late_failure() -> None:
    """Count a failed attempt of an activity that has been tried for more than an hour."""
    if not activity.in_activity():
        return
    info = activity.info()
    if info.current_attempt_scheduled_time - info.scheduled_time >= LATE:
        activity.metric_meter().create_counter(
            "waystation_late_failures", "Failed attempts of activities first tried more than an hour earlier"
        ).add(1)


def to_application_error(error: WaystationError) -> ApplicationError:
    """Convert an error to Temporal's. This is the only retry policy: the SDKs below retry nothing."""
    delay = error.retry_after if isinstance(error, _BUSY) else None
    return ApplicationError(
        str(error),
        type=type(error).__name__,
        non_retryable=isinstance(error, NON_RETRYABLE_ERRORS),
        next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        category=_category(error),
    )


def _category(error: WaystationError) -> ApplicationErrorCategory:
    """Return the error's category. A busy external server is no defect of the worker, so it is not logged as one."""
    return ApplicationErrorCategory.BENIGN if isinstance(error, _BUSY) else ApplicationErrorCategory.UNSPECIFIED


HEARTBEAT_INTERVAL = timedelta(seconds=4)
"""Interval between two heartbeats in the process. The worker decides how many of them reach the server."""
MIN_HEARTBEAT_GAP_SECONDS = 0.5
"""Minimum time between two heartbeats in seconds. The SDK sends one per interval, with the newest details."""


@dataclass
class HeartbeatState:
    """Content of the next heartbeat."""

    status: AgentStatus | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


_PULSE: ContextVar[HeartbeatState] = ContextVar("pulse")


@asynccontextmanager
async def heartbeating(interval: timedelta = HEARTBEAT_INTERVAL) -> AsyncGenerator[None]:
    """Send heartbeats in the background. Their details are short, because they live in the workflow's mutable state."""
    pulse = HeartbeatState()
    before = _PULSE.set(pulse)
    pump = asyncio.create_task(_beat(pulse, interval.total_seconds()))
    try:
        yield
    finally:
        _PULSE.reset(before)
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


def set_agent_status(doing: AgentStatus) -> None:
    """Set what the next heartbeat of this activity says. Does nothing outside of activities."""
    if (pulse := _PULSE.get(None)) is not None:
        pulse.status = doing
        pulse.changed.set()


async def _beat(pulse: HeartbeatState, seconds: float) -> None:
    while True:
        activity.heartbeat(*([pulse.status] if pulse.status is not None else []))
        pulse.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await pulse.changed.wait()
        await asyncio.sleep(min(MIN_HEARTBEAT_GAP_SECONDS, seconds))


async def wait_unless_stopping(seconds: float) -> bool:
    """Wait for a number of seconds in an activity. False: its worker shuts down, and the wait ended early."""
    if not activity.in_activity():
        await asyncio.sleep(seconds)
        return True
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await activity.wait_for_worker_shutdown()
        return False
    return True


def is_worker_shutting_down() -> bool:
    """Return whether the worker is shutting down: the agent then finishes its turn and yields."""
    return activity.is_worker_shutdown()
