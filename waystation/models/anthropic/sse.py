"""Encodes the event stream of the Messages protocol: one complete message, or one error, as a server sends it."""

import json
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

StreamEvent = dict[str, JsonValue]

PIECE = 200
"""Characters in one delta: small enough that a message of any size arrives in several."""


def iter_message_events(message: Mapping[str, JsonValue]) -> Iterator[bytes]:
    """Yield the stream of a message, from `message_start` to `message_stop`, one event at a time.

    `message` has the shape of an unstreamed response: `content` (blocks of text, thinking, redacted thinking and tool
    use), `stop_reason` and `usage`; every other field goes into `message_start` unchanged.

    Raises:
        KeyError: a field that the protocol needs is missing.
        TypeError: `content` or `usage` has another shape.
    """
    usage = _mapping("usage", message["usage"])
    opening: StreamEvent = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    opening["usage"] = {**usage, "output_tokens": 0}
    yield encode_event({"type": "message_start", "message": opening})
    for index, block in enumerate(_blocks(message["content"])):
        yield from _block_events(index, block)
    ending: StreamEvent = {"stop_reason": message["stop_reason"], "stop_sequence": message.get("stop_sequence")}
    if (details := message.get("stop_details")) is not None:
        ending["stop_details"] = details
    yield encode_event({"type": "message_delta", "delta": ending, "usage": {**usage}})
    yield encode_event({"type": "message_stop"})


def encode_error_event(kind: str, message: str, request_id: str | None = None) -> bytes:
    """Encode an error in the middle of a stream; `kind` is the protocol's name for it, such as `overloaded_error`."""
    error: StreamEvent = {"type": kind, "message": message}
    return encode_event({"type": "error", "error": error, "request_id": request_id}, name="error")


def encode_event(event: StreamEvent, name: str | None = None) -> bytes:
    """Encode one event with its `event:` line, without which clients silently drop it."""
    body = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name or event['type']}\ndata: {body}\n\n".encode()


def _block_events(index: int, block: Mapping[str, JsonValue]) -> Iterator[bytes]:
    start, deltas = _split(block)
    yield encode_event({"type": "content_block_start", "index": index, "content_block": start})
    for delta in deltas:
        yield encode_event({"type": "content_block_delta", "index": index, "delta": delta})
    yield encode_event({"type": "content_block_stop", "index": index})


def _split(block: Mapping[str, JsonValue]) -> tuple[StreamEvent, Sequence[StreamEvent]]:
    """Return the start of a block and the deltas that complete it.

    Blocks of other kinds are sent whole, as servers do.
    """
    match block["type"]:
        case "text":
            return {**block, "text": ""}, _deltas("text_delta", "text", block["text"])
        case "thinking":
            signed: StreamEvent = {"type": "signature_delta", "signature": block["signature"]}
            thought = _deltas("thinking_delta", "thinking", block["thinking"])
            return {**block, "thinking": "", "signature": ""}, [*thought, signed]
        case "tool_use":
            arguments = json.dumps(block["input"], ensure_ascii=False)
            return {**block, "input": {}}, _deltas("input_json_delta", "partial_json", arguments)
        case _:
            return dict(block), []


def _deltas(kind: str, field: str, value: JsonValue) -> list[StreamEvent]:
    if not isinstance(value, str):
        raise TypeError(f"{field} is {type(value).__name__}, not a string")
    return [{"type": kind, field: value[at : at + PIECE]} for at in range(0, len(value), PIECE)]


def _blocks(content: JsonValue) -> list[Mapping[str, JsonValue]]:
    if not isinstance(content, list):
        raise TypeError(f"content is {type(content).__name__}, not a list")
    return [_mapping("a block of content", block) for block in content]


def _mapping(name: str, value: JsonValue) -> Mapping[str, JsonValue]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is {type(value).__name__}, not an object")
    return value
