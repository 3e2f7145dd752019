"""The connection to one tool server: its transport, limits on what the server sends, and reconnecting.

A server is started here behind its supervisor, or reached over HTTP. The SDK only gets the answers to calls; everything
else that the server sends is bounded.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Protocol, Self

import anyio
import httpx2
from mcp import Client, MCPError

# The SDK accepts custom transports, and has their types nowhere else.
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import (
    CONNECTION_CLOSED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_TIMEOUT,
    ErrorData,
    Implementation,
    JSONRPCError,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from waystation import __version__
from waystation.kernel.errors import ToolServerFailed
from waystation.kernel.network import describe_connection_error
from waystation.mcp import supervisor
from waystation.mcp.config import HttpTransportConfig, McpServerConfig, StdioTransportConfig

__all__ = ["TransportStreams"]


REQUESTS_AT_ONCE, REQUESTS_A_SECOND = 100, 5.0
"""Requests of a server: burst, and rate per second. We offer nothing but a sign of life."""
UNSOLICITED_AT_ONCE, UNSOLICITED_A_SECOND = 1_000, 50.0
"""Server messages that answer no call, including requests. A server that logs every step stays far below."""
UNSOLICITED_BYTES_AT_ONCE, UNSOLICITED_BYTES_A_SECOND = 16 * 1024 * 1024, 128.0 * 1024
"""Bytes of those messages together, counted before they are parsed. Over HTTP an answer to a call has room for one
message of its own besides. Parsing a megabyte of empty lists takes about half a second.
"""
LINES_AT_ONCE, LINES_A_SECOND = 20_000, 1_000.0
"""Lines of its HTTP streams, including comments and empty ones. A message has about three."""
GETS_AT_ONCE, GETS_A_SECOND = 30, 1.0
"""HTTP streams that are opened again because the server closed them."""


class TokenBucket:
    """Rate limiter: what is left of an allowance that refills over time."""

    def __init__(self, at_once: int, a_second: float) -> None:
        self._most, self._a_second = float(at_once), a_second
        self._left, self._since = self._most, monotonic()

    def take(self, count: int = 1) -> bool:
        """Take `count`; return False if there is not enough."""
        now = monotonic()
        self._left = min(self._most, self._left + (now - self._since) * self._a_second) - count
        self._since = now
        return self._left >= 0

    def refund(self, count: int) -> None:
        """Return what was taken by mistake."""
        self._left += count


class ServerTrafficLimiter:
    """Limits what one server sends over one connection without being asked.

    The SDK holds each request of a server until it is answered, so a server that asks endlessly would fill the worker's
    memory.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        """Set when the server has nothing more to send, or may not send more."""
        self.excess = ""
        """What it sent too much of; empty if nothing."""
        self._requests = TokenBucket(REQUESTS_AT_ONCE, REQUESTS_A_SECOND)
        self._asked = TokenBucket(UNSOLICITED_AT_ONCE, UNSOLICITED_A_SECOND)
        self._bytes = TokenBucket(UNSOLICITED_BYTES_AT_ONCE, UNSOLICITED_BYTES_A_SECOND)
        self._lines = TokenBucket(LINES_AT_ONCE, LINES_A_SECOND)
        self._gets = TokenBucket(GETS_AT_ONCE, GETS_A_SECOND)
        self._unread = 0

    def charge_line_bytes(self, size: int) -> None:
        """Count a line of a program before it is parsed, with its size in bytes. Raises ServerFloodError."""
        self._unread = size
        self.count_unsolicited_bytes(size)

    def count_answer(self) -> None:
        """The line that was counted last answers a call: its bytes do not count."""
        self._bytes.refund(self._unread)
        self._unread = 0

    def count_unsolicited_bytes(self, size: int) -> None:
        """Count bytes of what, as far as is known yet, answers no call. Raises ServerFloodError."""
        self._count(self._bytes, size, "bytes in messages that answer no call")

    def count_message(self, item: SessionMessage | Exception) -> None:
        """Count a message that answers no call. Raises ServerFloodError."""
        self._count(self._asked, 1, "messages that answer no call")
        if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest):
            self._count(self._requests, 1, "requests")

    def count_lines(self, count: int) -> None:
        """Count lines of an HTTP stream. Raises ServerFloodError."""
        self._count(self._lines, count, "lines")

    def count_get(self) -> None:
        """Count the opening of an HTTP stream, perhaps a repeated one. Raises ServerFloodError."""
        self._count(self._gets, 1, "streams that ended early")

    def _count(self, bucket: TokenBucket, count: int, what: str) -> None:
        if self.excess or not bucket.take(count):
            self.excess = self.excess or what
            self.ended.set()
            raise ServerFloodError(f"a tool server sends too many {what}")


