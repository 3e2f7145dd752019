"""What goes wrong at an endpoint ends in one of a few states, whichever protocol it speaks: one table over both."""

import json
from collections.abc import Callable
from typing import Literal

import httpx2
import pytest
from pydantic import JsonValue

from tests.support.vendor_servers import make_chat_chunks
from waystation.context.transcript import Text, ToolUse, build_user_message
from waystation.kernel.errors import (
    BrokenEndpointError,
    ContentFilterError,
    ModelError,
    ModelNotFoundError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.openai.model import create_openai_model
from waystation.models.ports import ChatModel, ModelRequest, ModelResponse, StopReason
from waystation.models.profiles import Effort
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import build_message_body

Protocol = Literal["messages", "chat completions"]
State = Literal["retried", "retried, perhaps billed", "a person pays", "broken", "no such model", "refused", "blocked"]
"""What becomes of a call: another attempt; the same, shown as possibly billed; a pause for money, or for the
endpoint; another model's; its step's end with the cause."""
PROTOCOLS: dict[Protocol, Callable[..., ChatModel]] = {
    "messages": create_anthropic_model,
    "chat completions": create_openai_model,
}
SECRET = "the patient is called Ada"
REQUEST = ModelRequest(model="m", system="Work.", messages=(build_user_message("m1", SECRET),), max_output=50)
FINE = make_scripted_response(Text(text="Fine."), model="m")
CALLING = make_scripted_response(ToolUse(id="t1", name="search", input={"query": "x"}), model="m")
STREAM = {"content-type": "text/event-stream"}


def state_of(error: ModelError) -> State:
    match error:
        case ContentFilterError():
            return "blocked"
        case ModelNotFoundError():
            return "no such model"
        case BrokenEndpointError():
            assert not error.possibly_billed
            return "broken"
        case ModelRejected():
            return "refused"
        case SpendingLimitReached():
            return "a person pays"
        case ModelUnavailable():
            return "retried, perhaps billed" if error.possibly_billed else "retried"
        case _:
            raise TypeError(type(error))


def said(status: int, body: object) -> httpx2.Response:
    return httpx2.Response(status, json=body)


def error(words: str, kind: str = "", **more: JsonValue) -> JsonValue:
    return {"error": {"message": words, "type": kind, **more}}


TGI_WORDS = "`inputs` tokens + `max_new_tokens` must be <= 4096."
REFUSALS: dict[str, tuple[httpx2.Response, State, str]] = {
    "a wrong key": (said(401, error("invalid x-api-key")), "refused", "key was not accepted"),
    "a wrong key of AWS": (
        said(403, {"message": "The security token included in the request is invalid."}),
        "refused",
        "credentials were not accepted",
    ),
    "another region": (
        said(400, {"message": "The provided model identifier is invalid."}),
        "no such model",
        "not in this region",
    ),
    "no access to the model": (
        said(403, {"message": "You don't have access to the model with the specified model ID."}),
        "refused",
        "no access to this model",
    ),
    "a key that may not": (said(403, error("no", "permission_error")), "refused", "lacks permission for this"),
    "a model that nobody has": (said(404, error("x", "", code="model_not_found")), "no such model", "no such model"),
    "a model that is gone": (
        said(404, {"message": "This model version has reached the end of its life."}),
        "no such model",
        "retired",
    ),
    "no credit": (said(429, error("", "", code="insufficient_quota")), "a person pays", "no credit"),
    "a spending limit": (said(402, error("", "billing_error")), "a person pays", "spending limit"),
    "a rate limit": (said(429, error("slow down")), "retried", "rate limit"),
    "overload": (said(529, error("", "overloaded_error")), "retried", "overloaded"),
    "a proxy without its server": (
        httpx2.Response(502, headers={"content-type": "text/html"}, content="<html>Bad Gateway</html>"),
        "retried, perhaps billed",
        "the provider failed",
    ),
    "a page in the place of a model": (
        httpx2.Response(404, headers={"content-type": "text/html"}, content="<html>Not found</html>"),
        "no such model",
        "no such model or endpoint",
    ),
    "a page that asks for a name": (
        httpx2.Response(200, headers={"content-type": "text/html"}, content="<html>Sign in</html>"),
        "broken",
        "answered with a web page, perhaps from a proxy or a sign-in; check the endpoint's URL",
    ),
    "a reply that is no stream": (
        said(200, {"choices": [], "content": []}),
        "retried, perhaps billed",
        "something other than an event stream; check the endpoint's URL",
    ),
    "a filter before the reply": (
        said(400, error("Output blocked by content filtering policy")),
        "blocked",
        "content filter blocked",
    ),
    **{
        f"overflow, as {vendor} says it": (said(status, body), "refused", "longer than the model's window")
        for vendor, status, body in (
            ("Ollama with another status", 500, {"error": "input length exceeds the context length"}),
            ("TGI", 422, {"error": f"Input validation error: {TGI_WORDS} Given: 9000", "error_type": "validation"}),
            ("an older TGI", 422, {"error": "`inputs` must have less than 1024 tokens. Given: 9000"}),
            (
                "Gemini",
                400,
                [error("The input exceeds the maximum number of tokens allowed (4096).")],
            ),
            ("a proxy", 413, error("This model's maximum context length is 8192 tokens.")),
        )
    },
    "too large for a proxy": (said(413, {"detail": "too big"}), "refused", "the request is too large"),
    **{
        f"overflow, as {vendor} says it": (said(400, body), "refused", "longer than the model's window")
        for vendor, body in {
            "the provider": error("prompt is too long: 210000 tokens > 200000 maximum", "invalid_request_error"),
            "OpenAI": error("Your input exceeds the context window.", "", code="context_length_exceeded"),
            "llama.cpp": error("the request exceeds the available context size", "exceed_context_size_error", code=400),
            "vLLM": {"object": "error", "message": "This model's maximum context length is 8192 tokens.", "code": 400},
            "Ollama": {"error": "the input length exceeds the context length"},
            "FastAPI": {"detail": "maximum context length exceeded"},
            "Bedrock": {"message": "Input is too long for requested model."},
        }.items()
    },
}


async def error_of(protocol: Protocol, answer: httpx2.Response) -> ModelError:
    asked: list[httpx2.Request] = []

    def respond(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(respond))
    model = PROTOCOLS[protocol]("secret-key", "http://model.test", http_client=client)
    with pytest.raises(ModelError) as raised:
        await model.complete(REQUEST)
    assert len(asked) == 1, "asked again without a word, it would be billed again"
    return raised.value


def plain(failed: ModelError, protocol: Protocol, state: State, words: str) -> None:
    assert (state_of(failed), protocol) == (state, protocol)
    assert words in str(failed)
    assert "Ada" not in str(failed)
    assert "secret-key" not in str(failed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", REFUSALS)
async def test_what_an_endpoint_refuses_is_one_clear_state(case: str, protocol: Protocol) -> None:
    answer, state, words = REFUSALS[case]
    plain(await error_of(protocol, answer), protocol, state, words)


def sent(protocol: Protocol, reply: ModelResponse, change: Callable[[bytes], bytes] = bytes) -> httpx2.Response:
    """The whole stream of a reply, changed."""
    parts = (
        [*iter_message_events(build_message_body(reply))]
        if protocol == "messages"
        else [*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in make_chat_chunks(reply)), b"data: [DONE]\n\n"]
    )
    return httpx2.Response(200, headers=STREAM, content=b"".join(filter(None, map(change, parts))))


def without_stop(part: bytes) -> bytes:
    return b"" if b"message_delta" in part or b'"finish_reason": "' in part else part


def without_json(part: bytes) -> bytes:
    return part.replace(rb"{\"qu", b"qu")


TWICE = make_scripted_response(*(ToolUse(id="t1", name="search", input={"n": n}) for n in range(2)), model="m")
STREAMS: dict[str, tuple[ModelResponse, Callable[[bytes], bytes], str]] = {
    "no stop reason": (FINE, without_stop, "ended before it was complete"),
    "two calls of one id": (TWICE, bytes, "two tool calls with the same id"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_that_is_no_reply_counts_as_perhaps_billed(case: str, protocol: Protocol) -> None:
    reply, change, words = STREAMS[case]
    failed = await error_of(protocol, sent(protocol, reply, change))
    plain(failed, protocol, "retried, perhaps billed", words)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    "reply",
    [
        make_scripted_response(model="m"),
        make_scripted_response(ToolUse(id="t1", name="nobodys_tool", input={}), model="m"),
        make_scripted_response(Text(text="Half a"), stop=StopReason.MAX_TOKENS, model="m"),
        make_scripted_response(stop=StopReason.REFUSAL, model="m"),
    ],
    ids=["empty", "of an unknown tool", "cut by its longest reply", "refused"],
)
async def test_what_is_odd_and_a_reply_all_the_same_goes_to_the_agent(reply: ModelResponse, protocol: Protocol) -> None:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: sent(protocol, reply)))
    assert await PROTOCOLS[protocol]("key", "http://model.test", http_client=client).complete(REQUEST) == reply


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_arguments_that_are_no_json_go_to_the_agent_as_a_call_that_is_not_run(protocol: Protocol) -> None:
    answer = sent(protocol, CALLING, without_json)
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer))
    reply = await PROTOCOLS[protocol]("key", "http://model.test", http_client=client).complete(REQUEST)
    assert [call.has_unparsed_arguments for block in reply.blocks if (call := block) and isinstance(call, ToolUse)] == [
        True
    ]
    assert (reply.stop, reply.usage) == (CALLING.stop, CALLING.usage)


