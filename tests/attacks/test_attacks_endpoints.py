"""Endpoints of models that say anything: their words, their numbers, their headers, and replies without an end."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from gzip import compress

import httpx2
import pytest
from pydantic import JsonValue

from waystation.agents.redaction import TextRedactor, redact_reply
from waystation.context.transcript import Text, ToolUse, build_user_message
from waystation.kernel.errors import ModelError, ModelRejected, ModelUnavailable
from waystation.models.anthropic.model import AnthropicModel, create_anthropic_model
from waystation.models.anthropic.platforms import CUSTOM_HEADERS_VARIABLE, create_platform_client
from waystation.models.endpoints import NamedEndpoint
from waystation.models.http_errors import MAX_REPLY_BYTES, MAX_REPORTED_TOKENS, MAX_RETRY_DELAY_SECONDS
from waystation.models.openai.model import create_openai_model
from waystation.models.ports import ChatModel, ModelRequest, StopReason
from waystation.testing.doubles import PlainRedactor

ASKED = ModelRequest(model="m", system="s", messages=(build_user_message("m1", "hello"),), tools=(), max_output=256)
HUGE = 10**30
NO_NAME = "(not shown: not a valid name)"
SAID = "the password of prod is hunter2\x1b]52;c;aGk=\x07"
STREAM = {"content-type": "text/event-stream"}
JSON = {"content-type": "application/json"}
Protocol = Callable[..., ChatModel]
PROTOCOLS = pytest.mark.parametrize("protocol", [create_anthropic_model, create_openai_model])
Answering = Callable[[httpx2.Request], httpx2.Response]


@asynccontextmanager
async def asked(answering: Answering, protocol: Protocol = create_anthropic_model) -> AsyncGenerator[ChatModel]:
    """A model behind an endpoint that answers so."""
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answering), follow_redirects=True)
    model = protocol("key", "http://model.example", http_client=client)
    try:
        yield model
    finally:
        await client.aclose()


def events(
    stop: JsonValue = "end_turn", kind: JsonValue = "text", usage: Mapping[str, JsonValue] | None = None
) -> bytes:
    """A whole reply, as a stream."""
    message: dict[str, JsonValue] = {"id": "x", "type": "message", "role": "assistant", "content": [], "model": "m"}
    told: dict[str, JsonValue] = {**(usage or {"input_tokens": 5, "output_tokens": 1})}
    said: list[dict[str, JsonValue]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": told}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": kind, "text": "ready"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": told},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in said).encode()


async def refused(answer: httpx2.Response, protocol: Protocol = create_anthropic_model) -> ModelError:
    """What is raised of this answer."""
    async with asked(lambda _: answer, protocol) as model:
        with pytest.raises(ModelError) as raised:
            await model.complete(ASKED)
    return raised.value


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        (events(kind=SAID), "unknown type"),
        (b"event: message_start\ndata: " + b"[" * 100_000 + b"\n\n", "could not be read"),
        (b'event: message_start\ndata: {"type": ' + b"9" * 5_000 + b"}\n\n", "could not be read"),
    ],
)
async def test_what_an_endpoint_says_in_the_place_of_a_name_stands_in_no_error(body: bytes, meant: str) -> None:
    error = await refused(httpx2.Response(200, content=body, headers=STREAM))
    assert isinstance(error, ModelUnavailable)
    assert meant in str(error)
    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("reason", "name"),
    [("paused_for_review", "paused_for_review"), (SAID, NO_NAME), ([SAID], NO_NAME), ("hunter2", NO_NAME)],
)
async def test_a_reason_that_this_version_does_not_know_is_named_if_it_is_a_name(reason: JsonValue, name: str) -> None:
    async with asked(lambda _: httpx2.Response(200, content=events(stop=reason), headers=STREAM)) as model:
        reply = await model.complete(ASKED)
    assert (reply.stop, reply.stop_detail) == (StopReason.UNKNOWN, name)


@pytest.mark.parametrize("told", [HUGE, MAX_REPORTED_TOKENS + 1, -5])
async def test_numbers_that_are_no_count_of_tokens_count_as_not_reported(told: JsonValue) -> None:
    body = events(usage={"input_tokens": told, "output_tokens": told, "cache_read_input_tokens": told})
    async with asked(lambda _: httpx2.Response(200, content=body, headers=STREAM)) as model:
        assert (await model.complete(ASKED)).usage.total == 0
    async with asked(lambda _: httpx2.Response(200, json={"input_tokens": told})) as model:
        assert await model.count_tokens(ASKED) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "1e300"},
        {"retry-after": "900000000"},
        {"retry-after-ms": "1e305"},
        {"retry-after": "Mon, 01 Jan 9999 00:00:00 GMT", "date": "Mon, 01 Jan 2001 00:00:00 GMT"},
        {"retry-after": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"},
        {"retry-after": "Mon, 01 Jan 2000 00:00:00 +99999999999999"},
    ],
)
@PROTOCOLS
async def test_an_endpoint_puts_the_next_attempt_off_by_a_day_at_most(
    headers: Mapping[str, str], protocol: Protocol
) -> None:
    error = await refused(httpx2.Response(429, json={"error": {"message": ["x"]}}, headers=headers), protocol)
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after in {None, MAX_RETRY_DELAY_SECONDS}


@pytest.mark.parametrize("status", [301, 302, 307, 308])
@PROTOCOLS
async def test_a_conversation_and_its_key_go_to_no_other_address_than_the_one_that_was_set(
    status: int, protocol: Protocol
) -> None:
    came: list[str] = []

    def redirecting(request: httpx2.Request) -> httpx2.Response:
        came.append(str(request.url.host))
        return httpx2.Response(status, headers={"location": "http://169.254.169.254/latest"})

    async with asked(redirecting, protocol) as model:
        with pytest.raises(ModelRejected, match="redirects"):
            await model.complete(ASKED)
    assert came == ["model.example"]


ELSEWHERE = "http://elsewhere.example"
NAMED = {
    "compatible": NamedEndpoint(kind="compatible", base_url=ELSEWHERE),
    "by another header": NamedEndpoint(kind="compatible", base_url=ELSEWHERE, auth="x-api-key"),
    "by both": NamedEndpoint(kind="compatible", base_url=ELSEWHERE, auth="both"),
    "provider": NamedEndpoint(kind="anthropic", base_url=ELSEWHERE),
    "foundry": NamedEndpoint(kind="foundry", resource="r"),
    "bedrock": NamedEndpoint(kind="bedrock", region="us-east-1"),
    "mantle": NamedEndpoint(kind="mantle", region="us-east-1"),
    "vertex": NamedEndpoint(kind="vertex", region="global", project="p"),
}


@pytest.mark.parametrize("header", ["x-gateway", "Authorization", "authorization", "X-Api-Key", "x-api-key", "api-key"])
@pytest.mark.parametrize("endpoint", NAMED.values(), ids=NAMED)
async def test_what_the_environment_has_for_the_provider_goes_to_no_named_endpoint(
    endpoint: NamedEndpoint, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CUSTOM_HEADERS_VARIABLE, f"x-more: theirs\n{header}: theirs")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "theirs")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "theirs")
    came: list[httpx2.Headers] = []

    def refusing(request: httpx2.Request) -> httpx2.Response:
        came.append(request.headers)
        return httpx2.Response(400, json={"error": {"message": "no"}})

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(refusing)) as http:
        model = AnthropicModel(create_platform_client(endpoint, "ours", http).client)
        with pytest.raises(ModelRejected):
            await model.complete(ASKED)
    (headers,) = came
    assert [name for name, value in headers.items() if "theirs" in value] == []
    assert [name for name, value in headers.items() if "ours" in value]


class Endless(httpx2.AsyncByteStream):
    """Pings for ever, and how many were taken."""

    def __init__(self) -> None:
        self.taken = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """A megabyte each."""
        while True:
            self.taken += 1
            yield b": " + b"x" * 1_000_000 + b"\n\n"


@PROTOCOLS
async def test_a_reply_without_an_end_is_given_up(protocol: Protocol) -> None:
    pings = Endless()
    error = await refused(httpx2.Response(200, stream=pings, headers=STREAM), protocol)
    assert isinstance(error, ModelUnavailable)
    assert f"{MAX_REPLY_BYTES:,} bytes" in str(error)
    assert pings.taken <= MAX_REPLY_BYTES // 1_000_000 + 1


@PROTOCOLS
async def test_a_reply_that_would_unpack_to_any_length_is_not_unpacked(protocol: Protocol) -> None:
    told: list[str] = []

    def packing(request: httpx2.Request) -> httpx2.Response:
        told.append(request.headers["accept-encoding"])
        return httpx2.Response(200, content=compress(events()), headers={**STREAM, "content-encoding": "gzip"})

    async with asked(packing, protocol) as model:
        with pytest.raises(ModelUnavailable, match="compresses"):
            await model.complete(ASKED)
    assert told == ["identity"]


@pytest.mark.parametrize("told", [HUGE, MAX_REPORTED_TOKENS + 1, -5])
async def test_chat_completions_report_no_such_numbers_either(told: JsonValue) -> None:
    chunks: list[dict[str, JsonValue]] = [
        {"choices": [{"delta": {"content": "ready"}, "finish_reason": "stop"}]},
        {"choices": [], "usage": {"prompt_tokens": told, "completion_tokens": told}},
    ]
    body = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n"
    async with asked(
        lambda _: httpx2.Response(200, content=body.encode(), headers=STREAM), create_openai_model
    ) as model:
        assert (await model.complete(ASKED)).usage.total == 0


async def test_half_of_a_character_that_a_model_says_breaks_no_store() -> None:
    redactor = TextRedactor(PlainRedactor({}))
    said = (Text(text="up \ud83d"), ToolUse(id="c1", name="take_note", input={"text": "\ude80 down"}))
    kept, _ = await redact_reply(said, redactor, "t")
    assert [json.loads(block.model_dump_json()) for block in kept] == [
        {"type": "text", "text": "up \ufffd"},
        {"type": "tool_use", "id": "c1", "name": "take_note", "input": {"text": "\ufffd down"}},
    ]
