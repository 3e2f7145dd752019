"""The connection to one tool server: opened when it is needed, shared by all calls, and opened anew after it broke."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
from mcp import Client, MCPError
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT, Implementation
from pydantic import ValidationError

from waystation import __version__
from waystation.adapters.mcp.config import Server
from waystation.adapters.mcp.places import MESSAGE_BYTES, connected
from waystation.domain.errors import ToolServerFailed

BROKEN = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, INVALID_REQUEST})
"""What the SDK answers where the server did not: it is gone, knows the connection no more, or said too much."""
LOGGERS = ("mcp", "client")
"""Of the SDK: they quote messages that they cannot read."""


class Link:
    """One connection, from its handshake to its end. A task of its own opens and closes it, as the SDK wants it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._ended, self._close = asyncio.Event(), asyncio.Event()
        self._calls, self._unwanted = 0, False
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold())
        self._holder.add_done_callback(_look_at)

    async def open(self) -> None:
        """Wait for the handshake. Raises ToolServerFailed."""
        try:
            await asyncio.wait(
                {self._opened, self._holder}, timeout=self._server.start_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not self._opened.done():
                self._holder.cancel()
        if not self._opened.done():
            await asyncio.wait({self._holder})
            error = None if self._holder.cancelled() else self._holder.exception()
            raise ToolServerFailed(_why(self._server, error))

    @property
    def is_usable(self) -> bool:
        """Whether another call may go over it."""
        return not (self._unwanted or self._ended.is_set() or self._holder.done())

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left of it."""
        return self._holder.done()

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[Client]:
        """The client, for one call. A connection that is no longer wanted is closed behind its last call."""
        self._calls += 1
        try:
            yield self._opened.result()
        finally:
            self._calls -= 1
            self._close_if_idle()

    def retire(self) -> None:
        """Let no other call over it."""
        self._unwanted = True
        self._close_if_idle()

    async def aclose(self) -> None:
        """Close it now, and wait until a server that was started here has ended."""
        self._close.set()
        await asyncio.wait({self._holder})

    def _close_if_idle(self) -> None:
        if self._unwanted and not self._calls:
            self._close.set()

    async def _hold(self) -> None:
        client = Client(
            connected(self._server, self._ended),
            client_info=Implementation(name="waystation", version=__version__),
            cache=None,
        )
        async with client:
            self._opened.set_result(client)
            await self._close.wait()


class Session:
    """What keeps one server usable."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._opening = asyncio.Lock()
        self._link: Link | None = None
        self.opened = 0
        """Connections so far: whoever speaks on another one may have become another."""
        self._former: set[Link] = set()
        """Not wanted any more, and perhaps not closed yet."""
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    @asynccontextmanager
    async def call(self, seconds: float) -> AsyncGenerator[Client]:
        """The client for one exchange, which may take so long once the server is there.

        Raises ToolServerFailed. An exchange that broke off takes its connection with it: the next one has a new one,
        while others that are under way on the old one may end.
        """
        name = self.server.name
        link = await self._usable()
        try:
            async with asyncio.timeout(seconds), link.call() as client:
                yield client
        except TimeoutError:
            link.retire()
            raise ToolServerFailed(f"the tool server {name} did not answer within {seconds:g} s") from None
        except MCPError as error:
            if error.code not in BROKEN:
                raise
            link.retire()
            reason = f"it ended, or sent more than {MESSAGE_BYTES:,} bytes"
            raise ToolServerFailed(f"the connection to the tool server {name} broke: {reason}") from None
        except (ValidationError, RuntimeError):
            link.retire()
            raise ToolServerFailed(
                f"the tool server {name} answered something that the protocol does not have"
            ) from None

    async def aclose(self) -> None:
        """Close every connection."""
        for link in (*self._former, *([self._link] if self._link else [])):
            await link.aclose()
        self._link = None

    async def _usable(self) -> Link:
        async with self._opening:
            self._former = {link for link in self._former if not link.is_closed}
            if self._link is None or not self._link.is_usable:
                if self._link is not None:
                    self._link.retire()
                    self._former.add(self._link)
                self._link = None
                link = Link(self.server)
                await link.open()
                self._link = link
                self.opened += 1
            return self._link


def _look_at(holder: asyncio.Task[None]) -> None:
    """What nobody looks at is logged when it is forgotten, with whatever it quotes."""
    if not holder.cancelled():
        holder.exception()


def _why(server: Server, error: BaseException | None) -> str:
    name = server.name
    match error:
        case ToolServerFailed():
            return str(error)
        case BaseExceptionGroup():
            return _why(server, error.exceptions[0])
        case None:
            return f"the tool server {name} did not answer within {server.start_s:g} s after its start (start_timeout)"
        case httpx2.HTTPError() | OSError():
            return f"the tool server {name} cannot be reached ({type(error).__name__})"
        case _:
            return f"the tool server {name} ended at its start, or does not speak the protocol"
