"""The collection on a Qdrant server: its address and client, its creation and replacement, and what its errors mean."""

import math
import warnings
from collections.abc import Container
from dataclasses import dataclass
from enum import Enum
from typing import Literal
from urllib.parse import urlsplit

import httpx
from grpc import StatusCode
from grpc.aio import AioRpcError, UsageError
from pydantic import SecretStr, ValidationError
from qdrant_client import AsyncQdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.kernel.network import describe_connection_error
from waystation.kernel.value import Value
from waystation.memory.qdrant.points import (
    CREATED_FIELD,
    DENSE_VECTOR_NAME,
    KEYWORD_FIELDS,
    SPARSE_VECTOR_NAME,
    EmbeddingSpec,
    MemoryMetadata,
    build_draft_metadata,
)

CLIENT_ERRORS = (
    ApiException,
    QdrantException,
    AioRpcError,
    UsageError,
    OSError,
    ValueError,
    RuntimeError,
    AssertionError,
)
"""The client wraps what HTTP raises. The rest is gRPC, our time limit, unreadable answers, a closed client."""


class QdrantErrorKind(Enum):
    """What went wrong, with the server as the subject."""

    UNREACHABLE = "does not answer"
    SLOW = "did not answer in time"
    BUSY = "accepts no more requests for now"
    BROKEN = "failed"
    UNREADABLE = "sent an unusable answer"
    MISSING = "does not have the collection"
    TAKEN = "already has the collection"
    FORBIDDEN = "does not accept the key: set QDRANT_API_KEY to a key that can read and write"
    REFUSED = "refused the request"
    UNFIT = "rejects the data in the request"

    @property
    def is_retryable(self) -> bool:
        """Whether trying again may help. A missing collection is created again."""
        return self not in {
            QdrantErrorKind.TAKEN,
            QdrantErrorKind.FORBIDDEN,
            QdrantErrorKind.REFUSED,
            QdrantErrorKind.UNFIT,
            QdrantErrorKind.UNREADABLE,
        }


@dataclass(frozen=True)
class _Failure:
    """How a call failed."""

    trouble: QdrantErrorKind
    kind: str
    """A status, or the fate of the connection. Never an exception's message, which may quote a payload."""
    wait_s: float = 0.0
    """Seconds that the server asks to wait."""

    def __str__(self) -> str:
        """Return the failure for people, to follow the name of the server."""
        return f"{self.trouble.value} ({self.kind})"


def classify_failure(error: Exception) -> _Failure:
    """Classify the failure of a call that raised one of CLIENT_ERRORS."""
    match error:
        case UnexpectedResponse():
            status = error.status_code or 0
            return _Failure(_of_http(status), f"HTTP {status}")
        case AioRpcError():
            code = error.code()
            return _Failure(_BY_GRPC.get(code, QdrantErrorKind.REFUSED), f"gRPC {code.name}")
        case ResourceExhaustedResponse():
            return _Failure(QdrantErrorKind.BUSY, "HTTP 429 or gRPC RESOURCE_EXHAUSTED", error.retry_after_s)
        case ResponseHandlingException():
            return _Failure(_of_exception(error.source), describe_connection_error(error.source))
        case _:
            return _Failure(_of_exception(error), type(error).__name__)


_BY_STATUS = {
    400: QdrantErrorKind.UNFIT,
    413: QdrantErrorKind.UNFIT,
    422: QdrantErrorKind.UNFIT,
    401: QdrantErrorKind.FORBIDDEN,
    403: QdrantErrorKind.FORBIDDEN,
    404: QdrantErrorKind.MISSING,
    408: QdrantErrorKind.SLOW,
    409: QdrantErrorKind.TAKEN,
    429: QdrantErrorKind.BUSY,
}
_BY_GRPC = {
    StatusCode.INVALID_ARGUMENT: QdrantErrorKind.UNFIT,
    StatusCode.UNAUTHENTICATED: QdrantErrorKind.FORBIDDEN,
    StatusCode.PERMISSION_DENIED: QdrantErrorKind.FORBIDDEN,
    StatusCode.NOT_FOUND: QdrantErrorKind.MISSING,
    StatusCode.DEADLINE_EXCEEDED: QdrantErrorKind.SLOW,
    StatusCode.ALREADY_EXISTS: QdrantErrorKind.TAKEN,
    StatusCode.RESOURCE_EXHAUSTED: QdrantErrorKind.BUSY,
    StatusCode.UNAVAILABLE: QdrantErrorKind.UNREACHABLE,
    StatusCode.INTERNAL: QdrantErrorKind.BROKEN,
    StatusCode.UNKNOWN: QdrantErrorKind.BROKEN,
    StatusCode.ABORTED: QdrantErrorKind.BROKEN,
    StatusCode.CANCELLED: QdrantErrorKind.BROKEN,
}