def chunked(*chunks: JsonValue) -> httpx2.Response:
    parts = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return httpx2.Response(200, headers=STREAM, text="".join([*parts, "data: [DONE]\n\n"]))


async def chat_reply(answer: httpx2.Response, effort: Effort | None = None) -> ModelResponse:
    client = httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer))
    model = create_openai_model("key", "http://model.test", http_client=client)
    return await model.complete(REQUEST.replace(effort=effort))


NULLS: dict[str, JsonValue] = {
    "model": {"model": None, "choices": []},
    "choices": {"choices": None},
    "a choice's delta": {"choices": [{"delta": None, "finish_reason": None}]},
    "all of a delta": {"choices": [{"delta": {"content": None, "reasoning_content": None, "tool_calls": None}}]},
    "a call's function": {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": None, "function": None}]}}]},
}


@pytest.mark.parametrize("case", NULLS)
async def test_null_in_a_piece_means_what_the_field_means_where_it_is_missing(case: str) -> None:
    first, *others = make_chat_chunks(CALLING)
    assert await chat_reply(chunked(first, NULLS[case], *others)) == CALLING


def reasoned(**delta: JsonValue) -> httpx2.Response:
    return chunked({"model": "m", "choices": [{"delta": delta}]}, *make_chat_chunks(FINE))


@pytest.mark.parametrize(
    "delta",
    [{"reasoning_content": "Hm."}, {"reasoning": "Hm."}, {"reasoning_details": [{"type": "reasoning.encrypted"}]}],
    ids=["reasoning_content", "reasoning", "reasoning_details"],
)
async def test_a_reply_by_chat_completions_says_that_there_was_thinking_behind_it(delta: dict[str, JsonValue]) -> None:
    reply = await chat_reply(reasoned(**delta))
    assert (reply.hidden_thinking, reply.blocks) == (True, FINE.blocks)


async def test_who_is_asked_to_think_may_have_thought_unseen() -> None:
    assert (await chat_reply(reasoned(), effort="high")).hidden_thinking
    assert not (await chat_reply(reasoned(reasoning_content="", reasoning=None))).hidden_thinking
