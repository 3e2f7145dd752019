"""A Messages server on loopback that counts what it answers: the offline model behind real HTTP, in another process
than the workers, so that killing them loses no count."""

import asyncio
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from typing import Any, TypeVar, cast

import httpx2
from anthropic.types import Message as WireMessage
from pydantic import JsonValue

from tests.support.strict_server import BODY, Body, find_refusal
from tests.support.vendor_servers import make_chat_chunks, make_chat_stream_response
from waystation.models.anthropic import wire
from waystation.models.profiles import OFFLINE_MODEL
from waystation.plugins.offline.transport import MAX_OUTPUT, OfflineTransport
from waystation.testing.messages_server import (
    EndpointGap,
    TurnCounter,
    build_error_response,
    build_gap_error_response,
    build_response_with_gaps,
    has_status,
)

_STEP = re.compile(r'<step id=\\"([^"\\]+)\\"')


@dataclass(frozen=True)
class AnsweredTurn:
    """One reply that went out."""

    step: str
    turn: int
    at: float


@dataclass
class MessagesServer:
    """Answers as the offline model does, a little slower."""

    delay: float
    answered: list[AnsweredTurn] = field(default_factory=list[AnsweredTurn])
    transport: OfflineTransport = field(default_factory=OfflineTransport)
    url: str = ""
    turn_numbers: TurnCounter = field(default_factory=TurnCounter)

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The offline model's answer, whatever model was asked for."""
        asked = cast("dict[str, Any]", json.loads(body)) | {"model": OFFLINE_MODEL}
        if "max_tokens" in asked:
            asked["max_tokens"] = min(asked["max_tokens"], MAX_OUTPUT)
        request = httpx2.Request("POST", f"http://offline.invalid{path}", headers=headers, content=json.dumps(asked))
        return asyncio.run(_whole(self.select_transport(body), request))

    def select_transport(self, body: bytes) -> OfflineTransport:
        """The model that answers this: the same for all, so that they share its prompt cache."""
        return self.transport

    def pause(self) -> None:
        """Think."""
        time.sleep(self.delay)

    def send(self, write: Callable[[bytes], object], reply: bytes) -> None:
        """Let a reply go out."""
        write(reply)

    def find_turn(self, body: bytes) -> tuple[str, int] | None:
        """Which agent asks, by its step, and for which turn; None where no agent does."""
        asked, step = BODY.validate_json(body), _STEP.search(body.decode())
        return (step[1], self.turn_numbers.get_turn(step[1], asked)) if step and has_status(asked) else None

    def record_answered(self, body: bytes, began: float) -> None:
        """Keep that a turn of an agent was answered; plans and summaries carry no turn.

        `began`: when the request had come in, in seconds since the epoch.
        """
        if asking := self.find_turn(body):
            self.answered.append(AnsweredTurn(*asking, time.time()))


async def _whole(transport: OfflineTransport, request: httpx2.Request) -> httpx2.Response:
    response = await transport.handle_async_request(request)
    await _read(response)
    return response


async def _read(response: httpx2.Response) -> None:
    await response.aread()


@dataclass
class UncachedMessagesServer(MessagesServer):
    """Remembers nothing, so that a request costs the same whoever asked before: also where its first reply was lost."""

    def select_transport(self, body: bytes) -> OfflineTransport:
        """A new one."""
        return OfflineTransport()


@dataclass
class ServerWithGaps(MessagesServer):
    """Refuses what the API refuses, and speaks the protocol as other endpoints than the provider's do."""

    gaps: frozenset[EndpointGap] = frozenset()
    counts: int = 0
    """Requests for a count that reached it."""

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The offline model's answer with what its endpoint leaves out, or says in another way."""
        if path.endswith("count_tokens"):
            self.counts += 1
            missing = "no count" in self.gaps
            return (
                build_error_response(HTTPStatus.NOT_FOUND, "not_found_error")
                if missing
                else super().reply(path, headers, body)
            )
        said = self.build_answer(BODY.validate_json(body), headers)
        disguise = said if isinstance(said, httpx2.Response) else build_response_with_gaps(said, self.gaps)
        asyncio.run(_read(disguise))
        return disguise

    def build_answer(self, asked: Body, headers: dict[str, str]) -> Body | httpx2.Response:
        """The whole message, or what is answered in its place."""
        if (answer := build_gap_error_response(asked, self.gaps)) is not None:
            return answer
        if words := find_refusal(asked, headers.get("anthropic-beta", "")):
            return build_error_response(HTTPStatus.BAD_REQUEST, "invalid_request_error", words)
        calls = _harbour_depth_calls(asked, most=1 if "no parallel calls" in self.gaps else 2)
        # The offline model cannot be made to call a tool that it has no work for.
        unforced = {name: value for name, value in asked.items() if name != "tool_choice"} if calls else asked
        whole = super().reply("/v1/messages", {}, json.dumps({**unforced, "stream": False}).encode())
        if whole.status_code != HTTPStatus.OK:
            return whole
        said: Body = {**BODY.validate_json(whole.content), "model": asked["model"]}
        return {**said, "content": calls, "stop_reason": "tool_use"} if calls else said


