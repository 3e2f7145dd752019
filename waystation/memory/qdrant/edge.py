"""Memory in Qdrant's engine inside this process: one directory, opened by one process at a time.

    embedder.json    the embedder, and the shard in use
    shard…           one; two while a memory is built or rewritten

That file is replaced in one step, so that a crash at any time leaves a complete memory. The engine only marks what it
deletes, and never truncates its log, so a shard is rewritten next to itself. Its optimiser holds Python's lock while it
works, so it runs in its own process.
"""

import asyncio
import logging
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self, TypeVar

import qdrant_edge as qe
from pydantic import ValidationError

from waystation.kernel.errors import MemoryUnavailable, PassagesRejectedError
from waystation.kernel.files import ensure_private_folder, make_path_private
from waystation.memory.passages import CANDIDATES, EmbeddedPassage, MemoryQuery, ScoredPassage
from waystation.memory.qdrant.points import (
    CREATED_FIELD,
    DENSE_VECTOR_NAME,
    DOCUMENT_HASH_FIELD,
    KEYWORD_FIELDS,
    SPARSE_VECTOR_NAME,
    Bm25Encoder,
    EmbeddingSpec,
    MemoryMetadata,
    build_draft_metadata,
    build_scored_passages,
    fuse_rankings,
)
from waystation.security.confined_process import build_child_environment, build_module_command

FIRST_SHARD_NAME = "shard"
_RECORD = "embedder.json"


def open_shard(path: Path, embedding: EmbeddingSpec) -> qe.EdgeShard:
    """Open the shard in use, created with its folder if there is none.

    Raises:
        OtherEmbedder: it was made with another embedder.
    """
    if not path.exists():
        _create_folder(path, embedding)
    make_path_private(path)
    made = read_memory_metadata(path)
    made.require_same_embedding(embedding, f"the memory in {path}")
    shard = load_shard(path / (made.storage_location or FIRST_SHARD_NAME))
    try:  # damaged files can be opened: reading from them raises then
        shard.scroll(qe.ScrollRequest(limit=1, with_payload=True, with_vector=True))
    except BaseException:
        shard.close()
        raise
    return shard


def open_draft(path: Path, embedding: EmbeddingSpec, *, rebuild: bool) -> tuple[qe.EdgeShard, MemoryMetadata]:
    """Open the shard that is to be put into use, and return it with its metadata.

    That is the shard in use if it was made with this embedding and `rebuild` is not set; else one next to it, new or
    left by an earlier run.
    """
    if not path.exists():
        _create_folder(path, embedding)
    made = _readable(path) if rebuild else read_memory_metadata(path)
    if made is not None and made.embedding == embedding and not rebuild:
        return open_shard(path, embedding), made
    draft = build_draft_metadata(made, embedding, FIRST_SHARD_NAME)
    place = path / (draft.storage_location or FIRST_SHARD_NAME)
    if not place.exists():
        aside = path / f".{uuid.uuid4().hex}"
        create_shard(aside, embedding)
        aside.rename(place)
    return load_shard(place), draft


def make_shard_path(path: Path) -> Path:
    """Return a path for a new shard next to the one in use."""
    return path / f"{FIRST_SHARD_NAME}-{uuid.uuid4().hex}"


def publish_shard(path: Path, metadata: MemoryMetadata) -> None:
    """Put the shard named by the metadata into use and delete every other one. May be repeated."""
    record = path / f".{_RECORD}"
    record.write_text(metadata.model_dump_json())
    record.replace(path / _RECORD)
    for entry in path.iterdir():
        if entry.name not in {_RECORD, metadata.storage_location or FIRST_SHARD_NAME}:
            shutil.rmtree(entry)


def create_shard(path: Path, embedding: EmbeddingSpec) -> None:
    """Create a shard without points."""
    vectors = (
        {}
        if embedding.dimension is None
        else {DENSE_VECTOR_NAME: qe.EdgeVectorParams(embedding.dimension, qe.Distance.Cosine)}
    )
    sparse = {SPARSE_VECTOR_NAME: qe.EdgeSparseVectorParams(modifier=qe.Modifier.Idf)}
    shard = qe.EdgeShard.create(str(path), qe.EdgeConfig(vectors=vectors, sparse_vectors=sparse))
    _index(shard)
    shard.close()


def load_shard(path: Path) -> qe.EdgeShard:
    """Open the shard in this folder."""
    shard = qe.EdgeShard.load(str(path))
    _index(shard)
    return shard


