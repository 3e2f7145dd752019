"""A Messages server on loopback that enforces the API's documented rules, and records every request.

Thinking is signed over everything before it (tools, system prompt, messages); a block whose prefix has changed is
dropped, or the request is rejected if the client did not ask for that. Prompts are cached by the prefix that the model
reads. No reply is longer than `max_tokens`.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from itertools import chain
from typing import NamedTuple

import httpx2
from pydantic import JsonValue, TypeAdapter, ValidationError

from benchmarks.live.documents import BYTES_PER_TOKEN
from benchmarks.live.model import READS, Body, Role, Script, ScriptedModel, ScriptedTurn, build_filler, detect_role
from tests.end_to_end.messages_server import MessagesServer
from tests.support.strict_server import StrictRequest, find_protocol_errors, find_unknown_fields
from waystation.kernel.usage import Usage
from waystation.models.anthropic.sse import iter_message_events
from waystation.models.profiles import get_model_profile
from waystation.testing.messages_server import PrefixCache, build_error_response

_BODY: TypeAdapter[Body] = TypeAdapter(Body)
_SIGNATURE_CHARACTERS = 400
"""About what a real one has: it is sent back with every later request."""
_EPOCH, _REPLY_TIME = datetime(2026, 11, 28, tzinfo=UTC), timedelta(seconds=5)
"""The cache's clock moves with every reply: how long prefixes live must not depend on how busy this machine is."""
_MARK = "cache_control"
_AGENTS: frozenset[Role] = frozenset({"research", "analysis", "writing"})


class RecordedRequest(NamedTuple):
    """One answered request."""

    role: Role
    agent: str
    """Tells the agents apart; empty for plans, reviews and summaries."""
    model: str
    max_tokens: int
    usage: Usage
    thinking: int
    """Thinking blocks that the request sent back."""
    dropped: int
    """Of these, those whose prefix had changed."""
    outdated: int
    """Of the dropped ones, those that were signed before the agent's newest compaction."""
    compacted: bool
    """Whether the agent's context was compacted since its last request."""
    documents: int
    """Tokens of pages of documents that it brings for the first time."""
    errors: int
    """Results of tools that it brings for the first time, and that are errors."""
    cut: bool
    """Whether `max_tokens` cut the reply."""


class ReturnedThinking(NamedTuple):
    """A thinking block that was sent back."""

    signature: str
    fits: bool


@dataclass
class _Agent:
    """What one agent is at."""

    role: Role
    script: Script
    turn: ScriptedTurn
    calls: list[str] = field(default_factory=list[str])
    """Ids of the calls of the newest reply."""
    cuts: int = 0
    shown: dict[str, str] = field(default_factory=dict[str, str])
    """Digests of the tool results of the last request, by call."""
    seen: set[str] = field(default_factory=set[str])
    """Ids of the calls whose results were counted."""
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    """By signature: how many compactions there were before it."""
    compactions: int = 0


