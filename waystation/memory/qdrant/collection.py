"""The collection on a Qdrant server: where that is, what it must be like, and what its errors mean.

The collection on a Qdrant server: made where it is missing, and refused where another embedder made it.

Where a Qdrant server is, and the client that talks to it.

One table from what the Qdrant client raises to what went wrong, without a word of request or answer.

How a Qdrant server keeps a collection that is made: what its operator chooses, and finding does not depend on.
"""

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
"""The client wraps what HTTP raises. The rest is gRPC, our time limit, answers that cannot be read, a closed client."""


class QdrantErrorKind(Enum):
    """What went wrong, said of the server."""

    UNREACHABLE = "does not answer"
    SLOW = "did not answer in time"
    BUSY = "takes no more requests for now"
    BROKEN = "failed"
    UNREADABLE = "gave an answer that cannot be used"
    MISSING = "does not have the collection"
    TAKEN = "has the collection already"
    FORBIDDEN = "does not accept the key: set QDRANT_API_KEY to one that may read and write"
    REFUSED = "refused the request"
    UNFIT = "does not take what it was sent"

    @property
    def is_retryable(self) -> bool:
        """Whether trying again may help. A missing collection is made again."""
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
    """A status, or what became of the connection. Never an exception's message: that may quote a payload."""
    wait_s: float = 0.0
    """So many seconds the server asks to wait for."""

    def __str__(self) -> str:
        """As people read it, behind the name of the server."""
        return f"{self.trouble.value} ({self.kind})"


def classify_failure(error: Exception) -> _Failure:
    """How the call failed that raised this one of CLIENT_ERRORS."""
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
        case QdrantException():  # a Retry-After that is no number of seconds
            return QdrantErrorKind.BUSY
        case ValidationError() | AssertionError():
            return QdrantErrorKind.UNREADABLE
        case _:
            return QdrantErrorKind.REFUSED


class CollectionLayout(Value):
    """None: as the server has it."""

    quantisation: Literal["none", "scalar", "product", "binary"] = "none"
    shards: int | None = None
    replicas: int | None = None
    on_disk: bool | None = None

    @property
    def quantization_config(self) -> models.QuantizationConfig | None:
        """As the client wants it. What is made smaller stays in memory; the vectors themselves correct it."""
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
"""Where the URL names none, whatever its scheme: so it is at Qdrant Cloud, too."""
_LONGEST_RECONNECT_MS = 5_000
"""gRPC would wait up to two minutes, and answer nothing in between, after a server was away for long."""


class QdrantServerConfig(Value):
    """A collection on a server, as the settings name it."""

    url: str
    api_key: SecretStr | None = None
    grpc_port: int = 0
    """0: REST alone."""
    collection: str = "waystation"
    layout: CollectionLayout = CollectionLayout()

    @property
    def name(self) -> str:
        """For messages: without what else a URL may hold, such as a password."""
        scheme, host, port = self._parts()
        if self.grpc_port:
            return f"the Qdrant server at {host}, gRPC port {self.grpc_port},"
        return f"the Qdrant server at {scheme}://{host}:{port}"

    def create_client(self, timeout_s: float) -> AsyncQdrantClient:
        """A client that has made no request yet.

        Raises:
            BadInput: the URL cannot be one.
        """
        self._parts()
        with warnings.catch_warnings():
            # A key over plain HTTP is usual inside one network; whoever leaves that has set an https URL.
            warnings.filterwarnings("ignore", "Api key is used with an insecure connection", UserWarning)
            return AsyncQdrantClient(
                url=self.url,
                port=REST_PORT,
                grpc_port=self.grpc_port,
                prefer_grpc=self.grpc_port != 0,
                api_key=None if self.api_key is None else self.api_key.get_secret_value(),
                timeout=math.ceil(timeout_s),
                grpc_options={"grpc.max_reconnect_backoff_ms": _LONGEST_RECONNECT_MS},
                check_compatibility=False,
            )

    def _parts(self) -> tuple[str, str, int]:
        """Scheme, host and port of REST."""
        try:
            parts = urlsplit(self.url)
            scheme, host, port = parts.scheme, parts.hostname, parts.port
        except ValueError:
            scheme, host, port = "", None, None
        if scheme not in {"http", "https"} or not host:
            raise BadInput("QDRANT_URL is no address of a server: it must look like https://qdrant.example.com:6333")
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
    """Make the collection and its indexes where they are missing. Several workers may do so at once.

    Its name behind the alias, where there is one: who goes on with that after the alias was given away is told so.

    Raises:
        OtherEmbedder: it was made with another embedder.
        MemoryUnavailable: it was made by another program.
        CLIENT_ERRORS: the server did not do its part.
    """
    name = server.collection
    if not await client.collection_exists(name):
        await _create(client, name, MemoryMetadata(**embedding.model_dump()), server.layout)
    found = await client.get_collection(name)
    made = _made_with(name, found.config.metadata)
    made.require_same_embedding(embedding, f"the collection {name}")
    await _index(client, name, found.payload_schema)
    return made.kept_in or name


