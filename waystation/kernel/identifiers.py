"""Which strings of a stored value are free text, in which a person may be named, and which identify something.

A string is free text unless its type says otherwise, so that a new field is erased like the rest. Literals, enums and
strings that have to match a pattern are the program's own words. Other identifiers are annotated as `Identifier`.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from inspect import isclass
from typing import Annotated, Final, Literal, NamedTuple, TypeVar, get_args, get_origin

from pydantic import JsonValue
from pydantic.fields import FieldInfo

from waystation.kernel.value import ARGUMENTS, Value


class _Marker:
    """Marks the type of strings that identify something."""


IDENTIFIER: Final = _Marker()
Identifier = Annotated[str, IDENTIFIER]
"""A string by which something is found: an ID, the name of a session or a model, a signature. It is never erased."""
JSON_IDENTIFIERS: Final = frozenset({"type", "id", "tool_use_id", "signature"})
"""Fields that are not free text in blocks of the Messages API and in JSON schemas, which have no classes here."""

StringKind = Literal["text", "identifier", "json", "fixed"]
"""What the strings in a field are: free text, identifiers, both (in another program's JSON), or the program's words."""
Mapped = TypeVar("Mapped", bound=Value)


class ClassifiedString(NamedTuple):
    """A string found in a value, as `map_field_strings` passes it: free text, or an identifier."""

    text: str
    is_text: bool
    """Whether it is free text; otherwise it identifies something."""


Change = Callable[[ClassifiedString], str]
_Part = (
    Value
    | Enum
    | str
    | tuple["_Part", ...]
    | list["_Part"]
    | frozenset["_Part"]
    | dict[str, "_Part"]
    | float
    | bool
    | datetime
    | None
)


@cache
def get_string_kinds(model: type[Value]) -> Mapping[str, StringKind]:
    """Return what the strings in each field are. A value in a field has fields of its own."""
    return {name: _kind(field) for name, field in model.model_fields.items()}


def map_field_strings(value: Mapped, change: Change) -> Mapped:
    """Return the value with its strings changed, and those of the values in it.

    The program's own words stay, and so do the keys of mappings, except those of a tool call's arguments. The new value
    is not validated again.
    """
    changes: dict[str, object] = {}
    for name, kind in get_string_kinds(type(value)).items():
        before = getattr(value, name)
        after = _map_json(before, change, name) if kind == "json" else _map(before, kind, change)
        if after != before:
            changes[name] = after
    return value.model_copy(update=changes) if changes else value


def iter_field_strings(value: Value) -> Iterator[ClassifiedString]:
    """Yield the strings that `map_field_strings` changes, in its order."""
    found: list[ClassifiedString] = []

    def collect(one: ClassifiedString) -> str:
        found.append(one)
        return one.text

    map_field_strings(value, collect)
    yield from found


def _map(part: _Part, kind: StringKind, change: Change) -> _Part:
    match part:
        case Value():
            return map_field_strings(part, change)
        case Enum():
            return part
        case str():
            return part if kind == "fixed" else change(ClassifiedString(part, is_text=kind == "text"))
        case tuple():
            return tuple([_map(one, kind, change) for one in part])
        case list():
            return [_map(one, kind, change) for one in part]
        case frozenset():
            return frozenset([_map(one, kind, change) for one in part])
        case dict():
            return {key: _map(one, kind, change) for key, one in part.items()}
        case _:
            return part


def _map_json(body: JsonValue, change: Change, field: str) -> JsonValue:
    """Everything in a tool call's arguments is free text, with the names of their fields."""
    match body:
        case str():
            return change(ClassifiedString(body, is_text=field not in JSON_IDENTIFIERS))
        case dict() if field == ARGUMENTS:
            return {
                change(ClassifiedString(key, is_text=True)): _map_json(one, change, field) for key, one in body.items()
            }
        case dict():
            return {key: _map_json(one, change, key) for key, one in body.items()}
        case list():
            return [_map_json(one, change, field) for one in body]
        case _:
            return body


def _kind(field: FieldInfo) -> StringKind:
    if any(map(_is_identifier, field.metadata)):
        return "identifier"
    found = {*_iter_kinds(field.annotation)}
    kinds: tuple[StringKind, ...] = ("json", "text", "identifier", "fixed")
    return next(kind for kind in kinds if kind in found or kind == "fixed")


def _iter_kinds(annotation: object) -> Iterator[StringKind]:
    """Yield the kinds of the strings in a type, without those in the fields of values and in the keys of mappings."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is JsonValue:
        yield "json"
    elif origin is Annotated:
        yield from ("identifier",) if any(map(_is_identifier, parts[1:])) else _iter_kinds(parts[0])
    elif isclass(origin) and issubclass(origin, Mapping):
        yield from _iter_kinds(parts[1])
    elif origin is not Literal and parts:
        for part in parts:
            yield from _iter_kinds(part)
    elif annotation is str or annotation is object:
        yield "text"


def _is_identifier(metadata: object) -> bool:
    """Whether such a string is marked, or has to match a pattern, which it would no longer do."""
    return metadata is IDENTIFIER or getattr(metadata, "pattern", None) is not None
