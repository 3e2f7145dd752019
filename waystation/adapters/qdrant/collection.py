"""The collection on a Qdrant server: made where it is missing, and refused where another embedder made it."""

from collections.abc import Container

from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, models

from waystation.adapters.qdrant.address import QdrantServer
from waystation.adapters.qdrant.failures import CLIENT_ERRORS, Trouble, failure_of
from waystation.adapters.qdrant.layout import Layout
from waystation.adapters.qdrant.points import CREATED, KEYWORDS, MEANING, WORDS, Embedding, MadeWith
from waystation.domain.errors import MemoryUnavailable

_INDEXES = {
    **{
        field: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=field == KEYWORDS[0] or None)
        for field in KEYWORDS
    },
    CREATED: models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
}


async def ensure_collection(client: AsyncQdrantClient, server: QdrantServer, embedding: Embedding) -> str:
    """Make the collection and its indexes where they are missing. Several workers may do so at once.

    Its name behind the alias, where there is one: who goes on with that after the alias was given away is told so.

    Raises:
        OtherEmbedder: it was made with another embedder.
        MemoryUnavailable: it was made by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    name = server.collection
    if not await client.collection_exists(name):
        await _create(client, name, MadeWith(**embedding.model_dump()), server.layout)
    found = await client.get_collection(name)
    made = _made_with(name, found.config.metadata)
    made.check(embedding, f"the collection {name}")
    await _index(client, name, found.payload_schema)
    return made.kept_in or name


async def ensure_draft(client: AsyncQdrantClient, server: QdrantServer, embedding: Embedding) -> str:
    """The collection that is to be known by this name: one beside that which is, as a run before this has left it, or
    new. The one that is known by it, where it was made with this embedding.

    Raises MemoryUnavailable and CLIENT_ERRORS, as above.
    """
    name = server.collection
    known = await _known(client, name)
    draft = _draft_name(name, embedding)
    there = await client.collection_exists(draft)
    if (known is None and not there) or (known is not None and known.embedding == embedding):
        return await ensure_collection(client, server, embedding)
    if not there:
        await _create(client, draft, MadeWith(**embedding.model_dump(), kept_in=draft), server.layout)
    await _index(client, draft, (await client.get_collection(draft)).payload_schema)
    return draft


async def publish_draft(client: AsyncQdrantClient, name: str, embedding: Embedding) -> None:
    """The draft is known by this name from now on, and the collection before it is gone. May be done again.

    Raises MemoryUnavailable and CLIENT_ERRORS, as above.
    """
    known = await _known(client, name)
    draft = _draft_name(name, embedding)
    if known is not None and known.embedding == embedding:
        if known.kept_in != draft:  # it was filled where it stands
            await client.delete_collection(draft)
        return
    if known is not None and known.kept_in is None:
        await client.delete_collection(name)  # no alias can have its name before
    given = models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=draft, alias_name=name))
    if known is None or known.kept_in is None:
        await client.update_collection_aliases([given])
        return
    taken = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
    await client.update_collection_aliases([taken, given])
    await client.delete_collection(known.kept_in)


async def _known(client: AsyncQdrantClient, name: str) -> MadeWith | None:
    if not await client.collection_exists(name):
        return None
    return _made_with(name, (await client.get_collection(name)).config.metadata)


def _draft_name(name: str, embedding: Embedding) -> str:
    return f"{name}-{embedding.digest}"


async def _create(client: AsyncQdrantClient, name: str, made: MadeWith, layout: Layout) -> None:
    cosine, on_disk = models.Distance.COSINE, layout.on_disk
    dense = (
        {}
        if made.dimension is None
        else {MEANING: models.VectorParams(size=made.dimension, distance=cosine, on_disk=on_disk)}
    )
    try:
        await client.create_collection(
            name,
            vectors_config=dense,
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            quantization_config=layout.quantization_config,
            shard_number=layout.shards,
            replication_factor=layout.replicas,
            on_disk_payload=on_disk,
            metadata=made.model_dump(exclude_unset=True),
        )
    except CLIENT_ERRORS as error:
        if failure_of(error).trouble is not Trouble.TAKEN:  # then another worker was first
            raise


async def _index(client: AsyncQdrantClient, name: str, there: Container[str]) -> None:
    for field, index in _INDEXES.items():
        if field not in there:
            await client.create_payload_index(name, field, field_schema=index)


def _made_with(name: str, metadata: models.Payload | None) -> MadeWith:
    """The embedder's name is in the collection's metadata, written in the moment in which the collection is made."""
    try:
        return MadeWith.model_validate(metadata)
    except ValidationError:
        raise MemoryUnavailable(
            f"the collection {name} does not name its embedder: another program made it, or the server is older than "
            "Qdrant 1.16, which keeps no such metadata; set WAYSTATION_QDRANT_COLLECTION to another name, or upgrade"
        ) from None
