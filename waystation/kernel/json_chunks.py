"""Splits a large JSON value into chunks that each fit into one Temporal payload, and joins them again.

A task's state grows with its agents, compactions and approvals, while the size of payloads is bounded. So the state
travels between workflow and store in chunks, and everything else refers to it by their content hashes.
"""

import json
from collections.abc import Iterable, Iterator

from pydantic import JsonValue

from waystation.kernel.value import Value

PIECE_BYTES = 96_000
"""Maximum size of one chunk as JSON in bytes, unless it consists of one short text."""

JsonPath = tuple[str | int, ...]
"""Keys and indexes from the root of a JSON value to one of its parts."""


class JsonPart(Value):
    """One part of a JSON value and its path. A second text at the same path continues the first."""

    path: JsonPath
    text: str
    """The part as ASCII JSON. As a JSON value it would be validated again at each boundary, which is slow."""

    @property
    def size(self) -> int:
        """Approximate size in bytes."""
        return len(self.text) + sum(len(str(key)) + 4 for key in self.path)


class JsonChunk(Value):
    """Consecutive parts of a JSON value."""

    parts: tuple[JsonPart, ...]


class StateRef(Value):
    """Reference to a task's state in the store: content hashes of its chunks, in order."""

    pieces: tuple[str, ...]


def split_json(body: JsonValue, maximum: int = PIECE_BYTES) -> tuple[JsonChunk, ...]:
    """Split the value into chunks of at most `most` bytes each."""
    pieces, parts, size = list[JsonChunk](), list[JsonPart](), 0
    for part in _parts((), body, maximum // 2):
        if parts and size + part.size > maximum:
            pieces.append(JsonChunk(parts=tuple(parts)))
            parts, size = [], 0
        parts.append(part)
        size += part.size
    return (*pieces, JsonChunk(parts=tuple(parts)))


def _parts(path: JsonPath, value: JsonValue, maximum: int) -> Iterator[JsonPart]:
    text = json.dumps(value)
    if len(text) <= maximum:
        yield JsonPart(path=path, text=text)
        return
    match value:
        case dict():
            yield JsonPart(path=path, text="{}")
            for key, inside in value.items():
                yield from _parts((*path, key), inside, maximum)
        case list():
            yield JsonPart(path=path, text="[]")
            for index, inside in enumerate(value):
                yield from _parts((*path, index), inside, maximum)
        case str():
            step = maximum // 12  # 12 bytes are the longest escape of one character
            for start in range(0, len(value), step):
                yield JsonPart(path=path, text=json.dumps(value[start : start + step]))
        case _:
            yield JsonPart(path=path, text=text)


def join_json(pieces: Iterable[JsonChunk]) -> JsonValue:
    """Join the chunks into the value that was split.

    Raises:
        ValueError: a chunk is missing or out of order.
    """
    root: dict[str, JsonValue] = {}
    for part in (part for piece in pieces for part in piece.parts):
        _place(root, ("", *part.path), json.loads(part.text))
    if "" not in root:
        raise ValueError("there are no pieces")
    return root[""]


def _place(at: JsonValue, path: JsonPath, value: JsonValue) -> None:
    key, *rest = path
    match at:
        case dict() if isinstance(key, str) and rest and key in at:
            _place(at[key], tuple(rest), value)
        case dict() if isinstance(key, str) and not rest:
            at[key] = _continued(at.get(key), value)
        case list() if isinstance(key, int) and rest and key < len(at):
            _place(at[key], tuple(rest), value)
        case list() if isinstance(key, int) and not rest and key == len(at):
            at.append(value)
        case list() if isinstance(key, int) and not rest and key == len(at) - 1:
            at[key] = _continued(at[key], value)
        case _:
            raise ValueError(f"a piece of the value is missing before {'/'.join(map(str, path))}")


def _continued(before: JsonValue, value: JsonValue) -> JsonValue:
    return before + value if isinstance(before, str) and isinstance(value, str) else value