def read_memory_metadata(path: Path) -> MemoryMetadata:
    """Read the metadata of the memory in this folder.

    Raises:
        OSError: they cannot be read.
        ValidationError: they are not valid.
    """
    return MemoryMetadata.model_validate_json((path / _RECORD).read_bytes())


def _readable(path: Path) -> MemoryMetadata | None:
    with suppress(OSError, ValidationError):
        return read_memory_metadata(path)
    return None


def _create_folder(path: Path, embedding: EmbeddingSpec) -> None:
    """Create the folder aside and then rename it: a crash leaves nothing half-made, and one of two processes is
    first.
    """
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    ensure_private_folder(draft)
    create_shard(draft / FIRST_SHARD_NAME, embedding)
    (draft / _RECORD).write_text(MemoryMetadata(**embedding.model_dump()).model_dump_json())
    try:
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft)
        if not path.exists():
            raise


def _index(shard: qe.EdgeShard) -> None:
    """Create missing indexes for everything that queries filter by."""
    keywords = {field: qe.KeywordIndexParams(is_tenant=field == KEYWORD_FIELDS[0]) for field in KEYWORD_FIELDS}
    there = shard.info().payload_schema
    for field, index in {**keywords, CREATED_FIELD: qe.DatetimeIndexParams()}.items():
        if field not in there:
            shard.update(qe.UpdateOperation.create_field_index(field, index))


_PAGE_POINTS = 1_000
"""Number of points read at once."""
OPTIMISER_MODULE = "waystation.memory.qdrant.optimiser"

_logger = logging.getLogger(__name__)


def copy_shard(shard: qe.EdgeShard, path: Path, embedding: EmbeddingSpec) -> int:
    """Copy the shard's points into a new one in this folder and return how many. Points may come and go meanwhile."""
    create_shard(path, embedding)
    fresh = load_shard(path)
    try:
        count = sum(_copied(shard, fresh))
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    finally:
        fresh.close()
    return count


def _copied(shard: qe.EdgeShard, fresh: qe.EdgeShard) -> Iterator[int]:
    """Yield the number of points of each page."""
    start: qe.PointId | None = None
    while True:
        page = qe.ScrollRequest(offset=start, limit=_PAGE_POINTS, with_payload=True, with_vector=True)
        records, start = shard.scroll(page)
        points = [qe.Point(record.id, record.vector or {}, record.payload) for record in records]
        fresh.update(qe.UpdateOperation.upsert_points(points))
        yield len(points)
        if start is None:
            return


