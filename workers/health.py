"""Health of a worker: the endpoints `/livez` (the process answers) and `/readyz` (it can take work), cheap checks of
its dependencies, and gauges that are sampled because no event reports their changes.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from aiohttp import web
from sqlalchemy.exc import SQLAlchemyError
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client
from temporalio.service import RPCError
from temporalio.worker import Worker

from waystation.agents.ports import Meter
from waystation.config.setting_types import parse_listen_address
from waystation.kernel.errors import BadInput, WaystationError
from waystation.memory.ports import Memory
from waystation.runtime.sql_store import SqlStore

_CHECK_TIMEOUT = timedelta(seconds=2)
NOT_ANSWERED = (WaystationError, RPCError, SQLAlchemyError, OSError, TimeoutError)
"""Failures of external systems: Temporal, store or memory."""


async def is_responding(look: Awaitable[object]) -> bool:
    """Return whether a check ends in time and without an error."""
    try:
        await asyncio.wait_for(look, _CHECK_TIMEOUT.total_seconds())
    except NOT_ANSWERED:
        return False
    return True


async def check_temporal(client: Client) -> None:
    """Make the cheapest call that every server answers. Raises RPCError."""
    await client.workflow_service.get_system_info(GetSystemInfoRequest(), timeout=_CHECK_TIMEOUT)


async def check_store(store: SqlStore) -> None:
    """Run `select 1`. Raises SQLAlchemyError, OSError."""
    async with store.database.read() as connection:
        await connection.exec_driver_sql("select 1")


OK, UNAVAILABLE = 200, 503
HEALTH_ADDRESS_SETTING = "WAYSTATION_HEALTH_ADDRESS"


@dataclass(frozen=True)
class HealthCheck:
    """The dependencies to check."""

    client: Client
    store: SqlStore
    memory: Memory | None
    """None: nothing in this process needs memory."""
    workers: Sequence[Worker]

    async def handle_livez(self, _request: web.Request) -> web.Response:
        """Answer: the event loop runs."""
        return web.json_response({"live": True})

    async def handle_readyz(self, _request: web.Request) -> web.Response:
        """Answer whether each dependency is available, by name.

        Without error messages, which might quote an address or a key.
        """
        temporal, store, memory = await asyncio.gather(
            is_responding(check_temporal(self.client)), is_responding(check_store(self.store)), self._memory_answers()
        )
        needed = {"workers": all(worker.is_running for worker in self.workers), "temporal": temporal, "store": store}
        ready = all(needed.values())
        # Runs continue without memory: their passages wait in the store.
        parts = needed if memory is None else {**needed, "memory": memory}
        return web.json_response({"ready": ready, "parts": parts}, status=OK if ready else UNAVAILABLE)

    async def _memory_answers(self) -> bool | None:
        return None if self.memory is None else await is_responding(self.memory.count(""))


@asynccontextmanager
async def run_health_server(address: str, health: HealthCheck) -> AsyncGenerator[None]:
    """Serve the endpoints at this host and port until the block ends. Raises BadInput."""
    listening = parse_listen_address(HEALTH_ADDRESS_SETTING, address)
    app = web.Application()
    app.add_routes([web.get("/livez", health.handle_livez), web.get("/readyz", health.handle_readyz)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *listening).start()
        except OSError as error:
            raise BadInput(
                f"{HEALTH_ADDRESS_SETTING} is {address!r}, where nothing can listen: {error.strerror}"
            ) from error
        yield
    finally:
        await runner.cleanup()


_INTERVAL = timedelta(seconds=15)


class Gauge(NamedTuple):
    """A number that goes up and down, with the function that reads it."""

    name: str
    read: Callable[[], Awaitable[int]]
    record: Callable[[int], None]


@asynccontextmanager
async def run_gauge_sampler(
    gauges: tuple[Gauge, ...], meter: Meter, interval: timedelta = _INTERVAL
) -> AsyncGenerator[None]:
    """Read and record the gauges now and at every interval, until the block ends. A failure is only counted."""
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
                gauge.record(await gauge.read())
            except NOT_ANSWERED:
                meter.record_sampling_failure(gauge.name)
        await asyncio.sleep(interval.total_seconds())
