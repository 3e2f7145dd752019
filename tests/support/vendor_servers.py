"""In-process endpoints of vendors: each checks requests as its vendor would, and answers in the vendor's format."""

import base64
import hashlib
import hmac
import json
import re
import struct
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar
from urllib.parse import quote

import httpx2
from pydantic import JsonValue, TypeAdapter

from waystation.kernel.errors import ModelError, ModelUnavailable
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.ports import ModelResponse
from waystation.testing.messages_server import build_error_response, build_message_body, build_stream_response

ScriptedAnswer = ModelResponse | ModelError | httpx2.Response
BODY: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
AWS_KEY, AWS_SECRET, REGION = "AKIDEXAMPLE", "wJalrXUtnFEMI", "eu-west-1"
MODEL = "claude-sonnet-5-5"
_PROJECT = "projects/harbours/locations/europe-west1"


@dataclass
class VendorServer:
    """Answers from its script, in order, as the vendor's endpoint would."""

    script: Sequence[ScriptedAnswer]
    requests: list[httpx2.Request] = field(default_factory=list[httpx2.Request])
    counts_at: ClassVar[str | None] = "/v1/messages/count_tokens"
    asked_at: ClassVar[str] = "/v1/messages"

    def __post_init__(self) -> None:
        self._answers = iter(self.script)

    @property
    def bodies(self) -> list[dict[str, JsonValue]]:
        """Bodies of the requests for a reply, oldest first."""
        asked = [request for request in self.requests if request.url.path.endswith(self.asked_at)]
        return [BODY.validate_json(request.content) for request in asked]

    def http_client(self) -> httpx2.AsyncClient:
        """Return an HTTP client whose every request reaches this server."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self.answer))

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if fault := self.find_auth_error(request):
            return self.make_error_response(401, "authentication_error", fault)
        if self.counts_at is not None and request.url.path.endswith(self.counts_at):
            return httpx2.Response(200, json={"input_tokens": len(request.content) // 4})
        if not request.url.path.endswith(self.asked_at):
            return self.make_error_response(404, "not_found_error", f"no such path: {request.url.path}")
        match next(self._answers, None):
            case None:
                return self.make_error_response(400, "invalid_request_error", "the script has no more answers")
            case httpx2.Response() as whole:
                return whole
            case ModelResponse() as reply:
                return self.make_reply_response(reply)
            case ModelUnavailable() as later:
                named = {} if later.retry_after is None else {"retry-after": str(later.retry_after)}
                return self.make_error_response(429, "rate_limit_error", "slow down", named)
            case _:
                return self.make_error_response(403, "permission_error", "not for you")

    def find_auth_error(self, request: httpx2.Request) -> str:
        """Return why this request is unauthorised; empty if it is authorised."""
        return "" if request.headers.get("authorization") == "Bearer key" else "no key"

    def make_error_response(
        self, status: int, kind: str, words: str, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Return an error in the vendor's format."""
        return build_error_response(status, kind, words, headers)

    def make_reply_response(self, reply: ModelResponse) -> httpx2.Response:
        """Return a reply in the vendor's format."""
        return build_stream_response(build_message_body(reply))


@dataclass
class HeaderKeyServer(VendorServer):
    """A server of the Messages protocol that takes its key in other headers."""

    headers: Sequence[str] = ("x-api-key",)

    def find_auth_error(self, request: httpx2.Request) -> str:
        given = {name for name in ("authorization", "x-api-key", "api-key") if name in request.headers}
        keys = {request.headers[name].removeprefix("Bearer ") for name in given}
        return "" if given == {*self.headers} and keys == {"key"} else f"keys in {sorted(given)}"


@dataclass
class AwsSignatureServer(VendorServer):
    """A server that requires AWS signatures, version 4."""

    service: str = "bedrock-mantle"
    session_token: str = ""

    def find_auth_error(self, request: httpx2.Request) -> str:
        given = request.headers.get("authorization", "")
        signed = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, "
            r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})",
            given,
        )
        if signed is None or signed.group(1, 3, 4) != (AWS_KEY, REGION, self.service):
            return f"no signature for {self.service}"
        names = signed[5].split(";")
        return "" if self._signature(request, names) == signed[6] else "the signature is another"

    def _signature(self, request: httpx2.Request, names: Sequence[str]) -> str:
        """Return the signature that this request should have, as AWS describes it."""
        day, scope = request.headers["x-amz-date"][:8], f"{REGION}/{self.service}/aws4_request"
        path = quote(request.url.raw_path.decode().partition("?")[0], safe="/~")
        headers = "".join(f"{name}:{' '.join(request.headers[name].split())}\n" for name in names)
        digest = hashlib.sha256(request.content).hexdigest()
        canonical = f"{request.method}\n{path}\n\n{headers}\n{';'.join(names)}\n{digest}"
        hashed = hashlib.sha256(canonical.encode()).hexdigest()
        signed = f"AWS4-HMAC-SHA256\n{request.headers['x-amz-date']}\n{day}/{scope}\n{hashed}"
        key = f"AWS4{AWS_SECRET}".encode()
        for part in (day, *scope.split("/")):
            key = hmac.digest(key, part.encode(), "sha256")
        return hmac.digest(key, signed.encode(), "sha256").hex()


