"""Which memory this process works with: a Qdrant server, or the embedded engine, which it then has to itself.

How a command looks into memory: it opens it, and where workers have it open already, it asks them.
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
from waystation.memory.passages import Excerpt, MemoryQuery
from waystation.memory.ports import Embedder, Memory, MemoryDraft, MemorySearch
from waystation.memory.qdrant.edge import QdrantEdgeDraft, QdrantEdgeMemory
from waystation.privacy.ports import Redactor
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, get_placeholder_key, open_store
from waystation.runtime.temporal.connect import connect_as_person, find_target
from waystation.runtime.temporal.erasure_client import WorkerMemorySearch
from waystation.tasks.task import build_reader_scope
from workers.health import NOT_ANSWERED

LOOK_SECONDS, LOOK_AGAIN_SECONDS = 10.0, 0.05
"""So long one waits for those who only look into embedded memory, each for a moment, and so long between two tries."""
DRAIN_EVERY = timedelta(seconds=30)
"""So long passages may wait after memory is back."""
_LOCK, _REINDEX = ".lock", b"reindex"
"""The file beside the folder that is locked by who has memory open, and what is in it while memory is made anew."""
_NOBODY = ""
"""A tenant without passages: memory that is there counts none."""


@asynccontextmanager
async def open_memory(settings: Settings, embedder: Embedder) -> AsyncGenerator[Memory]:
    """The memory, closed at the end. A server that is down now may come later: that is no failure here.

    What was made with another embedder is refused here and now.

    Raises:
        BadInput: QDRANT_URL is no address.
        MemoryInUse: another process has the embedded memory of this home folder.
        OtherEmbedder: the memory was made with another embedder.
        MemoryUnavailable: the embedded memory cannot be opened.
    """
    if settings.qdrant_url is not None:
        from workers.memory_server import open_server_memory  # noqa: PLC0415

        async with open_server_memory(settings, settings.qdrant_url, embedder) as memory:
            yield memory
    else:
        async with AsyncExitStack() as stack:
            # Whoever only looks into it is done in a moment.
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
    """While this lasts, what waits in the outbox is brought into memory again and again, as soon as that takes it.

    Nothing is kept of it anywhere: the outbox is what survives. Where nothing waits, the store alone is asked, once an
    interval; and before anything is embedded, which may cost, memory is asked whether it is there.
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
        with suppress(*NOT_ANSWERED):  # the next time does it
            if await archive.store.list_pending_passages(1) or await archive.store.list_passage_ids_to_delete(1):
                await archive.memory.count(_NOBODY)
                await archive.drain()


@asynccontextmanager
async def open_memory_draft(
    settings: Settings, embedder: Embedder, *, anew: bool = False
) -> AsyncGenerator[MemoryDraft]:
    """The memory that is made anew with this embedder, as far as it is; closed at the end. Raises as above.

    `anew`: all of it, also where this embedder made the one that is in use, which may be damaged.
    """
    if settings.qdrant_url is not None:
        from workers.memory_server import open_server_draft  # noqa: PLC0415

        async with open_server_draft(settings, settings.qdrant_url, embedder, anew=anew) as draft:
            yield draft
    else:
        with _alone(settings, _REINDEX):
            folder = settings.memory_folder
            beside = await QdrantEdgeDraft.open_beside(folder, embedder.name, embedder.dimension, anew=anew)
            async with aclosing(beside):
                yield beside


async def has_memory(settings: Settings) -> bool:
    """Whether some worker has made it already. Raises BadInput, MemoryUnavailable."""
    if settings.qdrant_url is None:
        return settings.memory_folder.exists()
    from workers.memory_server import has_server_memory  # noqa: PLC0415

    return await has_server_memory(settings, settings.qdrant_url)


FAR_FEWER = 0.9
"""A smaller share of its passages is said with what a search found."""


class PassageCounts(NamedTuple):
    """What memory has of a tenant, and what the store says was written to it."""

    points: int
    stored: int
    """Passages. Each is a point: there are fewer only where some were lost."""

    @property
    def loss_note(self) -> str:
        """What is missing, and the next step; empty where nothing is."""
        if self.points >= self.stored:
            return ""
        return (
            f"memory has {self.points:,} of the {self.stored:,} passages that were written to it: `waystation memory "
            "reindex` brings the others back from the store, and with --anew makes all of it again where that is not "
            "enough"
        )

    @property
    def major_loss_note(self) -> str:
        """The same where far fewer are there."""
        return self.loss_note if self.points < FAR_FEWER * self.stored else ""


