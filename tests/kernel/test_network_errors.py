"""Why a connection failed, in words, from connections that fail."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx2
import pytest

from waystation.kernel.network import describe_connection_error


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


@asynccontextmanager
async def saying(words: bytes) -> AsyncGenerator[int]:
    """A server that says so much to each connection, and closes it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(words)
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


async def told(address: str) -> str:
    async with httpx2.AsyncClient(timeout=5) as client:
        with pytest.raises(httpx2.HTTPError) as failed:
            await client.get(address)
    return describe_connection_error(failed.value)


async def test_nobody_listens_or_nobody_has_the_name() -> None:
    assert await told(f"http://127.0.0.1:{free_port()}/") == "nothing listens there"
    assert await told("http://no-such-host.invalid/") == "the host name cannot be resolved"


@pytest.mark.parametrize("words", [b"", b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf"])
async def test_what_listens_speaks_no_whole_http(words: bytes) -> None:
    async with saying(words) as port:
        assert await told(f"http://127.0.0.1:{port}/") == (
            "the connection was closed before the whole answer arrived, or the answer is not HTTP"
        )


async def test_what_listens_speaks_no_tls() -> None:
    async with saying(b"HTTP/1.1 200 OK\r\n\r\n") as port:
        assert await told(f"https://127.0.0.1:{port}/") == "the two sides could not agree on TLS settings"


async def test_what_nobody_foresaw_has_details_in_its_kind_and_never_by_its_words() -> None:
    assert describe_connection_error(httpx2.HTTPError("https://user:secret@host/")) == "HTTPError"