class IncomingStream(Protocol):
    """Messages from a server."""

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or why it is not one.

        Raises:
            ServerFloodError: the server sends too much.
            EndOfStream: the stream has ended; or another such error of anyio.
        """
        ...

    async def aclose(self) -> None:
        """Stop reading."""
        ...


class OutgoingStream(Protocol):
    """Messages to a server."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message, and wait while the server reads nothing. Raises anyio's ClosedResourceError or similar."""
        ...

    async def aclose(self) -> None:
        """Stop sending."""
        ...


@dataclass
class CallResponseStream:
    """A `ReadStream` of the SDK that only has answers to our calls.

    The server's requests are answered here one at a time, so that a server that does not read has to wait; its
    notifications are not used.
    """

    stream: IncomingStream
    calls: "CallTrackingStream"
    traffic: ServerTrafficLimiter

    async def receive(self) -> SessionMessage | Exception:
        """Return the next answer. Raises EndOfStream, also if the server sends too much of anything else."""
        try:
            while True:
                item = await self.stream.receive()
                if isinstance(item, SessionMessage) and self.calls.is_answer(item):
                    self.traffic.count_answer()
                    return item
                self.traffic.count_message(item)
                if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest):
                    await self.calls.stream.send(SessionMessage(_answer_to(item.message)))
        except ServerFloodError:
            raise anyio.EndOfStream from None
        except (anyio.EndOfStream, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self.traffic.ended.set()
            raise

    async def aclose(self) -> None:
        """Stop reading."""
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


def _answer_to(request: JSONRPCRequest) -> JSONRPCResponse | JSONRPCError:
    """Answer a request: we are alive, and offer nothing (no sampling, no forms, no folders)."""
    if request.method == "ping":
        return JSONRPCResponse(jsonrpc="2.0", id=request.id, result={})
    error = ErrorData(code=METHOD_NOT_FOUND, message="this client answers only ping")
    return JSONRPCError(jsonrpc="2.0", id=request.id, error=error)


@dataclass
class CallTrackingStream:
    """A `WriteStream` of the SDK that remembers which calls wait for an answer."""

    stream: OutgoingStream
    _waiting: set[str] = field(default_factory=set)

    def is_answer(self, item: SessionMessage) -> bool:
        """Whether a call waits for this message. Each call is answered once."""
        message = item.message
        if not isinstance(message, JSONRPCResponse | JSONRPCError) or str(message.id) not in self._waiting:
            return False
        self._waiting.remove(str(message.id))
        return True

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message."""
        if isinstance(item.message, JSONRPCRequest):
            self._waiting.add(str(item.message.id))
        await self.stream.send(item)

    async def aclose(self) -> None:
        """Stop sending."""
        await self.stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


MESSAGE_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one message from a server. A result is shown in far fewer; an omitted image may need that many."""
TOO_LONG_WORDS = "longer than a message may be"
"""Identifies a too long answer over HTTP: the SDK only keeps the words of an error."""
_CONNECT_S = 10.0
SESSION_END_TIMEOUT_S = 5.0
"""Seconds that an HTTP server has to acknowledge the end of its session."""
CLOSE_TIMEOUT_S = 15.0
"""Seconds within which a connection is closed, or abandoned. Ending a program takes up to half of it."""
_INHERITED = ("PATH", "HOME", "LANG")
"""All that a server sees of the worker's environment besides its entry's variables: the rest holds keys."""
PYTHON_ADDED_VARIABLE = "LC_CTYPE"
"""Variable that Python adds by itself; the supervisor removes it again."""
_ENDING_S = supervisor.GRACE_S + supervisor.SEARCH_S + 1.0
"""Seconds within which the supervisor ends by itself, with everything that the server started."""
_POLL_S = 0.01
"""Seconds between checks whether it has ended. asyncio would report that only after all of its output."""


@asynccontextmanager
async def open_server_streams(
    server: McpServerConfig, traffic: ServerTrafficLimiter
) -> AsyncGenerator[TransportStreams]:
    """Open the server's streams, limited to answers to calls. The SDK's errors pass through.

    Raises:
        ToolServerFailed: there is no such program or folder.
    """
    match server.transport:
        case StdioTransportConfig():
            transport: AbstractAsyncContextManager[tuple[IncomingStream, OutgoingStream]] = _started(
                server.name, server.transport, traffic
            )
        case HttpTransportConfig():
            transport = _spoken_to(server.transport, traffic)
    async with transport as (incoming, outgoing):
        calls = CallTrackingStream(outgoing)
        yield CallResponseStream(incoming, calls, traffic), calls


@asynccontextmanager
async def _started(
    name: str, program: StdioTransportConfig, traffic: ServerTrafficLimiter
) -> AsyncGenerator[tuple[IncomingStream, OutgoingStream]]:
    """Start a program and yield its streams.

    The SDK's `stdio_client` would parse every line before it could be counted.
    """
    environment = {one: os.environ[one] for one in _INHERITED if one in os.environ} | program.environment
    found = shutil.which(program.command, path=environment.get("PATH"))
    if found is None:
        raise ToolServerFailed(f"the program of the tool server {name} does not exist or is not executable")
    if program.folder is not None and not program.folder.is_dir():
        raise ToolServerFailed(f"the folder (cwd) of the tool server {name} does not exist")
    left_out = "" if PYTHON_ADDED_VARIABLE in environment else PYTHON_ADDED_VARIABLE
    kept = [str(MESSAGE_BYTES), left_out, found, *program.arguments]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", str(Path(supervisor.__file__)), *kept),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        env=environment,
        cwd=program.folder,
        start_new_session=True,
        limit=MESSAGE_BYTES + 1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield _Lines(process.stdout, traffic), _Written(process.stdin)
    finally:
        # A started server also ends if its user was cancelled.
        with anyio.CancelScope(shield=True):
            await _end(process, process.stdin, process.stdout)


async def _end(process: Process, into: asyncio.StreamWriter, out: asyncio.StreamReader) -> None:
    """Close the supervisor's input so that it ends by itself, and kill it if that is not enough."""
    into.close()
    try:
        async with asyncio.timeout(_ENDING_S):
            while process.returncode is None:  # noqa: ASYNC110  nothing tells it
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # Its remaining output: the pipe is closed after it.
    with suppress(OSError):
        while await out.read(supervisor.CHUNK):
            pass
    await process.wait()


class _Lines:
    """An `IncomingStream` of lines, each counted before it is parsed."""

    def __init__(self, stream: asyncio.StreamReader, traffic: ServerTrafficLimiter) -> None:
        self._stream, self._traffic = stream, traffic

    async def receive(self) -> SessionMessage | Exception:
        try:
            line = await self._stream.readuntil()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            raise anyio.EndOfStream from None
        self._traffic.charge_line_bytes(len(line))
        if not line.lstrip().startswith(b"{"):
            return ValueError("no object")  # not parsed: a list of a million objects takes a second
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line.decode(errors="replace"), by_name=False))
        except ValueError as error:
            return error

    async def aclose(self) -> None:
        """Do nothing: the starter of the program closes its streams."""


