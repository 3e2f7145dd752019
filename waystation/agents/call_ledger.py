"""Model calls and web searches within their budget: each is recorded as an intent before, and charged after."""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol, TypeVar

from waystation.agents.agent_status import AgentPhase, AgentStatus
from waystation.agents.ports import ChargeRepository, Meter, RunRepository
from waystation.budgets.budget import CallCostBound
from waystation.context.tokens import (
    compute_reply_upper_bound,
    compute_request_upper_bound,
    estimate_fixed_tokens,
    estimate_messages,
)
from waystation.context.transcript import CallIntent, Charge, Fence, Message
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import Clock
from waystation.kernel.errors import (
    BadInput,
    BrokenEndpointError,
    ContentFilterError,
    ModelError,
    ModelRejected,
    ModelUnavailable,
)
from waystation.kernel.usage import Usage
from waystation.models.ports import (
    SEARCH_INPUT_TOKENS,
    SEARCH_OUTPUT_TOKENS,
    CacheWarmingModel,
    CallKind,
    ChatModel,
    FallbackChatModel,
    ModelRequest,
    ModelResponse,
    PacedChatModel,
    ReplyObserver,
    WebSearch,
    WebSearchResponse,
    complete_with_observer,
)
from waystation.models.profiles import (
    Price,
    compute_cost_micro_usd,
    find_price,
    find_substitute_model,
    find_worst_rates,
    get_family_name,
    merge_worst_rates,
)


@dataclass(frozen=True)
class CallKey:
    """Name of a call within its agent run, without an attempt number: each key is charged once."""

    kind: CallKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def turn(self) -> int | None:
        """Number of the turn, if the call is one."""
        return int(self.name) if self.kind == "turn" and self.name.isdecimal() else None


IntentRecorder = Callable[[CallIntent], Awaitable[int]]
"""Commits the intent under its fence; how many of its key are open then."""


def ignore_status(_: AgentStatus) -> None:
    """Ignore the status: the default if no one watches."""


@dataclass(frozen=True)
class PreparedCall:
    """A call that stays within its limit whatever the model answers."""

    request: ModelRequest
    """The request, with the longest reply that fits."""
    worst_case: Amount
    prices: Sequence[Price]
    day: date
    """Day whose prices apply, so that the charge uses the same prices as the bound."""

    def with_messages(self, messages: tuple[Message, ...]) -> "PreparedCall":
        """Return the call with other messages, which must be no longer than those it was prepared with."""
        return replace(self, request=self.request.replace(messages=messages))


@dataclass(frozen=True)
class CountedPrompt:
    """A provider's token count of a request's beginning, known from an earlier request.

    Some endpoints leave out what they read from their cache, and count it in a later request, when the cache has
    expired. A count is therefore not taken to be lower than our own estimate.
    """

    tokens: int
    """As reported."""
    messages: int
    """Number of leading messages that the count covers."""
    same_head: bool
    """Whether system prompt and tools are certainly the counted ones; otherwise they are added once more."""

    def compute_token_bound(self, request: ModelRequest, tools: str) -> int:
        """Return an upper bound of the request's tokens: the count, plus the bytes of everything new.

        No token spans two messages, so the sum holds.

        Args:
            request: The request.
            tools: Its tools as JSON.
        """
        estimated = estimate_messages(request.messages[: self.messages])
        if self.same_head:
            estimated += estimate_fixed_tokens(request.system, tools)
        system, tools = ("", "") if self.same_head else (request.system, tools)
        new = compute_request_upper_bound(system, tools, request.messages[self.messages :])
        return max(self.tokens, estimated) + new


@dataclass(frozen=True)
class CallNotAffordable:
    """Not even the smallest useful reply fits the budget."""

    needed: Amount
    """What the call needs beyond what is left."""


MAX_RETRY_WAIT_SECONDS = 60.0
"""Longest delay named by a provider that is waited for inside the activity. A longer one fails the attempt, and
Temporal's timer waits without holding a worker's slot.
"""
MAX_CALL_WAIT_SECONDS = 300.0
"""Longest time that one call waits for its provider inside the activity, in all. With the ten minutes after which a leg
begins no further turn and the ten minutes of a call with thinking it fits the leg's start-to-close time-out.
"""
MAX_JITTER_SECONDS = 15.0


def compute_retry_wait(retry_after: float, spread: float) -> float:
    """Return how long to wait before a refused call is repeated, in seconds: never less than the provider named.

    A random time is added, so that calls that were refused together come back one by one. Its maximum is the delay
    itself, but between 1 second and `MAX_JITTER_SECONDS`.

    Args:
        retry_after: Delay that the provider named, in seconds.
        spread: Random number from 0 to 1.
    """
    return retry_after + spread * min(max(retry_after, 1.0), MAX_JITTER_SECONDS)


