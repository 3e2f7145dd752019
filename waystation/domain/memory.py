"""Passages: redacted pieces of compressed-away conversation, as they are stored and found again."""

from datetime import datetime
from typing import Literal

from waystation.domain.value import Value


class Passage(Value):
    """A redacted piece of text with the place it came from. `id` is a uuid5 of run, compaction and position."""

    id: str
    tenant: str
    session: str
    task_id: str
    run_id: str
    step_id: str
    kind: Literal["conversation"] = "conversation"
    first_message: str
    last_message: str
    text: str
    content_hash: str
    created: datetime


class EmbeddedPassage(Value):
    """A passage with its dense vector; None where no dense embedder is there (BM25 alone then finds it)."""

    passage: Passage
    dense: tuple[float, ...] | None


class MemoryQuery(Value):
    """What to look for. The tenant is always part of the filter; the session unless a wider search is asked for."""

    tenant: str
    session: str
    text: str
    """Redacted by the same rules as the passages."""
    dense: tuple[float, ...] | None
    limit: int = 6


class Recalled(Value):
    """A passage that was found, best first."""

    passage: Passage
    score: float