async def get_passage_counts(settings: Settings, store: SqlStore, memory: MemorySearch | None) -> PassageCounts:
    """`memory`: None where there is none. Raises as its `count` does."""
    reader = build_reader_scope(settings.tenant)
    before = await store.count_stored_passages(reader)
    points = 0 if memory is None else await memory.count(reader.tenant)
    # Workers bring in and forget meanwhile.
    return PassageCounts(points, min(before, await store.count_stored_passages(reader)))


async def load_passage_counts(settings: Settings, store: SqlStore, embedder: Embedder) -> PassageCounts:
    """The same of the memory that is there; a look makes none. Raises as `open_memory_for_search` does."""
    if not await has_memory(settings):
        return await get_passage_counts(settings, store, None)
    async with open_memory_for_search(settings, store, embedder) as memory:
        return await get_passage_counts(settings, store, memory)


async def describe_lost_passages(settings: Settings) -> str:
    """Of memory, with the next step; empty where nothing is, or where that cannot be told now."""
    from waystation.runtime.redaction_setup import open_embedder  # noqa: PLC0415  numpy comes with it

    with suppress(StoreError, BadInput, WrongKey, Unreachable, MemoryUnavailable):
        async with aclosing(await open_store(settings)) as store, open_embedder(settings) as embedder:
            return (await load_passage_counts(settings, store, embedder)).loss_note
    return ""


async def describe_embedded_memory_problem(settings: Settings) -> str:
    """Why no worker could open the embedded memory, or what it has lost; empty where neither is so, or one has it."""
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

    `purpose`: what is written into the file, for who finds it locked.
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
            f"another process makes the memory of {settings.home} anew (`waystation memory reindex`): wait until it is "
            "done, or stop that one, and the next goes on where it was"
        )
    return (
        f"another process runs the workers of {settings.home} (`waystation status`), and embedded memory is opened by "
        "one process only: stop that one, set WAYSTATION_HOME to another folder, or set QDRANT_URL, so that several "
        "processes share a Qdrant server"
    )


@asynccontextmanager
async def _looking(settings: Settings) -> AsyncGenerator[None]:
    """Hold the lock of those who only look: who has it finds memory open by those alone that keep it so."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            while (lock := _locked(settings, ".look.lock")) is None:  # noqa: ASYNC110  the kernel tells nobody
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
    except TimeoutError:
        words = f"others look into the memory of {settings.home} without a pause: try again, or set QDRANT_URL"
        raise MemoryUnavailable(words) from None
    with lock:
        yield


def _locked(settings: Settings, suffix: str) -> IO[bytes] | None:
    """The file that is locked as long as it is open; None where somebody else has it."""
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
    """The memory of these settings, as far as it can be searched.

    Raises as `open_memory` does, and Unreachable where the process that has it open is not to be asked.
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
            await stack.aclose()  # the others need not wait for what workers answer
            memory = await _of_workers(settings, store)
        yield memory


async def _of_workers(settings: Settings, store: SqlStore) -> MemorySearch:
    try:
        client = await connect_as_person(find_target(settings), build_client_data_converter(settings))
    except Unreachable as error:
        raise Unreachable(
            f"another process has the memory of {settings.home} open, and is asked over Temporal: {error}; or stop "
            "that process, or set QDRANT_URL, so that all share a Qdrant server"
        ) from error
    return WorkerMemorySearch(client, store.get_passages)


class _Opened(NamedTuple):
    store: SqlStore
    embedder: Embedder
    redactor: Redactor


class MemoryReader:
    """Looks into memory as agents do, again and again: what takes seconds to load is loaded at the first look alone.

    Memory itself is opened for each look, since workers may want to open it meanwhile.
    """

    def __init__(self, settings: Settings, *, compares: bool = False) -> None:
        """`compares`: each look also tells whether memory has what was written to it."""
        self._settings, self._compares = settings, compares
        self.lost = ""
        """Where memory had far fewer passages than were written to it: that, and the next step."""
        self._opened: _Opened | None = None
        self._opening = asyncio.Lock()
        self._stack = AsyncExitStack()

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._stack.aclose()

    async def search(self, wanted: MemoryQuery, tokens: int) -> tuple[Excerpt, ...]:
        """What agents would recall, the best first, in so many tokens; nothing where no worker has made memory yet.

        Raises as `open_memory_for_search` does, RedactionFailed, StoreError.
        """
        if not await has_memory(self._settings):
            if self._compares:
                async with aclosing(await open_store(self._settings)) as alone:
                    await self._compare(alone, None)
            return ()
        store, embedder, redactor = await self._tools()
        async with open_memory_for_search(self._settings, store, embedder) as memory:
            found = await MemoryRecall(memory, embedder, redactor).search(wanted, tokens)
            if self._compares:
                await self._compare(store, memory)
            return found

    async def _compare(self, store: SqlStore, memory: MemorySearch | None) -> None:
        self.lost = (await get_passage_counts(self._settings, store, memory)).major_loss_note

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
