"""What a person is told of a connection that failed."""

import socket
import ssl
from collections.abc import Iterator

import httpx2

_BROKEN: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "its certificate is not valid"),
    (ssl.SSLError, "no TLS could be agreed on"),
    (socket.gaierror, "its name is not known"),
    (ConnectionRefusedError, "nothing listens there"),
    (ConnectionResetError, "it was reset"),
    (BrokenPipeError, "it was closed"),
    (httpx2.ConnectTimeout, "no connection in time"),
    (httpx2.PoolTimeout, "too many calls are under way"),
    (httpx2.TimeoutException, "no answer in time"),
    (httpx2.RemoteProtocolError, "it was closed before a whole answer, or what came is no HTTP"),
    (httpx2.ProxyError, "its proxy refuses it"),
    (httpx2.UnsupportedProtocol, "its address does not begin with http:// or https://"),
    (httpx2.ReadError, "it broke while the answer was read"),
    (httpx2.WriteError, "it broke while the request was sent"),
    (httpx2.DecodingError, "its answer cannot be unpacked"),
    (httpx2.ConnectError, "nothing could be reached there"),
)
"""What a person reads, the first that fits: the deepest cause says most, so those of the system stand first."""


def why_broken(error: BaseException) -> str:
    """What became of a connection, in our words: the error's own may quote an address or a key."""
    causes = tuple(_causes(error))
    found = (words for kind, words in _BROKEN if any(isinstance(cause, kind) for cause in causes))
    return next(found, type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, each once."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__
