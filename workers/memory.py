"""Opens memory for workers and commands: a Qdrant server, or the embedded engine, which one process has to itself.

A command that finds it locked by workers searches through them.
"""

import asyncio
import fcntl
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from datetime import timedelta
from typing import IO, NamedTuple

from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, MemoryInUse, MemoryUnavailable, StoreError, Unreachable, WrongKey
from waystation.kernel.files import open_private_file
from waystation.memory.indexing import MemoryRecall, OutboxDrainer
from waystation.memory.passages import MemoryExcerpt, MemoryQuery
from waystation.memory.ports import Embedder, Memory, MemoryDraft, MemorySearch
from waystation.memory.qdrant.edge import QdrantEdgeDraft, QdrantEdgeMemory
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, get_placeholder_key, open_store
from waystation.runtime.temporal.connect import connect_as_person, resolve_temporal_target
from waystation.runtime.temporal.erasure_client import ActivityMemorySearch
from waystation.tasks.task import build_reader_scope
from waystation.workers.health import NOT_ANSWERED

LOCK_WAIT_SECONDS, LOCK_POLL_SECONDS = 10.0, 0.05
"""Seconds to wait for processes that read embedded memory, each briefly, and between two attempts."""
DRAIN_EVERY = timedelta(seconds=30)
"""Maximum time that passages wait once memory is available again."""
_LOCK, _REINDEX = ".lock", b"reindex"
"""Suffix of the lock file next to the memory folder, and its content while memory is rebuilt."""
_NOBODY = ""
"""A tenant without passages: memory that is available counts none."""


@asynccontextmanager
async def open_memory(settings: Settings, embedder: Embedder) -> AsyncGenerator[Memory]:
    """Open the memory; closed at the end. A server that is down now may come back later: that is no failure here.

    A memory that was made with another embedder is refused at once.

    Raises:
        BadInput: QDRANT_URL is not an address.
        MemoryInUse: Another process has the embedded memory of this home folder open.
        OtherEmbedder: The memory was made with another embedder.
        MemoryUnavailable: The embedded memory cannot be opened.
    """
    if settings.qdrant_url is not None:
        from waystation.workers.memory_server import open_server_memory  # noqa: PLC0415

        async with open_server_memory(settings, settings.qdrant_url, embedder) as memory:
            yield memory
    else:
        async with AsyncExitStack() as stack:
            # A process that only reads it is done in a moment.
            async with _looking(settings):
                memory = await stack.enter_async_context(_embedded(settings, embedder))
            yield memory


@asynccontextmanager
async def _embedded(settings: Settings, embedder: Embedder) -> AsyncGenerator[Memory]:
    with _alone(settings):
        memory = await QdrantEdgeMemory.open(settings.memory_folder, embedder.name, embedder.dimension)
        async with aclosing(memory):
            yield memory


@asynccontextmanager
async def run_drain_loop(archive: OutboxDrainer, interval: timedelta = DRAIN_EVERY) -> AsyncGenerator[None]:
    """Keep moving passages from the outbox into memory until the block ends, as soon as memory accepts them.

    No state is kept: the outbox is what survives. If nothing waits, only the store is queried, once per interval.
    Before anything is embedded, which may cost, memory is asked whether it is available.
    """
    drain = asyncio.create_task(_drain(archive, interval.total_seconds()))
    try:
        yield
    finally:
        drain.cancel()
        await asyncio.gather(drain, return_exceptions=True)


async def _drain(archive: OutboxDrainer, seconds: float) -> None:
    while True:
        await asyncio.sleep(seconds)
        with suppress(*NOT_ANSWERED):  # the next iteration retries
            if any(await archive.store.load_outbox_batch(1)):
                await archive.memory.count(_NOBODY)
                await archive.drain()


@asynccontextmanager
async def open_memory_draft(
    settings: Settings, embedder: Embedder, *, rebuild: bool = False
) -> AsyncGenerator[MemoryDraft]:
    """Open the memory that is being rebuilt with this embedder, as far as it exists; closed at the end. Raises as
    `open_memory`.

    `rebuild`: rebuild everything, also if the memory in use was made with this embedder, since it may be damaged.
    """
    if settings.qdrant_url is not None:
        from waystation.workers.memory_server import open_server_draft  # noqa: PLC0415

        async with open_server_draft(settings, settings.qdrant_url, embedder, rebuild=rebuild) as draft:
            yield draft
    else:
        with _alone(settings, _REINDEX):
            folder = settings.memory_folder
            beside = await QdrantEdgeDraft.open_beside(folder, embedder.name, embedder.dimension, rebuild=rebuild)
            async with aclosing(beside):
                yield beside


