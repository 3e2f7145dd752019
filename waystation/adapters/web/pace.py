"""Politeness: one request at a time to each host, and a pause after it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

MOST_HOSTS = 500
"""When more are known, those are forgotten that nobody waits for."""


@dataclass
class _Turns:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0
    """On the event loop's clock."""
    waiting: int = 0


class Pace:
    """Who may ask which host, and when."""

    def __init__(self, pause_s: float, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """`pause_s`: seconds between the end of a request and the next one to the same host."""
        self._pause_s = pause_s
        self._wait = wait
        self._hosts: dict[str, _Turns] = {}

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncGenerator[None]:
        """The only request to the host while it lasts, and not too soon after the last."""
        turns = self._of(host)
        turns.waiting += 1
        clock = asyncio.get_running_loop().time
        try:
            async with turns.lock:
                if (early := turns.free_at - clock()) > 0:
                    await self._wait(early)
                try:
                    yield
                finally:
                    turns.free_at = clock() + self._pause_s
        finally:
            turns.waiting -= 1

    def _of(self, host: str) -> _Turns:
        if len(self._hosts) >= MOST_HOSTS:
            now = asyncio.get_running_loop().time()
            self._hosts = {name: turns for name, turns in self._hosts.items() if turns.waiting or turns.free_at > now}
        return self._hosts.setdefault(host, _Turns())
