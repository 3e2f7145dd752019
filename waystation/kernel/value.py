"""The immutable base class of domain values, helpers for strings in JSON values, and validation errors in plain words.

Messages about validation errors name the place and the fault, never the value, since it may be a secret.
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
    """A method that copies a value with changed fields.

    Its keywords are the typed fields of the value that it is called on, so the type checker finds a change of a field
    that was renamed.

    The new values are not validated again, as in `model_copy`.
    """

    def __get__(self, value: _Replaceable[Fields, Copied], kind: object = None) -> Callable[Fields, Copied]:
        """Return the method bound to the value."""
        return value.__replace__


DEFERRED = ConfigDict(defer_build=True)
"""Compile a validator when it is first used. A command loads hundreds and uses a few."""


class Value(BaseModel):
    """An immutable value. An unknown field raises in construction and in a copy, so that code that still uses a renamed
    field's old name does not lose the value silently. Data from other programs is validated with `extra="ignore"`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
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


class EagerValue(Value):
    """A value whose validator is compiled at import, for models of request bodies and queries. FastAPI compiles what it
    makes of them together with them: later, pydantic would warn of each attribute that only FastAPI uses.
    """

    model_config = ConfigDict(defer_build=False)


def compile_validators(kind: type[Value] = Value) -> None:
    """Compile the validators of a kind and of all kinds derived from it whose modules are loaded.

    Raises:
        PydanticUserError: An annotation is wrong.
    """
    kind.model_rebuild()
    for derived in kind.__subclasses__():
        compile_validators(derived)


def text_hash(text: str) -> str:
    """Return the SHA-256 of the text in hex. Lone surrogates, which tools and models can produce, are hashed too."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


MAX_JSON_DEPTH = 64
"""Maximum nesting of lists and objects. JSON parsers give up from about 100 levels on."""
_MAX_INTEGER = 10**308
"""Anything larger is infinite for parsers that read numbers as floating-point."""


def find_json_fault(value: JsonValue) -> str:
    """Return why the value cannot be sent as JSON; empty if it can.

    Parsers accept more than writers do, and more than the parsers of others: NaN, 1e999, lone surrogates, thousands of
    digits or levels.
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
            return "an infinite number or NaN"
        case int() if abs(one) >= _MAX_INTEGER:
            return "a number of more than 308 digits"
        case str() if not _is_whole(one):
            return "half of a character (a lone surrogate)"
        case dict() | list() if depth >= MAX_JSON_DEPTH:
            return f"more than {MAX_JSON_DEPTH} nested levels"
        case _:
            return ""


def _is_whole(text: str) -> bool:
    """Whether UTF-8 can encode all of the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def replace_surrogates(text: str) -> str:
    """Return the text with a replacement character for each lone surrogate, which UTF-8 cannot encode."""
    if _is_whole(text):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def sanitize_json(value: JsonValue, depth: int = 0) -> JsonValue:
    """Return the value with a note in place of what cannot be sent. A tool that expects a number then rejects it."""
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
    """Return the object with a note in place of what cannot be sent."""
    return {replace_surrogates(key): sanitize_json(part, depth + 1) for key, part in value.items()}


def to_utc(moment: datetime) -> datetime:
    """Return the moment in UTC; one without a time zone is taken to be UTC.

    Raises:
        ValueError: in UTC it is outside the years 1 to 9999, such as 0001-01-01T00:00+14:00.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("in UTC, the time is before the year 1 or after the year 9999") from None


UtcMoment = Annotated[datetime, AfterValidator(to_utc)]
"""A moment that someone enters, in UTC."""
ARGUMENTS = "input"
"""Field with the arguments of a tool call. The tool's author named the fields in it, while their values are a model's
words; if the tool accepts any field, the names are a model's words too.
"""
_MAX_NAME_CHARACTERS, _MAX_NAME_DIGITS = 40, 3
FieldNames = Callable[[str], bool]
"""Predicate: which field names count as strings too."""


def accept_every_name(field: str) -> bool:  # noqa: ARG001
    """Treat every field name as a string."""
    return True


def accept_no_name(field: str) -> bool:  # noqa: ARG001
    """Treat no field name as a string."""
    return False


def is_unusual_name(field: str) -> bool:
    """Whether no author would give a field this name."""
    usual = len(field) <= _MAX_NAME_CHARACTERS and field.replace("-", "_").isidentifier()
    return not usual or sum(sign.isdigit() for sign in field) > _MAX_NAME_DIGITS


def iter_strings(body: JsonValue, key: str = "", names: FieldNames = accept_every_name) -> Iterator[tuple[str, str]]:
    """Yield every string in the value with the field that holds it.

    Everything in a tool call's arguments, including field names, is reported under the field `input`.
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
    """Return the value with every string changed, in the order of `iter_strings`, and the selected field names."""
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
    """Return the object with every string changed, including the selected field names."""
    return {change(key) if names(key) else key: map_strings(part, change, names) for key, part in body.items()}


VALUE_ERROR_PREFIX = "Value error, "
"""Prefix that pydantic puts before the message of our own validators."""
_WORDS = (
    (VALUE_ERROR_PREFIX, ""),
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
"""Pydantic's words and ours."""
UNKNOWN_FIELD = "there is no such field"
_WORDS_BY_KIND = {
    "missing": "it is missing",
    "extra_forbidden": UNKNOWN_FIELD,
    "model_type": "it should have named values, as a JSON object or a TOML table does",
    "dict_type": "it should have named values, as a JSON object or a TOML table does",
    "tuple_type": "it should be a list",
    "too_short": "it is empty",
    "string_pattern_mismatch": "it is too long or too short, or has characters that are not allowed",
}


class _Fault(NamedTuple):
    """One thing that is wrong."""

    place: tuple[int | str, ...]
    words: str
    ours: bool
    """Whether one of our validators says it; its message names what it accepts."""


def extract_validation_faults(error: ValidationError) -> tuple[_Fault, ...]:
    """Return everything that is wrong, in the order of the fields.

    A list with invalid items does not count those items and would also be called too short, so that fault is left out.
    """
    problems = error.errors()
    inside = {place[:depth] for place in (problem["loc"] for problem in problems) for depth in range(len(place))}
    return tuple(
        _Fault(problem["loc"], describe_fault(problem["type"], problem["msg"]), problem["type"] == "value_error")
        for problem in problems
        if problem["type"] != "too_short" or problem["loc"] not in inside
    )


def describe_fault(kind: str, message: str) -> str:
    """Return what pydantic says is wrong, in our words."""
    if kind in _WORDS_BY_KIND:
        return _WORDS_BY_KIND[kind]
    if kind == "string_too_short" and "at least 1 character" in message:
        return "it is empty"
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message


def find_duplicate_key(pairs: Iterable[tuple[str, object]]) -> str | None:
    """Return the first key that occurs twice in a JSON object. JSON itself silently takes the last one."""
    seen = set[str]()
    for key, _ in pairs:
        if key in seen:
            return key
        seen.add(key)
    return None
