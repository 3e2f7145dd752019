"""The health endpoint: `/livez` says that this process answers, `/readyz` that it can take work on."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web
from temporalio.client import Client
from temporalio.worker import Worker

from waystation.adapters.store.sql_store import SqlStore
from waystation.domain.errors import BadInput
from waystation.ports import Memory
from workers.address import address_of
from workers.looks import answers, look_at_store, look_at_temporal

OK, UNAVAILABLE = 200, 503
SETTING = "WAYSTATION_HEALTH_ADDRESS"


@dataclass(frozen=True)
class Health:
    """What is looked at."""

    client: Client
    store: SqlStore
    memory: Memory | None
    """None: nothing that this process does needs it."""
    workers: Sequence[Worker]

    async def live(self, _request: web.Request) -> web.Response:
        """The event loop runs."""
        return web.json_response({"live": True})

    async def ready(self, _request: web.Request) -> web.Response:
        """Each part by name: whether it is there. No words of errors: they might quote an address or a key."""
        temporal, store, memory = await asyncio.gather(
            answers(look_at_temporal(self.client)), answers(look_at_store(self.store)), self._memory_answers()
        )
        needed = {"workers": all(worker.is_running for worker in self.workers), "temporal": temporal, "store": store}
        ready = all(needed.values())
        # Runs go on without memory: their passages wait in the store.
        parts = needed if memory is None else {**needed, "memory": memory}
        return web.json_response({"ready": ready, "parts": parts}, status=OK if ready else UNAVAILABLE)

    async def _memory_answers(self) -> bool | None:
        return None if self.memory is None else await answers(self.memory.count(""))


@asynccontextmanager
async def served_health(address: str, health: Health) -> AsyncGenerator[None]:
    """Answer at this host and port until the block ends. Raises BadInput."""
    listening = address_of(SETTING, address)
    app = web.Application()
    app.add_routes([web.get("/livez", health.live), web.get("/readyz", health.ready)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, *listening).start()
        except OSError as error:
            raise BadInput(f"{SETTING} is {address!r}, where nothing can listen: {error.strerror}") from error
        yield
    finally:
        await runner.cleanup()
