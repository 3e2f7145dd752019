"""What goes over the wire of effort and thinking, by what each model takes."""

import json

import pytest
from pydantic import JsonValue

from waystation.context.transcript import Text, build_user_message
from waystation.kernel.errors import ModelRejected
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.models.profiles import Effort, ThinkingSetting
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import (
    ScriptedServer,
    build_error_response,
    build_message_body,
    build_stream_response,
)

PLAN = ToolSpec(name="submit_plan", description="Hand in a plan.", input_schema={"type": "object"})
BOUND: dict[str, JsonValue] = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
PLAIN: dict[str, JsonValue] = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Why?", "cache_control": {"type": "ephemeral"}}]}
    ]
}


def asking(
    model: str, effort: Effort | None = None, thinking: ThinkingSetting | None = None, tool: str | None = None
) -> ModelRequest:
    return ModelRequest(
        model=model,
        system="",
        messages=(build_user_message("m1", "Why?"),),
        tools=(PLAN,) if tool else (),
        max_output=9_000,
        effort=effort,
        thinking=thinking,
        require_tool=tool,
    )


async def exchanged(request: ModelRequest) -> ScriptedServer:
    """A call and a count of its tokens."""
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    await model.complete(request)
    await model.count_tokens(request)
    return server


@pytest.mark.parametrize(
    ("request_", "carried", "beta"),
    [
        (asking("claude-opus-4-8"), {}, None),
        (asking("claude-opus-4-8", "max"), {"output_config": {"effort": "max"}}, None),
        (asking("claude-opus-4-8", None, "adaptive"), {"thinking": {"type": "adaptive"}}, None),
        (
            asking("claude-opus-5", "low", "off"),
            {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}},
            None,
        ),
        (
            asking("claude-haiku-4-5", None, 4_096),
            {"thinking": {"type": "enabled", "budget_tokens": 4_096}},
            "interleaved-thinking-2025-05-14",
        ),
        (
            asking("claude-sonnet-5-5", "xhigh"),
            {"output_config": {"effort": "xhigh"}, "thinking": BOUND},
            "thinking-binding-controls-2026-08-01",
        ),
        (asking("claude-opus-5-5", None, "adaptive"), {"thinking": BOUND}, "thinking-binding-controls-2026-08-01"),
        (asking("claude-haiku-5-5", None, "off"), {"thinking": {"type": "disabled"}}, None),
    ],
    ids=lambda value: value.model if isinstance(value, ModelRequest) else "",
)
async def test_a_request_carries_what_was_asked_for_and_nothing_else(
    request_: ModelRequest, carried: dict[str, JsonValue], beta: str | None
) -> None:
    server = await exchanged(request_)
    same = {**PLAIN, "model": request_.model, **carried}
    bodies: list[JsonValue] = [json.loads(asked.content) for asked in server.requests]
    assert bodies == [{**same, "max_tokens": 9_000, "stream": True}, same]
    assert [asked.headers.get("anthropic-beta") for asked in server.requests] == [beta] * 2


async def test_a_forced_tool_goes_without_thinking_and_one_that_is_asked_for_in_words_goes_with_it() -> None:
    forced = (await exchanged(asking("claude-haiku-4-5", None, 4_096, tool="submit_plan"))).request_bodies[0]
    assert forced["tool_choice"] == {"type": "tool", "name": "submit_plan", "disable_parallel_tool_use": True}
    assert "thinking" not in forced
    in_words = (await exchanged(asking("claude-opus-5-5", "high", tool="submit_plan"))).request_bodies[0]
    assert in_words["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert (in_words["thinking"], in_words["output_config"]) == (BOUND, {"effort": "high"})


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            '"thinking.type.disabled" is not supported for this model.',
            "does not accept the thinking blocks or thinking settings of the request",
        ),
        ("This model does not support the effort parameter.", "does not accept this effort"),
    ],
)
async def test_what_an_unknown_model_refuses_is_said_clearly_and_not_tried_again(said: str, words: str) -> None:
    server = ScriptedServer([build_error_response(400, "invalid_request_error", said)])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    with pytest.raises(ModelRejected, match=f"^the model {words} "):
        await model.complete(asking("somebody-elses-1", "max", "off"))
