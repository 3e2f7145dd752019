"""One table from what the Qdrant client raises to what went wrong, without a word of request or answer."""

from dataclasses import dataclass
from enum import Enum

import httpx
from grpc import StatusCode
from grpc.aio import AioRpcError, UsageError
from pydantic import ValidationError
from qdrant_client.common.client_exceptions import QdrantException, ResourceExhaustedResponse
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

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


class Trouble(Enum):
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
    def passes(self) -> bool:
        """Whether trying again may help. A missing collection is made again."""
        return self not in {Trouble.TAKEN, Trouble.FORBIDDEN, Trouble.REFUSED, Trouble.UNFIT, Trouble.UNREADABLE}


@dataclass(frozen=True)
class Failure:
    """How a call failed."""

    trouble: Trouble
    kind: str
    """A status, or the name of an exception. Never its message: that may quote a payload."""
    wait_s: float = 0.0
    """So many seconds the server asks to wait for."""

    def __str__(self) -> str:
        """As people read it, behind the name of the server."""
        return f"{self.trouble.value} ({self.kind})"


def failure_of(error: Exception) -> Failure:
    """How the call failed that raised this one of CLIENT_ERRORS."""
    match error:
        case UnexpectedResponse():
            status = error.status_code or 0
            return Failure(_of_http(status), f"HTTP {status}")
        case AioRpcError():
            code = error.code()
            return Failure(_BY_GRPC.get(code, Trouble.REFUSED), f"gRPC {code.name}")
        case ResourceExhaustedResponse():
            return Failure(Trouble.BUSY, "HTTP 429 or gRPC RESOURCE_EXHAUSTED", error.retry_after_s)
        case ResponseHandlingException():
            return Failure(_of_exception(error.source), type(error.source).__name__)
        case _:
            return Failure(_of_exception(error), type(error).__name__)


_BY_STATUS = {
    400: Trouble.UNFIT,
    413: Trouble.UNFIT,
    422: Trouble.UNFIT,
    401: Trouble.FORBIDDEN,
    403: Trouble.FORBIDDEN,
    404: Trouble.MISSING,
    408: Trouble.SLOW,
    409: Trouble.TAKEN,
    429: Trouble.BUSY,
}
_BY_GRPC = {
    StatusCode.INVALID_ARGUMENT: Trouble.UNFIT,
    StatusCode.UNAUTHENTICATED: Trouble.FORBIDDEN,
    StatusCode.PERMISSION_DENIED: Trouble.FORBIDDEN,
    StatusCode.NOT_FOUND: Trouble.MISSING,
    StatusCode.DEADLINE_EXCEEDED: Trouble.SLOW,
    StatusCode.ALREADY_EXISTS: Trouble.TAKEN,
    StatusCode.RESOURCE_EXHAUSTED: Trouble.BUSY,
    StatusCode.UNAVAILABLE: Trouble.UNREACHABLE,
    StatusCode.INTERNAL: Trouble.BROKEN,
    StatusCode.UNKNOWN: Trouble.BROKEN,
    StatusCode.ABORTED: Trouble.BROKEN,
    StatusCode.CANCELLED: Trouble.BROKEN,
}


def _of_http(status: int) -> Trouble:
    return Trouble.BROKEN if status >= 500 else _BY_STATUS.get(status, Trouble.REFUSED)


def _of_exception(error: BaseException) -> Trouble:
    match error:
        case TimeoutError() | httpx.TimeoutException():
            return Trouble.SLOW
        case OSError() | httpx.TransportError():
            return Trouble.UNREACHABLE
        case QdrantException():  # a Retry-After that is no number of seconds
            return Trouble.BUSY
        case ValidationError() | AssertionError():
            return Trouble.UNREADABLE
        case _:
            return Trouble.REFUSED