class _Written:
    """An `OutgoingStream` of lines."""

    def __init__(self, stream: asyncio.StreamWriter) -> None:
        self._stream, self._sending = stream, asyncio.Lock()

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode(errors="replace") + b"\n"
        async with self._sending:
            if self._stream.is_closing():
                raise anyio.ClosedResourceError
            try:
                self._stream.write(line)
                await self._stream.drain()
            except ConnectionError:
                raise anyio.BrokenResourceError from None

    async def aclose(self) -> None:
        self._stream.close()


@asynccontextmanager
async def _spoken_to(
    address: HttpTransportConfig, traffic: ServerTrafficLimiter
) -> AsyncGenerator[tuple[IncomingStream, OutgoingStream]]:
    logger = logging.getLogger("httpx2")
    hides = _Hides(address.url)
    logger.addFilter(hides)
    try:
        async with (
            _HttpClient(
                headers=address.headers | {"Accept-Encoding": "identity"},
                timeout=httpx2.Timeout(None, connect=_CONNECT_S),
                event_hooks={"request": [partial(_counted, traffic)], "response": [partial(_bounded, traffic)]},
            ) as client,
            streamable_http_client(address.url, http_client=client, max_sse_event_size=MESSAGE_BYTES) as streams,
        ):
            yield streams
    finally:
        logger.removeFilter(hides)


class _Hides(logging.Filter):
    """Hides log records with an address: the HTTP client logs every request's at INFO, and it may contain a key."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = str(httpx2.URL(url))

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record may pass."""
        return self._url not in record.getMessage()


