"""In-process Messages servers for tests and benchmarks: one replies from a script through the real client and its
streams, one caches prompts and binds thinking as the provider does.

The cache follows the published rules: everything up to a mark is one prefix, in the order tools, system prompt,
messages. A prefix is written at marks only, must be long enough to be cached, and lives five minutes from its last use.
It is found at a mark or at most twenty blocks before one.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from threading import Lock
from typing import Literal, NamedTuple

import httpx2
from pydantic import JsonValue, TypeAdapter

from waystation.context.transcript import STATUS_CLOSE, STATUS_OPEN, Block, RedactedThinking, Thinking
from waystation.kernel.usage import Usage
from waystation.models.anthropic.sse import StreamEvent, encode_error_event, iter_message_events
from waystation.models.ports import ModelResponse, StopReason

CACHE_LIFETIME = timedelta(minutes=5)
_MIN_TOKENS = 1_024
"""Minimum tokens of a cached prefix; more for some models."""
LOOK_BACK = 20
"""Blocks before a mark at which a prefix is still found."""
BYTES_PER_TOKEN = 4
_MARK = "cache_control"

_Part = Literal["tools", "system", "messages"]
CacheMissCause = Literal["tools changed", "system changed", "messages changed", "expired", "too far back"]


class CacheMissEvent(NamedTuple):
    """A request that read less from the cache than the request before it had written for it."""

    model: str
    request: int
    """Number of the request to this model, from 1."""
    cause: CacheMissCause
    lost: int
    """Tokens that should have been read and were not."""


class _Block(NamedTuple):
    part: _Part
    digest: str
    """Digest of everything up to and including this block."""
    tokens: int
    """Tokens of everything up to and including this block."""
    marked: bool


class _Request(NamedTuple):
    blocks: Sequence[_Block]
    at: datetime

    @property
    def written(self) -> int:
        """Number of blocks up to the last mark."""
        return max((place for place, block in enumerate(self.blocks, 1) if block.marked), default=0)


@dataclass
class PrefixCache:
    """The provider's prompt cache as a double. Times are arguments; it has no clock."""

    least: int = _MIN_TOKENS
    breaks: list[CacheMissEvent] = field(default_factory=list[CacheMissEvent])
    _dies: dict[str, datetime] = field(default_factory=dict[str, datetime])
    _requests: dict[str, list[_Request]] = field(default_factory=dict[str, list[_Request]])

    def record_request(self, body: Mapping[str, JsonValue], now: datetime) -> Usage:
        """Return a request's input tokens by kind, with output 0. What it marks is cached from then on."""
        request = _Request([*_blocks(body)], now)
        hit = max(
            (place for place in self._in_reach(request.blocks) if self._lives(request.blocks[place].digest, now)),
            default=None,
        )
        read = 0 if hit is None else request.blocks[hit].tokens
        marked = [block for block in request.blocks if block.marked and block.tokens >= self.least]
        known = marked if hit is None else [*marked, request.blocks[hit]]
        self._dies |= {block.digest: now + CACHE_LIFETIME for block in known}
        self._compare(str(body["model"]), request, read)
        written = max((block.tokens for block in marked), default=0)
        end = max(written, read)
        return Usage(input=request.blocks[-1].tokens - end, cache_write=end - read, cache_read=read)

    def _in_reach(self, blocks: Sequence[_Block]) -> set[int]:
        marks = [place for place, block in enumerate(blocks) if block.marked]
        return {place for mark in marks for place in range(max(0, mark - LOOK_BACK), mark + 1)}

    def _lives(self, digest: str, now: datetime) -> bool:
        return digest in self._dies and self._dies[digest] > now

    def _compare(self, model: str, request: _Request, read: int) -> None:
        """Record what the request could not read of what the previous one had marked."""
        earlier = self._requests.setdefault(model, [])
        if earlier and (left := earlier[-1].written):
            before = earlier[-1].blocks[left - 1].tokens
            if before >= self.least and read < before:
                cause = _cause(earlier[-1], request)
                self.breaks.append(CacheMissEvent(model, len(earlier) + 1, cause, before - read))
        earlier.append(request)


