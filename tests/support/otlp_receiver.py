"""A receiver of spans by OTLP over HTTP, which parses real protobuf and records them."""

import gzip
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

AttributeValue = str | int | float | bool | list[str]


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as it arrived."""

    name: str
    trace_id: str
    span_id: str
    parent: str
    start: int
    end: int
    """Nanoseconds since the epoch."""
    attributes: Mapping[str, AttributeValue]
    events: tuple[tuple[str, Mapping[str, AttributeValue]], ...]
    links: tuple[str, ...]
    """Ids of linked spans."""
    failed: bool
    resource: Mapping[str, AttributeValue]

    @property
    def operation(self) -> str:
        return str(self.attributes.get("gen_ai.operation.name", ""))

    @property
    def is_task_span(self) -> bool:
        """Whether it was built from the store, and not of an attempt at an activity."""
        return not self.name.startswith("RunActivity:")


@dataclass
class OtlpReceiver:
    url: str
    raw: list[bytes] = field(default_factory=list[bytes])
    spans: list[ReceivedSpan] = field(default_factory=list[ReceivedSpan])
    refuses: bool = False
    """Whether it answers that it is unavailable."""
    most_bytes: int | None = None
    """Maximum size of a body; a larger one is refused as too large."""
    redirects: bool = False

    def list_task_spans(self) -> list[ReceivedSpan]:
        return [span for span in list(self.spans) if span.is_task_span]

    def store_request(self, body: bytes) -> None:
        self.raw.append(body)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            resource = _plain(group.resource.attributes)
            for scope in group.scope_spans:
                self.spans.extend(_received(span, resource) for span in scope.spans)


def _received(span: Span, resource: Mapping[str, AttributeValue]) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        attributes=_plain(span.attributes),
        events=tuple((event.name, _plain(event.attributes)) for event in span.events),
        links=tuple(link.span_id.hex() for link in span.links),
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        resource=resource,
    )


def _plain(attributes: "list[KeyValue] | object") -> Mapping[str, AttributeValue]:
    return {one.key: _value(one.value) for one in attributes}  # pyright: ignore


def _value(value: AnyValue) -> AttributeValue:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return value.int_value
        case "bool_value":
            return value.bool_value
        case "double_value":
            return value.double_value
        case "array_value":
            return [one.string_value for one in value.array_value.values]
        case other:
            raise AssertionError(f"no attribute of ours is a {other}")


@contextmanager
def run_otlp_receiver() -> Generator[OtlpReceiver]:
    """Run a receiver on a port of its own until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if receiver.refuses:
                self.send_error(503)
                return
            if receiver.redirects:
                self.send_response(307)
                self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if receiver.most_bytes is not None and len(body) > receiver.most_bytes:
                self.send_error(413)
                return
            assert self.path == "/v1/traces"
            assert self.headers["Content-Type"] == "application/x-protobuf"
            receiver.store_request(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