async def _counted(traffic: ServerTrafficLimiter, request: httpx2.Request) -> None:
    """Count streams, since the SDK reopens one as soon as the server allows it."""
    if request.method == "GET":
        traffic.count_get()


class _HttpClient(httpx2.AsyncClient):
    """Waits for an answer as long as a call may take, which is limited elsewhere; not for one that no one needs."""

    async def send(self, request: httpx2.Request, *, stream: bool = False, **options: Any) -> httpx2.Response:
        """See base class. The answer to the end of a session is not read, since only its status matters.

        Raises:
            TimeoutError: the session was not ended in time.
        """
        if request.method != "DELETE":
            return await super().send(request, stream=stream, **options)
        async with asyncio.timeout(SESSION_END_TIMEOUT_S):
            response = await super().send(request, stream=True, **options)
            await response.aclose()
        return httpx2.Response(response.status_code, request=request)


async def _bounded(traffic: ServerTrafficLimiter, response: httpx2.Response) -> None:
    """Limit an answer to the size of a message; an event stream may in addition have what a server may send unasked.

    The SDK bounds each event and each line of it.

    A compressed answer was not requested, and would hide its size.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("a compressed answer was not requested", request=response.request)
    assert isinstance(response.stream, httpx2.AsyncByteStream)  # the client is asynchronous
    # The SDK detects the kind of a stream case-insensitively, by the part before the first `;`.
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "text/event-stream" or not response.is_success:
        response.stream = _BoundedStream(response.stream)
        return
    room = MESSAGE_BYTES if response.request.method == "POST" else 0
    response.stream = _CountedStream(response.stream, traffic, room)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        room = MESSAGE_BYTES
        async for chunk in self._stream:
            room -= len(chunk)
            if room < 0:
                raise MessageTooLongError(TOO_LONG_WORDS)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class _CountedStream(httpx2.AsyncByteStream):
    """An event stream. `room` bytes may be an answer to a call; anything beyond them counts as unasked."""

    def __init__(self, stream: httpx2.AsyncByteStream, traffic: ServerTrafficLimiter, room: int) -> None:
        self._stream, self._traffic, self._room = stream, traffic, room

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._traffic.count_lines(chunk.count(b"\n") + chunk.count(b"\r"))
            unasked = max(0, len(chunk) - self._room)
            self._room -= len(chunk) - unasked
            self._traffic.count_unsolicited_bytes(unasked)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


class ServerFloodError(httpx2.StreamError):
    """A server sends more than it may without being asked."""


class MessageTooLongError(httpx2.StreamError):
    """An answer has more bytes than a message may have. The SDK turns it into the call's own error."""


BROKEN_CONNECTION_CODES = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, INVALID_REQUEST})
"""Codes that the SDK returns if the server did not answer: it is gone, forgot the connection, or sent too much."""
LOGGERS = ("mcp", "client")
"""Loggers of the SDK, which quote messages that they cannot parse."""


