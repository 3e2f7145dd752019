import json
import logging

import pytest

from waystation.context.transcript import Message, Text, Thinking, ToolResult, ToolUse, build_user_message
from waystation.kernel.errors import ModelRejected, ModelUnavailable
from waystation.kernel.usage import Usage
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.ports import ModelRequest, StopReason
from waystation.models.profiles import ThinkingSetting as Thought
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import (
    ScriptedServer,
    build_error_response,
    build_html_response,
    build_message_body,
    build_stream_response,
)

REQUEST = ModelRequest(
    model="claude-haiku-5-5", system="Work.", messages=(build_user_message("m1", "What changed?"),), max_output=50
)


async def test_a_failed_call_is_not_repeated_in_here() -> None:
    server = ScriptedServer(
        [
            build_error_response(429, "rate_limit_error"),
            build_stream_response(build_message_body(make_scripted_response(Text(text="Fine.")))),
        ]
    )
    with pytest.raises(ModelUnavailable):
        await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(REQUEST)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("model", "thinking", "seconds"),
    [
        ("claude-haiku-4-5", None, 180.0),
        ("claude-haiku-5-5", None, 600.0),
        ("claude-haiku-5-5", "off", 180.0),
        ("claude-haiku-5-5", "adaptive", 600.0),
        ("claude-haiku-4-5", 2048, 600.0),
        ("a-model-of-somebody-else", None, 180.0),
    ],
)
async def test_a_first_byte_is_waited_for_longer_where_the_model_thinks(
    model: str, thinking: Thought | None, seconds: float
) -> None:
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    asked = REQUEST.replace(model=model, thinking=thinking, max_output=4096)
    await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(asked)
    assert server.requests[0].extensions["timeout"] == {
        "connect": 10.0,
        "read": seconds,
        "write": seconds,
        "pool": seconds,
    }


async def test_signed_thinking_goes_back_byte_for_byte_as_it_came() -> None:
    thinking = Thinking(thinking="  Größe …\n\n\u2028", signature="c2lnbmVk+/==")
    asked = ToolUse(id="t1", name="search", input={"query": "x"})
    said = (make_scripted_response(thinking, asked), make_scripted_response(Text(text="Fine.")))
    server = ScriptedServer([build_stream_response(build_message_body(reply)) for reply in said])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    reply = await model.complete(REQUEST)
    loop = (
        *REQUEST.messages,
        Message(id="m2", role="assistant", blocks=reply.blocks),
        Message(id="m3", role="user", blocks=(ToolResult(tool_use_id="t1", content="nothing"),)),
    )
    await model.complete(REQUEST.replace(messages=loop))
    sent = server.request_bodies[1]["messages"]
    assert isinstance(sent, list)
    assert sent[1] == {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": thinking.thinking, "signature": thinking.signature},
            {"type": "tool_use", "id": "t1", "name": "search", "input": {"query": "x"}},
        ],
    }


async def test_a_reply_at_its_limit_says_so() -> None:
    said = make_scripted_response(Text(text="And so"), stop=StopReason.MAX_TOKENS)
    server = ScriptedServer([build_stream_response(build_message_body(said))])
    reply = await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(REQUEST)
    assert reply.stop is StopReason.MAX_TOKENS


async def test_missing_cache_counts_are_zero() -> None:
    message = build_message_body(make_scripted_response(Text(text="Fine.")))
    server = ScriptedServer([build_stream_response({**message, "usage": {"input_tokens": 3, "output_tokens": 9}})])
    usage = (
        await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(REQUEST)
    ).usage
    assert (usage.input, usage.cache_write, usage.cache_read, usage.output) == (3, 0, 0, 9)


ZERO = Usage()


@pytest.mark.parametrize(
    ("reported", "used"),
    [
        (None, ZERO),
        ({}, ZERO),
        ({"input_tokens": 0, "output_tokens": 0}, ZERO),
        ({"input_tokens": None, "output_tokens": None}, ZERO),
        ({"input_tokens": 7}, Usage(input=7)),
        ({"input_tokens": -7, "output_tokens": 3}, Usage(output=3)),
    ],
)
async def test_a_reply_whose_usage_is_missing_is_a_reply_and_its_usage_zero(
    reported: dict[str, int | None] | None, used: Usage
) -> None:
    said = build_message_body(make_scripted_response(Text(text="Fine.")))
    parts: list[str] = []
    for part in iter_message_events({**said, "usage": {}}):
        name, line, _ = part.decode().split("\n", 2)
        event = json.loads(line.removeprefix("data: "))
        holder = event["message"] if event["type"] == "message_start" else event
        if "usage" in holder:
            del holder["usage"]
            holder |= {} if reported is None else {"usage": reported}
        parts.append(f"{name}\ndata: {json.dumps(event)}\n\n")
    server = ScriptedServer([build_html_response("text/event-stream", "".join(parts))])
    reply = await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(REQUEST)
    assert (reply.blocks, reply.usage) == ((Text(text="Fine."),), used)


async def test_a_block_in_the_wrong_role_is_rejected_before_any_call() -> None:
    server = ScriptedServer([])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    astray = Message(id="m1", role="user", blocks=(ToolUse(id="t1", name="search", input={}),))
    with pytest.raises(ModelRejected, match="no block of type tool_use in a message of the user"):
        await model.complete(REQUEST.replace(messages=(astray,)))
    assert server.requests == []


async def test_nothing_that_was_said_is_logged_even_when_everything_is(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server = ScriptedServer(
        [build_stream_response(build_message_body(make_scripted_response(Text(text="Nothing changed."))))]
    )
    await create_anthropic_model("secret-key", "http://model.test", server.build_http_client()).complete(REQUEST)
    assert "changed" not in caplog.text
    assert "secret-key" not in caplog.text


async def test_closing_the_model_closes_its_connections() -> None:
    http_client = ScriptedServer([]).build_http_client()
    await create_anthropic_model("key", "http://model.test", http_client).aclose()
    assert http_client.is_closed
