"""Endpoints that take a call and fall silent: before the first byte, within a reply, with pings or without."""

import asyncio
import gc
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from waystation.context.transcript import Text, build_user_message
from waystation.kernel.errors import ModelUnavailable
from waystation.models.anthropic.model import AnthropicModel, create_anthropic_model, create_anthropic_search
from waystation.models.anthropic.sse import encode_event, iter_message_events
from waystation.models.http_errors import ModelTimeouts
from waystation.models.ports import ModelRequest
from waystation.security.web_addresses import DomainPolicy
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import build_message_body

REQUEST = ModelRequest(
    model="claude-haiku-4-5", system="Work.", messages=(build_user_message("m1", "What changed?"),), max_output=4096
)
SHORT = ModelTimeouts(first_byte=0.4, thinking=0.4, stream=0.4)
HEADERS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
REPLY = [*iter_message_events(build_message_body(make_scripted_response(Text(text="Fine."))))]
PING = encode_event({"type": "ping"})
FOR_EVER = 3600.0

Script = Sequence[bytes | float]
"""What goes out, and how many seconds nothing does."""


@asynccontextmanager
async def serving(script: Script) -> AsyncGenerator[str]:
    """A server on loopback that takes every call and then follows its script; its URL."""
    answering: list[asyncio.Task[None]] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(int(length.split(b":")[1]))
        for part in script:
            if isinstance(part, bytes):
                writer.write(part)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(part):
                    await reader.read()  # until the caller hangs up
                    break
        writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answering.append(asyncio.create_task(answer(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await asyncio.gather(*answering)


@asynccontextmanager
async def model_of(script: Script, patience: ModelTimeouts = SHORT) -> AsyncGenerator[AnthropicModel]:
    async with serving(script) as url:
        model = create_anthropic_model("key", url, patience=patience)
        yield model
        await model.aclose()


@pytest.mark.parametrize(
    "script", [[FOR_EVER], [HEADERS, FOR_EVER], [0.3, HEADERS, 0.3, *REPLY]], ids=["nothing", "headers", "late"]
)
async def test_a_call_that_is_taken_and_not_answered_is_given_up_and_may_be_billed(script: Script) -> None:
    async with model_of(script) as model:
        with pytest.raises(
            ModelUnavailable, match="accepted the call and sent nothing for 0 s: WAYSTATION_MODEL_"
        ) as gone:
            await model.complete(REQUEST)
    assert (gone.value.possibly_billed, gone.value.retry_after) == (True, None)


@pytest.mark.parametrize("sent", range(1, len(REPLY)))
async def test_a_reply_that_has_begun_and_sends_not_even_pings_is_dead(sent: int) -> None:
    async with model_of([HEADERS, *REPLY[:sent], FOR_EVER], SHORT._replace(first_byte=FOR_EVER)) as model:
        with pytest.raises(ModelUnavailable, match="began and then stopped: not even a ping") as gone:
            await model.complete(REQUEST)
    assert gone.value.possibly_billed


async def test_pings_keep_a_reply_alive_however_long_it_takes() -> None:
    slow: Script = [HEADERS, REPLY[0], *([PING, 0.2] * 6), *REPLY[1:]]
    async with model_of(slow) as model:
        assert (await model.complete(REQUEST)).blocks == (Text(text="Fine."),)


def halfway() -> set[int]:
    """Iterators over bodies of replies that wait to be asked for more."""
    found = (one for one in gc.get_objects() if inspect.isasyncgen(one) and inspect.isframe(one.ag_frame))
    return {id(one) for one in found if one.__qualname__.startswith(("Response.", "Watched."))}


async def test_what_follows_a_whole_reply_is_not_waited_for_and_leaves_no_iterator_halfway() -> None:
    before = halfway()
    async with model_of([HEADERS, *REPLY, FOR_EVER]) as model:
        assert (await model.complete(REQUEST)).blocks == (Text(text="Fine."),)
        assert halfway() <= before


async def test_a_first_byte_is_waited_for_longer_than_any_later_one() -> None:
    async with model_of([HEADERS, 0.8, *REPLY], ModelTimeouts(first_byte=FOR_EVER, stream=0.3)) as model:
        assert (await model.complete(REQUEST)).blocks == (Text(text="Fine."),)


async def test_a_model_that_thinks_has_its_own_patience() -> None:
    patience = ModelTimeouts(first_byte=0.2, thinking=FOR_EVER, stream=FOR_EVER)
    async with model_of([HEADERS, 0.6, *REPLY], patience) as model:
        reply = await model.complete(REQUEST.replace(thinking=1024))
    assert reply.blocks == (Text(text="Fine."),)


async def _search(url: str) -> None:
    search = create_anthropic_search("key", "claude-haiku-4-5", DomainPolicy(), url, patience=SHORT)
    try:
        await search.search("harbours", 3)
    finally:
        await search.aclose()


async def _reply(url: str) -> None:
    client = httpx2.AsyncClient()
    model = create_anthropic_model("key", url, client, SHORT)
    try:
        await model.complete(REQUEST)
    finally:
        await model.aclose()


@pytest.mark.parametrize("call", [_search, _reply])
@pytest.mark.parametrize("script", [[FOR_EVER], [HEADERS, b"{", FOR_EVER]])
async def test_searches_and_clients_of_others_are_watched_too(
    call: Callable[[str], Awaitable[None]], script: Script
) -> None:
    async with serving(script) as url:
        with pytest.raises(ModelUnavailable, match=r"sent nothing|began and then stopped"):
            await call(url)
