import json

import pytest
from inline_snapshot import snapshot
from pydantic import JsonValue

from waystation.models.anthropic.sse import PIECE, StreamEvent, encode_error_event, iter_message_events

MESSAGE: dict[str, JsonValue] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2VhbGVk"},
        {"type": "text", "text": "Größe"},
        {"type": "tool_use", "id": "t1", "name": "search", "input": {"query": "x"}},
    ],
    "stop_reason": "tool_use",
    "stop_sequence": None,
    "usage": {"input_tokens": 3, "output_tokens": 9},
}


def read(event: bytes) -> StreamEvent:
    """The event's body, after a check of its frame."""
    name, body, *rest = event.decode().split("\n")
    parsed: StreamEvent = json.loads(body.removeprefix("data: "))
    assert name == f"event: {parsed['type']}"
    assert rest == ["", ""]
    return parsed


def test_a_message_becomes_its_events_in_the_order_of_the_protocol() -> None:
    assert [read(event) for event in iter_message_events(MESSAGE)] == snapshot(
        [
            {
                "type": "message_start",
                "message": {
                    "id": "msg_1",
                    "type": "message",
                    "role": "assistant",
                    "model": "m",
                    "content": [],
                    "stop_reason": None,
                    "stop_sequence": None,
                    "usage": {"input_tokens": 3, "output_tokens": 0},
                },
            },
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""},
            },
            {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "Hm."}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "c2ln"}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "redacted_thinking", "data": "c2VhbGVk"},
            },
            {"type": "content_block_stop", "index": 1},
            {"type": "content_block_start", "index": 2, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "text_delta", "text": "Größe"}},
            {"type": "content_block_stop", "index": 2},
            {
                "type": "content_block_start",
                "index": 3,
                "content_block": {"type": "tool_use", "id": "t1", "name": "search", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 3,
                "delta": {"type": "input_json_delta", "partial_json": '{"query": "x"}'},
            },
            {"type": "content_block_stop", "index": 3},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "tool_use", "stop_sequence": None},
                "usage": {"input_tokens": 3, "output_tokens": 9},
            },
            {"type": "message_stop"},
        ]
    )


def test_a_long_text_arrives_in_pieces_that_add_up() -> None:
    text = "abc" * PIECE
    sent = list(
        iter_message_events({"content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "usage": {}})
    )
    deltas = [json.loads(event.split(b"data: ")[1])["delta"]["text"] for event in sent if b"text_delta" in event]
    assert len(deltas) == 3
    assert "".join(deltas) == text


def test_a_message_without_blocks_is_still_a_whole_stream() -> None:
    sent = list(
        iter_message_events({"content": [], "stop_reason": "refusal", "usage": {"input_tokens": 1, "output_tokens": 0}})
    )
    names = [event.split(b"\n")[0].decode() for event in sent]
    assert names == ["event: message_start", "event: message_delta", "event: message_stop"]


@pytest.mark.parametrize("content", ["text", [{"type": "text", "text": 1}], ["text"]])
def test_content_of_another_shape_is_refused(content: JsonValue) -> None:
    with pytest.raises(TypeError):
        list(iter_message_events({"content": content, "stop_reason": "end_turn", "usage": {}}))


def test_an_error_is_an_event_of_its_own_name() -> None:
    assert encode_error_event("overloaded_error", "later", "req_1").decode() == snapshot("""\
event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"later"},"request_id":"req_1"}

""")