async def _do_not_wait(seconds: float) -> bool:
    del seconds
    return False


def _no_jitter() -> float:
    return 0.0


def _no_tenant() -> str:
    return ""


@dataclass(frozen=True)
class RetryWaitPolicy:
    """How refused calls are waited for. By default not at all: the error goes to the caller."""

    sleep: Callable[[float], Awaitable[bool]] = _do_not_wait
    """Waits for a number of seconds. False: the worker shuts down, and the call is left to the next attempt."""
    jitter: Callable[[], float] = _no_jitter
    """Returns a random number from 0 to 1."""


NO_RETRY_WAITS = RetryWaitPolicy()


@dataclass
class ModelCallWaitTracker:
    """What one call has waited for its provider. A `WaitObserver`."""

    model: str
    meter: Meter
    report: Callable[[AgentPhase], None]
    """Is notified of what the call does now."""
    seconds: float = 0.0

    def begin_wait(self) -> None:
        """See `WaitObserver`."""
        self.report("waiting")

    def end_wait(self, seconds: float) -> None:
        """See `WaitObserver`."""
        self.seconds += seconds
        self.meter.record_model_wait(self.model, seconds)
        self.report("model")

    @property
    def milliseconds(self) -> int:
        """The same as stored."""
        return round(self.seconds * 1000)


