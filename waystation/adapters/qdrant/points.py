"""What a point is and how points are ranked, the same in every engine: vectors, payload, candidates."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from qdrant_edge import Bm25, Bm25Config, SparseVector

from waystation.adapters.qdrant.fusion import fused
from waystation.adapters.qdrant.words import with_bigrams
from waystation.domain.memory import Passage, Recalled
from waystation.domain.value import Value

WORDS, MEANING = "bm25", "dense"
"""The names of a point's vectors."""
TENANT, SESSION = "tenant", "session"
"""The fields of the payload that queries filter by."""
CANDIDATES = 50
"""Hits that each side gives to the fusion."""


class Embedding(Value):
    """What vectors were made with. Those of two models cannot be compared."""

    embedder: str
    dimension: int | None
    """None: there is no dense vector, memory works by BM25 alone."""

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.embedder} ({self.dimension or 'no'} dimensions)"


class WordVectors:
    """BM25 as sparse vectors. Their engine weighs them by how rare each word is among its points (IDF)."""

    def __init__(self) -> None:
        self._bm25 = Bm25(Bm25Config(language="english"))

    def of_passage(self, text: str) -> SparseVector:
        """Empty where the text has only stop words."""
        return self._bm25.embed_document(with_bigrams(text))

    def of_query(self, text: str) -> SparseVector:
        """Empty where the text has only stop words."""
        return self._bm25.embed_query(with_bigrams(text))


class Hit(Protocol):
    """A point that was found, as every engine gives it back."""

    @property
    def payload(self) -> Mapping[str, object] | None:
        """The passage."""
        ...

    @property
    def score(self) -> float:
        """Greater is better."""
        ...


def ranked(by_words: Sequence[Hit], by_meaning: Sequence[Hit], limit: int) -> tuple[Recalled, ...]:
    """The best passages of both sides, scored from 0 to 1.

    Raises:
        ValidationError: a point holds no passage; the message quotes it.
    """
    found: dict[str, Passage] = {}
    scores = fused(_scores(by_words, found), _scores(by_meaning, found))
    return tuple(Recalled(passage=found[id_], score=score) for id_, score in list(scores.items())[:limit])


def _scores(hits: Sequence[Hit], found: dict[str, Passage]) -> dict[str, float]:
    """Scores by passage id; the passages go into `found`."""
    scores: dict[str, float] = {}
    for hit in hits:
        passage = Passage.model_validate(hit.payload)
        found[passage.id] = passage
        scores[passage.id] = hit.score
    return scores
