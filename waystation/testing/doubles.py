"""Public test doubles of the ports, which pass the same contract tests as the real adapters."""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from pydantic import JsonValue

from waystation.context.compaction import CompactionEvent, CompactionOutcome
from waystation.context.transcript import Block, Charge, Text, Thinking, ToolUse
from waystation.kernel.errors import (
    HookFailed,
    MemoryUnavailable,
    ModelError,
    ModelRejected,
    RedactionFailed,
    StoreError,
    TextRedactionError,
    ToolServerFailed,
    WebhookUnavailable,
)
from waystation.kernel.patterns import compile_bounded, compile_literals
from waystation.kernel.usage import Usage
from waystation.memory.passages import EmbeddedPassage, MemoryQuery, ScoredPassage
from waystation.models.ports import (
    CallKind,
    LimitScope,
    ModelRequest,
    ModelResponse,
    ReplyDelta,
    ReplyObserver,
    ScopedLimitState,
    StopReason,
)
from waystation.models.rate_limits import EMPTY_STATE, LeaseGrant, LeaseRequest, LimitState, grant_lease
from waystation.privacy.policy import (
    RedactionLevel,
    RedactionPolicy,
    RedactionResult,
    Span,
    TextDestination,
    get_redaction_level,
)
from waystation.security.untrusted import DEFAULT_SERVERS, UntrustedToolResult, UntrustedTools, UntrustedToolSpec
from waystation.tasks.notifications import Notification

CHARACTERS_PER_TOKEN = 4
SCRIPTED_USAGE = Usage(input=100, output=20)
"""Usage of a scripted reply unless the script sets another."""

Script = Sequence[ModelResponse | ModelError] | Callable[[ModelRequest], ModelResponse]


def make_scripted_response(
    *blocks: Block, usage: Usage = SCRIPTED_USAGE, stop: StopReason | None = None, model: str = ""
) -> ModelResponse:
    """Build a reply of these blocks. Its stop reason is tool use if it calls any tool, else the end of the turn.

    Without `model` it does not say which model answered.
    """
    calls = any(isinstance(block, ToolUse) for block in blocks)
    reason = stop or (StopReason.TOOL_USE if calls else StopReason.END_TURN)
    return ModelResponse(blocks=blocks, stop=reason, usage=usage, model=model)


_WORD = compile_bounded(r"\w+")