@dataclass(frozen=True)
class MeteredModel:
    """A model whose every call is recorded in the store first.

    The caller commits the charge together with the reply.
    """

    model: ChatModel
    store: RunRepository
    clock: Clock
    meter: Meter
    report_status: Callable[[AgentStatus], None] = ignore_status
    """Receives what is going on at this moment."""
    waits: RetryWaitPolicy = NO_RETRY_WAITS
    get_tenant: Callable[[], str] = _no_tenant
    """Returns whose work is being done: tenants take turns where calls wait for a rate limit."""

    def find_fallback(self, model: str, remaining: Limit, prices: Sequence[Price]) -> str | None:
        """Return the full name of the first model that may answer in place of a model; None if there is none.

        If dollars are limited, only models with a known price may.
        """
        day = self.clock().date()
        return next(iter(self._list_fallbacks(model, remaining, prices, day)), None)

    def _list_fallbacks(self, model: str, remaining: Limit, prices: Sequence[Price], day: date) -> tuple[str, ...]:
        others = self.model.list_fallbacks(model) if isinstance(self.model, FallbackChatModel) else ()
        return tuple(one for one in others if remaining.micro_usd is None or find_price(one, day, prices) is not None)

    async def prepare_call(
        self,
        request: ModelRequest,
        remaining: Limit,
        floor: int,
        prices: Sequence[Price],
        counted: CountedPrompt | None = None,
    ) -> PreparedCall | CallNotAffordable:
        """Return the call with its reply shortened to what is left.

        The input's bound is its bytes. It is lower if the provider already `counted` the beginning of the request, or
        if the byte bound does not fit and the endpoint can count. Fallback models are included at the highest rates; if
        the byte bound does not fit, only those with the same tokeniser family remain.

        Args:
            request: The request, with the longest reply wanted.
            remaining: Remaining budget.
            floor: Minimum reply length in tokens.
            prices: Prices of models.
            counted: Provider's count of the request's beginning.

        Raises:
            ModelError: The provider could not count.
            BadInput: Dollars are limited and the model has no known price.
        """
        day = self.clock().date()
        specs = [tool.model_dump(mode="json") for tool in request.tools]
        _require_json(specs)
        tools = json.dumps(specs)
        bytes_bound = compute_request_upper_bound(request.system, tools, request.messages)
        own = find_worst_rates(request.model, bytes_bound, day, prices)
        if own is None and remaining.micro_usd is not None:
            raise BadInput(
                f"{request.model} has no known price, so its calls cannot be kept within a limit in dollars: "
                "give a budget in tokens, or add the price to a file and set WAYSTATION_PRICES to its path"
            )

        def bounded(tokens: int) -> CallCostBound:
            met = (find_worst_rates(model, tokens, day, prices) for model in (request.model, *request.fallbacks))
            return CallCostBound(input_tokens=tokens, rates=merge_worst_rates(met))

        priced = self._list_fallbacks(request.model, remaining, prices, day)
        request = request.replace(fallbacks=priced)
        alike = tuple(one for one in priced if get_family_name(one) == get_family_name(request.model))
        known = bytes_bound if counted is None else min(bytes_bound, counted.compute_token_bound(request, tools))
        bound = bounded(known if len(alike) == len(priced) else bytes_bound)
        if not remaining.can_cover(bound.compute_worst_case(request.max_output)):
            known = min(known, await self._counted(request) or bytes_bound)
            if known < bytes_bound:
                request = request.replace(fallbacks=alike)
                bound = bounded(known)
        room = bound.compute_max_reply_tokens(remaining, request.max_output, floor)
        if room is None:
            return CallNotAffordable(bound.compute_shortfall(remaining, floor))
        return PreparedCall(request.replace(max_output=room), bound.compute_worst_case(room), prices, day)

    async def run_call(
        self,
        fence: Fence,
        key: CallKey,
        call: PreparedCall,
        record_intent: IntentRecorder | None = None,
        observer: ReplyObserver | None = None,
    ) -> tuple[ModelResponse, Charge]:
        """Ask once. `record_intent` commits the intent together with something else.

        `observer` is notified of the reply while it arrives, if the model can do that.

        An intent stays in the store if the call may have been billed without a reply (crash, cancellation, cut stream);
        it is dropped if the provider certainly refused.

        Raises:
            ModelError: The call brought no reply.
            StaleFenceError: Another attempt has taken over.
            BrokenEndpointError: This was the last of `MAX_UNANSWERED_CALLS` in a row.
            ModelRejected: The request is not valid JSON. Raised before any intent, since the call cannot have been
                billed.
        """
        _require_json(call.request.model_dump())
        books = CallLedger(self.store, self.clock, self.meter, self.report_status, record_intent)
        input_bound = call.worst_case.tokens - call.request.max_output
        priced = PricedCall(call.request.model, call.worst_case, call.prices, call.day, input_bound)
        waited = ModelCallWaitTracker(call.request.model, self.meter, lambda what: self._report(fence, key, what))
        reply, charge = await books.run_metered_call(
            fence, key, priced, lambda: self._answer_after_waits(key.kind, call, waited, observer)
        )
        return reply, charge.replace(
            stop=reply.stop_name,
            dropped_thinking=reply.dropped_thinking,
            cache_miss=reply.cache_miss,
            waited_ms=waited.milliseconds,
        )

    async def warm_cache(
        self,
        fence: Fence,
        key: CallKey,
        request: ModelRequest,
        remaining: Limit,
        prices: Sequence[Price],
        counted: CountedPrompt,
    ) -> Charge | None:
        """Have the model read a request without a reply, within the budget.

        Returns:
            The charge, which is not committed yet. None if the model cannot do it, or if its worst case, a prefix that
            is written again, does not fit.

        Raises as `run_call` does.
        """
        model = self.model
        if not isinstance(model, CacheWarmingModel):
            return None
        call = await self.prepare_call(request, remaining, 0, prices, counted)
        if isinstance(call, CallNotAffordable):
            return None
        books = CallLedger(self.store, self.clock, self.meter, self.report_status)
        priced = PricedCall(request.model, call.worst_case, prices, call.day, call.worst_case.tokens)

        async def read() -> ModelResponse:
            reply = await model.warm_cache(call.request)
            if reply is None:
                raise ModelRejected("the endpoint does not support calls that only keep its prompt cache warm")
            return reply.replace(usage=reply.usage.fill_missing(call.worst_case.tokens, 0))

        _, charge = await books.run_metered_call(fence, key, priced, read)
        return charge

    async def _counted(self, request: ModelRequest) -> int | None:
        """Return the provider's count; None if its answer is unusable, since the call does not depend on it."""
        try:
            return await self.model.count_tokens(request)
        except ModelUnavailable as error:
            if not error.possibly_billed:
                raise
            return None

    async def _answer_after_waits(
        self, kind: CallKind, call: PreparedCall, waited: ModelCallWaitTracker, observer: ReplyObserver | None
    ) -> ModelResponse:
        """Return the reply, after as many refusals as can be waited for here.

        A refused call is certainly not billed, so the one intent covers all of its repetitions. Each refusal counts as
        a failed call in the metrics.
        """
        while True:
            try:
                return await self._answer(call, waited, observer)
            except ModelUnavailable as error:
                if error.possibly_billed or error.retry_after is None or error.retry_after > MAX_RETRY_WAIT_SECONDS:
                    raise
                seconds = compute_retry_wait(error.retry_after, self.waits.jitter())
                if waited.seconds + seconds > MAX_CALL_WAIT_SECONDS:
                    raise
                waited.begin_wait()
                if not await self.waits.sleep(seconds):
                    raise
                waited.end_wait(seconds)
                self.meter.record_model_failure(kind, call.request.model, error)

    def _report(self, fence: Fence, key: CallKey, what: AgentPhase) -> None:
        agent = fence.run_id.rpartition("/")[2]
        self.report_status(AgentStatus(agent=agent, what=what, turn=key.turn, since=self.clock()))

    async def _answer(
        self, call: PreparedCall, waited: ModelCallWaitTracker, observer: ReplyObserver | None
    ) -> ModelResponse:
        """Return the reply; usage that its endpoint did not report is set to its upper bound."""
        if isinstance(self.model, PacedChatModel):
            reply = await self.model.complete_paced(call.request, self.get_tenant(), waited, observer)
        else:
            reply = await complete_with_observer(self.model, call.request, observer)
        most = call.request.max_output
        shown = not reply.hidden_thinking and bool(reply.blocks or reply.usage.prompt_tokens)
        said = compute_reply_upper_bound(reply.blocks, most) if shown else most
        return reply.replace(usage=reply.usage.fill_missing(call.worst_case.tokens - most, said))


