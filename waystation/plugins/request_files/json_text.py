"""Strict JSON: anything that another parser could read differently is refused, and each value knows its place, so that
every error names it: `messages[3].content[0].tool_use_id: …`.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import find_duplicate_key

_MAX_BYTES = 256 * 1024 * 1024
_ESCAPED_SURROGATE = compile_bounded(r"\\u[dD][89a-fA-F]")
_SURROGATE = compile_bounded("[\ud800-\udfff]")


class _Doubled(dict[str, JsonValue]):
    """An object with a duplicate key."""

    twice: str = ""


def read_json(raw: bytes) -> JsonValue:
    """Parse the one JSON value in these bytes (UTF-8, UTF-16 or UTF-32, with or without a byte order mark).

    Raises:
        BadInput: For anything else, and for NaN, infinities, duplicate keys, lone surrogates, and nesting that is too
            deep.
    """
    if len(raw) > _MAX_BYTES:
        raise BadInput(f"it has {len(raw):,} bytes; the maximum is {_MAX_BYTES:,}")
    if not raw.strip():
        raise BadInput("it is empty: give a request body of the Messages API, as JSON")
    text = _decoded(raw)
    value, is_doubled = _parsed(text)
    # Walking over everything takes long, and hardly any file has such a fault.
    if is_doubled or _ESCAPED_SURROGATE.search(text):
        _refuse_unsound(value)
    return value


def join_json_path(path: str, key: str) -> str:
    """Return the path of an object's value."""
    return f"{path}.{key}" if path else key


def _decoded(raw: bytes) -> str:
    encoding = json.detect_encoding(raw)
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(f"it is not {encoding} text: byte {error.start:,} cannot be read") from None


def _parsed(text: str) -> tuple[JsonValue, bool]:
    """Return the value, and whether any of its objects has a duplicate key."""
    doubled: list[_Doubled] = []

    def made(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
        value = dict(pairs)
        if (twice := find_duplicate_key(pairs)) is None:
            return value
        found = _Doubled(value)
        found.twice = twice
        doubled.append(found)
        return found

    try:
        value: JsonValue = json.loads(text, parse_constant=_no_number, parse_float=_finite, object_pairs_hook=made)
    except RecursionError:
        raise BadInput("its objects and arrays are nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadInput(f"it is not JSON: {error.msg} (line {error.lineno:,}, column {error.colno:,})") from None
    except ValueError as error:
        what = "a number has too many digits" if "digits" in str(error) else error
        raise BadInput(f"it is not readable JSON: {what}") from None
    return value, bool(doubled)


def _refuse_unsound(value: JsonValue) -> None:
    for path, found in _walk(value):
        place = path or "the request"
        if isinstance(found, _Doubled):
            raise BadInput(f"{place}: the key {found.twice!r} occurs twice in this object")
        keys = list(found) if isinstance(found, dict) else []
        texts = [*keys, found] if isinstance(found, str) else keys
        if any(_SURROGATE.search(text) for text in texts):
            raise BadInput(f"{place}: half of a character (a lone surrogate) is not valid text")


def _walk(value: JsonValue) -> Iterator[tuple[str, JsonValue]]:
    """Yield every value with its path, in the order of the text."""
    waiting: list[tuple[str, JsonValue]] = [("", value)]
    while waiting:
        path, found = waiting.pop()
        yield path, found
        if isinstance(found, dict):
            waiting += [(join_json_path(path, key), inner) for key, inner in reversed(found.items())]
        elif isinstance(found, list):
            waiting += [(f"{path}[{index}]", inner) for index, inner in reversed(list(enumerate(found)))]


def _no_number(name: str) -> JsonValue:
    raise ValueError(f"{name} is not a number")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number


@dataclass(frozen=True)
class JsonNode:
    """A value and its path. Accessors raise BadInput, without the value, if it is not of the expected type."""

    value: JsonValue
    path: str = ""

    @property
    def as_object(self) -> dict[str, JsonValue]:
        """The value as an object."""
        if not isinstance(self.value, dict):
            raise self.build_error(f"must be an object but is {_kind(self.value)}")
        return self.value

    @property
    def as_items(self) -> "list[JsonNode]":
        """The items of an array."""
        if not isinstance(self.value, list):
            raise self.build_error(f"must be an array but is {_kind(self.value)}")
        return [JsonNode(item, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    @property
    def as_text_or_items(self) -> "str | list[JsonNode]":
        """The value as a string, or the items of an array."""
        if not isinstance(self.value, str | list):
            raise self.build_error(f"must be a string or an array but is {_kind(self.value)}")
        return self.value if isinstance(self.value, str) else self.as_items

    @property
    def as_text(self) -> str:
        """The value as a string."""
        if not isinstance(self.value, str):
            raise self.build_error(f"must be a string but is {_kind(self.value)}")
        return self.value

    @property
    def as_nonempty_text(self) -> str:
        """The value as a string that is not empty."""
        if not self.as_text:
            raise self.build_error("must not be empty")
        return self.as_text

    def find(self, key: str) -> "JsonNode | None":
        """Return a value of the object; None if it is missing or null."""
        found = self.as_object.get(key)
        return None if found is None else JsonNode(found, join_json_path(self.path, key))

    def require(self, key: str) -> "JsonNode":
        """Return a value that the object must have."""
        found = self.find(key)
        if found is None:
            raise BadInput(f"{join_json_path(self.path, key)}: is missing")
        return found

    def get_bool(self, key: str) -> bool:
        """Return a boolean of the object; false if it is missing."""
        found = self.find(key)
        if found is None:
            return False
        if not isinstance(found.value, bool):
            raise found.build_error(f"must be true or false but is {_kind(found.value)}")
        return found.value

    def build_error(self, what: str) -> BadInput:
        """Build a one-line error about this value."""
        return BadInput(f"{self.path or 'the request'}: {what}")


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "an array"
        case dict():
            return "an object"