def _cause(before: _Request, now: _Request) -> CacheMissCause:
    """Return the first difference that explains the miss: something changed, added or removed."""
    marked = before.blocks[: before.written]
    pairs = list(zip(marked, now.blocks, strict=False))
    changed = [part for old, new in pairs if old.digest != new.digest for part in (old.part, new.part)][:2]
    if "tools" in changed:
        return "tools changed"
    if "system" in changed:
        return "system changed"
    if changed or len(pairs) < len(marked):
        return "messages changed"
    return "expired" if now.at - before.at >= CACHE_LIFETIME else "too far back"


def _blocks(body: Mapping[str, JsonValue]) -> Iterator[_Block]:
    digest = hashlib.sha256(str(body["model"]).encode())
    bytes_so_far = 0
    for part, said, marked in _parts(body):
        text = json.dumps(said, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        digest.update(part.encode() + len(text).to_bytes(8, "big") + text)
        bytes_so_far += len(text)
        yield _Block(part, digest.hexdigest(), -(-bytes_so_far // BYTES_PER_TOKEN), marked)


def _parts(body: Mapping[str, JsonValue]) -> Iterator[tuple[_Part, JsonValue, bool]]:
    """Yield the parts in the order in which the provider reads them; marks are not part of what they mark."""
    for tool in _objects(body.get("tools")):
        yield "tools", *_unmarked(tool)
    for text in _objects(body.get("system")):
        yield "system", *_unmarked(text)
    for message in _objects(body["messages"]):
        for block in _objects(message["content"]):
            said, marked = _unmarked(block)
            # Another tool choice or thinking setting does not invalidate the cache of tools and system prompt.
            yield "messages", [message["role"], body.get("tool_choice"), body.get("thinking"), said], marked


def _unmarked(part: Mapping[str, JsonValue]) -> tuple[JsonValue, bool]:
    return {name: value for name, value in part.items() if name != _MARK}, _MARK in part


def _objects(listed: JsonValue) -> Iterator[dict[str, JsonValue]]:
    """Return the objects of a list; a bare text is one text block."""
    if isinstance(listed, str):
        yield {"type": "text", "text": listed}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict):
            yield item


@dataclass
class TurnCounter:
    """Numbers the turns of agents, for servers that answer by turn or count them.

    A request does not say which turn it is, and a turn may be attempted several times. All attempts end with the same
    tool call and the same text after it, status messages and results aside. What comes before may differ, because a
    compaction may run between two attempts. So the end identifies the turn, and a new end is the agent's next turn.
    """

    known: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    """Turn numbers by the digest of the end; one table for each agent and first message, because agents of different
    tasks may have the same name.
    """
    _lock: Lock = field(default_factory=Lock)

    def get_turn(self, agent: str, body: Mapping[str, JsonValue]) -> int:
        """Return the number of this request's turn, from 1."""
        blocks = [block for message in _objects(body["messages"]) for block in _objects(message["content"])]
        said = [block for block in blocks if not is_status(block)]
        calls = [at for at, block in enumerate(said) if block["type"] == "tool_use"]
        last = [block for block in said[calls[-1] if calls else 0 :] if block["type"] != "tool_result"]
        with self._lock:
            turns = self.known.setdefault(f"{agent} {_digest_of(said[:1])}", {})
            return turns.setdefault(_digest_of(last), len(turns) + 1)


def _digest_of(blocks: Sequence[Mapping[str, JsonValue]]) -> str:
    return hashlib.sha256(json.dumps([_unmarked(block)[0] for block in blocks], sort_keys=True).encode()).hexdigest()


def is_status(block: Mapping[str, JsonValue]) -> bool:
    """Return whether a block is an agent's status message."""
    text = block.get("text")
    return isinstance(text, str) and text.startswith(STATUS_OPEN) and text.endswith(STATUS_CLOSE)


def has_status(body: Mapping[str, JsonValue]) -> bool:
    """Return whether a request has a status message: those of agents do, and no others."""
    return any(is_status(block) for message in _objects(body["messages"]) for block in _objects(message["content"]))


_THINKING = ("thinking", "redacted_thinking")


@dataclass
class PrefixBinding:
    """Binds thinking as the provider does: each block is signed over everything before it (tools, system prompt,
    messages, earlier blocks of its reply). A block that is sent back behind anything else is dropped, with the rest of
    its message's thinking.

    A signature is the hash of the thinking, a dot, and the hash of the prefix, so that no memory is needed.
    """

    sent_back: int = 0
    """Thinking blocks in all requests so far, counted each time they were sent."""
    dropped: list[str] = field(default_factory=list[str])
    """Positions of those that did not match: `messages.4.content.0`."""

    def find_dropped_thinking(self, body: Mapping[str, JsonValue]) -> list[JsonValue]:
        """Return the request's dropped thinking as `input_transformations` reports it, and count it."""
        found = [*self.iter_thinking_blocks(body)]
        self.sent_back += len(found)
        left_out = [path for path, fits in found if not fits]
        self.dropped += left_out
        return [{"type": "thinking_dropped", "reason": "prefix_binding_mismatch", "path": path} for path in left_out]

    def iter_thinking_blocks(self, body: Mapping[str, JsonValue]) -> Iterator[tuple[str, bool]]:
        """Yield the position of each thinking block of the request, and whether it matches its prefix."""
        prefix = _Prefix(body)
        for index, message in enumerate(_objects(body["messages"])):
            broken = False
            for place, block in enumerate(_objects(message["content"])):
                if block.get("type") in _THINKING:
                    broken = broken or str(_sealed(block)).partition(".")[2] != prefix.digest
                    yield f"messages.{index}.content.{place}", not broken
                prefix.add(message["role"], block)

    def sign_reply(self, reply: ModelResponse, body: Mapping[str, JsonValue]) -> ModelResponse:
        """Return the reply to this request, with its thinking signed."""
        prefix = _Prefix(body)
        for message in _objects(body["messages"]):
            for block in _objects(message["content"]):
                prefix.add(message["role"], block)
        blocks: list[Block] = []
        for block in reply.blocks:
            if isinstance(block, Thinking):
                block = block.replace(signature=f"{hash_thinking(block.thinking)}.{prefix.digest}")  # noqa: PLW2901
            elif isinstance(block, RedactedThinking):
                block = block.replace(data=f"{hash_thinking(block.data)}.{prefix.digest}")  # noqa: PLW2901
            prefix.add("assistant", block.model_dump(mode="json"))
            blocks.append(block)
        return reply.replace(blocks=tuple(blocks))


class _Prefix:
    """The hash of what precedes a block, without marks.

    How one speaker's blocks are split into messages does not matter.
    """

    def __init__(self, body: Mapping[str, JsonValue]) -> None:
        self._hash = hashlib.sha256()
        for part in ("tools", "system"):
            for item in _objects(body.get(part)):
                self._take([part, _unmarked(item)[0]])

    def add(self, role: JsonValue, block: Mapping[str, JsonValue]) -> None:
        self._take([role, _unmarked(block)[0]])

    def _take(self, said: JsonValue) -> None:
        text = json.dumps(said, ensure_ascii=False, sort_keys=True).encode("utf-8", "surrogatepass")
        self._hash.update(len(text).to_bytes(8, "big") + text)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()[:16]


def hash_thinking(text: str) -> str:
    """Return the first part of a signature: the hash of the thinking."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _sealed(block: Mapping[str, JsonValue]) -> JsonValue:
    return block.get("signature") if block.get("type") == "thinking" else block.get("data")


ScriptedAnswer = httpx2.Response | httpx2.TransportError
"""One item of a script: a response, or an error of the connection."""


REQUEST_ID = "req_scripted"

_BODY: TypeAdapter[StreamEvent] = TypeAdapter(dict[str, JsonValue])


class ScriptedServer:
    """Answers `POST /v1/messages` from its script, in order, and counts tokens as a quarter of the bytes."""

    def __init__(self, script: Sequence[ScriptedAnswer]) -> None:
        self._script = iter(script)
        self.requests: list[httpx2.Request] = []
        """Every request, oldest first."""

    @property
    def request_bodies(self) -> list[StreamEvent]:
        """Bodies of the requests for a reply, oldest first."""
        return [_BODY.validate_json(request.content) for request in self.requests if not _counts(request)]

    def build_http_client(self) -> httpx2.AsyncClient:
        """Return an HTTP client whose every request reaches this server."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        if _counts(request):
            return httpx2.Response(200, json={"input_tokens": len(request.content) // BYTES_PER_TOKEN})
        answer = next(self._script, None)
        if answer is None:
            return build_error_response(400, "invalid_request_error", "the script has no more answers")
        if isinstance(answer, httpx2.TransportError):
            raise answer
        return answer


def build_message_body(reply: ModelResponse) -> StreamEvent:
    """Return a reply as the Messages API sends it without streaming."""
    details: StreamEvent = {}
    if reply.stop is StopReason.REFUSAL and reply.stop_detail:
        details = {"stop_details": {"type": "refusal", "category": reply.stop_detail, "explanation": None}}
    unknown = reply.stop is StopReason.UNKNOWN and reply.stop_detail
    return {
        **details,
        "id": reply.id,
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [block.model_dump(mode="json") for block in reply.blocks],
        "stop_reason": unknown or reply.stop.value,
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.usage.input,
            "cache_creation_input_tokens": reply.usage.cache_write,
            "cache_read_input_tokens": reply.usage.cache_read,
            "output_tokens": reply.usage.output,
        },
    }


def build_stream_response(message: Mapping[str, JsonValue]) -> httpx2.Response:
    """Return the whole message as an event stream."""
    return _stream(iter_message_events(message))


EndpointGap = Literal[
    "no count",
    "no usage",
    "no cache fields",
    "another model",
    "no cache marks",
    "no tools",
    "no forced choice",
    "no parallel calls",
    "no stop reason",
    "a page",
    "small window",
]
"""What some endpoints of the protocol do not do, or do differently."""
_SMALL = 12_000
"""Characters of a request that counts as small."""
_CACHE_FIELDS = ("cache_creation_input_tokens", "cache_read_input_tokens")


def build_response_with_gaps(message: Mapping[str, JsonValue], gaps: Collection[EndpointGap]) -> httpx2.Response:
    """Return the message as an endpoint with these gaps streams it."""
    said = {**message, "model": "another-model"} if "another model" in gaps else {**message}
    if "no cache fields" in gaps and isinstance(used := said["usage"], dict):
        left = {name: tokens for name, tokens in used.items() if name not in _CACHE_FIELDS}
        whole = (used.get(name) for name in ("input_tokens", *_CACHE_FIELDS))
        said["usage"] = {**left, "input_tokens": sum(tokens for tokens in whole if isinstance(tokens, int))}
    whole = iter_message_events(said)
    sent = (event for event in whole if "no stop reason" not in gaps or not event.startswith(b"event: message_delta"))
    return _stream(_without_usage(event) if "no usage" in gaps else event for event in sent)


def build_gap_error_response(body: Mapping[str, JsonValue], gaps: Collection[EndpointGap]) -> httpx2.Response | None:
    """Return the error with which an endpoint with these gaps rejects the request; None if it accepts it."""
    if "a page" in gaps:
        return build_html_response("text/html", "<html>Sign in</html>")
    choice = body.get("tool_choice")
    forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    refuses: Mapping[EndpointGap, str] = {
        "no cache marks": "cache_control: extra inputs are not permitted" if _MARK in json.dumps(body) else "",
        "no tools": "this model does not support tools" if body.get("tools") else "",
        "no forced choice": "tool_choice: only auto is supported" if forced else "",
        "small window": "the request exceeds the available context size" if len(json.dumps(body)) > _SMALL else "",
    }
    words = next((words for gap, words in refuses.items() if gap in gaps and words), None)
    return None if words is None else build_error_response(400, "invalid_request_error", words)


def _without_usage(event: bytes) -> bytes:
    name, _, line = event.partition(b"\ndata: ")
    told = _REQUEST.validate_json(line)
    told.pop("usage", None)
    if isinstance(opening := told.get("message"), dict):
        opening.pop("usage", None)
    return name + b"\ndata: " + json.dumps(told).encode() + b"\n\n"


def build_warm_response(body: Mapping[str, JsonValue], usage: Usage) -> httpx2.Response:
    """Return the answer to a request with `max_tokens: 0`, which is read into the cache and has no reply."""
    read = ModelResponse(blocks=(), stop=StopReason.MAX_TOKENS, usage=usage, model=str(body["model"]), id="msg_warm")
    return httpx2.Response(200, json=build_message_body(read))


def build_failing_stream(
    message: Mapping[str, JsonValue], kind: str, words: str = "", after: int = 2
) -> httpx2.Response:
    """Return a stream that ends with an error of this kind after `after` events."""
    return _stream([*islice(iter_message_events(message), after), encode_error_event(kind, words, REQUEST_ID)])


def build_truncated_stream(message: Mapping[str, JsonValue], after: int = 2) -> httpx2.Response:
    """Return a stream that ends after `after` events as if it were complete."""
    return _stream(islice(iter_message_events(message), after))


def build_dropped_stream(message: Mapping[str, JsonValue], after: int = 2) -> httpx2.Response:
    """Return a stream whose connection breaks after `after` events."""
    return _stream(islice(iter_message_events(message), after), breaks=True)


def build_error_response(
    status: int, kind: str, words: str = "", headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    """Return an error response; `words` is the provider's message."""
    body = {"type": "error", "error": {"type": kind, "message": words}, "request_id": REQUEST_ID}
    sent = {"content-type": "application/json", "request-id": REQUEST_ID, **(headers or {})}
    return httpx2.Response(status, headers=sent, content=json.dumps(body))


def build_html_response(content_type: str, body: str) -> httpx2.Response:
    """Return the response of a server that is not a Messages server."""
    return httpx2.Response(200, headers={"content-type": content_type}, content=body)


def _stream(parts: Iterable[bytes], *, breaks: bool = False) -> httpx2.Response:
    async def sent() -> AsyncIterator[bytes]:
        for part in parts:
            yield part
        if breaks:
            raise httpx2.ReadError("the connection broke")

    headers = {"content-type": "text/event-stream; charset=utf-8", "request-id": REQUEST_ID}
    return httpx2.Response(200, headers=headers, content=sent())


def _counts(request: httpx2.Request) -> bool:
    return request.url.path.endswith("/count_tokens")


_REQUEST: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


@dataclass
class CachingServer:
    """Answers each request with `answer(body)`, and reports what of the input came from the cache."""

    answer: Callable[[dict[str, JsonValue]], ModelResponse]
    """Returns the reply; its usage is replaced, except the output."""
    now: Callable[[], datetime]
    cache: PrefixCache = field(default_factory=PrefixCache)
    usages: list[Usage] = field(default_factory=list[Usage])
    """Usage of every reply, oldest first."""
    binding: PrefixBinding = field(default_factory=PrefixBinding)
    """Signs the thinking of its replies."""

    def build_http_client(self) -> httpx2.AsyncClient:
        """Return an HTTP client whose every request reaches this server."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._respond))

    def _respond(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.endswith("/count_tokens"):
            return httpx2.Response(200, json={"input_tokens": len(request.content) // BYTES_PER_TOKEN})
        body = _REQUEST.validate_json(request.content)
        if body["max_tokens"] == 0:
            usage = self.cache.record_request(body, self.now())
            self.usages.append(usage)
            return build_warm_response(body, usage)
        dropped = self.binding.find_dropped_thinking(body)
        reply = self.binding.sign_reply(self.answer(body), body)
        usage = self.cache.record_request(body, self.now()) + Usage(output=reply.usage.output)
        self.usages.append(usage)
        whole = build_message_body(reply.replace(usage=usage))
        return build_stream_response({**whole, "input_transformations": dropped} if dropped else whole)
