"""Memory on a Qdrant server or cluster, which any number of worker processes share."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Self, TypeVar

from qdrant_client import AsyncQdrantClient, models
from qdrant_client.conversions.common_types import PointId

from waystation.kernel.errors import MemoryUnavailable, PassagesRejectedError
from waystation.kernel.value import Value
from waystation.memory.passages import CANDIDATES, EmbeddedPassage, MemoryQuery, ScoredPassage
from waystation.memory.qdrant.collection import (
    CLIENT_ERRORS,
    QdrantErrorKind,
    QdrantServerConfig,
    classify_failure,
    ensure_collection,
    ensure_draft,
    publish_draft,
)
from waystation.memory.qdrant.points import (
    CREATED_FIELD,
    DENSE_VECTOR_NAME,
    DOCUMENT_HASH_FIELD,
    KEYWORD_FIELDS,
    SPARSE_VECTOR_NAME,
    Bm25Encoder,
    EmbeddingSpec,
    build_scored_passages,
    fuse_rankings,
)

MAX_WAIT_S = 2.0
"""Longest wait in seconds that a server may ask for; beyond that the call fails, and passages wait in the outbox."""
_T = TypeVar("_T")


class QdrantRetryPolicy(Value):
    """Time limit for each attempt, and pauses between the few attempts if waiting may help.

    By default at most 19 seconds in total, which is less than the heartbeat time-out of an activity.
    """

    timeout_s: float = 5.0
    pauses_s: tuple[float, ...] = (0.25, 1.0)
    """Mean pauses between attempts, in seconds; there is one attempt more than pauses."""


_RETRY_POLICY = QdrantRetryPolicy()


async def run_with_retries(
    work: Callable[[], Awaitable[_T]], purpose: str, server: str, patience: QdrantRetryPolicy
) -> _T:
    """Return the result of `work`, which must be safe to repeat.

    Raises:
        MemoryUnavailable: it failed; the message names `purpose`, `server` and the kind of failure.
        PassagesRejectedError: the server rejects what it was sent.
    """
    pauses = iter(patience.pauses_s)
    while True:
        try:
            async with asyncio.timeout(patience.timeout_s):
                return await work()
        except CLIENT_ERRORS as error:
            failure = classify_failure(error)
        pause_s = next(pauses, None)
        if pause_s is None or not failure.trouble.is_retryable or failure.wait_s > MAX_WAIT_S:
            # Raised out here, so that the client's error, which may quote a payload, is not its context.
            refused = failure.trouble is QdrantErrorKind.UNFIT
            raise (PassagesRejectedError if refused else MemoryUnavailable)(f"cannot {purpose}: {server} {failure}")
        await asyncio.sleep(max(failure.wait_s, pause_s * random.uniform(0.5, 1.5)))


BATCH_POINTS = 100
BATCH_BYTES = 2_000_000
"""Maximum bytes of JSON in a batch. A server accepts 32 MB by default; this much passes a slow line within the time
limit.
"""
_PAGE_POINTS = 10_000
"""Number of ids read at once."""


class QdrantServerVectorStore:
    """Implements the port `PassageVectorStore`. Created by `open`.

    The collection is set up at the first use, and again after a failure: a server that is down stops no worker.
    """

    def __init__(
        self,
        client: AsyncQdrantClient,
        server: QdrantServerConfig,
        embedding: EmbeddingSpec,
        patience: QdrantRetryPolicy = _RETRY_POLICY,
    ) -> None:
        self._client = client
        self._server = server
        self._embedding = embedding
        self._retry_policy = patience
        self._words = Bm25Encoder()
        self._collection: str | None = None
        """Name of the collection after it is set up."""

    @classmethod
    def open(
        cls,
        server: QdrantServerConfig,
        embedder_name: str,
        dimension: int | None,
        patience: QdrantRetryPolicy = _RETRY_POLICY,
    ) -> Self:
        """Return the memory on this server. No request is made yet.

        Raises:
            BadInput: the server's address is not valid.
        """
        embedding = EmbeddingSpec(embedder=embedder_name, dimension=dimension)
        return cls(server.create_client(patience.timeout_s), server, embedding, patience)

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id a second time overwrites the point.

        Raises:
            MemoryUnavailable: the server does not answer.
            PassagesRejectedError: the server rejects at least one of them.
        """
        points = await asyncio.to_thread(lambda: [self._point(passage) for passage in passages])
        for batch in iter_point_batches(points):
            await self._done(lambda into, batch=batch: self._write(into, batch), f"store {len(passages)} passages")

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Delete points; an unknown id changes nothing.

        Raises:
            MemoryUnavailable: the server does not answer.
        """
        if passage_ids:
            await self._done(lambda of: self._delete(of, passage_ids), f"delete {len(passage_ids)} passages")

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """Return the best passages that the query admits, scored from 0 to 1.

        Raises:
            MemoryUnavailable: the server does not answer.
        """
        return await self._done(lambda of: self._search(of, query), "search in memory")

    async def count(self, tenant: str) -> int:
        """Count the points of a tenant.

        Raises:
            MemoryUnavailable: the server does not answer.
        """
        return await self._done(lambda of: self._count(of, tenant), "count the passages in memory")

    async def check(self) -> None:
        """Check whether the memory can be used.

        Raises:
            OtherEmbedder: it was made with another embedder.
            MemoryUnavailable: the server does not answer, which may be temporary.
        """
        await self._done(self._client.collection_exists, "check the memory")

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _done(self, work: Callable[[str], Awaitable[_T]], purpose: str) -> _T:
        return await run_with_retries(lambda: self._on_collection(work), purpose, self._server.name, self._retry_policy)

    async def _on_collection(self, work: Callable[[str], Awaitable[_T]]) -> _T:
        """Concurrent first uses all set up the collection, which is harmless; waiting for each other would be
        slower.
        """
        try:
            collection = self._collection = self._collection or await self._set_up()
            return await work(collection)
        except CLIENT_ERRORS:
            self._collection = None
            raise

    async def _set_up(self) -> str:
        return await ensure_collection(self._client, self._server, self._embedding)

    async def _write(self, collection: str, points: list[models.PointStruct]) -> None:
        await self._client.upsert(collection, points, wait=True)

    async def _delete(self, collection: str, passage_ids: Sequence[str]) -> None:
        points = models.PointIdsList(points=list(passage_ids))
        await self._client.delete(collection, points, wait=True)

    async def _search(self, collection: str, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        nearest: dict[str, models.SparseVector | list[float]] = {}
        if (words := self._words.encode_query(query.text)).indices:
            nearest[SPARSE_VECTOR_NAME] = models.SparseVector(indices=words.indices, values=words.values)
        if query.dense is not None:
            nearest[DENSE_VECTOR_NAME] = list(query.dense)
        if not nearest:
            return ()
        where, limit = _admitted(query), max(CANDIDATES, query.limit)
        asked = [
            models.QueryRequest(query=vector, using=side, filter=where, limit=limit) for side, vector in nearest.items()
        ]
        answers = await self._client.query_batch_points(collection, asked)
        scores = fuse_rankings([answer.points for answer in answers], limit)
        best = [*scores][: query.limit]
        return build_scored_passages(await self._client.retrieve(collection, best) if best else [], scores)

    async def _count(self, collection: str, tenant: str) -> int:
        counted = await self._client.count(collection, count_filter=_of_tenant(tenant), exact=True)
        return counted.count

    def _point(self, embedded: EmbeddedPassage) -> models.PointStruct:
        passage = embedded.passage
        vectors: dict[str, models.Vector] = {}
        if (words := self._words.encode_passage(passage.index_text)).indices:
            vectors[SPARSE_VECTOR_NAME] = models.SparseVector(indices=words.indices, values=words.values)
        if embedded.dense is not None:
            vectors[DENSE_VECTOR_NAME] = list(embedded.dense)
        return models.PointStruct(id=passage.id, vector=vectors, payload=passage.model_dump(mode="json"))


class QdrantServerMemory(QdrantServerVectorStore):
    """Implements the port `Memory`."""

    async def erase_deleted_points(self) -> None:
        """Do nothing: the server's own optimiser rewrites segments when enough of their points were deleted."""


