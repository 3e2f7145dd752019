"""Points and their ranking, the same in every engine: vectors, payload, candidates, and text preparation for BM25."""

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
    """Replace every run of Chinese or Japanese characters by overlapping pairs, so that parts of it are found: BM25's
    tokeniser cuts at spaces.
    """
    return _UNSPACED.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> list[str]:
    return [run[index : index + 2] for index in range(max(1, len(run) - 1))]


SPARSE_VECTOR_NAME, DENSE_VECTOR_NAME = "bm25", "dense"
"""Names of a point's vectors."""
DOCUMENT_HASH_FIELD = "blob"
"""Payload field with a document's content hash."""
KEYWORD_FIELDS = ("tenant", "session", "task_id", "step_id", "kind", DOCUMENT_HASH_FIELD)
"""Payload fields that queries filter by, the tenant first."""
CREATED_FIELD = "created"
"""Payload field that queries filter by time."""
RANK_CONSTANT = 10
"""Constant of reciprocal rank fusion, which needs no common scale: each embedder has its own. The words of the turns
themselves also decide which are shown (`waystation.memory.passages.select_excerpts`).
"""


INDEXING_VERSION = 1
"""1: passages are indexed by `Passage.index_text`. A different way to index them gets a different number."""


class EmbeddingSpec(Value):
    """What vectors were made with. Those of two models cannot be compared."""

    embedder: str
    dimension: int | None
    """None: there is no dense vector, and memory works by BM25 alone."""
    indexing: int = INDEXING_VERSION
    """How texts were indexed. Vectors of several versions can be compared; `memory reindex` makes all by the newest."""

    def __str__(self) -> str:
        """Return it for people."""
        return f"{self.embedder} ({self.dimension or 'no'} dimensions)"

    @property
    def digest(self) -> str:
        """Digest for names of what is made with it."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:8]


class MemoryMetadata(Value):
    """Metadata of a memory, written when it is made."""

    embedder: str
    dimension: int | None
    indexing: int
    storage_location: str | None = None
    """The collection behind the alias, or the folder of the shard, if the memory was rebuilt."""

    @field_validator("storage_location")
    @classmethod
    def _a_name(cls, name: str | None) -> str | None:
        if name in {".", ".."} or {"/", "\0"} & set(name or ""):
            raise ValueError("it is not a plain name")
        return name

    indexed: int = 0
    """Embedded engine only: points in the shard when it was last rewritten with its index."""

    @property
    def embedding(self) -> EmbeddingSpec:
        """What its vectors were made with, except those that a later release has added."""
        return EmbeddingSpec(embedder=self.embedder, dimension=self.dimension, indexing=self.indexing)

    def require_same_embedding(self, spec: EmbeddingSpec, what: str) -> None:
        """Check that vectors of the wanted embedding can be compared with those of `what`.

        Raises:
            OtherEmbedder: they cannot.
        """
        if (self.embedder, self.dimension) != (spec.embedder, spec.dimension):
            raise OtherEmbedder(
                f"{what} was made with the embedder {self.embedding}, not with {spec}: rebuild it with "
                "`waystation memory reindex`, or set WAYSTATION_EMBEDDER and WAYSTATION_EMBEDDER_MODEL to their "
                "earlier values"
            )


def build_draft_metadata(metadata: MemoryMetadata | None, embedding: EmbeddingSpec, place: str) -> MemoryMetadata:
    """Return the metadata of the memory that is to replace the one with metadata `metadata` (None if unknown).

    Its name depends on its embedding alone, so that a run after a crash finds it, and differs from the current one's.
    """
    name = f"{place}-{embedding.digest}"
    taken = metadata is None or metadata.storage_location == name
    return MemoryMetadata(**embedding.model_dump(), storage_location=f"{name}-rebuilt" if taken else name)


class Bm25Encoder:
    """BM25 as sparse vectors. Their engine weighs them by the rarity of each word among its points (IDF)."""

    def __init__(self) -> None:
        self._bm25 = Bm25(Bm25Config(language="english"))

    def encode_passage(self, text: str) -> SparseVector:
        """Encode a passage; empty if it has only stop words."""
        return self._bm25.embed_document(with_bigrams(text))

    def encode_query(self, text: str) -> SparseVector:
        """Encode a query; empty if it has only stop words."""
        return self._bm25.embed_query(with_bigrams(text))


_Id = UUID | str | int


class _Point(Protocol):
    """A point as every engine returns it."""

    @property
    def id(self) -> _Id:
        """Our id, a UUID or its text."""
        ...

    @property
    def payload(self) -> Mapping[str, object] | None:
        """The passage, if it was requested."""
        ...


class _Hit(_Point, Protocol):
    """A point that was found."""

    @property
    def score(self) -> float:
        """Score; greater is better."""
        ...


def fuse_rankings(sides: Sequence[Sequence[_Hit]], limit: int) -> dict[_Id, float]:
    """Fuse the results of several searches, each best first, into scores from 0 to 1 by id, in the order of the scores,
    which is the same in each run.

    Engines return points of equal scores (such as log lines that differ only in numbers) in any order, so here these
    share a rank. If a search reached its `limit`, the engine has chosen which of the last equal points it returns: they
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
    """Build the passages of the points, best first.

    Raises:
        ValidationError: a point holds no passage; the message quotes it.
    """
    found = [ScoredPassage(passage=Passage.model_validate(point.payload), score=scores[point.id]) for point in points]
    return tuple(sorted(found, key=lambda one: (-one.score, one.passage.id)))
