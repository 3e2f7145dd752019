"""The texts in a JSON value: each with the field that has it, or all of them changed in their places."""

from collections.abc import Callable, Iterator

from pydantic import JsonValue

ARGUMENTS = "input"
"""Of a call of a tool. The tool's author named the fields in there, whose values are a model's words."""


def strings(body: JsonValue, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in the value, with the field that has it; of all that a tool is called with, `input`."""
    match body:
        case str():
            yield key, body
        case dict():
            for field, part in body.items():
                yield from strings(part, key if key == ARGUMENTS else field)
        case list():
            for part in body:
                yield from strings(part, key)
        case _:
            pass


def mapped(body: JsonValue, change: Callable[[str], str]) -> JsonValue:
    """The value with every text changed."""
    match body:
        case str():
            return change(body)
        case dict():
            return {key: mapped(part, change) for key, part in body.items()}
        case list():
            return [mapped(part, change) for part in body]
        case _:
            return body