@dataclass
class ChatWithGaps(ServerWithGaps):
    """The same behind chat completions."""

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        """The offline model's answer in pieces, or a refusal in the protocol's shape."""
        if not path.endswith("/v1/chat/completions"):
            return _chat_refusal(build_error_response(HTTPStatus.NOT_FOUND, "not_found_error"))
        said = self.build_answer(to_messages_request(BODY.validate_json(body)), {})
        if isinstance(said, httpx2.Response):
            return said if "a page" in self.gaps else _chat_refusal(said)
        reply = wire.parse_model_response(WireMessage.model_validate(said))
        if "another model" in self.gaps:
            reply = reply.replace(model="another-model")
        chunks = [*make_chat_chunks(reply, reports_usage="no usage" not in self.gaps)]
        if "no stop reason" in self.gaps:
            chunks = [chunk for chunk in chunks if '"finish_reason": "' not in json.dumps(chunk)]
        streamed = make_chat_stream_response(chunks)
        asyncio.run(_read(streamed))
        return streamed


def _chat_refusal(refusal: httpx2.Response) -> httpx2.Response:
    told = BODY.validate_json(refusal.content)["error"]
    return httpx2.Response(refusal.status_code, json={"error": told})


def to_messages_request(asked: Body) -> Body:
    """A request for a chat completion as a server that has a model of the Messages protocol would hand it on."""
    system: list[str] = []
    messages: list[JsonValue] = []
    for message in cast("list[Body]", asked["messages"]):
        if message["role"] == "system":
            system.append(str(message["content"]))
        else:
            messages.append({"role": _role(message), "content": [*_blocks(message)]})
    changed: Body = {"model": asked["model"], "max_tokens": asked["max_tokens"], "messages": messages}
    if system:
        changed["system"] = "\n\n".join(system)
    if tools := cast("list[dict[str, Body]]", asked.get("tools", [])):
        changed["tools"] = [_tool(tool["function"]) for tool in tools]
    if choice := cast("dict[str, Body] | None", asked.get("tool_choice")):
        changed["tool_choice"] = {"type": "tool", "name": choice["function"]["name"]}
    return changed


def _role(message: Body) -> str:
    return "assistant" if message["role"] == "assistant" else "user"


def _blocks(message: Body) -> Iterator[JsonValue]:
    if message["role"] == "tool":
        yield {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return
    if message["content"]:
        yield {"type": "text", "text": message["content"]}
    for call in cast("list[dict[str, Body]]", message.get("tool_calls", [])):
        arguments = json.loads(str(call["function"]["arguments"]))
        yield {"type": "tool_use", "id": str(call["id"]), "name": call["function"]["name"], "input": arguments}


def _tool(function: Body) -> JsonValue:
    named = {"name": function["name"], "description": function["description"]}
    return {**named, "input_schema": function["parameters"]}


def _harbour_depth_calls(asked: Body, most: int) -> list[JsonValue]:
    """The calls of a model that is asked for the depths of harbours, and has the tool for it."""
    tools, messages = json.dumps(asked.get("tools", [])), cast("list[JsonValue]", asked["messages"])
    named = [name for name in ("Nordvik", "Osthamn") if name in json.dumps(messages)] or ["Nordvik"]
    if "harbour_depth" not in tools or len(messages) > 1 or ("tool_choice" not in asked and "ready" in str(messages)):
        return []
    return [
        {"type": "tool_use", "id": f"toolu_{name}", "name": "harbour_depth", "input": {"harbour": name}}
        for name in named[:most]
    ]


@dataclass
class HoldableMessagesServer(MessagesServer):
    """Answers only while it is let: nothing that an agent is at ends behind a test's back."""

    holds_after: int = 0
    """So many turns are answered before it has to be let: at least, since some may be under way then."""
    goes_on: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        if self.holds_after:
            self.goes_on.set()

    def pause(self) -> None:
        """Think until it may go on."""
        self.goes_on.wait()
        super().pause()

    def record_answered(self, body: bytes, began: float) -> None:
        """Keep that a turn was answered, and hold after the last one that is free."""
        super().record_answered(body, began)
        if 0 < self.holds_after <= len(self.answered):
            self.goes_on.clear()
            self.holds_after = 0


Served = TypeVar("Served", bound=MessagesServer)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Clients are killed here: a connection that breaks is no error."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def run_messages_server(delay: float) -> Generator[MessagesServer]:
    """Serve on a free port of loopback until the block ends."""
    with run_server(MessagesServer(delay)) as served:
        yield served


@contextmanager
def run_server(served: Served) -> Generator[Served]:
    """The same for a server that pauses, sends or counts in another way."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # killed while it asked
                return
            began = time.time()
            is_call = not self.path.endswith("count_tokens")
            if is_call:
                served.pause()
            beta = self.headers.get("anthropic-beta", "")
            response = served.reply(self.path, {"content-type": "application/json", "anthropic-beta": beta}, body)
            if is_call and response.status_code == HTTPStatus.OK:
                served.record_answered(body, began)
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            write = self.wfile.write
            served.send(write, response.content) if is_call else write(response.content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
