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
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("greater than", "more than"),
    ("less than", "under"),
)
"""The library's words, and ours."""


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
    match kind:
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            return "there is no such field"
        case "model_type" | "dict_type":
            return "it should be a table of named values"
        case "tuple_type":
            return "it should be a list"
        case "too_short":
            return "it is empty"
        case _:
            for theirs, ours in _WORDS:
                message = message.replace(theirs, ours)
            return message
