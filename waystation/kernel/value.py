"""Values: their base, the texts in JSON, and what a validation error says in plain words.

The base of every domain value: immutable, compared by content, serialisable by pydantic.

The texts in a JSON value: each with the field that has it, or all of them changed in their places.

What a validation error says, in plain words: where and what, never the value, since it may be a secret.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, NamedTuple, ParamSpec, Protocol, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue, ValidationError

Fields = ParamSpec("Fields")
Copied = TypeVar("Copied")
Copied_co = TypeVar("Copied_co", covariant=True)


class _Replaceable(Protocol[Fields, Copied_co]):
    """What type checkers know of a model: its fields as optional keywords. They synthesise this method."""

    def __replace__(self, *args: Fields.args, **changes: Fields.kwargs) -> Copied_co: ...


class ReplaceDescriptor:
    """A method that copies a value with fields changed. Its keywords are the fields of the value that it is called on,
    with their types, so that the type checker finds a change of a field that was renamed.

    What it is given is not validated again, as in `model_copy`.
    """

    def __get__(self, value: _Replaceable[Fields, Copied], kind: object = None) -> Callable[Fields, Copied]:
        """Bound to the value."""
        return value.__replace__


class Value(BaseModel):
    """An immutable value. An unknown field raises, in construction and in a copy, so that no place that still uses the
    name of a renamed field loses its value in silence. What another program sends is validated with `extra="ignore"`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    replace: ClassVar[ReplaceDescriptor] = ReplaceDescriptor()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See base class. Cached properties are computed again for the copy.

        Raises:
            TypeError: `update` names a field that the value does not have.
        """
        unknown = (update or {}).keys() - type(self).model_fields.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))}")
        copied = super().model_copy(update=update, deep=deep)
        kept = vars(copied)
        for worked_out in kept.keys() - type(self).model_fields.keys():
            del kept[worked_out]
        return copied


def text_hash(text: str) -> str:
    """SHA-256 in hex. Half of a surrogate pair, which a tool or a model may have said and UTF-8 lacks, counts, too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


MAX_JSON_DEPTH = 64
"""Lists and objects within each other. Readers of JSON give up from some 100 on."""
_MAX_INTEGER = 10**308
"""What is larger is infinite for readers that take numbers as floating-point."""


def find_json_fault(value: JsonValue) -> str:
    """Why the value cannot be sent as JSON; empty if it can. Parsers take more than writers, and more than the JSON of
    others: NaN, 1e999, halves of surrogate pairs, thousands of digits or levels.
    """
    waiting: list[tuple[JsonValue, int]] = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if fault := _own_fault(one, depth):
            return fault
        if isinstance(one, dict):
            waiting += [(part, depth + 1) for pair in one.items() for part in pair]
        elif isinstance(one, list):
            waiting += [(part, depth + 1) for part in one]
    return ""


def _own_fault(one: JsonValue, depth: int) -> str:
    match one:
        case float() if not math.isfinite(one):
            return "a number that is infinite or none"
        case int() if abs(one) >= _MAX_INTEGER:
            return "a number of more than 308 digits"
        case str() if not _is_whole(one):
            return "half of a character (a lone surrogate)"
        case dict() | list() if depth >= MAX_JSON_DEPTH:
            return f"more than {MAX_JSON_DEPTH} levels"
        case _:
            return ""


def _is_whole(text: str) -> bool:
    """Whether UTF-8 has all of it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """The text with a replacement character for each half of a surrogate pair, which UTF-8 lacks."""
    if _is_whole(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sanitize_json(value: JsonValue, depth: int = 0) -> JsonValue:
    """The value with a note in place of what cannot be sent: a tool that expects a number refuses it."""
    fault = _own_fault(value, depth)
    match value:
        case str():
            return replace_surrogates(value)
        case _ if fault:
            return f"(left out: {fault})"
        case dict():
            return sanitize_json_object(value, depth)
        case list():
            return [sanitize_json(part, depth + 1) for part in value]
        case _:
            return value


def sanitize_json_object(value: Mapping[str, JsonValue], depth: int = 0) -> dict[str, JsonValue]:
    """The same of an object."""
    return {replace_surrogates(key): sanitize_json(part, depth + 1) for key, part in value.items()}


def to_utc(moment: datetime) -> datetime:
    """The moment in UTC, where one without a zone is one of UTC.

    Raises:
        ValueError: no year from 1 to 9999 has it there, as 0001-01-01T00:00+14:00.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("it is before the year 1, or after the year 9999, in UTC") from None