def _require_json(value: object) -> None:
    """Raise ModelRejected unless the value is valid JSON.

    Clients serialise a request only when they send it, which is after its intent was recorded.
    """
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise ModelRejected(
            f"the request cannot be written as JSON ({type(error).__name__}), so it was not sent and costs nothing: a "
            "tool's schema or a message has a value that JSON cannot express"
        ) from None


class BillableResponse(Protocol):
    """An answer that reports its usage and its model."""

    @property
    def model(self) -> str:
        """The model that answered, as the provider names it."""
        ...

    @property
    def called_model(self) -> str:
        """The model that was asked in the end, if it differs from the intended one."""
        ...

    @property
    def usage(self) -> Usage:
        """Usage as the provider counted it."""
        ...


UsedT = TypeVar("UsedT", bound=BillableResponse)


@dataclass(frozen=True)
class PricedCall:
    """What is known of a call's price before it is made."""

    model: str
    worst_case: Amount
    prices: Sequence[Price]
    day: date
    """Day whose prices apply."""
    input_bound: int = 0
    """Input tokens within the worst case."""


@dataclass(frozen=True)
class CallLedger:
    """Records intents and charges of metered calls."""

    store: ChargeRepository
    clock: Clock
    meter: Meter
    report_status: Callable[[AgentStatus], None] = ignore_status
    record_intent: IntentRecorder | None = None
    """None: by itself, under the fence of the call."""

    async def run_metered_call(
        self, fence: Fence, key: CallKey, call: PricedCall, answer: Callable[[], Awaitable[UsedT]]
    ) -> tuple[UsedT, Charge]:
        """Make a call and return the answer with its charge, which is not committed yet.

        Raises as `MeteredModel.run_call` does.
        """
        intent = CallIntent(key=str(key), model=call.model, worst_case=call.worst_case, at=self.clock())
        unanswered = await (
            self.store.record_and_count_intents(fence, intent)
            if self.record_intent is None
            else self.record_intent(intent)
        )
        agent = fence.run_id.rpartition("/")[2]
        if key.kind != "search":  # a search is a tool call, with a status of its own
            self.report_status(AgentStatus(agent=agent, what="model", turn=key.turn, since=intent.at))
        try:
            answered = await answer()
        except ModelError as error:
            self.meter.record_model_failure(key.kind, call.model, error)
            if not _possibly_billed(error):
                await self.store.drop_intent(fence, intent.key)
                raise
            if (reported := _reported_cost(call, error)) is not None:
                await self.store.update_intent(fence, intent.key, reported)
            if isinstance(error, ModelUnavailable):
                raise _in_a_row(error, unanswered) from None
            raise
        model = answered.called_model or call.model
        charge = Charge(
            key=str(key),
            kind=key.kind,
            model=model,
            usage=answered.usage,
            cost_micro_usd=compute_cost_micro_usd(model, answered.usage, call.day, call.prices),
            at=self.clock(),
            answered_by=find_substitute_model(model, answered.model),
        )
        if key.kind != "search":
            self.report_status(AgentStatus(agent=agent, what="between", turn=key.turn, since=charge.at))
        # Recorded here and not where the charge is committed: this is what the provider bills, and each reply passes
        # here once.
        self.meter.record_model_reply(charge)
        return answered, charge


MAX_UNANSWERED_CALLS = 5
"""Maximum number of calls with the same key that may have been billed without a usable reply; then a person has to act.
Each holds its worst case. The store counts them, including those of killed workers.
"""
IMMEDIATE_RETRIES = 2
"""Number of failed calls that are retried as soon as any activity is."""
RETRY_DELAY_SECONDS = 30.0
"""Delay before each later retry in seconds: a transient failure gets time to pass, at no further cost."""


