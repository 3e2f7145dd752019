"""What a validation error says, in plain words: where and what, never the value, since it may be a secret."""

from typing import NamedTuple

from pydantic import ValidationError

_WORDS = (
    ("Value error, ", ""),
    ("Input should be", "it should be"),
    ("a valid boolean, unable to interpret input", "true or false"),
    ("a valid boolean", "true or false"),
    ("String should", "it should"),
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


class Fault(NamedTuple):
    """One thing that is wrong."""

    place: tuple[int | str, ...]
    words: str
    ours: bool
    """A validator of ours says it, which names what it takes."""


def malformed(error: ValidationError) -> tuple[Fault, ...]:
    """Everything that is wrong, in the order of the fields."""
    return tuple(
        Fault(problem["loc"], _words(problem["type"], problem["msg"]), problem["type"] == "value_error")
        for problem in error.errors()
    )


def _words(kind: str, message: str) -> str:
    if kind in _OF_KINDS:
        return _OF_KINDS[kind]
    if kind == "string_too_short" and "at least 1 character" in message:
        return "it is empty"
    for theirs, ours in _WORDS:
        message = message.replace(theirs, ours)
    return message
