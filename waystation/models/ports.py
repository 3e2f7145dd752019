"""Ports to models: requests, replies, searches of the web, and the protocols of model clients."""

from enum import StrEnum
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from waystation.context.transcript import Block, Message, RedactedThinking, Text, Thinking, ToolSpec
from waystation.kernel.usage import Usage
from waystation.kernel.value import Value
from waystation.models.profiles import Effort, ThinkingSetting, get_family_name, get_model_profile, parse_model_name
from waystation.models.rate_limits import LeaseGrant, LeaseRequest, LimitState


class StopReason(StrEnum):
    """Why a reply ended. `waystation.agents.stop_reasons` says how an agent goes on after each."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    STOP_SEQUENCE = "stop_sequence"
    PAUSE_TURN = "pause_turn"
    """The provider interrupted a long turn; the model goes on from there in the next call."""
    REFUSAL = "refusal"
    """The provider's safeguards stopped the reply, or kept it from beginning."""
    CONTEXT_EXCEEDED = "model_context_window_exceeded"
    UNKNOWN = "unknown"
    """A reason that this version does not know; `ModelResponse.stop_detail` has its name."""


class ModelRequest(Value):
    """One model call."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int
    """Maximum tokens of the reply including thinking; larger than the tokens set aside for thinking."""
    effort: Effort | None = None
    """None: the provider's default for the model."""
    thinking: ThinkingSetting | None = None
    """None: the provider's default, which also applies if `require_tool` forces a call, since they exclude each
    other.
    """
    require_tool: str | None = None
    """The one tool that the reply must call."""
    fallbacks: tuple[str, ...] = ()
    """Full names of models that may answer in its place, in order; the reservation covers the cost with any of them."""
    one_shot: bool = False
    """Whether no later call reads this one's prefix (a summary, a plan, a review): caching it would only cost."""
    previous_reply: str = ""
    """The provider's id of the reply before this call, to ask why it could not read that call's prefix."""

    def convert_for_model(self, model: str) -> "ModelRequest":
        """Return the request as this model, given by its full name, accepts it at its endpoint: without what only
        another model can read or accept.
        """
        facts, there = get_model_profile(model), parse_model_name(model).model
        messages = tuple(_readable(message, message.fallback_model or self.model, model) for message in self.messages)
        placed = self.replace(model=there, messages=messages, fallbacks=())
        if model != self.model:
            most = min(self.max_output, facts.max_output if facts.is_known else self.max_output)
            placed = placed.replace(previous_reply="", max_output=most)
            if (
                facts.supported_options is None
                or facts.supported_options.find_unsupported_option(self.effort, self.thinking) is not None
            ):
                placed = placed.replace(effort=None, thinking=None)
        if isinstance(self.thinking, int) and messages != self.messages:
            placed = placed.replace(thinking="off")  # it is rejected if the last reply does not begin with thinking
        return placed


def _readable(message: Message, speaker: str, reader: str) -> Message:
    """Drop thinking that was signed for models of another family."""
    thought = [block for block in message.blocks if isinstance(block, Thinking | RedactedThinking)]
    if not thought or get_family_name(speaker) == get_family_name(reader):
        return message
    left = tuple(block for block in message.blocks if block not in thought)
    return message.replace(blocks=left or (Text(text="(no words)"),))


class ModelResponse(Value):
    """A complete reply. A stream that was cut never becomes one."""

    blocks: tuple[Block, ...]
    stop: StopReason
    stop_detail: str = ""
    """The category of a refusal, or the name of an unknown reason; empty if the provider gives none."""
    usage: Usage
    model: str
    """The model that answered, as the provider names it."""
    called_model: str = ""
    """Full name of the model that was called in the end, if it is a fallback."""
    hidden_thinking: bool = False
    """Whether there may be thinking that is in none of its blocks."""
    id: str = ""
    """The provider's id of the reply; empty if there is none."""
    dropped_thinking: int = 0
    """Thinking blocks of the request that the provider dropped; see `Charge.dropped_thinking`."""
    cache_miss: str = ""
    """See `Charge.cache_miss`."""

    @property
    def stop_name(self) -> str:
        """Name of the stop reason; of an unknown one, the provider's name for it, if there is one."""
        return (self.stop_detail if self.stop is StopReason.UNKNOWN else "") or self.stop.value


@runtime_checkable
class ChatModel(Protocol):
    """A model behind the Messages protocol. `test_chat_model_contract.py` holds every implementation to this.

    An implementation:

    - sends a request whole, or refuses it: messages, tools and `max_output` are what the budget has paid for.
    - returns a whole reply or raises; a stream that was cut is `ModelUnavailable`.
    - reports in `usage` what the call is billed: what it leaves out is spent and not counted.
    - gives each `ToolUse` of a reply an id of its own, and the arguments as JSON of an object; `stop` is
      `StopReason.TOOL_USE` then.
    - is called from several tasks of one event loop at once. It ends when its task is cancelled, and within the
      time-outs that its factory was given.
    - has no words of requests and replies, and no keys, in errors and logs.
    """

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Make one call. Without retries: Temporal retries.

        Raises:
            ModelUnavailable: rate limit, overload, connection, cut stream; worth another attempt. With `retry_after`
                where the provider says when, and `possibly_billed` where the request may have been worked on.
            ModelRejected: credentials, bad request, too large; another attempt changes nothing.
            ContentFilterError: the provider's filter took the reply away: nor does it here, but this may have been
                billed.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The provider's count of the request's input tokens; None where the endpoint does not count, and an estimate
        takes its place.

        Raises as `complete`.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


