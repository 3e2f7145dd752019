"""What goes over the wire, as a whole, for the requests that agents make."""

import json

from inline_snapshot import snapshot
from pydantic import JsonValue

from waystation.context.transcript import (
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    build_user_message,
)
from waystation.models.anthropic.model import create_anthropic_model
from waystation.models.endpoints import build_model_endpoint
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.testing.doubles import make_scripted_response
from waystation.testing.messages_server import ScriptedServer, build_message_body, build_stream_response

SEARCH = ToolSpec(name="search", description="Search the documents.", input_schema={"type": "object"})
NOTE = ToolSpec(name="note", description="Keep a note.", input_schema={"type": "object", "required": ["text"]})

TOOL_LOOP = (
    build_user_message("m1", "What changed?"),
    Message(
        id="m2",
        role="assistant",
        blocks=(
            Thinking(thinking="Look it up.", signature="c2lnbmVk"),
            RedactedThinking(data="c2VhbGVk"),
            ToolUse(id="t1", name="search", input={"query": "changes"}),
            ToolUse(id="t2", name="search", input={"query": "history"}),
        ),
    ),
    Message(
        id="m3",
        role="user",
        blocks=(
            ToolResult(tool_use_id="t1", content="nothing"),
            ToolResult(tool_use_id="t2", content="down", is_error=True),
        ),
    ),
    Message(id="m4", role="assistant", blocks=(Text(text="Once more."), ToolUse(id="t3", name="search", input={}))),
    Message(id="m5", role="user", blocks=(ToolResult(tool_use_id="t3", content="a line"),)),
    build_user_message("m6", "Hurry."),
)


async def sent(request: ModelRequest) -> dict[str, JsonValue]:
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    await create_anthropic_model("key", "http://model.test", server.build_http_client()).complete(request)
    return server.request_bodies[0]


async def test_a_tool_loop_marks_tools_system_the_last_request_and_this_one_for_the_cache() -> None:
    request = ModelRequest(
        model="claude-sonnet-5-5", system="You research.", messages=TOOL_LOOP, tools=(SEARCH, NOTE), max_output=900
    )
    assert await sent(request) == snapshot(
        {
            "max_tokens": 900,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "What changed?"}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "Look it up.", "signature": "c2lnbmVk"},
                        {"type": "redacted_thinking", "data": "c2VhbGVk"},
                        {"type": "tool_use", "id": "t1", "name": "search", "input": {"query": "changes"}},
                        {"type": "tool_use", "id": "t2", "name": "search", "input": {"query": "history"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "t1", "content": "nothing", "is_error": False},
                        {
                            "type": "tool_result",
                            "tool_use_id": "t2",
                            "content": "down",
                            "is_error": True,
                            "cache_control": {"type": "ephemeral"},
                        },
                    ],
                },
                {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "Once more."},
                        {"type": "tool_use", "id": "t3", "name": "search", "input": {}},
                    ],
                },
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t3", "content": "a line", "is_error": False}],
                },
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Hurry.", "cache_control": {"type": "ephemeral"}}],
                },
            ],
            "model": "claude-sonnet-5-5",
            "system": [{"type": "text", "text": "You research.", "cache_control": {"type": "ephemeral"}}],
            "tools": [
                {"name": "search", "description": "Search the documents.", "input_schema": {"type": "object"}},
                {
                    "name": "note",
                    "description": "Keep a note.",
                    "input_schema": {"type": "object", "required": ["text"]},
                    "cache_control": {"type": "ephemeral"},
                },
            ],
            "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
            "stream": True,
        }
    )


async def test_a_tool_is_forced_where_the_model_takes_that() -> None:
    request = ModelRequest(
        model="claude-haiku-5-5",
        system="You plan.",
        messages=TOOL_LOOP[:1],
        tools=(NOTE,),
        max_output=900,
        require_tool="note",
    )
    assert await sent(request) == snapshot(
        {
            "max_tokens": 900,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "What changed?", "cache_control": {"type": "ephemeral"}}],
                }
            ],
            "model": "claude-haiku-5-5",
            "system": [{"type": "text", "text": "You plan.", "cache_control": {"type": "ephemeral"}}],
            "tools": [
                {
                    "name": "note",
                    "description": "Keep a note.",
                    "input_schema": {"type": "object", "required": ["text"]},
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "tool_choice": {"type": "tool", "name": "note", "disable_parallel_tool_use": True},
            "stream": True,
        }
    )


