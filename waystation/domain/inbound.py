"""What arrives by a signal: any number of JSON values, since a person may send anything from the Temporal UI.

A handler that raises, or whose arguments do not fit, would hang its workflow: so handlers take everything and ask here.
"""

from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError

ModelT = TypeVar("ModelT", bound=BaseModel)


def whole(sent: tuple[JsonValue, ...]) -> JsonValue:
    """The signal's input as one value: None without any; several become a list, which no message of ours is."""
    return sent[0] if len(sent) == 1 else list(sent) or None


def read(model: type[ModelT], sent: tuple[JsonValue, ...]) -> ModelT | None:
    """The message, or None where the input is no such message."""
    try:
        return model.model_validate(whole(sent))
    except ValidationError:
        return None