class ScriptedModel:
    """A `ChatModel` that replies from a script.

    A sequence is replied in order, and its errors are raised; a call after its end raises ModelRejected, so that no
    retry waits. A function answers each request by itself, and may raise.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self.requests: list[ModelRequest] = []
        """Every request for a reply, oldest first. Token counts are not recorded."""
        self.closed = False

    @property
    def calls(self) -> int:
        """Number of requests for a reply."""
        return len(self.requests)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the script's next reply; see `ChatModel`."""
        self.requests.append(request)
        if callable(self._script):
            return self._script(request)
        if self.calls > len(self._script):
            raise ModelRejected(f"the script has {len(self._script)} replies, but this is call {self.calls}")
        said = self._script[self.calls - 1]
        if isinstance(said, ModelError):
            raise said
        return said

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """Return the script's next reply, whose blocks arrive in two pieces each; see `StreamingChatModel`."""
        observer.begin_reply()
        reply = await self.complete(request)
        for block in reply.blocks:
            for delta in _iter_deltas(block):
                observer.receive_delta(delta)
        return reply

    async def count_tokens(self, request: ModelRequest) -> int:
        """Return a quarter of the request's characters, rounded up."""
        sent = request.model_dump(mode="json", include={"system", "messages", "tools"})
        return -(-len(json.dumps(sent, ensure_ascii=False)) // CHARACTERS_PER_TOKEN)

    async def aclose(self) -> None:
        """Record that it was closed."""
        self.closed = True


def _iter_deltas(block: Block) -> Iterator[ReplyDelta]:
    match block:
        case Text(text=said):
            yield from (ReplyDelta("text", said[: len(said) // 2]), ReplyDelta("text", said[len(said) // 2 :]))
        case Thinking(thinking=thought):
            yield from (
                ReplyDelta("thinking", thought[: len(thought) // 2]),
                ReplyDelta("thinking", thought[len(thought) // 2 :]),
            )
        case ToolUse():
            yield ReplyDelta("tool_call")
        case _:
            pass


class PlainRedactor:
    """A `Redactor` and `PlaceholderFactory` that replaces given texts by given placeholders: some everywhere, some only
    on the way to memory.
    """

    def __init__(self, everywhere: Mapping[str, str], in_memory: Mapping[str, str] = MappingProxyType({})) -> None:
        self._placeholders = {
            RedactionLevel.IDENTIFIERS: dict(everywhere),
            RedactionLevel.NAMES: {**everywhere, **in_memory},
        }
        self.tenants: set[str] = set()
        """Every tenant that it was called for. The placeholders do not depend on it."""
        self.failing = False
        """Set to True to make every redaction fail."""
        self.failing_at: frozenset[TextDestination] = frozenset()
        """Destinations for which redaction fails as if because of the text itself."""

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """See `Redactor`."""
        self.tenants.add(tenant)
        if self.failing:
            raise RedactionFailed("the redactor was told to fail")
        if destination in self.failing_at:
            raise TextRedactionError("the redactor was told to fail at this text")
        return tuple(
            _replaced(text, self._placeholders[get_redaction_level(destination, RedactionPolicy.STANDARD)])
            for text in texts
        )

    async def make_placeholders(self, type_: str, values: Sequence[str], tenant: str) -> dict[str, str]:
        """See `PlaceholderFactory`: the given placeholders, and others by a hash that anyone could compute."""
        self.tenants.add(tenant)
        given = self._placeholders[RedactionLevel.NAMES]
        return {
            value: given.get(value) or f"<{type_}_{hashlib.sha256(value.encode()).hexdigest()[:12]}>"
            for value in values
        }


def _replaced(text: str, placeholders: Mapping[str, str]) -> RedactionResult:
    if not placeholders:
        return RedactionResult(text=text)
    private = compile_literals(placeholders)
    spans = tuple(
        Span(type="GIVEN", start=found.start(), end=found.end(), score=1, placeholder=placeholders[found[0]])
        for found in private.finditer(text)
    )
    return RedactionResult(text=private.sub(lambda found: placeholders[found[0]], text), spans=spans)


class InMemorySlowTextStore:
    """The port `SlowTextStore` in a dictionary, for one set of rules."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self.failing = False

    async def load_slow_texts(self) -> Mapping[str, int]:
        """Return a copy."""
        self._answer()
        return dict(self.times)

    async def record_timeout(self, tenant: str, fingerprint: str) -> int:  # noqa: ARG002
        """See the port."""
        self._answer()
        self.times[fingerprint] = self.times.get(fingerprint, 0) + 1
        return self.times[fingerprint]

    async def reset_timeouts(self, tenant: str, fingerprint: str) -> None:  # noqa: ARG002
        """See the port."""
        self._answer()
        self.times.pop(fingerprint, None)

    def _answer(self) -> None:
        if self.failing:
            raise StoreError("told to fail")


class ListMemory:
    """A `Memory` in a list: passages are found by the trigrams that they share with the query, and by vectors.

    `dimension` is that of the vectors; None accepts passages without them.
    """

    def __init__(self, dimension: int | None = None) -> None:
        self._dimension = dimension
        self.passages: dict[str, EmbeddedPassage] = {}
        """Passages by id, in the order in which they first arrived."""
        self.failing = False
        """Set to True to make memory unavailable."""

    async def upsert(self, passages: Sequence[EmbeddedPassage]) -> None:
        """See `Memory`."""
        self._answer()
        if any(item.dense is not None and len(item.dense) != self._dimension for item in passages):
            raise MemoryUnavailable(f"a vector does not have {self._dimension} dimensions")
        self.passages |= {item.passage.id: item for item in passages}

    async def delete(self, passage_ids: Sequence[str]) -> None:
        """See `Memory`."""
        self._answer()
        for passage_id in passage_ids:
            self.passages.pop(passage_id, None)

    async def search(self, query: MemoryQuery) -> tuple[ScoredPassage, ...]:
        """See `Memory`."""
        self._answer()
        scores = (ScoredPassage(passage=item.passage, score=_likeness(item, query)) for item in self._admitted(query))
        found = sorted((one for one in scores if one.score > 0), key=lambda one: (-one.score, one.passage.id))
        return tuple(found[: query.limit])

    async def count(self, tenant: str) -> int:
        """See `Memory`."""
        self._answer()
        return sum(item.passage.tenant == tenant for item in self.passages.values())

    async def erase_deleted_points(self) -> None:
        """Do nothing: there are no files."""
        self._answer()

    async def aclose(self) -> None:
        """Do nothing."""

    def _admitted(self, query: MemoryQuery) -> Iterator[EmbeddedPassage]:
        for item in self.passages.values():
            fields, created = item.passage.model_dump(), item.passage.created
            in_time = (query.since is None or query.since <= created) and (query.until is None or created < query.until)
            admitted = all(fields[field] in values for field, values in query.field_filters.items())
            if in_time and admitted and item.passage.blob not in query.excluded_hashes:
                yield item

    def _answer(self) -> None:
        if self.failing:
            raise MemoryUnavailable("memory was told to fail")


def _likeness(item: EmbeddedPassage, query: MemoryQuery) -> float:
    """Return the mean of both similarities, each from 0 to 1."""
    wanted, held = _threes(query.text), _threes(item.passage.text)
    by_words = len(wanted & held) / max(1, len(wanted))
    return (by_words + _cosine(item.dense or (), query.dense or ())) / 2


def _threes(text: str) -> set[str]:
    words: list[str] = _WORD.findall(text.casefold())
    return {word[start : start + 3] for word in words for start in range(max(1, len(word) - 2))}


def _cosine(a: Sequence[float], b: Sequence[float]) -> float:
    if not a or not b:
        return 0.0
    return max(0.0, sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b)))


class RecordingMeter:
    """A `Meter` that records its calls."""

    def __init__(self) -> None:
        self.charges: list[Charge] = []
        self.failures: list[tuple[CallKind, str, ModelError]] = []
        """Kind of call, model, error."""
        self.waits: list[tuple[str, float]] = []
        """Model, and seconds that a call of it waited for the rate limit."""
        self.compactions: list[CompactionOutcome] = []
        self.redactions: Counter[TextDestination] = Counter()
        self.gauges: dict[str, int] = {}
        """The last value of `set_pending_passages` and of `set_paused_tasks`."""
        self.rate_limits: dict[tuple[str, str], tuple[float, float]] = {}
        """Limit per minute and what is left, by model and kind."""
        self.missed: Counter[str] = Counter()
        """How often each gauge could not be read."""

    def record_model_reply(self, charge: Charge) -> None:
        """See `Meter`."""
        self.charges.append(charge)

    def record_model_failure(self, kind: CallKind, model: str, error: ModelError) -> None:
        """See `Meter`."""
        self.failures.append((kind, model, error))

    def record_model_wait(self, model: str, seconds: float) -> None:
        """See `Meter`."""
        self.waits.append((model, seconds))

    def record_compaction(self, outcome: CompactionOutcome) -> None:
        """See `Meter`."""
        self.compactions.append(outcome)

    def record_redactions(self, destination: TextDestination, spans: int) -> None:
        """See `Meter`."""
        self.redactions[destination] += spans

    def set_pending_passages(self, count: int) -> None:
        """See `Meter`."""
        self.gauges["passages_waiting"] = count

    def set_paused_tasks(self, count: int) -> None:
        """See `Meter`."""
        self.gauges["tasks_paused"] = count

    def set_rate_limit(self, model: str, kind: str, limit: float, remaining: float) -> None:
        """See `Meter`."""
        self.rate_limits[model, kind] = (limit, remaining)

    def set_waiting_calls(self, count: int) -> None:
        """See `Meter`."""
        self.gauges["calls_waiting"] = count

    def record_sampling_failure(self, gauge: str) -> None:
        """See `Meter`."""
        self.missed[gauge] += 1


class RecordingNotifier:
    """A `Notifier` that records its notifications."""

    def __init__(self) -> None:
        self.name = "the list"
        self.sent: list[tuple[Notification, str | None]] = []
        """Every accepted notification, with its link."""
        self.failing = False
        """Set to True to make it unavailable."""

    async def send(self, notice: Notification, link: str | None) -> None:
        """See `Notifier`."""
        if self.failing:
            raise WebhookUnavailable("the notifier was told to fail")
        self.sent.append((notice, link))


class RecordingHook:
    """A `CompactionHook` that records its events."""

    def __init__(self) -> None:
        self.events: list[CompactionEvent] = []
        """Every event, including those of failed calls."""
        self.failing = False
        """Set to True to make it report a failure."""

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        self.events.append(event)
        if self.failing:
            raise HookFailed("the hook was told to fail")


class FakeToolServers:
    """A `ToolServers` with fixed tools. Each call returns the next result and is recorded."""

    def __init__(
        self, tools: Sequence[UntrustedToolSpec], results: Sequence[UntrustedToolResult | ToolServerFailed] = ()
    ) -> None:
        self._tools, self._results = tuple(tools), list(results)
        self.calls: list[tuple[str, dict[str, JsonValue]]] = []
        """Name of the tool, as the model knows it, and arguments."""

    async def list_tools(
        self,
        taken: Collection[str] = (),  # noqa: ARG002
        servers: Sequence[str] | None = None,
    ) -> UntrustedTools:
        """See `ToolServers`; names stay unchanged. All of them are default servers."""
        wanted = [
            one for one in self._tools if servers is None or not {one.server, DEFAULT_SERVERS}.isdisjoint(servers)
        ]
        return UntrustedTools(tools=tuple(wanted))

    async def call_tool(self, spec: UntrustedToolSpec, arguments: dict[str, JsonValue]) -> UntrustedToolResult:
        """See `ToolServers`."""
        self.calls.append((spec.name, arguments))
        result = self._results.pop(0)
        if isinstance(result, ToolServerFailed):
            raise result
        return result


class LocalLimitRepository:
    """A `LimitRepository` in memory, for one process."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Create it empty. `clock` returns seconds."""
        self._clock = clock
        self._states: dict[LimitScope, LimitState] = {}

    async def acquire_lease(self, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        """See `LimitRepository`."""
        before = self._states.get(scope, EMPTY_STATE)
        self._states[scope], grant = grant_lease(before, request, self._clock())
        return grant

    async def list_limit_states(self) -> tuple[ScopedLimitState, ...]:
        """See `LimitRepository`."""
        now = self._clock()
        return tuple(ScopedLimitState(scope, state, now) for scope, state in self._states.items())
