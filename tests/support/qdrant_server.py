"""A fake Qdrant server: the part of its REST API that memory uses, on loopback, over the client's in-memory engine,
with programmable failures: refusals, late or broken answers, and a required API key.
"""

import sys
import threading
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from socketserver import BaseServer

from pydantic_core import to_json
from qdrant_client import QdrantClient, models


@dataclass(frozen=True)
class Fault:
    """The failure of one request. Status 200: it is carried out, but its answer breaks off."""

    status: HTTPStatus
    retry_after: str | None = None


class Refusal(Exception):
    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class QdrantStub:
    """The server's state and behaviour. Tests may change it at any time."""

    def __init__(self, api_key: str | None) -> None:
        self.api_key = api_key
        self.url = ""
        self.delay = 0.0
        """Seconds between the work and its answer."""
        self.requests: list[str] = []
        """`METHOD /path` of each request, oldest first."""
        self.bodies: list[int] = []
        """Sizes of the request bodies, in bytes."""
        self.wanted: dict[str, models.CreateCollection] = {}
        """Requested configuration by collection. The engine behind this only uses vectors and metadata."""
        self.is_indexed_otherwise = False
        """Whether the first collection reports that passages were indexed differently."""
        self.stopping = threading.Event()
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self._engine = QdrantClient(":memory:")
        self._indexes: dict[str, dict[str, models.PayloadIndexInfo]] = {}

    def fail_next(self, count: int, status: int, retry_after: str | None = None) -> None:
        """Do not carry out the next requests, and answer them with this status."""
        self._faults.extend([Fault(HTTPStatus(status), retry_after)] * count)

    def disconnect_next(self, count: int) -> None:
        """Carry out the next requests, and end the connection in the middle of the answer."""
        self._faults.extend([Fault(HTTPStatus.OK)] * count)

    def recover(self) -> None:
        """Make everything work again."""
        self._faults.clear()
        self.delay = 0.0

    @property
    def faults_left(self) -> int:
        return len(self._faults)

    def next_fault(self) -> Fault | None:
        with self._lock:
            return self._faults.popleft() if self._faults else None

    def collection(self, name: str) -> models.CollectionInfo:
        with self._lock:
            return self._collection(name)

    def make_foreign_collection(self, name: str, dimension: int) -> None:
        """Create a collection as another program would: without our names and metadata."""
        vectors = models.VectorParams(size=dimension, distance=models.Distance.COSINE)
        with self._lock:
            self._engine.create_collection(name, vectors_config=vectors)

    def put_point(self, name: str, vector: models.VectorStruct, payload: dict[str, str]) -> None:
        with self._lock:
            self._engine.upsert(name, [models.PointStruct(id=1, vector=vector, payload=payload)])

    def delete_collection(self, name: str) -> None:
        with self._lock:
            self._engine.delete_collection(name)
            del self._indexes[name]

    def close(self) -> None:
        self.stopping.set()
        with self._lock:
            self._engine.close()

    def drop_index(self, name: str, field: str) -> None:
        with self._lock:
            del self._indexes[name][field]

    def points(self, name: str) -> list[models.Record]:
        with self._lock:
            return self._engine.scroll(name, limit=1_000)[0]

    def answer(self, method: str, path: str, body: bytes) -> object:
        """Return the engine's answer. Raises Refusal."""
        with self._lock:
            self.requests.append(f"{method} {path}")
            self.bodies.append(len(body))
            try:
                return self._answer(method, path.strip("/").split("/"), body)
            except ValueError as error:
                text = f"{error} in {body.decode()}"  # real servers quote the request too
                raise Refusal(_status(str(error)), text) from error

    def _answer(self, method: str, path: Sequence[str], body: bytes) -> object:
        match method, path:
            case "GET", ["collections", name, "exists"]:
                return models.CollectionExistence(exists=self._engine.collection_exists(name))
            case "GET", ["collections", name]:
                return self._collection(name)
            case "PUT", ["collections", name]:
                return self._create(name, models.CreateCollection.model_validate_json(body))
            case "PUT", ["collections", name, "index"]:
                return self._index(name, models.CreateFieldIndex.model_validate_json(body))
            case _, ["collections", name, "points", *rest]:
                return self._points(name, (method, *rest), body)
            case _:
                return self._replace(method, path, body)

    def _replace(self, method: str, path: Sequence[str], body: bytes) -> object:
        match method, path:
            case "DELETE", ["collections", name]:
                return self._engine.delete_collection(name)
            case "POST", ["collections", "aliases"]:
                return self._engine.update_collection_aliases(
                    models.ChangeAliasesOperation.model_validate_json(body).actions
                )
            case _:
                raise _unknown(method, path)

    def _points(self, name: str, verb: Sequence[str], body: bytes) -> object:
        match verb:
            case ["PUT"]:
                return self._engine.upsert(name, models.PointsList.model_validate_json(body).points)
            case ["POST", "delete"]:
                return self._engine.delete(name, models.PointIdsList.model_validate_json(body))
            case ["POST"]:
                return self._engine.retrieve(name, models.PointRequest.model_validate_json(body).ids)
            case ["POST", "query", "batch"]:
                asked = models.QueryRequestBatch.model_validate_json(body)
                return self._engine.query_batch_points(name, asked.searches)
            case ["POST", "scroll"]:
                asked = models.ScrollRequest.model_validate_json(body)
                records, following = self._engine.scroll(name, limit=asked.limit or 10, offset=asked.offset)
                return {"points": records, "next_page_offset": following}
            case ["POST", "count"]:
                return self._engine.count(name, models.CountRequest.model_validate_json(body).filter)
            case _:
                raise _unknown(name, verb)

    def _collection(self, name: str) -> models.CollectionInfo:
        info = self._engine.get_collection(name)
        config = info.config
        if self.is_indexed_otherwise and config.metadata and "storage_location" not in config.metadata:
            told = {**config.metadata, "indexing": 0}
            config = config.__replace__(metadata=told)
        return info.__replace__(payload_schema=self._indexes.get(name, {}), config=config)

    def _create(self, name: str, wanted: models.CreateCollection) -> bool:
        self._indexes.setdefault(name, {})
        self.wanted.setdefault(name, wanted)
        return self._engine.create_collection(
            name,
            vectors_config=wanted.vectors,
            sparse_vectors_config=wanted.sparse_vectors,
            metadata=wanted.metadata,
        )

    def _index(self, name: str, wanted: models.CreateFieldIndex) -> models.UpdateResult:
        """Record the index only: the engine scans every point anyway."""
        assert isinstance(wanted.field_schema, models.KeywordIndexParams | models.DatetimeIndexParams)
        self._indexes[name][wanted.field_name] = models.PayloadIndexInfo(
            data_type=models.PayloadSchemaType(wanted.field_schema.type.value), params=wanted.field_schema, points=0
        )
        return models.UpdateResult(operation_id=0, status=models.UpdateStatus.COMPLETED)


