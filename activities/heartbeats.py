"""Heartbeats while an activity works, so that a silent model does not time out; and the word that the worker stops."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

from temporalio import activity

INTERVAL = timedelta(seconds=4)
"""Also the longest that an activity goes on after its cancellation: the answer to a heartbeat brings the word."""


@asynccontextmanager
async def beating(interval: timedelta = INTERVAL) -> AsyncGenerator[None]:
    """Heartbeat in the background, without details: they would live in the workflow's mutable state."""
    pump = asyncio.create_task(_beat(interval))
    try:
        yield
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)


async def _beat(interval: timedelta) -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(interval.total_seconds())


def interrupted() -> bool:
    """Whether the worker is shutting down: finish the turn and yield."""
    return activity.is_worker_shutdown()