@dataclass
class Provider(MessagesServer):
    """Answers by the script of `model`, and keeps what it was asked."""

    delay: float = 0.0
    script: ScriptedModel = field(default_factory=lambda: ScriptedModel(()))
    calls: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    refusals: list[str] = field(default_factory=list[str])
    _cache: PrefixCache = field(default_factory=PrefixCache)
    _agents: dict[str, _Agent] = field(default_factory=dict[str, _Agent])
    _replies: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reply(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:  # noqa: ARG002
        """See base class."""
        request = _BODY.validate_json(body)
        with self._lock:
            thoughts, read = read_thinking(request)
            if path.endswith("/count_tokens"):
                return httpx2.Response(200, json={"input_tokens": PrefixCache().record_request(read, _EPOCH).input})
            if fault := _fault(request, thoughts):
                self.refusals.append(fault)
                return build_error_response(HTTPStatus.BAD_REQUEST, "invalid_request_error", fault)
            return self._answer(request, read, thoughts)

    def record_answered(self, body: bytes, began: float) -> None:
        """Nothing: requests are recorded as they are answered."""

    def _answer(self, request: Body, read: Body, thoughts: Sequence[ReturnedThinking]) -> httpx2.Response:
        usage = self._cache.record_request(read, _EPOCH + self._replies * _REPLY_TIME)
        role, name, agent = detect_role(request), "", None
        compacted, documents, errors, outdated = False, 0, 0, 0
        if role in _AGENTS:
            name = _agent_name(request)
            known = name in self._agents
            agent = self._agents[name] if known else self._enter(name, role, request)
            results = _results(request)
            compacted = _take_context(agent, results)
            documents, errors = _count_new(agent, request, results)
            newest = [thought for thought in thoughts if not thought.fits]
            outdated = sum(agent.epochs.get(thought.signature, 0) < agent.compactions for thought in newest)
            if known:
                _advance(agent, results, compacted=compacted)
            turn, cuts = agent.turn, agent.cuts
        else:
            turn, cuts = self.script.one_shot(role, request), 0
        self._replies += 1
        whole = _blocks(turn, cuts, request, self._replies)
        most = int(str(request["max_tokens"]))
        blocks, cut = fit(whole, most)
        if agent is not None:
            agent.cuts = agent.cuts + 1 if cut else 0
            agent.calls = [str(block["id"]) for block in whole if block["type"] == "tool_use"]
            agent.epochs |= {str(block["signature"]): agent.compactions for block in blocks if "signature" in block}
        output = min(most, sum(map(_block_tokens, blocks)))
        usage = usage + Usage(output=output)
        dropped = sum(not thought.fits for thought in thoughts)
        model = str(request["model"])
        self.calls.append(
            RecordedRequest(
                role, name, model, most, usage, len(thoughts), dropped, outdated, compacted, documents, errors, cut
            )
        )
        return _streamed(model, self._replies, blocks, usage, cut=cut)

    def _enter(self, name: str, role: Role, request: Body) -> _Agent:
        script = self.script.script(role, _first_text(request))
        agent = _Agent(role, script, next(script))
        self._agents[name] = agent
        return agent


def _fault(request: Body, thoughts: Sequence[ReturnedThinking]) -> str:
    """What the API refuses; empty where it is fine."""
    try:
        faults = find_protocol_errors(StrictRequest.model_validate(request, extra="ignore"))
        if fault := next(chain(find_unknown_fields(request), faults), ""):
            return fault
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if "drop_block" not in json.dumps(request.get("thinking")) and not all(thought.fits for thought in thoughts):
        return "messages: what stands before these thinking blocks is not what they were signed behind"
    return ""


def read_thinking(request: Body) -> tuple[list[ReturnedThinking], Body]:
    """The thinking that was sent back, and the request as the model reads it: without what does not fit."""
    prefix = _Prefix(request)
    thoughts: list[ReturnedThinking] = []
    messages: list[JsonValue] = []
    for message in _objects(request["messages"]):
        kept: list[JsonValue] = []
        prefix.begin(str(message["role"]))
        for block in _blocks_of(message):
            fits = True
            if block["type"] == "thinking":
                fits = str(block["signature"]).startswith(prefix.before_message)
                thoughts.append(ReturnedThinking(str(block["signature"]), fits))
            if fits:
                kept.append(block)
            prefix.add(block)
        if kept:
            messages.append({**message, "content": kept})
    return thoughts, {**request, "messages": messages}


class _Prefix:
    """A digest of everything up to some place. Messages of one role in a row are one message, as the API has it."""

    def __init__(self, request: Body) -> None:
        self._model = get_model_profile(str(request["model"]))
        self._digest = hashlib.sha256(str(request["model"]).encode())
        self._role = ""
        self.before_message = ""
        for part in ("tools", "system"):
            for block in _objects(request.get(part)):
                self._digest.update(_canonical(part, block))

    def begin(self, role: str) -> None:
        """The next message."""
        if role != self._role:
            self._role = role
            self.before_message = self.now

    def add(self, block: Body) -> None:
        """The next block of the message."""
        self._digest.update(_canonical(self._role, block))

    @property
    def now(self) -> str:
        """Of everything so far. Empty, which fits everywhere, for a model that does not bind its thinking."""
        return self._digest.hexdigest() if self._model.binds_thinking else ""


def sign(request: Body) -> str:
    """The signature of thinking in the reply to this request."""
    prefix = _Prefix(request)
    for message in _objects(request["messages"]):
        prefix.begin(str(message["role"]))
        for block in _blocks_of(message):
            prefix.add(block)
    return prefix.now.ljust(_SIGNATURE_CHARACTERS, "s")


def fit(blocks: Sequence[Body], most: int) -> tuple[list[Body], bool]:
    """As many of the blocks as `most` tokens hold, the last of them cut, and whether anything was cut."""
    kept: list[Body] = []
    left = most
    for block in blocks:
        size = _block_tokens(block)
        if size > left:
            return [*kept, *_cut(block, left)], True
        kept.append(block)
        left -= size
    return kept, False


def _cut(block: Body, tokens: int) -> list[Body]:
    """The beginning of a block; a call of a tool is left out, since its arguments are no JSON then."""
    name = str(block["type"])
    if name == "tool_use" or tokens <= 0:
        return []
    return [{**block, name: str(block[name])[: tokens * BYTES_PER_TOKEN]}]


def _block_tokens(block: Body) -> int:
    said = block.get("thinking") or block.get("text") or json.dumps(block.get("input"))
    return -(-len(str(said).encode()) // BYTES_PER_TOKEN)


def _blocks(turn: ScriptedTurn, cuts: int, request: Body, reply: int) -> list[Body]:
    """The whole reply. After it was cut, with less thinking."""
    blocks: list[Body] = []
    if "adaptive" in json.dumps(request.get("thinking")):
        thinking = build_filler(max(40, turn.thinking >> (2 * cuts)), reply)
        blocks.append({"type": "thinking", "thinking": thinking, "signature": sign(request)})
    if turn.says:
        blocks.append({"type": "text", "text": turn.says})
    for place, call in enumerate(turn.calls(cuts)):
        blocks.append({"type": "tool_use", "id": f"toolu_{reply:05}_{place}", "name": call.name, "input": call.input})
    return blocks


def _streamed(model: str, reply: int, blocks: list[Body], usage: Usage, *, cut: bool) -> httpx2.Response:
    calls = any(block["type"] == "tool_use" for block in blocks)
    content: list[JsonValue] = [*blocks]
    used: Body = {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output,
    }
    message: Body = {
        "id": f"msg_{reply}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": "max_tokens" if cut else "tool_use" if calls else "end_turn",
        "stop_sequence": None,
        "usage": used,
    }
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return httpx2.Response(200, headers=headers, content=b"".join(iter_message_events(message)))


def _advance(agent: _Agent, results: Mapping[str, Body], *, compacted: bool) -> None:
    """The next turn, if the last one was carried out; else the same again."""
    missing = any(call not in results for call in agent.calls)
    if agent.cuts or (missing and not compacted):
        return
    came = [_text(results[call]) if call in results else "" for call in agent.calls]
    with suppress(StopIteration):  # what ends the work was refused: it is tried again
        agent.turn = agent.script.send(came)


def _take_context(agent: _Agent, results: Mapping[str, Body]) -> bool:
    """Whether results that were there are gone or are others now: then there was a compaction."""
    shown = {call: hashlib.sha256(_text(result).encode()).hexdigest() for call, result in results.items()}
    compacted = any(shown.get(call) != digest for call, digest in agent.shown.items())
    agent.shown = shown
    agent.compactions += compacted
    return compacted


def _count_new(agent: _Agent, request: Body, results: Mapping[str, Body]) -> tuple[int, int]:
    """Tokens of pages, and errors, among the results that this request brings for the first time."""
    names = {str(block["id"]): str(block["name"]) for block in _all_blocks(request) if block["type"] == "tool_use"}
    new = {call: result for call, result in results.items() if call not in agent.seen}
    agent.seen |= new.keys()
    fine = [call for call, result in new.items() if not result.get("is_error")]
    pages = sum(len(_text(new[call]).encode()) for call in fine if names.get(call) == READS)
    return pages // BYTES_PER_TOKEN, len(new) - len(fine)


def _results(request: Body) -> dict[str, Body]:
    return {str(block["tool_use_id"]): block for block in _all_blocks(request) if block["type"] == "tool_result"}


def _agent_name(request: Body) -> str:
    """No two agents have the same first message, and no compaction touches it."""
    return hashlib.sha256(_first_text(request).encode()).hexdigest()[:12]


def _first_text(request: Body) -> str:
    return _text(next(_all_blocks(request)))


def _text(block: Body) -> str:
    content = block.get("text", block.get("content"))
    return content if isinstance(content, str) else "\n".join(map(_text, _objects(content)))


def _all_blocks(request: Body) -> Iterator[Body]:
    for message in _objects(request["messages"]):
        yield from _blocks_of(message)


def _blocks_of(message: Body) -> Iterator[Body]:
    yield from _objects(message["content"])


def _objects(listed: JsonValue) -> Iterator[Body]:
    """The objects of a list; a bare text is one block of text."""
    if isinstance(listed, str):
        yield {"type": "text", "text": listed}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict):
            yield item


def _canonical(part: str, block: Body) -> bytes:
    """Without the cache mark, which says nothing."""
    said = {name: value for name, value in block.items() if name != _MARK}
    return part.encode() + json.dumps(said, sort_keys=True).encode("utf-8", "surrogatepass")