def _status(reason: str) -> HTTPStatus:
    if "already exists" in reason:
        return HTTPStatus.CONFLICT
    return HTTPStatus.NOT_FOUND if "not found" in reason else HTTPStatus.BAD_REQUEST


def _unknown(*what: object) -> Refusal:
    return Refusal(HTTPStatus.NOT_IMPLEMENTED, f"this stand-in does not know {what}")


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, stub: QdrantStub, request: socket, address: tuple[str, int], server: BaseServer) -> None:
        self._stub = stub  # the base class serves the requests in its constructor
        super().__init__(request, address, server)

    def do_GET(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: the stub records the requests."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self._stub.next_fault()
        try:
            result = self._result(fault, body)
        except Refusal as refusal:
            answer = to_json({"status": {"error": str(refusal)}, "time": 0.0})
            self._send(refusal.status, answer, fault)
            return
        self._stub.stopping.wait(self._stub.delay)
        self._send(HTTPStatus.OK, to_json({"result": result, "status": "ok", "time": 0.0}), fault)

    def _result(self, fault: Fault | None, body: bytes) -> object:
        wanted, given = self._stub.api_key, self.headers.get("api-key")
        if wanted is not None and given != wanted:
            raise Refusal(HTTPStatus.UNAUTHORIZED, f"{given} is not the key")
        if fault is not None and fault.status is not HTTPStatus.OK:
            raise Refusal(fault.status, f"told to fail at {body.decode()}")
        return self._stub.answer(self.command, self.path.partition("?")[0], body)

    def _send(self, status: HTTPStatus, answer: bytes, fault: Fault | None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        if fault is not None and fault.retry_after is not None:
            self.send_header("Retry-After", fault.retry_after)
        self.end_headers()
        breaks_off = fault is not None and status is HTTPStatus.OK
        self.wfile.write(answer[: len(answer) // 2] if breaks_off else answer)
        self.close_connection = self.close_connection or breaks_off


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Ignore clients that gave up waiting, which some tests provoke."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def run_qdrant_server(api_key: str | None = None) -> Generator[QdrantStub]:
    """Run a server on a free port of loopback until the block ends."""
    stub = QdrantStub(api_key)
    with _Server(("127.0.0.1", 0), partial(_Connection, stub)) as server:
        stub.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield stub
        finally:
            server.shutdown()
            thread.join()
            stub.close()
