"""How a tool server is reached: started here behind its keeper, or spoken to over HTTP; messages bounded either way."""

import asyncio
import logging
import os
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx2
from mcp.client.stdio import DEFAULT_INHERITED_ENV_VARS, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from waystation.adapters.mcp import keeper
from waystation.adapters.mcp.config import Address, Program, Server
from waystation.adapters.mcp.watched import TransportStreams, Watched
from waystation.domain.errors import ToolServerFailed

MESSAGE_BYTES = 4 * 1024 * 1024
"""Most of one message of a server. A result is shown in far fewer; an image that is left out may need so many."""
TOO_LONG_WORDS = "longer than a message may be"
"""By which an answer over HTTP is known for that: the SDK keeps only the words of an error."""
CONNECT_S = 10.0
INHERITED = ("PATH", "HOME", "LANG")
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
    environment = {one: os.environ[one] for one in INHERITED if one in os.environ} | program.environment
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
                timeout=httpx2.Timeout(None, connect=CONNECT_S),
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
