"""The collection on a Qdrant server: made where it is missing, and refused where another embedder made it."""

from pydantic import ValidationError
from qdrant_client import AsyncQdrantClient, models

from waystation.adapters.qdrant.failures import CLIENT_ERRORS, Trouble, failure_of
from waystation.adapters.qdrant.points import MEANING, SESSION, TENANT, WORDS, Embedding
from waystation.domain.errors import MemoryUnavailable

_INDEXES = {
    TENANT: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    SESSION: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD),
}


async def ensure_collection(client: AsyncQdrantClient, name: str, embedding: Embedding) -> None:
    """Make the collection and its indexes where they are missing. Several workers may do so at once.

    Raises:
        MemoryUnavailable: it was made with another embedder, or by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    if not await client.collection_exists(name):
        await _create(client, name, embedding)
    found = await client.get_collection(name)
    _check(name, found.config.metadata, embedding)
    for field, index in _INDEXES.items():
        if field not in found.payload_schema:
            await client.create_payload_index(name, field, field_schema=index)


async def _create(client: AsyncQdrantClient, name: str, embedding: Embedding) -> None:
    dense = (
        {}
        if embedding.dimension is None
        else {MEANING: models.VectorParams(size=embedding.dimension, distance=models.Distance.COSINE)}
    )
    try:
        await client.create_collection(
            name,
            vectors_config=dense,
            sparse_vectors_config={WORDS: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            metadata=embedding.model_dump(),
        )
    except CLIENT_ERRORS as error:
        if failure_of(error).trouble is not Trouble.TAKEN:  # then another worker was first
            raise


def _check(name: str, metadata: models.Payload | None, embedding: Embedding) -> None:
    """The embedder's name is in the collection's metadata, written in the moment in which the collection is made."""
    try:
        made_with = Embedding.model_validate(metadata)
    except ValidationError:
        raise MemoryUnavailable(
            f"the collection {name} does not name its embedder: another program made it, or the server is older than "
            "Qdrant 1.16, which keeps no such metadata; set WAYSTATION_QDRANT_COLLECTION to another name, or upgrade"
        ) from None
    if made_with != embedding:
        raise MemoryUnavailable(
            f"the collection {name} was made with the embedder {made_with}, not with {embedding}: use that embedder, "
            "or set WAYSTATION_QDRANT_COLLECTION to another name"
        )
