"""The base of every domain value: immutable, compared by content, serialisable by pydantic."""

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """An immutable value. Unknown fields are ignored, so that older histories stay readable."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Input(BaseModel):
    """A value that a person typed: unknown fields are refused, so that a typing error is seen."""

    model_config = ConfigDict(frozen=True, extra="forbid")
