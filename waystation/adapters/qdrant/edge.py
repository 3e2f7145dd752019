"""Memory in Qdrant's engine inside this process: one directory, opened by one process at a time."""

import asyncio
import shutil
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import qdrant_edge as qe

from waystation.adapters.qdrant.points import (
    CANDIDATES,
    MEANING,
    SESSION,
    TENANT,
    WORDS,
    Embedding,
    WordVectors,
    ranked,
)
from waystation.domain.errors import MemoryUnavailable
from waystation.domain.memory import EmbeddedPassage, MemoryQuery, Recalled

_T = TypeVar("_T")


class QdrantEdgeMemory:
    """Implements the port `Memory`. Made by `open`."""

    def __init__(self, shard: qe.EdgeShard) -> None:
        self._shard = shard
        self._words = WordVectors()

    @classmethod
    async def open(cls, path: Path, embedder_name: str, dimension: int | None) -> "QdrantEdgeMemory":
        """Open the memory in the directory `path`, or create it there for this embedder.

        Raises:
            MemoryUnavailable: it is open already, here or in another process; it was made with another embedder; it
                cannot be read.
        """
        embedding = Embedding(embedder=embedder_name, dimension=dimension)
        opening = _in_thread(lambda: _open_shard(path, embedding), f"open the memory in {path}", _why_not_open)
        return cls(await opening)

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id twice is one point. Raises MemoryUnavailable."""
        if passages:
            await _in_thread(lambda: self._upsert(passages), f"store {len(passages)} passages")

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Take points away; an id that is not there changes nothing. Raises MemoryUnavailable."""
        if passage_ids:
            points: list[qe.PointId] = [uuid.UUID(passage_id) for passage_id in passage_ids]
            deletion = qe.UpdateOperation.delete_points(points)
            await _in_thread(lambda: self._shard.update(deletion), f"delete {len(points)} passages")

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        """The best passages of this tenant and session, scored from 0 to 1. Raises MemoryUnavailable."""
        return await _in_thread(lambda: self._search(query), "search in memory")

    async def count(self, tenant: str) -> int:
        """Points of a tenant. Raises MemoryUnavailable."""
        request = qe.CountRequest(filter=_only({TENANT: tenant}))
        return await _in_thread(lambda: self._shard.count(request), "count the passages in memory")

    async def aclose(self) -> None:
        """Flush and close. What was written is safe without it, too."""
        await _in_thread(self._shard.close, "close the memory")

    def _upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        self._shard.update(qe.UpdateOperation.upsert_points([self._point(passage) for passage in passages]))

    def _point(self, embedded: EmbeddedPassage) -> qe.Point:
        passage = embedded.passage
        vectors: dict[str, qe.NamedVector] = {WORDS: self._words.of_passage(passage.text)}
        if embedded.dense is not None:
            vectors[MEANING] = list(embedded.dense)
        return qe.Point(uuid.UUID(passage.id), vectors, passage.model_dump(mode="json"))

    def _search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        where = _only({TENANT: query.tenant, SESSION: query.session})
        by_words = self._hits(qe.Query.Nearest(self._words.of_query(query.text), WORDS), where)
        by_meaning = [] if query.dense is None else self._hits(qe.Query.Nearest(list(query.dense), MEANING), where)
        return ranked(by_words, by_meaning, query.limit)

    def _hits(self, nearest: qe.Query, where: qe.Filter) -> list[qe.ScoredPoint]:
        return self._shard.query(qe.QueryRequest(limit=CANDIDATES, query=nearest, filter=where, with_payload=True))


def _only(fields: Mapping[str, str]) -> qe.Filter:
    return qe.Filter(must=[qe.FieldCondition(key, match=qe.MatchValue(value)) for key, value in fields.items()])


def _open_shard(path: Path, embedding: Embedding) -> qe.EdgeShard:
    if not path.exists():
        _create(path, embedding)
    made_with = Embedding.model_validate_json((path / "embedder.json").read_bytes())
    if made_with != embedding:
        raise MemoryUnavailable(
            f"the memory in {path} was made with the embedder {made_with}, not with {embedding}: "
            "use that embedder, or another directory"
        )
    return qe.EdgeShard.load(str(path / "shard"))


def _create(path: Path, embedding: Embedding) -> None:
    """Made aside and then renamed, so that a crash leaves no half of it, and of two processes one is first."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    draft.mkdir(parents=True)
    vectors = (
        {} if embedding.dimension is None else {MEANING: qe.EdgeVectorParams(embedding.dimension, qe.Distance.Cosine)}
    )
    sparse = {WORDS: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)}
    shard = qe.EdgeShard.create(str(draft / "shard"), qe.EdgeConfig(vectors=vectors, sparse_vectors=sparse))
    shard.update(qe.UpdateOperation.create_field_index(TENANT, qe.KeywordIndexParams(is_tenant=True)))
    shard.update(qe.UpdateOperation.create_field_index(SESSION, qe.KeywordIndexParams()))
    shard.close()
    (draft / "embedder.json").write_text(embedding.model_dump_json())
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not path.exists():
            raise


def _kind(error: BaseException) -> str:
    """Not its message: that may quote a payload."""
    return type(error).__name__


def _why_not_open(error: BaseException) -> str:
    return "it is already open, here or in another process" if "WouldBlock" in str(error) else str(error)


async def _in_thread(work: Callable[[], _T], purpose: str, reason: Callable[[BaseException], str] = _kind) -> _T:
    """The engine raises bare exceptions, so any of them means that memory cannot be used now."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    # Also when nobody waits any longer: asyncio would log an exception that nobody looked at, with its message.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({task})
    error = task.exception()
    if isinstance(error, MemoryUnavailable):
        raise error
    if error is not None:
        raise MemoryUnavailable(f"cannot {purpose}: {reason(error)}") from None
    return task.result()
