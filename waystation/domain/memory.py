"""Passages: redacted pieces of compressed-away conversation, and of documents, as they are stored and found again.

What of the passages that a search found is shown: each thing once, neighbours as one, within a number of tokens.

How relevant a passage is to what it was found for, from 0 to 1 for every embedder whose cosines were measured.

Cosines of two embedders mean different things: of one that puts everything at 0.7, 0.3 is never reached from above. So
each has its scale: 0 is where unrelated texts are on average, 1 where related ones are.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.foreign import Tagged, one_line, tagged
from waystation.domain.ownership import OfSession, OfTenant
from waystation.domain.value import Value
from waystation.patterns import proven

CANDIDATES = 50
"""Passages that a search gives to whoever chooses among them (`domain.excerpts`)."""
SHORT_ID_DIGITS = 8
PassageKind = Literal["conversation", "document", "report", "finding"]
MemoryScope = Literal["session", "team"]
"""Whose passages an agent recalls: those of its session, or of all sessions of its tenant."""


def passage_hash(text: str) -> str:
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
    kind: PassageKind = "conversation"
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
    kinds: tuple[PassageKind, ...] = ()
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


RECENCY_SHARE = 0.05
"""Of a passage's score: between equals the newer counts, and no old answer is drowned by new talk."""
SHINGLE_WORDS = 4
SAME_SHARE = 0.8
"""Two passages say the same where the shorter one has so much of its shingles in the other."""
_WORD = proven(r"[\u3040-\u30ff\u3400-\u9fff]|\w+")
_PLACE = proven(r"^\[\S+ [^\]\n]*\] ?", re.MULTILINE)


@dataclass(frozen=True)
class Excerpt:
    """Passages that follow each other in one conversation or document, as one text."""

    passages: tuple[Passage, ...]
    text: str
    score: float
    """Of the best of them."""
    session: str = ""
    """Its name, where it is not the reader's own."""

    def __str__(self) -> str:
        return self.shown

    @property
    def shown(self) -> Tagged:
        """As a model reads it: labelled as a record with its source. It is data, never an instruction."""
        ids = " ".join(passage.short_id for passage in self.passages)
        session = {"session": one_line(self.session)} if self.session else {}
        return tagged("passage", self.text, id=ids, **self._source, **session)

    @property
    def _source(self) -> Mapping[str, str]:
        """What does not stand in the text, which names messages and lines of documents."""
        first, last = self.passages[0], self.passages[-1]
        at = f"{last.created:%Y-%m-%d}"
        match first.kind:
            case "conversation":
                return {"step": first.step_id, "hidden": at}
            case "document":
                return {"document": "of an earlier task"}
            case "report":
                return {"report": first.task_id, "written": at}
            case "finding":
                return {"finding": first.task_id, "step": first.step_id, "written": at}

    @property
    def session_hash(self) -> str:
        """Of the session that it is of."""
        return self.passages[0].session

    @property
    def tokens(self) -> int:
        """Plain estimate of how it is shown."""
        return estimate_text(str(self))

    def joined(self, found: Recalled) -> "Excerpt | None":
        """With this passage too, where it is a neighbour."""
        passage = found.passage
        if self.passages[-1].precedes(passage):
            return Excerpt((*self.passages, passage), _joined(self.text, passage.text), self.score)
        if passage.precedes(self.passages[0]):
            return Excerpt((passage, *self.passages), _joined(passage.text, self.text), self.score)
        return None


def excerpts(found: Sequence[Recalled], tokens: int) -> tuple[Excerpt, ...]:
    """The best of what was found, best first, that together have at most so many tokens."""
    chosen: list[Excerpt] = []
    room = tokens
    for recalled in distinct(_with_recency(found)):
        index, longer = _neighbour(chosen, recalled)
        before = chosen[index].tokens if index < len(chosen) else 0
        if longer.tokens - before <= room:
            room -= longer.tokens - before
            chosen[index : index + 1] = [longer]
    return tuple(chosen)


def _neighbour(chosen: Sequence[Excerpt], found: Recalled) -> tuple[int, Excerpt]:
    """Which excerpt becomes longer by this passage, and how; or the passage alone, behind them all."""
    for index, excerpt in enumerate(chosen):
        if longer := excerpt.joined(found):
            return index, longer
    return len(chosen), Excerpt((found.passage,), found.passage.text, found.score)