async def has_memory(settings: Settings) -> bool:
    """Return whether a worker has made the memory already. Raises BadInput, MemoryUnavailable."""
    if settings.qdrant_url is None:
        return settings.memory_folder.exists()
    from waystation.workers.memory_server import has_memory_collection  # noqa: PLC0415

    return await has_memory_collection(settings, settings.qdrant_url)


MIN_COMPLETE_SHARE = 0.9
"""If memory has a smaller share of its passages than this, search results say so."""


class PassageCounts(NamedTuple):
    """Number of a tenant's passages in memory, and of those that were written to it according to the store."""

    points: int
    stored: int
    """Passages written. Each is one point, so memory has fewer only if some were lost."""

    @property
    def loss_note(self) -> str:
        """What is missing, and the next step; empty if nothing is."""
        if self.points >= self.stored:
            return ""
        return (
            f"memory has {self.points:,} of the {self.stored:,} passages that were written to it: `waystation "
            "memory reindex` restores the others from the store. If that is not enough, --rebuild rebuilds the "
            "whole memory"
        )

    @property
    def major_loss_note(self) -> str:
        """The loss note if far fewer passages remain; else empty."""
        return self.loss_note if self.points < MIN_COMPLETE_SHARE * self.stored else ""


async def get_passage_counts(settings: Settings, store: SqlStore, memory: MemorySearch | None) -> PassageCounts:
    """Count passages. `memory`: None if there is none. Raises as its `count` does."""
    reader = build_reader_scope(settings.tenant)
    before = await store.count_stored_passages(reader)
    points = 0 if memory is None else await memory.count(reader.tenant)
    # Workers add and delete passages meanwhile.
    return PassageCounts(points, min(before, await store.count_stored_passages(reader)))


async def load_passage_counts(settings: Settings, store: SqlStore, embedder: Embedder) -> PassageCounts:
    """Count the passages of the existing memory, without creating one. Raises as `open_memory_for_search` does."""
    if not await has_memory(settings):
        return await get_passage_counts(settings, store, None)
    async with open_memory_for_search(settings, store, embedder) as memory:
        return await get_passage_counts(settings, store, memory)


async def describe_lost_passages(settings: Settings) -> str:
    """Describe what memory has lost, with the next step; empty if nothing, or if that is unknown now."""
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415  numpy comes with it

    with suppress(StoreError, BadInput, WrongKey, Unreachable, MemoryUnavailable):
        async with aclosing(await open_store(settings)) as store, open_embedder(settings) as embedder:
            return (await load_passage_counts(settings, store, embedder)).loss_note
    return ""


async def describe_embedded_memory_problem(settings: Settings) -> str:
    """Return why no worker could open the embedded memory, or what it has lost; empty if neither, or if a worker has
    it.
    """
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415  numpy comes with it

    try:
        if settings.memory_folder.exists():
            async with open_embedder(settings) as embedder, open_memory(settings, embedder):
                pass
    except MemoryInUse:
        pass
    except (BadInput, MemoryUnavailable) as error:
        return str(error)
    return await describe_lost_passages(settings)


@contextmanager
def _alone(settings: Settings, purpose: bytes = b"") -> Generator[None]:
    """Hold the lock of the embedded memory; the kernel releases it when this process ends, however it ends.

    `purpose`: content of the lock file, for a process that finds it locked.
    """
    lock = _locked(settings, _LOCK)
    if lock is None:
        raise MemoryInUse(_who_has_it(settings))
    with lock:
        lock.truncate(0)
        lock.write(purpose)
        lock.flush()
        yield


def _who_has_it(settings: Settings) -> str:
    if settings.memory_folder.with_suffix(_LOCK).read_bytes() == _REINDEX:
        return (
            f"another process is rebuilding the memory of {settings.home} (`waystation memory reindex`): wait "
            "until it is done, or stop it; the next reindex continues from there"
        )
    return (
        f"another process runs the workers of {settings.home} (`waystation status`), and only one process can "
        "open embedded memory: stop that process, set WAYSTATION_HOME to another folder, or set QDRANT_URL "
        "to share a Qdrant server"
    )


