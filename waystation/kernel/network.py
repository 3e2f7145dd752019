"""Explains to people why a connection failed."""

from collections.abc import Iterator, Mapping

_BROKEN: Mapping[str, str] = {
    "SSLCertVerificationError": "the certificate of the server is not valid",
    "SSLError": "the two sides could not agree on TLS settings",
    "gaierror": "the host name cannot be resolved",
    "ConnectionRefusedError": "nothing listens there",
    "ConnectionResetError": "the connection was reset",
    "BrokenPipeError": "the connection was closed",
    "ConnectTimeout": "no connection in time",
    "PoolTimeout": "too many calls of this process are under way",
    "WriteTimeout": "the request could not be sent in time",
    "TimeoutException": "no answer in time",
    "TimeoutError": "no answer in time",
    "RemoteProtocolError": "the connection was closed before the whole answer arrived, or the answer is not HTTP",
    "ServerDisconnectedError": "the connection was closed before any answer arrived",
    "ClientPayloadError": "the connection was closed before the whole answer arrived",
    "ProxyError": "the proxy refuses the connection",
    "UnsupportedProtocol": "the address does not begin with http:// or https://",
    "ReadError": "the connection broke while the answer was read",
    "WriteError": "the connection broke while the request was sent",
    "DecodingError": "the answer cannot be decompressed",
    "ConnectError": "no connection is possible",
}
"""The deepest cause says most, so the system's errors come first. Matched by class name, since httpx, httpx2 and
aiohttp have their own classes for the same faults.
"""


def describe_connection_error(error: BaseException) -> str:
    """Say why a connection failed, in our own words: the error's message may quote an address or a key."""
    kinds = {kind.__name__ for cause in _causes(error) for kind in type(cause).__mro__}
    return next((words for kind, words in _BROKEN.items() if kind in kinds), type(error).__name__)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes, each once."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        # Suppressed contexts count too: httpcore2 raises `from None`, and only the context has the system's error.
        at = at.__cause__ or at.__context__
