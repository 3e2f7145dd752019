"""Where a Qdrant server is, and the client that talks to it."""

import math
import warnings
from urllib.parse import urlsplit

from pydantic import SecretStr
from qdrant_client import AsyncQdrantClient

from waystation.adapters.qdrant.layout import Layout
from waystation.domain.errors import BadInput
from waystation.domain.value import Value

REST_PORT = 6333
"""Where the URL names none, whatever its scheme: so it is at Qdrant Cloud, too."""
_LONGEST_RECONNECT_MS = 5_000
"""gRPC would wait up to two minutes, and answer nothing in between, after a server was away for long."""


class QdrantServer(Value):
    """A collection on a server, as the settings name it."""

    url: str
    api_key: SecretStr | None = None
    grpc_port: int = 0
    """0: REST alone."""
    collection: str = "waystation"
    layout: Layout = Layout()

    @property
    def name(self) -> str:
        """For messages: without what else a URL may hold, such as a password."""
        scheme, host, port = self._parts()
        if self.grpc_port:
            return f"the Qdrant server at {host}, gRPC port {self.grpc_port},"
        return f"the Qdrant server at {scheme}://{host}:{port}"

    def client(self, timeout_s: float) -> AsyncQdrantClient:
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
