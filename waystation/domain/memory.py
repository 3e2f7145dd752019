"""Passages: redacted pieces of compressed-away conversation, and of documents, as they are stored and found again."""

import hashlib
from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from waystation.domain.ownership import OfSession, OfTenant
from waystation.domain.value import Value

CANDIDATES = 50
"""Passages that a search gives to whoever chooses among them (`domain.excerpts`)."""
SHORT_ID_DIGITS = 8
Kind = Literal["conversation", "document", "report", "finding"]
MemoryScope = Literal["session", "team"]
"""Whose passages an agent recalls: those of its session, or of all sessions of its tenant."""


def content_hash(text: str) -> str:
    """SHA-256 of a passage's text, in hex. A tool or a model may have said half of a surrogate pair, which is no valid
    UTF-8 and must not keep the rest out of memory.
    """
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Passage(Value):
    """A redacted piece of text with the place it came from.

    `id` is a uuid5 of run, compaction and position; of a document, of its session, name, content and position.
    """

    id: str
    tenant: str
    session: str
    task_id: str
    run_id: str
    step_id: str
    kind: Kind = "conversation"
    first_message: str = ""
    last_message: str = ""
    """Empty in passages of documents, reports and findings."""
    document: str = ""
    """Its name, as agents know it; empty in other passages, as its lines are 0."""
    blob: str = ""
    """Content hash of the document, or of the whole report."""
    first_line: int = 0
    last_line: int = 0
    text: str
    content_hash: str
    created: datetime
    """When it was compressed away, or its document was remembered."""
    compaction: str = ""
    """Of the compaction that hid it; empty in passages of earlier releases."""
    place: int = 0
    """Its number among the passages of that compaction or document, in their order."""

    @property
    def short_id(self) -> str:
        """As summaries and recalled passages name it, like p1a2b3c4d."""
        return f"p{self.id[:SHORT_ID_DIGITS]}"

    def precedes(self, other: "Passage") -> bool:
        """Whether the conversation, the document or the report goes on in the other one."""
        return any(self._text) and self._text == other._text and self.place + 1 == other.place

    @property
    def _text(self) -> tuple[str, str]:
        """Of which it is a part; a finding is none, and two passages of an earlier release need not be of the same."""
        if self.kind == "document":
            return self.document, self.blob
        if self.kind == "report":
            return self.task_id, self.blob
        return self.compaction and self.run_id, self.compaction


class EmbeddedPassage(Value):
    """A passage with its dense vector; None where no dense embedder is there (BM25 alone then finds it)."""

    passage: Passage
    dense: tuple[float, ...] | None


class MemoryQuery(Value):
    """What to look for, and where: the tenant is always part of the filter. Empty fields admit everything."""

    tenant: str
    session: str | None
    """None: all sessions of the tenant."""
    tasks: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    """Ids of steps."""
    kinds: tuple[Kind, ...] = ()
    without: tuple[str, ...] = ()
    """Content hashes of documents that whoever asks has before it: nothing is found of them."""
    since: datetime | None = None
    """Compressed away at this time or later."""
    until: datetime | None = None
    """Compressed away before this time."""
    text: str
    """Redacted by the same rules as the passages."""
    dense: tuple[float, ...] | None
    limit: int = CANDIDATES

    @property
    def reader(self) -> OfTenant:
        """Whose passages these are."""
        if self.session is None:
            return OfTenant(tenant=self.tenant)
        return OfSession(tenant=self.tenant, session=self.session)

    @property
    def only(self) -> Mapping[str, tuple[str, ...]]:
        """The values that a field of a passage may have, for every field that is restricted; times apart."""
        fields = {
            "tenant": (self.tenant,),
            "session": () if self.session is None else (self.session,),
            "task_id": self.tasks,
            "step_id": self.agents,
            "kind": self.kinds,
        }
        return {field: values for field, values in fields.items() if values}


class Located(Value):
    """A passage that was found, by its id: its text is in the store."""

    passage_id: str
    score: float
    """From 0 to 1."""


class Recalled(Value):
    """A passage that was found, best first."""

    passage: Passage
    score: float
    """From 0 to 1."""
