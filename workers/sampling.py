"""Gauges: what is read from time to time, because nothing happens where it changes."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

from waystation.ports import Meter
from workers.looks import NOT_ANSWERED

INTERVAL = timedelta(seconds=15)


class Gauge(NamedTuple):
    """A number that goes up and down."""

    name: str
    read: Callable[[], Awaitable[int]]
    show: Callable[[int], None]


@asynccontextmanager
async def sampled(gauges: tuple[Gauge, ...], meter: Meter, interval: timedelta = INTERVAL) -> AsyncGenerator[None]:
    """Read and show the gauges now and at every interval, until the block ends. A failure is counted, no more."""
    sampling = asyncio.create_task(_sample(gauges, meter, interval))
    try:
        yield
    finally:
        sampling.cancel()
        await asyncio.gather(sampling, return_exceptions=True)


async def _sample(gauges: tuple[Gauge, ...], meter: Meter, interval: timedelta) -> None:
    while True:
        for gauge in gauges:
            try:
                gauge.show(await gauge.read())
            except NOT_ANSWERED:
                meter.not_sampled(gauge.name)
        await asyncio.sleep(interval.total_seconds())