@asynccontextmanager
async def _looking(settings: Settings) -> AsyncGenerator[None]:
    """Hold the readers' lock: the owner of the main lock then knows that memory is only open for brief reads."""
    try:
        async with asyncio.timeout(LOCK_WAIT_SECONDS):
            while (lock := _locked(settings, ".look.lock")) is None:  # noqa: ASYNC110  the kernel tells nobody
                await asyncio.sleep(LOCK_POLL_SECONDS)
    except TimeoutError:
        words = (
            f"other processes keep searching the memory of {settings.home}: try again, or set QDRANT_URL to a "
            "Qdrant server"
        )
        raise MemoryUnavailable(words) from None
    with lock:
        yield


def _locked(settings: Settings, suffix: str) -> IO[bytes] | None:
    """Return a file that stays locked until it is closed; None if another process has locked it."""
    file = open_private_file(settings.memory_folder.with_suffix(suffix))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


@asynccontextmanager
async def open_memory_for_search(
    settings: Settings, store: SqlStore, embedder: Embedder
) -> AsyncGenerator[MemorySearch]:
    """Open the memory of these settings for searching.

    Raises as `open_memory` does, and Unreachable if the process that has it open cannot be asked.
    """
    if settings.qdrant_url is not None:
        async with open_memory(settings, embedder) as shared:
            yield shared
        return
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(_looking(settings))
        try:
            memory: MemorySearch = await stack.enter_async_context(_embedded(settings, embedder))
        except MemoryInUse:
            await stack.aclose()  # other processes need not wait for the workers' answer
            memory = await _of_workers(settings, store)
        yield memory


async def _of_workers(settings: Settings, store: SqlStore) -> MemorySearch:
    try:
        client = await connect_as_person(resolve_temporal_target(settings), build_client_data_converter(settings))
    except Unreachable as error:
        raise Unreachable(
            f"another process has the memory of {settings.home} open, and cannot be reached through Temporal "
            f"({error}). Start Temporal, stop that process, or set QDRANT_URL to share a Qdrant server"
        ) from error
    return ActivityMemorySearch(client, store.get_passages)


class _Opened(NamedTuple):
    store: SqlStore
    embedder: Embedder
    redactor: Redactor


class MemoryReader:
    """Searches memory repeatedly as agents do; what takes seconds to load is loaded by the first search only.

    Memory itself is opened for each search, since workers may want to open it in between.
    """

    def __init__(self, settings: Settings, *, compares: bool = False) -> None:
        """Prepare the reader. `compares`: each search also checks whether memory still has what was written to it."""
        self._settings, self._compares = settings, compares
        self.unavailable_reason = ""
        """Set if memory has far fewer passages than were written to it: what is missing, and the next step."""
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def aclose(self) -> None:
        """Close everything that was opened."""
        await self._stack.aclose()

    async def search(self, query: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        """Return what agents would recall, the best first, within `tokens`; nothing if no worker has made memory yet.

        Raises as `open_memory_for_search` does, RedactionFailed, StoreError.
        """
        if not await has_memory(self._settings):
            if self._compares:
                async with aclosing(await open_store(self._settings)) as alone:
                    await self._compare(alone, None)
            return ()
        store, embedder, redactor = await self._tools()
        async with open_memory_for_search(self._settings, store, embedder) as memory:
            found = await MemoryRecall(memory, embedder, redactor).search(query, tokens)
            if self._compares:
                await self._compare(store, memory)
            return found

    async def _compare(self, store: SqlStore, memory: MemorySearch | None) -> None:
        self.unavailable_reason = (await get_passage_counts(self._settings, store, memory)).major_loss_note

    async def _tools(self) -> _Opened:
        # The embedder and Presidio take seconds to load.
        from waystation.runtime.redaction_setup import create_redactor, open_embedder  # noqa: PLC0415

        async with self._opening:
            if self._opened is None:
                store = await self._stack.enter_async_context(aclosing(await open_store(self._settings)))
                embedder = await self._stack.enter_async_context(open_embedder(self._settings))
                redactor = create_redactor(self._settings, await get_placeholder_key(store, self._settings))
                self._stack.callback(redactor.close)
                self._opened = _Opened(store, embedder, redactor)
            return self._opened
