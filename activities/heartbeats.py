"""Heartbeats while an activity works, so that a silent model does not time out; and the word that the worker stops.

They say what the activity does at the moment: the server keeps the newest with the activity, and nothing of it in the
history.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity

from waystation.domain.step_progress import Doing

INTERVAL = timedelta(seconds=4)
"""Also the longest that an activity goes on after its cancellation: the answer to a heartbeat brings the word."""
BREATH = 0.5
"""Seconds between two heartbeats, however much happens. The SDK sends one in an interval, with the newest details."""


@dataclass
class Pulse:
    """What the next heartbeat says."""

    doing: Doing | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)


_PULSE: ContextVar[Pulse] = ContextVar("pulse")


@asynccontextmanager
async def beating(interval: timedelta = INTERVAL) -> AsyncGenerator[None]:
    """Heartbeat in the background, with a few words as details: they live in the workflow's mutable state."""
    pulse = Pulse()
    before = _PULSE.set(pulse)
    pump = asyncio.create_task(_beat(pulse, interval.total_seconds()))
    try:
        yield
    finally:
        _PULSE.reset(before)
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


def tell(doing: Doing) -> None:
    """Have the next heartbeat of this activity say what it does. Outside of activities nobody is told."""
    if (pulse := _PULSE.get(None)) is not None:
        pulse.doing = doing
        pulse.changed.set()


async def _beat(pulse: Pulse, seconds: float) -> None:
    while True:
        activity.heartbeat(*([pulse.doing] if pulse.doing is not None else []))
        pulse.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await pulse.changed.wait()
        await asyncio.sleep(min(BREATH, seconds))


def interrupted() -> bool:
    """Whether the worker is shutting down: finish the turn and yield."""
    return activity.is_worker_shutdown()
