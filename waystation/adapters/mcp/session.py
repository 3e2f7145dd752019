"""The connection to one tool server: opened when it is needed, shared by all calls, and opened anew after it broke.

A server's stream of messages that tells when it has ended, which the SDK keeps to itself until the next call.

How a tool server is reached: started here behind its keeper, or spoken to over HTTP; messages bounded either way.
"""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import anyio
import httpx2
from mcp import Client, MCPError

# The SDK takes transports of one's own, and has their types nowhere else.
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT, Implementation
from pydantic import ValidationError

from waystation import __version__
from waystation.adapters.mcp import keeper
from waystation.adapters.mcp.config import Address, Program, Server
from waystation.domain.errors import ToolServerFailed

__all__ = ["TransportStreams", "Watched"]


@dataclass
class Watched:
    """A `ReadStream` of the SDK."""

    stream: ReadStream[SessionMessage | Exception]
    ended: asyncio.Event
    """Set when the server has nothing more to say."""

    async def receive(self) -> SessionMessage | Exception:
        """The next message, or why one could not be read."""
        try:
            return await self.stream.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.ended.set()
            raise

    async def aclose(self) -> None:
        """Read no more."""
        await self.stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


MESSAGE_BYTES = 4 * 1024 * 1024
"""Most of one message of a server. A result is shown in far fewer; an image that is left out may need so many."""
TOO_LONG_WORDS = "longer than a message may be"
"""By which an answer over HTTP is known for that: the SDK keeps only the words of an error."""
_CONNECT_S = 10.0
_INHERITED = ("PATH", "HOME", "LANG")
"""All that a server sees of the worker's environment beside what its entry says: the rest holds keys."""
ADDED = (*DEFAULT_INHERITED_ENV_VARS, "LC_CTYPE")
"""What the SDK and Python add to that by themselves; the keeper takes it out again."""


@asynccontextmanager
async def connected(server: Server, ended: asyncio.Event) -> AsyncGenerator[TransportStreams]:
    """The server's streams; `ended` is set when it has nothing more to say.

    Raises ToolServerFailed: there is no such program or folder. The SDK's errors pass through.
    """
    match server.place:
        case Program():
            transport: AbstractAsyncContextManager[TransportStreams] = _started(server.name, server.place)
        case Address():
            transport = _spoken_to(server.place)
    async with transport as (incoming, outgoing):
        yield Watched(incoming, ended), outgoing


@asynccontextmanager
async def _started(name: str, program: Program) -> AsyncGenerator[TransportStreams]:
    environment = {one: os.environ[one] for one in _INHERITED if one in os.environ} | program.environment
    found = shutil.which(program.command, path=environment.get("PATH"))
    if found is None:
        raise ToolServerFailed(f"the program of the tool server {name} is not there, or may not be run")
    if program.folder is not None and not program.folder.is_dir():
        raise ToolServerFailed(f"the folder (cwd) of the tool server {name} is not there")
    left_out = ",".join(name for name in ADDED if name not in environment)
    started = StdioServerParameters(
        command=sys.executable,
        args=["-I", "-S", str(Path(keeper.__file__)), str(MESSAGE_BYTES), left_out, found, *program.arguments],
        env=environment,
        cwd=program.folder,
        encoding_error_handler="replace",
    )
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:  # noqa: ASYNC230  the null device
        async with stdio_client(started, errlog=nowhere) as streams:
            yield streams


@asynccontextmanager
async def _spoken_to(address: Address) -> AsyncGenerator[TransportStreams]:
    logger = logging.getLogger("httpx2")
    hides = _Hides(address.url)
    logger.addFilter(hides)
    try:
        async with (
            httpx2.AsyncClient(
                headers=address.headers | {"Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                event_hooks={"response": [_bounded]},
            ) as client,
            streamable_http_client(address.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
        ):
            yield streams
    finally:
        logger.removeFilter(hides)


class _Hides(logging.Filter):
    """At level INFO the HTTP client logs the whole address of every request, which may hold a key."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = str(httpx2.URL(url))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        return self._url not in record.getMessage()


async def _bounded(response: httpx2.Response) -> None:
    """Let no more of an answer in than a message may have. The SDK bounds the events of a stream itself.

    What is compressed says nothing of its size, and was not asked for.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("a compressed answer was not asked for", request=response.request)
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # the client is an asynchronous one
        response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._stream:
            room -= len(chunk)
            if room < 0:
                raise MessageTooLong(TOO_LONG_WORDS)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class MessageTooLong(httpx2.StreamError):
    """An answer has more bytes than a message may have. The SDK makes it the call's own error."""


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
