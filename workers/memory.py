"""Which memory this process works with: a Qdrant server, or the embedded engine, which it then has to itself."""

import fcntl
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing, asynccontextmanager, contextmanager

from waystation.adapters.qdrant.address import QdrantServer
from waystation.adapters.qdrant.edge import QdrantEdgeDraft, QdrantEdgeMemory
from waystation.adapters.qdrant.failures import CLIENT_ERRORS, failure_of
from waystation.adapters.qdrant.layout import Layout
from waystation.adapters.qdrant.server import QdrantServerDraft, QdrantServerMemory
from waystation.domain.errors import MemoryInUse, MemoryUnavailable, OtherEmbedder
from waystation.ports import Embedder, Memory, MemoryDraft
from waystation.settings import Settings

LOOK_SECONDS = 3
"""How long the Qdrant server may take to say whether memory is there."""


@asynccontextmanager
async def opened_memory(settings: Settings, embedder: Embedder) -> AsyncGenerator[Memory]:
    """The memory, closed at the end. A server that is down now may come later: that is no failure here.

    What was made with another embedder is refused here and now.

    Raises:
        BadInput: QDRANT_URL is no address.
        MemoryInUse: another process has the embedded memory of this home folder.
        OtherEmbedder: the memory was made with another embedder.
        MemoryUnavailable: the embedded memory cannot be opened.
    """
    if settings.qdrant_url is not None:
        server = memory_server(settings, settings.qdrant_url)
        async with aclosing(QdrantServerMemory.open(server, embedder.name, embedder.dimension)) as memory:
            await _checked(memory)
            yield memory
    else:
        with _alone(settings):
            embedded = await QdrantEdgeMemory.open(settings.memory_folder, embedder.name, embedder.dimension)
            async with aclosing(embedded):
                yield embedded


async def _checked(memory: QdrantServerMemory) -> None:
    try:
        await memory.check()
    except OtherEmbedder:
        raise
    except MemoryUnavailable:
        return  # passages wait until it answers


@asynccontextmanager
async def opened_draft(settings: Settings, embedder: Embedder) -> AsyncGenerator[MemoryDraft]:
    """The memory that is made anew with this embedder, as far as it is; closed at the end. Raises as above."""
    if settings.qdrant_url is not None:
        server = memory_server(settings, settings.qdrant_url)
        async with aclosing(QdrantServerDraft.open(server, embedder.name, embedder.dimension)) as draft:
            yield draft
    else:
        with _alone(settings):
            beside = await QdrantEdgeDraft.open_beside(settings.memory_folder, embedder.name, embedder.dimension)
            async with aclosing(beside):
                yield beside


def memory_server(settings: Settings, url: str) -> QdrantServer:
    """The Qdrant server at this URL, with what the settings say of it."""
    return QdrantServer(
        url=url,
        api_key=settings.qdrant_api_key,
        grpc_port=settings.qdrant_grpc_port,
        collection=settings.qdrant_collection,
        layout=Layout(
            quantisation=settings.qdrant_quantisation,
            shards=settings.qdrant_shards,
            replicas=settings.qdrant_replicas,
            on_disk=settings.qdrant_on_disk,
        ),
    )


async def memory_is_there(settings: Settings) -> bool:
    """Whether some worker has made it already. Raises BadInput, MemoryUnavailable."""
    if settings.qdrant_url is None:
        return settings.memory_folder.exists()
    server = memory_server(settings, settings.qdrant_url)
    client = server.client(LOOK_SECONDS)
    try:
        return await client.collection_exists(server.collection)
    except CLIENT_ERRORS as error:
        failure = failure_of(error)
    finally:
        await client.close()
    raise MemoryUnavailable(f"{server.name} {failure}")


@contextmanager
def _alone(settings: Settings) -> Generator[None]:
    """Hold the lock of the embedded memory; the kernel releases it when this process ends, however it ends."""
    with settings.memory_folder.with_suffix(".lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise MemoryInUse(
                f"another process runs the workers of {settings.home} (`waystation status`), and embedded memory is "
                "opened by one process only: stop that one, set WAYSTATION_HOME to another folder, or set QDRANT_URL, "
                "so that several processes share a Qdrant server"
            ) from None
        yield
