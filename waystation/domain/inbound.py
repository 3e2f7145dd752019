"""What arrives by a signal: any number of JSON values, since a person may send anything from the Temporal UI.

A handler that raises, or whose arguments do not fit, would hang its workflow: so handlers take everything and ask here.
Who can reach the server can send; who has the key of the workers can seal. What came sealed is told apart here, by the
bytes in the history alone, so that a replay sees the same.
"""

from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

ModelT = TypeVar("ModelT", bound=BaseModel)

UNSEALED = (
    "it came unencrypted, and this server's workers take what was encrypted with their key alone: answer by "
    "`waystation`, or in a UI that has the codec endpoint (docs/codec.md)"
)
"""Why a message has no effect."""


class Sealed(dict[str, JsonValue]):
    """A JSON object that was encrypted with a key of the workers. Only the payload converter makes one."""


def is_sealed(sent: tuple[JsonValue, ...]) -> bool:
    """Whether whoever sent this has the key. Without input there is nothing that could show it."""
    return bool(sent) and all(isinstance(value, Sealed) for value in sent)


def whole(sent: tuple[JsonValue, ...]) -> JsonValue:
    """The signal's input as one value: None without any; several become a list, which no message of ours is."""
    return sent[0] if len(sent) == 1 else list(sent) or None


def read(model: type[ModelT], sent: tuple[JsonValue, ...]) -> ModelT | None:
    """The message, or None where the input is no such message."""
    try:
        return model.model_validate(whole(sent))
    except ValidationError:
        return None
