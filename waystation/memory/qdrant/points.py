"""What a point is and how points are ranked, the same in every engine: vectors, payload, candidates.

Makes text ready for BM25, whose tokeniser cuts at spaces.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Protocol
from uuid import UUID

from pydantic import field_validator
from qdrant_edge import Bm25, Bm25Config, SparseVector

from waystation.kernel.errors import OtherEmbedder
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value
from waystation.memory.passages import Passage, ScoredPassage

_UNSPACED = compile_bounded(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f]+"
)  # kana and Han characters


def with_bigrams(text: str) -> str:
    """The text with every run of Chinese or Japanese characters as overlapping pairs, so that parts of it are found."""
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(max(1, len(run) - 1))]


SPARSE_VECTOR_NAME, DENSE_VECTOR_NAME = "bm25", "dense"
"""The names of a point's vectors."""
DOCUMENT_HASH_FIELD = "blob"
"""The field of the payload that names a document's content."""
KEYWORD_FIELDS = ("tenant", "session", "task_id", "step_id", "kind", DOCUMENT_HASH_FIELD)
"""The fields of the payload that queries filter by, the tenant first."""
CREATED_FIELD = "created"
"""Filtered by time."""
RANK_CONSTANT = 10
"""Of reciprocal rank fusion, which needs no common scale: embedders have scales of their own. Which turns of the
passages are shown is decided by their own words, too (`domain.memory.excerpts`)."""


INDEXING_VERSION = 1
"""1: passages are found by `Passage.index_text`. Another way to index them gets another number."""


class EmbeddingSpec(Value):
    """What vectors were made with. Those of two models cannot be compared."""

    embedder: str
    dimension: int | None
    """None: there is no dense vector, memory works by BM25 alone."""
    indexing: int = INDEXING_VERSION
    """Of what they were made. Vectors of several can be compared; `memory reindex` makes all by the newest."""

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.embedder} ({self.dimension or 'no'} dimensions)"

    @property
    def digest(self) -> str:
        """For names of what is made with it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]


class MemoryMetadata(Value):
    """What is written down of a memory when it is made."""

    embedder: str
    dimension: int | None
    indexing: int
    kept_in: str | None = None
    """The collection behind the alias, or the folder of the shard, where the memory has been made anew."""

    @field_validator("kept_in")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        if name in {".", ".."} or {"/", "\0"} & set(name or ""):
            raise ValueError("it names another place")
        return name

    indexed: int = 0
    """Of the embedded engine: points that the shard had when it was last written anew, with its index."""

    @property
    def embedding(self) -> EmbeddingSpec:
        """What all of its vectors were made with, but for those that a later release has added."""
        return EmbeddingSpec(embedder=self.embedder, dimension=self.dimension, indexing=self.indexing)

    def require_same_embedding(self, wanted: EmbeddingSpec, what: str) -> None:
        """Raises OtherEmbedder where vectors of the wanted embedding cannot be compared with those of `what`."""
        if (self.embedder, self.dimension) != (wanted.embedder, wanted.dimension):
            raise OtherEmbedder(
                f"{what} was made with the embedder {self.embedding}, not with {wanted}: make it anew by `waystation "
                "memory reindex`, or set WAYSTATION_EMBEDDER and its model to what they were"
            )


def build_draft_metadata(made: MemoryMetadata | None, embedding: EmbeddingSpec, place: str) -> MemoryMetadata:
    """What is written down of the memory that is to take the place of the one that is `made`, None: nobody can tell.

    Its name tells its embedding alone, so that a run after a crash finds it, and is not the name of the one before.
    """
    name = f"{place}-{embedding.digest}"
    taken = made is None or made.kept_in == name
    return MemoryMetadata(**embedding.model_dump(), kept_in=f"{name}-anew" if taken else name)


class Bm25Encoder:
    """BM25 as sparse vectors. Their engine weighs them by how rare each word is among its points (IDF)."""

    def __init__(self) -> None:
        self._bm25 = Bm25(Bm25Config(language="english"))

    def encode_passage(self, text: str) -> SparseVector:
        """Empty where the text has only stop words."""
        return self._bm25.embed_document(with_bigrams(text))

    def encode_query(self, text: str) -> SparseVector:
        """Empty where the text has only stop words."""
        return self._bm25.embed_query(with_bigrams(text))


_Id = UUID | str | int


class _Point(Protocol):
    """A point, as every engine gives it back."""

    @property
    def id(self) -> _Id:
        """Of ours, a UUID or its text."""
        ...

    @property
    def payload(self) -> Mapping[str, object] | None:
        """The passage, where it was asked for."""
        ...


class _Hit(_Point, Protocol):
    """A point that was found."""

    @property
    def score(self) -> float:
        """Greater is better."""
        ...


def fuse_rankings(sides: Sequence[Sequence[_Hit]], limit: int) -> dict[_Id, float]:
    """The points that the searches found, which give their best first, by id, and how well, from 0 to 1; in the order
    of that, which is the same in each run.

    Engines give points of equal scores, like lines of a log that differ by their numbers, in any order, so here these
    share a place. Of a search that found its `limit` an engine has chosen which of the last equal ones it gives: they
    are left out, unless there are no others.
    """
    found: dict[_Id, float] = defaultdict(float)
    for hits in sides:
        place, full = 0, len(hits) >= limit
        for score, group in groupby(hits, key=lambda hit: hit.score):
            equal = [hit.id for hit in group]
            if place and full and score == hits[-1].score:
                break
            for point in equal:
                found[point] += RANK_CONSTANT / (RANK_CONSTANT + place + (len(equal) - 1) / 2) / len(sides)
            place += len(equal)
    return dict(sorted(found.items(), key=lambda one: (-one[1], str(one[0]))))


def build_scored_passages(points: Iterable[_Point], scores: Mapping[_Id, float]) -> tuple[ScoredPassage, ...]:
    """The passages of the points, best first.

    Raises:
        ValidationError: a point holds no passage; the message quotes it.
    """
    found = [ScoredPassage(passage=Passage.model_validate(point.payload), score=scores[point.id]) for point in points]
    return tuple(sorted(found, key=lambda one: (-one.score, one.passage.id)))
