"""What every activity has: an attempt, heartbeats, and one table from our errors to Temporal's.

Which attempt at its activity the code at work belongs to.

One table from our errors to Temporal's: what is retried, after how long, and what ends at once.

Heartbeats while an activity works, so that a silent model does not time out; and the word that the worker stops.

They say what the activity does at the moment: the server keeps the newest with the activity, and nothing of it in the
history.
"""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta
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


def get_current_attempt() -> int:
    """From 1 on; Temporal counts, over crashes of workers too. Outside of activities nothing is tried again."""
    return activity.info().attempt if activity.in_activity() else 1


NON_RETRYABLE_ERRORS = (
    BadInput,
    ModelRejected,
    RequestConflict,
    RedactionAbandonedError,
    WebhookRejectedError,
    WrongStore,
)
"""Trying again changes nothing. StaleFenceError is none of them: the server listens only to the newest attempt, so that
the one which took the fence away was given up before, and the next attempt takes it back."""
_BUSY = (ModelUnavailable, WebhookUnavailable)
"""A server elsewhere cannot now, and may say when it can."""


@contextmanager
def translating_errors() -> Generator[None]:
    """Raise our errors as application errors. Their messages hold values, never content, so history may keep them.

    What nobody foresaw may quote anything (pydantic quotes what it validates): of that history and logs get the name
    and where it came from.
    """
    with ExitStack() as stack:
        stack.push(_raise_without_text)
        yield


def _raise_without_text(
    _kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
) -> None:
    if isinstance(error, WaystationError):
        raise to_application_error(error) from None
    if isinstance(error, Exception) and not isinstance(error, TemporalError):
        kind = type(error).__name__
        raise ApplicationError(
            f"{kind}: its message is not repeated, since it may quote text", type=kind
        ).with_traceback(trace) from None


def to_application_error(error: WaystationError) -> ApplicationError:
    """The error as Temporal shall treat it. One retry policy, here: the SDKs below retry nothing."""
    delay = error.retry_after if isinstance(error, _BUSY) else None
    return ApplicationError(
        str(error),
        type=type(error).__name__,
        non_retryable=isinstance(error, NON_RETRYABLE_ERRORS),
        next_retry_delay=timedelta(seconds=delay) if delay is not None else None,
        category=_category(error),
    )


def _category(error: WaystationError) -> ApplicationErrorCategory:
    """That another server is busy is no defect of the worker's: it is not logged as one."""
    return ApplicationErrorCategory.BENIGN if isinstance(error, _BUSY) else ApplicationErrorCategory.UNSPECIFIED


HEARTBEAT_INTERVAL = timedelta(seconds=4)
"""Between two heartbeats in the process. How many of them reach the server, the worker decides."""
MIN_HEARTBEAT_GAP_SECONDS = 0.5
"""Seconds between two heartbeats, however much happens. The SDK sends one in an interval, with the newest details."""


@dataclass
class HeartbeatState:
    """What the next heartbeat says."""

    doing: AgentStatus | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


_PULSE: ContextVar[HeartbeatState] = ContextVar("pulse")


@asynccontextmanager
async def heartbeating(interval: timedelta = HEARTBEAT_INTERVAL) -> AsyncGenerator[None]:
    """Heartbeat in the background, with a few words as details: they live in the workflow's mutable state."""
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
    """Have the next heartbeat of this activity say what it does. Outside of activities nobody is told."""
    if (pulse := _PULSE.get(None)) is not None:
        pulse.doing = doing
        pulse.changed.set()


async def _beat(pulse: HeartbeatState, seconds: float) -> None:
    while True:
        activity.heartbeat(*([pulse.doing] if pulse.doing is not None else []))
        pulse.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await pulse.changed.wait()
        await asyncio.sleep(min(MIN_HEARTBEAT_GAP_SECONDS, seconds))


def is_worker_shutting_down() -> bool:
    """Whether the worker is shutting down: finish the turn and yield."""
    return activity.is_worker_shutdown()
