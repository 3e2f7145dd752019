"""What counts as private at which place, and what a redaction gives back."""

from enum import StrEnum

from waystation.domain.value import Value


class Scope(StrEnum):
    """Where a text is about to go. Under the standard policy:"""

    MODEL = "model"
    """Before a model call: secrets and direct identifiers (email, phone, card, IBAN, national ids, keys, IP)."""
    MEMORY = "memory"
    """Before summariser, memory, workflow history and the Temporal UI: everything that is found, names too."""


class Span(Value):
    """One replaced stretch, in characters of the original text."""

    type: str
    start: int
    end: int
    score: float
    placeholder: str


class Redacted(Value):
    """A text with its private parts replaced by stable placeholders such as `<PERSON_7f3a2c91d04e>`."""

    text: str
    spans: tuple[Span, ...] = ()