async def build_shard_index(path: Path) -> None:
    """Build the index of the shard in this folder, which must not be open.

    Without an index a search scans every point, so a failure is no reason to give up the shard.
    """
    child = await asyncio.create_subprocess_exec(
        *build_module_command(OPTIMISER_MODULE, str(os.getpid()), str(path)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=build_child_environment(),
    )
    try:
        if code := await child.wait():
            _logger.warning("the index of the memory could not be built (exit code %s): searches take longer", code)
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise


MAX_UNINDEXED_POINTS = 20_000
"""This many points, and half as many as are in the index, are scanned before they are added to it."""
_T = TypeVar("_T")


class QdrantEdgeVectorStore:
    """Implements the port `PassageVectorStore` over a shard."""

    def __init__(self, shard: qe.EdgeShard, path: Path, embedding: EmbeddingSpec) -> None:
        self._shard, self._path, self._embedding = shard, path, embedding
        self._words = Bm25Encoder()

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points; the same passage id a second time overwrites the point.

        Raises:
            PassagesRejectedError: writing failed; the engine does not say why.
        """
        if passages:
            try:
                await _in_thread(lambda: self._upsert(passages), f"store {len(passages)} passages")
            except MemoryUnavailable as failed:
                raise PassagesRejectedError(str(failed)) from None

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """Delete points; an unknown id changes nothing.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        if passage_ids:
            points: list[qe.PointId] = [uuid.UUID(passage_id) for passage_id in passage_ids]
            deletion = qe.UpdateOperation.delete_points(points)
            await _in_thread(lambda: self._update(deletion), f"delete {len(points)} passages")

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """Return the best passages that the query admits, scored from 0 to 1.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        return await _in_thread(
            lambda: self._search(query), "search in memory", lambda error: _kind(error) + _REBUILD_HINT
        )

    async def count(self, tenant: str) -> int:
        """Count the points of a tenant.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        request = qe.CountRequest(filter=_of_tenant(tenant))
        return await _in_thread(lambda: self._shard.count(request), "count the passages in memory")

    async def aclose(self) -> None:
        """Flush and close. What was written is safe even without it."""
        await _in_thread(self._close, "close the memory")

    def _close(self) -> None:
        self._shard.close()

    def _upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        self._update(qe.UpdateOperation.upsert_points([self._point(passage) for passage in passages]))

    def _update(self, operation: qe.UpdateOperation) -> None:
        self._shard.update(operation)

    def _point(self, embedded: EmbeddedPassage) -> qe.Point:
        passage = embedded.passage
        vectors: dict[str, qe.NamedVector] = {SPARSE_VECTOR_NAME: self._words.encode_passage(passage.index_text)}
        if embedded.dense is not None:
            vectors[DENSE_VECTOR_NAME] = list(embedded.dense)
        return qe.Point(uuid.UUID(passage.id), vectors, passage.model_dump(mode="json"))

    def _search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        where = _admitted(query)
        nearest: list[qe.Query] = []
        if (words := self._words.encode_query(query.text)).indices:
            nearest.append(qe.Query.Nearest(words, SPARSE_VECTOR_NAME))
        if query.dense is not None:
            nearest.append(qe.Query.Nearest(list(query.dense), DENSE_VECTOR_NAME))
        limit = max(CANDIDATES, query.limit)
        sides = [self._shard.query(qe.QueryRequest(limit, query=one, filter=where)) for one in nearest]
        scores = fuse_rankings(sides, limit)
        return build_scored_passages(self._shard.retrieve([*scores][: query.limit], True, False), scores)


class QdrantEdgeMemory(QdrantEdgeVectorStore):
    """Implements the port `Memory`. Created by `open`.

    It is rewritten on request and as it grows. Meanwhile it can be searched and written as usual.
    """

    def __init__(self, shard: qe.EdgeShard, path: Path, embedding: EmbeddingSpec) -> None:
        super().__init__(shard, path, embedding)
        self._writing = threading.Lock()
        """Held by the writing thread, which continues even if no one waits for it any longer."""
        self._renewing = asyncio.Lock()
        self._since: list[qe.UpdateOperation] | None = None
        """Operations since the current rewrite of the shard began; None if there is none."""
        self._indexed = read_memory_metadata(path).indexed
        self._growing: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, path: Path, embedder_name: str, dimension: int | None) -> Self:
        """Open the memory in the directory `path`, or create it there for this embedder.

        Raises:
            MemoryUnavailable: it is open already, here or in another process, or it cannot be read.
            OtherEmbedder: it was made with another embedder.
        """
        embedding = EmbeddingSpec(embedder=embedder_name, dimension=dimension)
        opening = _in_thread(lambda: open_shard(path, embedding), f"open the memory in {path}", _why_not_open)
        return cls(await opening, path, embedding)

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """Write points as above. After many additions the index is rebuilt in the background."""
        await super().upsert(passages)
        if self._growing is None or self._growing.done():
            points = await _in_thread(lambda: self._shard.info().points_count, "count the passages in memory")
            if points - self._indexed >= max(MAX_UNINDEXED_POINTS, self._indexed // 2):
                self._growing = asyncio.create_task(self._grow(points))

    async def erase_deleted_points(self) -> None:
        """Rewrite the whole memory, so that deleted content is in no file afterwards.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        async with self._renewing:
            place = make_shard_path(self._path)
            try:
                count = await _in_thread(lambda: self._copy(place), "rewrite the memory")
                await build_shard_index(place)
                await _in_thread(lambda: self._go_on_in(place, count), "continue with the rewritten memory")
            finally:
                self._since = None

    async def aclose(self) -> None:
        """Flush and close. What was written is safe even without it."""
        if self._growing is not None:
            self._growing.cancel()
            await asyncio.wait([self._growing])
        await super().aclose()

    async def _grow(self, points: int) -> None:
        try:
            await self.erase_deleted_points()
        except MemoryUnavailable as failed:
            _logger.warning("the index of the memory could not be built: %s", failed)
            self._indexed = points  # an immediate retry would fail too

    def _update(self, operation: qe.UpdateOperation) -> None:
        with self._writing:
            super()._update(operation)
            if self._since is not None:
                self._since.append(operation)

    def _close(self) -> None:
        with self._writing:
            super()._close()

    def _copy(self, path: Path) -> int:
        with self._writing:
            self._since = []
        return copy_shard(self._shard, path, self._embedding)

    def _go_on_in(self, path: Path, count: int) -> None:
        with self._writing:
            fresh = load_shard(path)
            for operation in self._since or ():
                fresh.update(operation)
            made = read_memory_metadata(self._path).replace(storage_location=path.name, indexed=count)
            publish_shard(self._path, made)
            # Not closed: a search may be using it. It is freed with the last of them, and its files are gone.
            self._shard, self._indexed = fresh, count


class QdrantEdgeDraft(QdrantEdgeVectorStore):
    """Implements the port `MemoryDraft`. Created by `open_beside`."""

    def __init__(self, shard: qe.EdgeShard, path: Path, metadata: MemoryMetadata) -> None:
        super().__init__(shard, path, metadata.embedding)
        self._made = metadata

    @classmethod
    async def open_beside(cls, path: Path, embedder_name: str, dimension: int | None, *, rebuild: bool = False) -> Self:
        """Open the memory that is to replace the one in `path`, as far as it exists.

        Args:
            path: folder of the memory.
            embedder_name: name of the embedder.
            dimension: length of its vectors.
            rebuild: build a new one even if this embedder made the one in `path`, which may be damaged.

        Raises:
            MemoryUnavailable: it cannot be opened.
        """
        embedding = EmbeddingSpec(embedder=embedder_name, dimension=dimension)
        opening = _in_thread(
            lambda: open_draft(path, embedding, rebuild=rebuild), f"open the memory in {path}", _why_not_open
        )
        shard, made = await opening
        return cls(shard, path, made)

    async def list_point_ids(self) -> frozenset[str]:
        """Return the ids of all points of all tenants.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        return await _in_thread(lambda: frozenset(self._ids()), "list the passages in memory")

    async def publish(self) -> None:
        """Make this the memory in use and delete the previous one.

        Raises:
            MemoryUnavailable: memory cannot be used.
        """
        publishing = _in_thread(lambda: publish_shard(self._path, self._made), f"replace the memory {self._path}")
        await publishing

    def _ids(self) -> Iterator[str]:
        start: qe.PointId | None = None
        while True:
            request = qe.ScrollRequest(offset=start, limit=_PAGE_POINTS, with_payload=False, with_vector=False)
            records, start = self._shard.scroll(request)
            yield from (str(record.id) for record in records)
            if start is None:
                return


def _admitted(query: MemoryQuery) -> qe.Filter:
    must = [qe.FieldCondition(key, match=qe.MatchAny([*values])) for key, values in query.field_filters.items()]
    if query.since is not None or query.until is not None:
        since, until = (None if time is None else time.isoformat() for time in (query.since, query.until))
        must.append(qe.FieldCondition(CREATED_FIELD, range=qe.RangeDateTime(gte=since, lt=until)))
    without = (
        [qe.FieldCondition(DOCUMENT_HASH_FIELD, match=qe.MatchAny([*query.excluded_hashes]))]
        if query.excluded_hashes
        else []
    )
    return qe.Filter(must=[*must], must_not=[*without])


def _of_tenant(tenant: str) -> qe.Filter:
    return qe.Filter(must=[qe.FieldCondition(KEYWORD_FIELDS[0], match=qe.MatchValue(tenant))])


def _kind(error: BaseException) -> str:
    """Return the kind of an error. Not its message, which may quote a payload."""
    return "a stored passage cannot be read" if isinstance(error, ValidationError) else type(error).__name__


_REBUILD_HINT = (
    "; if the memory's files are damaged, `waystation memory reindex --rebuild` restores them from the store"
)


def _why_not_open(error: BaseException) -> str:
    if "WouldBlock" in str(error):
        return "the memory is already open, in this or another process"
    reason = f"{_RECORD} cannot be read" if isinstance(error, ValidationError) else str(error).partition("\n")[0]
    return reason.rpartition("error: ")[2] + _REBUILD_HINT  # the engine adds around it what it was doing


async def _in_thread(work: Callable[[], _T], purpose: str, reason: Callable[[BaseException], str] = _kind) -> _T:
    """Run the work in a thread.

    The engine raises bare exceptions, so any of them means that memory cannot be used now.
    """
    task = asyncio.ensure_future(asyncio.to_thread(work))
    # Even if no one waits any longer: asyncio would log an unretrieved exception with its message.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    await asyncio.wait({task})
    error = task.exception()
    if isinstance(error, MemoryUnavailable):
        raise error
    if error is not None:
        raise MemoryUnavailable(f"cannot {purpose}: {reason(error)}") from None
    return task.result()