def _of_http(status: int) -> QdrantErrorKind:
    return QdrantErrorKind.BROKEN if status >= 500 else _BY_STATUS.get(status, QdrantErrorKind.REFUSED)


def _of_exception(error: BaseException) -> QdrantErrorKind:
    match error:
        case TimeoutError() | httpx.TimeoutException():
            return QdrantErrorKind.SLOW
        case OSError() | httpx.TransportError():
            return QdrantErrorKind.UNREACHABLE
        case QdrantException():  # a Retry-After that is not a number of seconds
            return QdrantErrorKind.BUSY
        case ValidationError() | AssertionError():
            return QdrantErrorKind.UNREADABLE
        case _:
            return QdrantErrorKind.REFUSED


class CollectionStorageOptions(Value):
    """How the server stores a collection; chosen by its operator. Product and binary quantisation cost some precision.

    None: the server's default.
    """

    quantisation: Literal["none", "scalar", "product", "binary"] = "none"
    shards: int | None = None
    replicas: int | None = None
    on_disk: bool | None = None

    @property
    def quantization_config(self) -> models.QuantizationConfig | None:
        """Quantisation as the client expects it. Quantised vectors stay in memory; the originals correct the result."""
        match self.quantisation:
            case "none":
                return None
            case "scalar":
                kind = models.ScalarType.INT8
                return models.ScalarQuantization(scalar=models.ScalarQuantizationConfig(type=kind, always_ram=True))
            case "product":
                ratio = models.CompressionRatio.X16
                return models.ProductQuantization(
                    product=models.ProductQuantizationConfig(compression=ratio, always_ram=True)
                )
            case "binary":
                return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))


REST_PORT = 6333
"""Used if the URL names none, whatever its scheme: Qdrant Cloud uses it too."""
_MAX_RECONNECT_MS = 5_000
"""Otherwise gRPC waits up to two minutes after a long outage, and answers nothing in between."""


class QdrantServerConfig(Value):
    """A collection on a server, as configured."""

    url: str
    api_key: SecretStr | None = None
    grpc_port: int = 0
    """0: REST only."""
    collection: str = "waystation"
    storage: CollectionStorageOptions = CollectionStorageOptions()

    @property
    def name(self) -> str:
        """Name for messages, without anything else that a URL may contain, such as a password."""
        scheme, host, port = self._parts()
        if self.grpc_port:
            return f"the Qdrant server at {host}, gRPC port {self.grpc_port},"
        return f"the Qdrant server at {scheme}://{host}:{port}"

    def create_client(self, timeout_s: float) -> AsyncQdrantClient:
        """Create a client that has made no request yet.

        Raises:
            BadInput: the URL is not valid.
        """
        self._parts()
        with warnings.catch_warnings():
            # A key over plain HTTP is usual inside a network; anyone who leaves it sets an https URL.
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection", UserWarning)
            return AsyncQdrantClient(
                url=self.url,
                port=REST_PORT,
                grpc_port=self.grpc_port,
                prefer_grpc=self.grpc_port != 0,
                api_key=None if self.api_key is None else self.api_key.get_secret_value(),
                timeout=math.ceil(timeout_s),
                grpc_options={"grpc.max_reconnect_backoff_ms": _MAX_RECONNECT_MS},
                check_compatibility=False,
            )

    def _parts(self) -> tuple[str, str, int]:
        """Return scheme, host and port of REST."""
        try:
            parts = urlsplit(self.url)
            scheme, host, port = parts.scheme, parts.hostname, parts.port
        except ValueError:
            scheme, host, port = "", None, None
        if scheme not in {"http", "https"} or not host:
            raise BadInput(
                "QDRANT_URL is not the address of a server: it must look like https://qdrant.example.com:6333"
            )
        return scheme, host, port or REST_PORT


_INDEXES = {
    **{
        field: models.KeywordIndexParams(
            type=models.KeywordIndexType.KEYWORD, is_tenant=field == KEYWORD_FIELDS[0] or None
        )
        for field in KEYWORD_FIELDS
    },
    CREATED_FIELD: models.DatetimeIndexParams(type=models.DatetimeIndexType.DATETIME),
}