def _in_a_row(error: ModelUnavailable, unanswered: int) -> ModelError:
    """Return the error to raise after this number of unanswered calls of one key, including the current one."""
    if unanswered >= MAX_UNANSWERED_CALLS:
        named = f"{unanswered} model calls in a row got no usable reply, and all of them may have been billed"
        return BrokenEndpointError(f"{named}; the last one: {error}", possibly_billed=True)
    if unanswered <= IMMEDIATE_RETRIES or error.retry_after is not None:
        return error
    return ModelUnavailable(str(error), retry_after=RETRY_DELAY_SECONDS)


_MAX_BYTES_PER_TOKEN = 16
"""Upper bound for any request in any tokeniser, by a wide margin: an endpoint that reports fewer tokens has not
counted.
"""


def _reported_cost(call: PricedCall, error: ModelError) -> Amount | None:
    """Return the maximum cost of a call without a reply by its provider's report; None if the report says nothing.

    Like the worst case, it is an upper bound: the input is what the provider will bill, at the rates of its kinds, and
    the output is bounded by the code that read the stream. It never exceeds the worst case.
    """
    used = error.reported_usage
    if used is None or used.prompt_tokens * _MAX_BYTES_PER_TOKEN < call.input_bound:
        return None
    worst, cost = call.worst_case, compute_cost_micro_usd(error.called_model or call.model, used, call.day, call.prices)
    micro_usd = worst.micro_usd if cost is None else min(cost, worst.micro_usd)
    return Amount(tokens=min(used.fresh, worst.tokens), micro_usd=micro_usd)


def _possibly_billed(error: ModelError) -> bool:
    return isinstance(error, ContentFilterError) or (
        isinstance(error, ModelUnavailable | BrokenEndpointError) and error.possibly_billed
    )


@dataclass(frozen=True)
class MeteredSearch:
    """A web search whose every call is recorded first and charged once."""

    web: WebSearch
    store: ChargeRepository
    clock: Clock
    meter: Meter
    prices: Sequence[Price]

    async def search(
        self, fence: Fence, call_id: str, query: str, maximum: int, limit: Limit
    ) -> WebSearchResponse | CallNotAffordable:
        """Search once, within the run's limit.

        A search is admitted at its maximum cost, and its charge is committed here. The charge exceeds the maximum only
        if the provider reads more than any search does.

        Args:
            fence: Fence of the attempt.
            call_id: ID of the tool call.
            query: Search query.
            maximum: Maximum number of pages.
            limit: Limit of the agent run.

        Raises:
            ModelError: The search brought no answer.
            BadInput: Dollars are limited and the search model has no known price.
            StoreError: The store does not answer.
        """
        spent = (await self.store.get_run_usage(fence.run_id)).spent
        call = self._priced(limit)
        if not limit.remaining_after(spent).can_cover(call.worst_case):
            return CallNotAffordable(limit.remaining_after(spent).compute_excess(call.worst_case))
        books = CallLedger(self.store, self.clock, self.meter)
        found, charge = await books.run_metered_call(
            fence, CallKey("search", call_id), call, lambda: self._answer(query, maximum)
        )
        await self.store.commit_charge(fence, charge)
        return found

    async def _answer(self, query: str, maximum: int) -> WebSearchResponse:
        """Return the results; usage that the endpoint did not report is set to the maximum of any search."""
        found = await self.web.search(query, maximum)
        return found.replace(usage=found.usage.fill_missing(SEARCH_INPUT_TOKENS, SEARCH_OUTPUT_TOKENS))

    def _priced(self, limit: Limit) -> PricedCall:
        day, model = self.clock().date(), self.web.model
        price = find_price(model, day, self.prices)
        if price is None and limit.micro_usd is not None:
            raise BadInput(
                f"{model} has no known price, so its searches cannot be kept within a limit in dollars: give a "
                "budget in tokens, or add the price to a file and set WAYSTATION_PRICES to its path"
            )
        rates = None if price is None else price.compute_worst_rates(SEARCH_INPUT_TOKENS)
        searching = Amount() if price is None else Amount(micro_usd=int(price.compute_search_cost(1)))
        worst = (
            CallCostBound(input_tokens=SEARCH_INPUT_TOKENS, rates=rates).compute_worst_case(SEARCH_OUTPUT_TOKENS)
            + searching
        )
        return PricedCall(model, worst, self.prices, day)