@dataclass
class BedrockServer(AwsSignatureServer):
    """Bedrock's older API: the model in the path, and the reply in AWS's event stream."""

    service: str = "bedrock"
    counts_at: ClassVar[str | None] = None
    asked_at: ClassVar[str] = "/invoke-with-response-stream"

    def make_error_response(
        self, status: int, kind: str, words: str, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        named = {429: "ThrottlingException", 403: "AccessDeniedException", 400: "ValidationException"}
        sent = {"x-amzn-errortype": named.get(status, "ResourceNotFoundException"), **(headers or {})}
        return httpx2.Response(status, headers=sent, json={"message": words})

    def make_reply_response(self, reply: ModelResponse) -> httpx2.Response:
        said = BODY.validate_json(b'{"message": {}}') | {"message": build_message_body(reply)}
        assert isinstance(said["message"], dict)
        return make_event_stream_response([_data(event) for event in iter_message_events(said["message"])])


def _data(event: bytes) -> bytes:
    return event.partition(b"\ndata: ")[2].strip()


def make_event_stream_response(parts: Sequence[bytes], failure: tuple[str, str] | None = None) -> httpx2.Response:
    """Return events in AWS's framing, followed by an exception if there is one."""

    async def sent() -> AsyncIterator[bytes]:
        for part in parts:
            payload = json.dumps({"bytes": base64.b64encode(part).decode()}).encode()
            yield encode_event_stream_frame({":event-type": "chunk", ":message-type": "event"}, payload)
        if failure is not None:
            name, words = failure
            payload = json.dumps({"message": words}).encode()
            yield encode_event_stream_frame({":exception-type": name, ":message-type": "exception"}, payload)

    headers = {"content-type": "application/vnd.amazon.eventstream", "x-amzn-requestid": "req-1"}
    return httpx2.Response(200, headers=headers, content=sent())


def encode_event_stream_frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Encode one message of AWS's event stream: lengths, their checksum, headers, payload, checksum."""
    named = {**headers, ":content-type": "application/json"}
    head = b"".join(
        struct.pack("!B", len(name)) + name.encode() + b"\x07" + struct.pack("!H", len(value)) + value.encode()
        for name, value in named.items()
    )
    lengths = struct.pack("!II", 16 + len(head) + len(payload), len(head))
    body = lengths + struct.pack("!I", zlib.crc32(lengths)) + head + payload
    return body + struct.pack("!I", zlib.crc32(body))


@dataclass
class VertexServer(VendorServer):
    """Vertex: the model in the path, and a Google access token."""

    counts_at: ClassVar[str | None] = "/publishers/anthropic/models/count-tokens:rawPredict"
    asked_at: ClassVar[str] = (
        f"/v1/projects/harbours/locations/europe-west1/publishers/anthropic/models/{MODEL}:streamRawPredict"
    )

    def find_auth_error(self, request: httpx2.Request) -> str:
        return "" if request.headers.get("authorization") == "Bearer token-of-google" else "no token"


@dataclass
class EntraServer(VendorServer):
    """Foundry with an Entra token, and no key."""

    def find_auth_error(self, request: httpx2.Request) -> str:
        given = [request.headers.get(name) for name in ("authorization", "x-api-key", "api-key")]
        return "" if given == ["Bearer token-of-entra", None, None] else "no token"


@dataclass
class ChatServer(VendorServer):
    """Chat completions: streamed chunks, tool calls by index, usage in the last chunk, then `[DONE]`."""

    counts_at: ClassVar[str | None] = None
    asked_at: ClassVar[str] = "/v1/chat/completions"
    reports_usage: bool = True

    def make_error_response(
        self, status: int, kind: str, words: str, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        error = {"message": words, "type": kind, "param": None, "code": None}
        return httpx2.Response(status, headers={"x-request-id": "req-1", **(headers or {})}, json={"error": error})

    def make_reply_response(self, reply: ModelResponse) -> httpx2.Response:
        return make_chat_stream_response(make_chat_chunks(reply, reports_usage=self.reports_usage))


STOPS = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "refusal": "content_filter"}


def make_chat_chunks(reply: ModelResponse, *, reports_usage: bool = True) -> Iterator[dict[str, JsonValue]]:
    """Yield the chunks of a reply, with texts and arguments in several."""
    yield _chunk(reply, {"role": "assistant", "content": ""})
    calls = 0
    for block in reply.blocks:
        match block.type:
            case "text":
                for at in range(0, len(block.text), 5):
                    yield _chunk(reply, {"content": block.text[at : at + 5]})
            case "tool_use":
                function: JsonValue = {"name": block.name, "arguments": ""}
                yield _chunk(
                    reply, {"tool_calls": [{"index": calls, "id": block.id, "type": "function", "function": function}]}
                )
                arguments = json.dumps(block.input)
                for at in range(0, len(arguments), 5):
                    piece: JsonValue = {"arguments": arguments[at : at + 5]}
                    yield _chunk(reply, {"tool_calls": [{"index": calls, "function": piece}]})
                calls += 1
            case _:
                raise TypeError(f"chat completions have no {block.type}")
    yield _chunk(reply, {}, STOPS[reply.stop.value])
    if reports_usage:
        used: JsonValue = {
            "prompt_tokens": reply.usage.prompt_tokens,
            "completion_tokens": reply.usage.output,
            "prompt_tokens_details": {"cached_tokens": reply.usage.cache_read},
        }
        yield {**_chunk(reply, {}), "choices": [], "usage": used}


def _chunk(reply: ModelResponse, delta: dict[str, JsonValue], stop: str | None = None) -> dict[str, JsonValue]:
    choice: JsonValue = {"index": 0, "delta": delta, "finish_reason": stop}
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": reply.model, "choices": [choice]}


def make_chat_stream_response(
    chunks: Iterator[dict[str, JsonValue]] | Sequence[dict[str, JsonValue]], *, done: bool = True
) -> httpx2.Response:
    """Return the chunks as a server sends them."""
    parts = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]

    async def sent() -> AsyncIterator[bytes]:
        for part in [*parts, b"data: [DONE]\n\n"] if done else parts:
            yield part

    return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=sent())