async def ensure_draft(
    client: AsyncQdrantClient, server: QdrantServerConfig, embedding: EmbeddingSpec, *, anew: bool
) -> str:
    """The collection that is to be known by this name: one beside that which is, as a run before this has left it, or
    new. The one that is known by it, where it was made with this embedding and need not be made anew.

    Raises MemoryUnavailable and CLIENT_ERRORS, as above.
    """
    name = server.collection
    known = await _known(client, name)
    made = build_draft_metadata(known or MemoryMetadata(**embedding.model_dump()), embedding, name)
    draft = made.kept_in or name
    there = await client.collection_exists(draft)
    if (known is None and not there) or (known is not None and known.embedding == embedding and not anew):
        return await ensure_collection(client, server, embedding)
    if not there:
        await _create(client, draft, made, server.layout)
    await _index(client, draft, (await client.get_collection(draft)).payload_schema)
    return draft


async def publish_draft(client: AsyncQdrantClient, name: str, draft: str, embedding: EmbeddingSpec) -> None:
    """The collection `draft` is known by this name from now on, and the one before it is gone. May be done again.

    Raises MemoryUnavailable and CLIENT_ERRORS, as above.
    """
    known = await _known(client, name)
    if known is not None and draft == (known.kept_in or name):  # it was filled where it stands
        await client.delete_collection(build_draft_metadata(known, embedding, name).kept_in or name)
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


async def _known(client: AsyncQdrantClient, name: str) -> MemoryMetadata | None:
    if not await client.collection_exists(name):
        return None
    return _made_with(name, (await client.get_collection(name)).config.metadata)


async def _create(client: AsyncQdrantClient, name: str, made: MemoryMetadata, layout: CollectionLayout) -> None:
    cosine, on_disk = models.Distance.COSINE, layout.on_disk
    dense = (
        {}
        if made.dimension is None
        else {DENSE_VECTOR_NAME: models.VectorParams(size=made.dimension, distance=cosine, on_disk=on_disk)}
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
            metadata=made.model_dump(exclude_unset=True),
        )
    except CLIENT_ERRORS as error:
        if classify_failure(error).trouble is not QdrantErrorKind.TAKEN:  # then another worker was first
            raise


async def _index(client: AsyncQdrantClient, name: str, there: Container[str]) -> None:
    for field, index in _INDEXES.items():
        if field not in there:
            await client.create_payload_index(name, field, field_schema=index)


def _made_with(name: str, metadata: models.Payload | None) -> MemoryMetadata:
    """The embedder's name is in the collection's metadata, written in the moment in which the collection is made."""
    try:
        return MemoryMetadata.model_validate(metadata, extra="ignore")
    except ValidationError:
        raise MemoryUnavailable(
            f"the collection {name} does not name its embedder: another program made it, or the server is older than "
            "Qdrant 1.16, which keeps no such metadata; set WAYSTATION_QDRANT_COLLECTION to another name, or upgrade"
        ) from None
