"""Memory on a Qdrant server.

A module of its own because its client takes a second to load, which the embedded engine does not need.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from waystation.config.settings import Settings
from waystation.kernel.errors import MemoryUnavailable, OtherEmbedder
from waystation.memory.ports import Embedder, Memory, MemoryDraft
from waystation.memory.qdrant.collection import (
    CLIENT_ERRORS,
    CollectionStorageOptions,
    QdrantServerConfig,
    classify_failure,
)
from waystation.memory.qdrant.server import QdrantServerDraft, QdrantServerMemory

_CHECK_SECONDS = 3
"""Seconds that the server may take to say whether memory exists."""


@asynccontextmanager
async def open_server_memory(settings: Settings, url: str, embedder: Embedder) -> AsyncGenerator[Memory]:
    """Open the memory; closed at the end. A server that is down now may come back later: that is no failure here.

    Raises:
        BadInput: The URL is not an address.
        OtherEmbedder: The memory was made with another embedder.
    """
    server = build_qdrant_server(settings, url)
    async with aclosing(QdrantServerMemory.open(server, embedder.name, embedder.dimension)) as memory:
        await _checked(memory)
        yield memory


async def _checked(memory: QdrantServerMemory) -> None:
    try:
        await memory.check()
    except OtherEmbedder:
        raise
    except MemoryUnavailable:
        return  # passages wait in the outbox until it answers


@asynccontextmanager
async def open_server_draft(
    settings: Settings, url: str, embedder: Embedder, *, rebuild: bool
) -> AsyncGenerator[MemoryDraft]:
    """Open the memory that is being rebuilt; closed at the end. Raises BadInput if the URL is not an address."""
    server = build_qdrant_server(settings, url)
    async with aclosing(QdrantServerDraft.open(server, embedder.name, embedder.dimension)) as draft:
        draft.rebuild = rebuild
        yield draft


async def has_memory_collection(settings: Settings, url: str) -> bool:
    """Ask the Qdrant server whether the collection of memory exists. Raises BadInput, MemoryUnavailable."""
    server = build_qdrant_server(settings, url)
    client = server.create_client(_CHECK_SECONDS)
    try:
        return await client.collection_exists(server.collection)
    except CLIENT_ERRORS as error:
        failure = classify_failure(error)
    finally:
        await client.close()
    raise MemoryUnavailable(f"{server.name} {failure}")


def build_qdrant_server(settings: Settings, url: str) -> QdrantServerConfig:
    """Build the configuration of the Qdrant server at this URL."""
    return QdrantServerConfig(
        url=url,
        api_key=settings.qdrant_api_key,
        grpc_port=settings.qdrant_grpc_port,
        collection=settings.qdrant_collection,
        storage=CollectionStorageOptions(
            quantisation=settings.qdrant_quantisation,
            shards=settings.qdrant_shards,
            replicas=settings.qdrant_replicas,
            on_disk=settings.qdrant_on_disk,
        ),
    )