@runtime_checkable
class FallbackChatModel(Protocol):
    """A `ChatModel` over several endpoints that can stand in for each other."""

    def list_fallbacks(self, model: str) -> tuple[str, ...]:
        """Return the full names of the models that may answer in place of a model, in order."""
        ...


@runtime_checkable
class CacheWarmingModel(Protocol):
    """A `ChatModel` that can keep a cached prefix alive."""

    async def warm_cache(self, request: ModelRequest) -> ModelResponse | None:
        """Have the provider read the request, so that its cache keeps the prefix, without a reply.

        Returns:
            An empty reply with the usage; None if the endpoint, or this request, does not allow it: nothing was sent.

        Raises as `ChatModel.complete` does.
        """
        ...


CallKind = Literal["turn", "summary", "plan", "review", "search", "warm"]
"""What a call is for. `warm` keeps a cached prefix alive and has no reply."""
SEARCH_INPUT_TOKENS = 40_000
"""Estimated input tokens of one search. The provider adds the pages that it finds to the call and states no bound, so
this is an estimate on the safe side; the charge is the actual usage.
"""
SEARCH_OUTPUT_TOKENS = 1_500
"""Maximum tokens of a reply that names pages."""


class WebSearchResult(Value):
    """One page that a search found."""

    url: str
    title: str
    excerpt: str = ""
    """What the page says about the query, if the search reports it."""
    age: str = ""
    """Age of the page, in the search's words."""


class WebSearchResponse(Value):
    """Results of one search, best first, and its usage."""

    hits: tuple[WebSearchResult, ...]
    usage: Usage
    model: str = ""
    """The model that answered, as the provider names it."""
    called_model: str = ""
    """Always empty: searches have no fallback."""
    fault: str = ""
    """Why it found nothing although it was billed, as the provider names it."""


class WebSearch(Protocol):
    """Searches the web. Every search costs money."""

    @property
    def model(self) -> str:
        """The model by whose prices a search is charged."""
        ...

    async def search(self, query: str, limit: int) -> WebSearchResponse:
        """Search once, for at most `limit` pages, without retries.

        Raises:
            ModelError: the search failed.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class LimitScope(NamedTuple):
    """What one rate limit applies to."""

    endpoint: str
    """Address of the endpoint, without credentials."""
    account: str
    """Keyed hash of what the provider knows the account by, such as the API key."""
    model: str
    """Name of the model there."""


class ScopedLimitState(NamedTuple):
    """The state of one limiter, with the time at which it was read, in seconds on the store's clock."""

    scope: LimitScope
    state: LimitState
    read_at: float


class LimitRepository(Protocol):
    """Rate limits that all workers of a store share."""

    async def acquire_lease(self, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        """Apply what a worker reports and grant it a lease, in one transaction; see `grant_lease`."""
        ...

    async def list_limit_states(self) -> tuple[ScopedLimitState, ...]:
        """Return the states of all limiters."""
        ...


class ReplyDelta(NamedTuple):
    """A piece of a reply that is still arriving."""

    kind: Literal["thinking", "text", "tool_call"]
    """`tool_call`: a call begins. Its arguments are not passed on."""
    text: str = ""
    """What was added; empty for a call."""


class ReplyObserver(Protocol):
    """Is notified of a reply while it arrives. Its methods return at once and never raise."""

    def begin_reply(self) -> None:
        """A model is called now: what was received before belongs to no reply."""
        ...

    def receive_delta(self, delta: ReplyDelta) -> None:
        """The next piece of the reply has arrived."""
        ...


@runtime_checkable
class StreamingChatModel(Protocol):
    """A `ChatModel` that shows a reply while it arrives."""

    async def complete_observed(self, request: ModelRequest, observer: ReplyObserver) -> ModelResponse:
        """Make one call as `ChatModel.complete` does, and raise as it does.

        The observer is notified of the call before it is made, then of each piece of the reply, in order: the texts of
        its `text` pieces together are the text of the reply. A call that fails may have notified of pieces.
        """
        ...


async def complete_with_observer(
    model: ChatModel, request: ModelRequest, observer: ReplyObserver | None
) -> ModelResponse:
    """Make one call; the observer, if there is one, is notified of the reply while it arrives if the model can do that.

    Raises as `ChatModel.complete` does.
    """
    if observer is not None and isinstance(model, StreamingChatModel):
        return await model.complete_observed(request, observer)
    return await model.complete(request)


class WaitObserver(Protocol):
    """Is notified when a call waits for its provider's rate limit."""

    def begin_wait(self) -> None:
        """The call waits from now on."""
        ...

    def end_wait(self, seconds: float) -> None:
        """The call has waited for so many seconds and is made now."""
        ...


@runtime_checkable
class PacedChatModel(Protocol):
    """A `ChatModel` whose calls wait until the provider's rate limit permits them."""

    async def complete_paced(
        self,
        request: ModelRequest,
        tenant: str,
        observer: WaitObserver,
        reply_observer: ReplyObserver | None = None,
    ) -> ModelResponse:
        """Make one call as soon as the limit permits it; tenants take turns.

        `reply_observer` is notified of the reply while it arrives; see `StreamingChatModel`.

        Raises as `ChatModel.complete` does, and ModelUnavailable if the call would wait for too long.
        """
        ...