async def test_a_tool_is_asked_for_in_words_after_the_cached_prompt_where_the_model_refuses_to_be_forced() -> None:
    request = ModelRequest(
        model="claude-sonnet-5-5",
        system="You plan.",
        messages=TOOL_LOOP[:1],
        tools=(NOTE,),
        max_output=900,
        require_tool="note",
    )
    assert await sent(request) == snapshot(
        {
            "max_tokens": 900,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "What changed?", "cache_control": {"type": "ephemeral"}}],
                }
            ],
            "model": "claude-sonnet-5-5",
            "system": [
                {"type": "text", "text": "You plan.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Reply with exactly one call of the tool `note`."},
            ],
            "tools": [
                {
                    "name": "note",
                    "description": "Keep a note.",
                    "input_schema": {"type": "object", "required": ["text"]},
                    "cache_control": {"type": "ephemeral"},
                }
            ],
            "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            "stream": True,
        }
    )


async def test_a_bare_request_carries_neither_system_prompt_nor_tools() -> None:
    request = ModelRequest(model="claude-haiku-5-5", system="", messages=TOOL_LOOP[:1], max_output=20)
    assert await sent(request) == snapshot(
        {
            "max_tokens": 20,
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "What changed?", "cache_control": {"type": "ephemeral"}}],
                }
            ],
            "model": "claude-haiku-5-5",
            "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}},
            "stream": True,
        }
    )


async def test_the_newest_message_has_the_mark_also_where_it_is_a_status() -> None:
    request = ModelRequest(
        model="claude-opus-5",
        system="",
        messages=(*TOOL_LOOP, build_user_message("s1", "<status>Half.</status>")),
        max_output=20,
    )
    messages = (await sent(request))["messages"]
    assert isinstance(messages, list)
    assert messages[-1] == snapshot(
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<status>Half.</status>", "cache_control": {"type": "ephemeral"}},
            ],
        }
    )


async def test_a_one_shot_call_has_no_marks() -> None:
    tool = ToolSpec(name="search", description="Search.", input_schema={"type": "object"})
    request = ModelRequest(model="claude-opus-5", system="Be brief.", messages=TOOL_LOOP, tools=(tool,), max_output=20)
    assert "cache_control" in json.dumps(await sent(request))
    assert "cache_control" not in json.dumps(await sent(request.replace(one_shot=True)))


async def test_the_provider_is_asked_why_it_could_not_read_the_last_prefix_and_nobody_else() -> None:
    told: dict[str, JsonValue] = {
        "diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}},
        "input_transformations": [
            {"type": "thinking_dropped", "reason": "prefix_binding_mismatch", "path": f"messages.{n}.content.0"}
            for n in (1, 3)
        ],
    }
    whole = {**build_message_body(make_scripted_response(Text(text="Fine."))), **told, "id": "msg_2"}
    server = ScriptedServer([build_stream_response(whole), build_stream_response(whole)])
    request = ModelRequest(
        model="claude-sonnet-5-5", system="", messages=TOOL_LOOP[:1], max_output=20, previous_reply="msg_1"
    )
    for address in (None, "http://model.test"):
        endpoint = build_model_endpoint(address, {})
        reply = await create_anthropic_model("key", address, server.build_http_client(), endpoint=endpoint).complete(
            request
        )
        assert (reply.id, reply.dropped_thinking, reply.cache_miss) == ("msg_2", 2, "tools_changed")
    asked = [body.get("diagnostics") for body in server.request_bodies]
    assert asked == [{"previous_message_id": "msg_1"}, None]


async def test_thinking_that_a_changed_history_outdates_is_dropped_where_it_would_be_refused() -> None:
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    model = create_anthropic_model("key", "http://model.test", server.build_http_client())
    request = ModelRequest(model="claude-sonnet-5-5", system="", messages=TOOL_LOOP, max_output=20)
    await model.complete(request)
    await model.count_tokens(request)
    betas = [asked.headers["anthropic-beta"] for asked in server.requests]
    assert betas == ["thinking-binding-controls-2026-08-01"] * 2


async def test_the_key_goes_as_bearer_and_a_reply_is_asked_for_once() -> None:
    server = ScriptedServer([build_stream_response(build_message_body(make_scripted_response(Text(text="Fine."))))])
    model = create_anthropic_model("secret-key", "http://model.test", server.build_http_client())
    await model.complete(ModelRequest(model="claude-haiku-5-5", system="", messages=TOOL_LOOP[:1], max_output=20))
    assert [str(request.url) for request in server.requests] == ["http://model.test/v1/messages"]
    assert server.requests[0].headers["authorization"] == "Bearer secret-key"