class QdrantServerDraft(QdrantServerVectorStore):
    """Implements the port `MemoryDraft` next to the collection that workers use."""

    rebuild = False
    """Whether to build a new one even if this embedder made that collection."""
    _draft: str | None = None
    """Name of the draft once it is known: after publishing, a new look-up would return yet another one."""

    async def list_point_ids(self) -> frozenset[str]:
        """Return the ids of all points of all tenants.

        Raises:
            MemoryUnavailable: the server does not answer.
        """
        found: set[str] = set()
        start: PointId | None = None
        while True:
            page, start = await self._done(lambda of, start=start: self._page(of, start), "list the passages in memory")
            found.update(page)
            if start is None:
                return frozenset(found)

    async def publish(self) -> None:
        """Make this the memory in use and delete the previous one.

        Raises:
            MemoryUnavailable: the server does not answer.
        """
        place = self._server.collection
        await self._done(lambda of: publish_draft(self._client, place, of, self._embedding), "replace the memory")

    async def _set_up(self) -> str:
        if self._draft is None:
            self._draft = await ensure_draft(self._client, self._server, self._embedding, rebuild=self.rebuild)
        return self._draft

    async def _page(self, collection: str, start: PointId | None) -> tuple[list[str], PointId | None]:
        records, following = await self._client.scroll(
            collection, offset=start, limit=_PAGE_POINTS, with_payload=False, with_vectors=False
        )
        return [str(record.id) for record in records], following


def iter_point_batches(points: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    """Yield the points in order, in batches within BATCH_POINTS and BATCH_BYTES; a larger one goes alone."""
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


def _admitted(query: MemoryQuery) -> models.Filter:
    must = [
        models.FieldCondition(key=key, match=models.MatchAny(any=[*values]))
        for key, values in query.field_filters.items()
    ]
    if query.since is not None or query.until is not None:
        times = models.DatetimeRange(gte=query.since, lt=query.until)
        must.append(models.FieldCondition(key=CREATED_FIELD, range=times))
    without = [models.FieldCondition(key=DOCUMENT_HASH_FIELD, match=models.MatchAny(any=[*query.excluded_hashes]))]
    return models.Filter(must=[*must], must_not=[*without] if query.excluded_hashes else None)


def _of_tenant(tenant: str) -> models.Filter:
    return models.Filter(must=[models.FieldCondition(key=KEYWORD_FIELDS[0], match=models.MatchValue(value=tenant))])