class ServerConnection:
    """One connection, from its handshake to its end. Its own task opens and closes it, as the SDK requires."""

    def __init__(self, server: McpServerConfig) -> None:
        self._server = server
        self.traffic, self._close = ServerTrafficLimiter(), asyncio.Event()
        self._calls, self._unwanted = 0, False
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold())
        self._holder.add_done_callback(_look_at)

    async def open(self) -> None:
        """Wait for the handshake.

        Raises:
            ToolServerFailed: the server did not start or answer in time.
        """
        try:
            await asyncio.wait(
                {self._opened, self._holder}, timeout=self._server.start_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            if not self._opened.done():
                self._holder.cancel()
        if not self._opened.done():
            await asyncio.wait({self._holder}, timeout=CLOSE_TIMEOUT_S)
            was_cancelled = self._holder.cancelled() or not self._holder.done()
            error = None if was_cancelled else self._holder.exception()
            raise ToolServerFailed(_excess(self._server, self.traffic) or _why(self._server, error))

    @property
    def is_usable(self) -> bool:
        """Whether another call may use it."""
        return not (self._unwanted or self.traffic.ended.is_set() or self._holder.done())

    @property
    def is_closed(self) -> bool:
        """Whether it is closed completely."""
        return self._holder.done()

    @asynccontextmanager
    async def call(self) -> AsyncGenerator[Client]:
        """Yield the client for one call. A retired connection is closed after its last call."""
        self._calls += 1
        try:
            yield self._opened.result()
        finally:
            self._calls -= 1
            self._close_if_idle()

    def retire(self) -> None:
        """Allow no further calls over it."""
        self._unwanted = True
        self._close_if_idle()

    async def aclose(self) -> None:
        """Close it now, and wait for a bounded time until a server that was started here has ended."""
        self._close.set()
        await asyncio.wait({self._holder}, timeout=CLOSE_TIMEOUT_S)
        if self._holder.cancel():
            await asyncio.wait({self._holder}, timeout=CLOSE_TIMEOUT_S)

    def _close_if_idle(self) -> None:
        if self._unwanted and not self._calls:
            self._close.set()

    async def _hold(self) -> None:
        client = Client(
            open_server_streams(self._server, self.traffic),
            client_info=Implementation(name="waystation", version=__version__),
            cache=None,
        )
        async with client:
            self._opened.set_result(client)
            waits = [asyncio.create_task(one.wait()) for one in (self._close, self.traffic.ended)]
            try:
                # A connection that has ended is closed at once: a flooding one would still be read.
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()


class McpServerSession:
    """Keeps one server usable: connects when needed, shares the connection, and reconnects after it broke."""

    def __init__(self, server: McpServerConfig) -> None:
        self.server = server
        self._opening = asyncio.Lock()
        self._link: ServerConnection | None = None
        self.opened = 0
        """Number of connections so far: a server on a new connection may have changed."""
        self._former: set[ServerConnection] = set()
        """Retired connections, perhaps not closed yet."""
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    @asynccontextmanager
    async def call(self, seconds: float) -> AsyncGenerator[Client]:
        """Yield the client for one exchange with a time limit, which starts once the server is connected.

        A failed exchange takes its connection with it: the next one gets a new connection, while others in progress on
        the old one may finish.

        Raises:
            ToolServerFailed: the server could not be reached, ended, took too long or sent too much.
        """
        name = self.server.name
        link = await self._usable()
        try:
            async with asyncio.timeout(seconds), link.call() as client:
                yield client
        except TimeoutError:
            link.retire()
            why = f"the tool server {name} did not answer within {seconds:g} s"
            raise ToolServerFailed(_excess(self.server, link.traffic) or why) from None
        except MCPError as error:
            if error.code not in BROKEN_CONNECTION_CODES and not link.traffic.excess:
                raise
            link.retire()
            reason = f"the server ended, or sent a message of more than {MESSAGE_BYTES:,} bytes"
            why = f"the connection to the tool server {name} failed: {reason}"
            raise ToolServerFailed(_excess(self.server, link.traffic) or why) from None
        except (ValidationError, RuntimeError):
            link.retire()
            why = f"the tool server {name} sent an answer that the protocol does not define"
            raise ToolServerFailed(_excess(self.server, link.traffic) or why) from None

    async def aclose(self) -> None:
        """Close every connection."""
        links = (*self._former, *([self._link] if self._link else []))
        await asyncio.gather(*(link.aclose() for link in links))
        self._link = None

    async def _usable(self) -> ServerConnection:
        async with self._opening:
            self._former = {link for link in self._former if not link.is_closed}
            if self._link is None or not self._link.is_usable:
                if self._link is not None:
                    self._link.retire()
                    self._former.add(self._link)
                self._link = None
                link = ServerConnection(self.server)
                await link.open()
                self._link = link
                self.opened += 1
            return self._link


def _look_at(holder: asyncio.Task[None]) -> None:
    """Retrieve the exception: otherwise it is logged when it is collected, with whatever it quotes."""
    if not holder.cancelled():
        holder.exception()


def _excess(server: McpServerConfig, traffic: ServerTrafficLimiter) -> str:
    """Return the message about a server that sent too much; empty if it did not."""
    if not traffic.excess:
        return ""
    return f"the connection to the tool server {server.name} was closed because it sent too many {traffic.excess}"


def _why(server: McpServerConfig, error: BaseException | None) -> str:
    name = server.name
    match error:
        case ToolServerFailed():
            return str(error)
        case BaseExceptionGroup():
            return _why(server, error.exceptions[0])
        case None:
            return f"the tool server {name} did not answer within its start_timeout of {server.start_s:g} s"
        case httpx2.HTTPError() | OSError():
            return f"the tool server {name} cannot be reached: {describe_connection_error(error)}"
        case _:
            return f"the tool server {name} ended at its start or does not implement the protocol"
