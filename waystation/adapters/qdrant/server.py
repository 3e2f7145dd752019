"""Memory on a Qdrant server or cluster, which any number of worker processes share."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from qdrant_client import AsyncQdrantClient, models

from waystation.adapters.qdrant.address import QdrantServer
from waystation.adapters.qdrant.collection import ensure_collection
from waystation.adapters.qdrant.failures import CLIENT_ERRORS
from waystation.adapters.qdrant.patience import PATIENCE, Patience, patiently
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
from waystation.domain.memory import EmbeddedPassage, MemoryQuery, Recalled

BATCH_POINTS = 100
BATCH_BYTES = 2_000_000
"""Of JSON. A server takes 32 MB by default; this much goes over a slow line within the time limit."""
_T = TypeVar("_T")


class QdrantServerMemory:
    """Implements the port `Memory`. Made by `open`.

    The collection is set up at the first use, and again after a failure: a server that is down stops no worker.
    """

    def __init__(
        self, client: AsyncQdrantClient, server: QdrantServer, embedding: Embedding, patience: Patience = PATIENCE
    ) -> None:
        self._client = client
        self._server = server
        self._embedding = embedding
        self._patience = patience
        self._words = WordVectors()
        self._ready = False

    @classmethod
    def open(
        cls, server: QdrantServer, embedder_name: str, dimension: int | None, patience: Patience = PATIENCE
    ) -> "QdrantServerMemory":
        """Memory on this server. No request is made yet.

        Raises:
            BadInput: the server's address cannot be one.
        """
        embedding = Embedding(embedder=embedder_name, dimension=dimension)
        return cls(server.client(patience.timeout_s), server, embedding, patience)

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id twice is one point. Raises MemoryUnavailable."""
        points = await asyncio.to_thread(lambda: [self._point(passage) for passage in passages])
        for batch in batches(points):
            await self._done(lambda batch=batch: self._write(batch), f"store {len(passages)} passages")

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Take points away; an id that is not there changes nothing. Raises MemoryUnavailable."""
        if passage_ids:
            await self._done(lambda: self._delete(passage_ids), f"delete {len(passage_ids)} passages")

    async def search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        """The best passages of this tenant and session, scored from 0 to 1. Raises MemoryUnavailable."""
        return await self._done(lambda: self._search(query), "search in memory")

    async def count(self, tenant: str) -> int:
        """Points of a tenant. Raises MemoryUnavailable."""
        return await self._done(lambda: self._count(tenant), "count the passages in memory")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _done(self, work: Callable[[], Awaitable[_T]], purpose: str) -> _T:
        return await patiently(lambda: self._on_collection(work), purpose, self._server.name, self._patience)

    async def _on_collection(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """First uses at once set up at once, which is harmless; waiting for each other would add up their waits."""
        try:
            if not self._ready:
                await ensure_collection(self._client, self._server.collection, self._embedding)
            self._ready = True
            return await work()
        except CLIENT_ERRORS:
            self._ready = False
            raise

    async def _write(self, points: list[models.PointStruct]) -> None:
        await self._client.upsert(self._server.collection, points, wait=True)

    async def _delete(self, passage_ids: Sequence[str]) -> None:
        points = models.PointIdsList(points=list(passage_ids))
        await self._client.delete(self._server.collection, points, wait=True)

    async def _search(self, query: MemoryQuery) -> tuple[Recalled, ...]:
        nearest: dict[str, models.SparseVector | list[float]] = {}
        if (words := self._words.of_query(query.text)).indices:
            nearest[WORDS] = models.SparseVector(indices=words.indices, values=words.values)
        if query.dense is not None:
            nearest[MEANING] = list(query.dense)
        if not nearest:
            return ()
        where = _only({TENANT: query.tenant, SESSION: query.session})
        requests = [
            models.QueryRequest(query=vector, using=name, filter=where, limit=CANDIDATES, with_payload=True)
            for name, vector in nearest.items()
        ]
        answers = await self._client.query_batch_points(self._server.collection, requests)
        hits = {name: answer.points for name, answer in zip(nearest, answers, strict=True)}
        return ranked(hits.get(WORDS, []), hits.get(MEANING, []), query.limit)

    async def _count(self, tenant: str) -> int:
        counted = await self._client.count(self._server.collection, count_filter=_only({TENANT: tenant}), exact=True)
        return counted.count

    def _point(self, embedded: EmbeddedPassage) -> models.PointStruct:
        passage = embedded.passage
        vectors: dict[str, models.Vector] = {}
        if (words := self._words.of_passage(passage.text)).indices:
            vectors[WORDS] = models.SparseVector(indices=words.indices, values=words.values)
        if embedded.dense is not None:
            vectors[MEANING] = list(embedded.dense)
        return models.PointStruct(id=passage.id, vector=vectors, payload=passage.model_dump(mode="json"))


def batches(points: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    """The points in order, in batches within BATCH_POINTS and BATCH_BYTES; one that is larger goes alone."""
    batch: list[models.PointStruct] = []
    room = BATCH_BYTES
    for point in points:
        size = len(point.model_dump_json())
        if batch and (size > room or len(batch) == BATCH_POINTS):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(point)
        room -= size
    if batch:
        yield batch


def _only(fields: Mapping[str, str]) -> models.Filter:
    return models.Filter(
        must=[models.FieldCondition(key=key, match=models.MatchValue(value=value)) for key, value in fields.items()]
    )
