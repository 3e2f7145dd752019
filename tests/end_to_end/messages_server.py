"""A Messages server on loopback that counts what it answers: the offline model behind real HTTP, in another process
than the workers, so that killing them loses no count."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

import httpx2

from waystation.adapters.offline.transport import OfflineTransport
from waystation.domain.models import OFFLINE_MODEL

_STEP = re.compile(r'<step id=\\"([^"\\]+)\\"')
_TURN = re.compile(r"<status>turn (\d+)")


@dataclass(frozen=True)
class Answered:
    """One reply that went out."""

    step: str
    turn: int
    at: float


@dataclass
class MessagesServer:
    """Answers as the offline model does, a little slower."""

    delay: float
    answered: list[Answered] = field(default_factory=list[Answered])
    transport: OfflineTransport = field(default_factory=OfflineTransport)
    url: str = ""

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The offline model's answer, whatever model was asked for."""
        asked = cast("dict[str, object]", json.loads(body)) | {"model": OFFLINE_MODEL}
        request = httpx2.Request("POST", f"http://offline.invalid{path}", headers=headers, content=json.dumps(asked))
        return asyncio.run(self._whole(request))

    def count(self, body: bytes) -> None:
        """Keep that a turn of an agent was answered; plans and summaries carry no turn."""
        text = body.decode()
        step, turn = _STEP.search(text), _TURN.findall(text)
        if step and turn:
            self.answered.append(Answered(step[1], int(turn[-1]), time.time()))

    async def _whole(self, request: httpx2.Request) -> httpx2.Response:
        response = await self.transport.handle_async_request(request)
        await response.aread()
        return response


@contextmanager
def running_messages_server(delay: float) -> Generator[MessagesServer]:
    """Serve on a free port of loopback until the block ends."""
    served = MessagesServer(delay)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            is_turn = not self.path.endswith("count_tokens")
            if is_turn:
                time.sleep(served.delay)
            response = served.reply(self.path, {"content-type": "application/json"}, body)
            if is_turn:
                served.count(body)
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