UtcMoment = Annotated[datetime, AfterValidator(to_utc)]
"""A moment that somebody gives, in UTC."""
ARGUMENTS = "input"
"""Of a call of a tool. The tool's author named the fields in there, whose values are a model's words; where it takes
any field, their names are a model's words, too.
"""
_LONGEST_NAME, _MOST_DIGITS = 40, 3
FieldNames = Callable[[str], bool]
"""Which names of fields are words, too."""


def accept_every_name(field: str) -> bool:  # noqa: ARG001
    """All of them."""
    return True


def accept_no_name(field: str) -> bool:  # noqa: ARG001
    """None of them."""
    return False


def is_unusual_name(field: str) -> bool:
    """Those that no author gives a field."""
    usual = len(field) <= _LONGEST_NAME and field.replace("-", "_").isidentifier()
    return not usual or sum(sign.isdigit() for sign in field) > _MOST_DIGITS


def iter_strings(body: JsonValue, key: str = "", names: FieldNames = accept_every_name) -> Iterator[tuple[str, str]]:
    """Every text in the value, with the field that has it; of all that a tool is called with, names of fields among
    it, `input`.
    """
    match body:
        case str():
            yield key, body
        case dict():
            for field, part in body.items():
                if key == ARGUMENTS and names(field):
                    yield key, field
                yield from iter_strings(part, key if key == ARGUMENTS else field, names)
        case list():
            for part in body:
                yield from iter_strings(part, key, names)
        case _:
            pass


def map_strings(body: JsonValue, change: Callable[[str], str], names: FieldNames = accept_no_name) -> JsonValue:
    """The value with every text changed, in the order of `strings`, and such names of fields."""
    match body:
        case str():
            return change(body)
        case dict():
            return map_object_strings(body, change, names)
        case list():
            return [map_strings(part, change, names) for part in body]
        case _:
            return body


def map_object_strings(
    body: Mapping[str, JsonValue], change: Callable[[str], str], names: FieldNames = accept_no_name
) -> dict[str, JsonValue]:
    """The same of an object."""
    return {change(key) if names(key) else key: map_strings(part, change, names) for key, part in body.items()}


OURS = "Value error, "
"""What the library puts before the words of a validator of ours."""
_WORDS = (
    (OURS, ""),
    ("Input should be", "it should be"),
    ("a valid boolean, unable to interpret input", "true or false"),
    ("a valid boolean", "true or false"),
    ("String should", "it should"),
    ("Tuple should", "it should"),
    (" after validation", ""),
    ("Decimal input should", "it should"),
    ("a valid integer", "a whole number"),
    ("a valid string", "text"),
    ("a valid decimal", "a number"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
    ("less than", "under"),
)
"""The library's words, and ours."""
UNKNOWN_FIELD = "there is no such field"
_OF_KINDS = {
    "missing": "it is missing",
    "extra_forbidden": UNKNOWN_FIELD,
    "model_type": "it should be a table of named values",
    "dict_type": "it should be a table of named values",
    "tuple_type": "it should be a list",
    "too_short": "it is empty",
    "string_pattern_mismatch": "it has signs that it may not have, or too many or few",
}


class _Fault(NamedTuple):
    """One thing that is wrong."""

    place: tuple[int | str, ...]
    words: str
    ours: bool
    """A validator of ours says it, which names what it takes."""


def extract_validation_faults(error: ValidationError) -> tuple[_Fault, ...]:
    """Everything that is wrong, in the order of the fields. A list whose items are wrong counts none of them, and would
    be called too short beside that.
    """
    problems = error.errors()
    inside = {place[:depth] for place in (problem["loc"] for problem in problems) for depth in range(len(place))}
    return tuple(
        _Fault(problem["loc"], describe_fault(problem["type"], problem["msg"]), problem["type"] == "value_error")
        for problem in problems
        if problem["type"] != "too_short" or problem["loc"] not in inside
    )


def describe_fault(kind: str, message: str) -> str:
    """What the library says is wrong, in our words."""
    if kind in _OF_KINDS:
        return _OF_KINDS[kind]
    if kind == "string_too_short" and "at least 1 character" in message:
        return "it is empty"
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message


def find_duplicate_key(pairs: Iterable[tuple[str, object]]) -> str | None:
    """The first key of an object in JSON that stands in it again; for JSON itself the last one counts, unheard."""
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None