async def ensure_collection(client: AsyncQdrantClient, server: QdrantServerConfig, embedding: EmbeddingSpec) -> str:
    """Create the collection and its indexes if they are missing. Several workers may do so at once.

    Returns:
        Its name behind the alias, if there is one, so that a caller notices when the alias moves.

    Raises:
        OtherEmbedder: it was made with another embedder.
        MemoryUnavailable: it was made by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    name = server.collection
    if not await client.collection_exists(name):
        await _create(client, name, MemoryMetadata(**embedding.model_dump()), server.storage)
    found = await client.get_collection(name)
    made = _made_with(name, found.config.metadata)
    made.require_same_embedding(embedding, f"the collection {name}")
    await _index(client, name, found.payload_schema)
    return made.storage_location or name


async def ensure_draft(
    client: AsyncQdrantClient, server: QdrantServerConfig, embedding: EmbeddingSpec, *, rebuild: bool
) -> str:
    """Return the collection that is to get this name: one next to the current one, new or left by an earlier run; or
    the current one itself, if it was made with this embedding and `rebuild` is not set.

    Raises:
        MemoryUnavailable: it was made by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    name = server.collection
    known = await _known(client, name)
    made = build_draft_metadata(known or MemoryMetadata(**embedding.model_dump()), embedding, name)
    draft = made.storage_location or name
    there = await client.collection_exists(draft)
    if (known is None and not there) or (known is not None and known.embedding == embedding and not rebuild):
        return await ensure_collection(client, server, embedding)
    if not there:
        await _create(client, draft, made, server.storage)
    await _index(client, draft, (await client.get_collection(draft)).payload_schema)
    return draft


async def publish_draft(client: AsyncQdrantClient, name: str, draft: str, embedding: EmbeddingSpec) -> None:
    """Give the collection `draft` this name and delete the previous one. May be repeated.

    Raises:
        MemoryUnavailable: it was made by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    known = await _known(client, name)
    if known is not None and draft == (known.storage_location or name):  # it was filled in place
        await client.delete_collection(build_draft_metadata(known, embedding, name).storage_location or name)
        return
    if known is not None and known.storage_location is None:
        await client.delete_collection(name)  # an alias cannot have its name while it exists
    given = models.CreateAliasOperation(create_alias=models.CreateAlias(collection_name=draft, alias_name=name))
    if known is None or known.storage_location is None:
        await client.update_collection_aliases([given])
        return
    taken = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=name))
    await client.update_collection_aliases([taken, given])
    await client.delete_collection(known.storage_location)


async def _known(client: AsyncQdrantClient, name: str) -> MemoryMetadata | None:
    if not await client.collection_exists(name):
        return None
    return _made_with(name, (await client.get_collection(name)).config.metadata)


async def _create(
    client: AsyncQdrantClient, name: str, metadata: MemoryMetadata, layout: CollectionStorageOptions
) -> None:
    cosine, on_disk = models.Distance.COSINE, layout.on_disk
    dense = (
        {}
        if metadata.dimension is None
        else {DENSE_VECTOR_NAME: models.VectorParams(size=metadata.dimension, distance=cosine, on_disk=on_disk)}
    )
    try:
        await client.create_collection(
            name,
            vectors_config=dense,
            sparse_vectors_config={SPARSE_VECTOR_NAME: models.SparseVectorParams(modifier=models.Modifier.IDF)},
            quantization_config=layout.quantization_config,
            shard_number=layout.shards,
            replication_factor=layout.replicas,
            on_disk_payload=on_disk,
            metadata=metadata.model_dump(exclude_unset=True),
        )
    except CLIENT_ERRORS as error:
        if classify_failure(error).trouble is not QdrantErrorKind.TAKEN:  # then another worker was first
            raise


async def _index(client: AsyncQdrantClient, name: str, there: Container[str]) -> None:
    for field, index in _INDEXES.items():
        if field not in there:
            await client.create_payload_index(name, field, field_schema=index)


def _made_with(name: str, metadata: models.Payload | None) -> MemoryMetadata:
    """Return the embedder from the collection's metadata, which are written at its creation."""
    try:
        return MemoryMetadata.model_validate(metadata, extra="ignore")
    except ValidationError:
        raise MemoryUnavailable(
            f"the collection {name} does not name its embedder: another program created it, or the server is "
            "older than Qdrant 1.16 and stores no such metadata. Set WAYSTATION_QDRANT_COLLECTION to another "
            "name, or upgrade the server"
        ) from None