def _with_recency(found: Sequence[Recalled]) -> list[Recalled]:
    """Best first, with a share for how late each was said among those that were found."""
    said = sorted(found, key=lambda one: (one.passage.created, one.passage.compaction, one.passage.place))
    late = {one.passage.id: place / max(1, len(said) - 1) for place, one in enumerate(said)}
    scored = [
        Recalled(passage=one.passage, score=(1 - RECENCY_SHARE) * one.score + RECENCY_SHARE * late[one.passage.id])
        for one in found
    ]
    return sorted(scored, key=lambda one: (-one.score, one.passage.id))


def distinct(found: Iterable[Recalled]) -> list[Recalled]:
    """Without those that say nothing that a better one does not: nearly the same words, and no other figure."""
    kept: list[Recalled] = []
    words: list[_Words] = []
    for recalled in found:
        said = _Words.of(recalled.passage)
        if not any(said.adds_nothing_to(better) for better in words):
            kept.append(recalled)
            words.append(said)
    return kept


@dataclass(frozen=True)
class _Words:
    content_hash: str
    shingles: frozenset[tuple[str, ...]]
    figures: frozenset[str]

    @classmethod
    def of(cls, passage: Passage) -> "_Words":
        """Without the ids of messages: the same text at two places is the same."""
        words: list[str] = _WORD.findall(_PLACE.sub("", passage.text).casefold())
        shingles = zip(*(words[start:] for start in range(SHINGLE_WORDS)), strict=False)
        figures = frozenset(word for word in words if any(map(str.isdigit, word)))
        return cls(passage.content_hash, frozenset(shingles) or frozenset([tuple(words)]), figures)

    def adds_nothing_to(self, better: "_Words") -> bool:
        if self.content_hash == better.content_hash:
            return True
        shared = len(self.shingles & better.shingles)
        return shared >= SAME_SHARE * len(self.shingles) and self.figures <= better.figures


def _joined(before: str, after: str) -> str:
    """Both texts, and once what the second repeats of the first."""
    ends, begins = before.split("\n"), after.split("\n")
    longest = min(len(ends), len(begins))
    repeated = next((count for count in range(longest, 0, -1) if ends[-count:] == begins[:count]), 0)
    return "\n".join([*ends, *begins[repeated:]])


LEAST_RELEVANCE = 0.3
"""What is less is not shown to an agent that did not ask for it."""
_CODE = proven(r"(?<![\w-])-*+(?:m\d++\b)?+(?=[\w-]*\d)([\w-]{3,})\b")
"""With a digit in it, and no message's id."""


class Scale(NamedTuple):
    """Mean cosines of an embedder."""

    unrelated: float
    related: float

    def relevance(self, cosine: float) -> float:
        """From 0 to 1."""
        return min(1.0, max(0.0, (cosine - self.unrelated) / (self.related - self.unrelated)))


CALIBRATED: Mapping[str, Scale] = {
    "wordllama-l2-supercat-256": Scale(unrelated=0.044, related=0.348),
}
"""By name of the embedder. Measured by `python -m benchmarks.memory relevance`: 512 questions with passages that answer
them, mean 0.348, and 77,280 pairs of passages and questions on other subjects, mean 0.044. At 0.3 of this scale 84 % of
the first are shown, and 10 % of the second. An embedder that is not here is not filtered.
"""


def is_relevant(embedder: str, query: MemoryQuery, passage: Passage, vector: Sequence[float] | None) -> bool:
    """Whether a passage with this vector is worth showing unasked. Vectors have length 1.

    What has a figure or a code of the query in it is, whatever it is about: vectors know little of those. So is
    everything that cannot be told.
    """
    scale = CALIBRATED.get(embedder)
    if scale is None or query.dense is None or vector is None or _codes(query.text) & _codes(passage.text):
        return True
    cosine = sum(mine * its for mine, its in zip(query.dense, vector, strict=True))
    return scale.relevance(cosine) >= LEAST_RELEVANCE


def _codes(text: str) -> frozenset[str]:
    return frozenset(_CODE.findall(text.casefold()))
