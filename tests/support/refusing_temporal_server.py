"""A server with as much of Temporal's protocol as a connection needs, which refuses the given calls."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from temporalio.api.namespace.v1 import NamespaceConfig
from temporalio.api.operatorservice.v1 import AddSearchAttributesResponse, ListSearchAttributesResponse
from temporalio.api.workflowservice.v1 import DescribeNamespaceResponse, GetSystemInfoResponse

API_KEY = "a-key-that-nobody-may-read"
grpc: Any = import_module("grpc")  # it is untyped


@dataclass
class RefusingTemporalServer:
    """The refused calls, and the other answers."""

    refused: Sequence[str]
    code: str
    address: str = ""
    aliases: dict[str, str] = field(default_factory=dict[str, str])
    """The namespace's search attributes: name by field."""

    def service(self, details: Any) -> Any:
        """See `grpc.GenericRpcHandler`."""
        name = str(details.method).rpartition("/")[2]

        def answer(_request: bytes, context: Any) -> bytes:
            return self._answer(name, context)

        return grpc.unary_unary_rpc_method_handler(answer)

    def _answer(self, name: str, context: Any) -> bytes:
        if name in self.refused:
            context.abort(grpc.StatusCode[self.code], "Request unauthorized.")
        match name:
            case "GetSystemInfo":
                return GetSystemInfoResponse().SerializeToString()
            case "DescribeNamespace":
                config = NamespaceConfig(custom_search_attribute_aliases=self.aliases)
                return DescribeNamespaceResponse(config=config).SerializeToString()
            case "ListSearchAttributes":
                return ListSearchAttributesResponse().SerializeToString()
            case _:
                return AddSearchAttributesResponse().SerializeToString()


@contextmanager
def run_refusing_temporal_server(refused: Sequence[str], code: str) -> Generator[RefusingTemporalServer]:
    """Serve on a free port of loopback until the block ends."""
    grudging = RefusingTemporalServer(refused, code)
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((grudging,))
    grudging.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield grudging
    finally:
        server.stop(None).wait()
