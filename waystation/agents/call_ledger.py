"""Calls that cost: announced before, charged after, and never over the budget.

Calls of a model that fit their budget and leave a trace whatever happens: intent before, charge after, nothing in
between forgotten.

Searches of the web that are held under a budget, announced before and charged after, as calls of models are.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Protocol, TypeVar

from waystation.agents.agent_status import AgentStatus
from waystation.agents.ports import Meter
from waystation.budgets.budget import CallCostBound
from waystation.context.tokens import compute_reply_upper_bound, compute_request_upper_bound
from waystation.context.transcript import CallIntent, Charge, Fence, Message
from waystation.documents.ports import WebSearch
from waystation.documents.web_pages import SEARCH_INPUT_TOKENS, SEARCH_OUTPUT_TOKENS, WebSearchResponse
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
from waystation.models.ports import CallKind, ChatModel, FallbackChatModel, ModelRequest, ModelResponse
from waystation.models.profiles import (
    Price,
    compute_cost_micro_usd,
    find_price,
    find_substitute_model,
    find_worst_rates,
    get_family_name,
    merge_worst_rates,
)
from waystation.store.ports import Store


@dataclass(frozen=True)
class CallKey:
    """Names a call within its agent run, without an attempt number: what has this key is paid once."""

    kind: CallKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind}-{self.name}"

    @property
    def turn(self) -> int | None:
        """Its number, where the call is one."""
        return int(self.name) if self.kind == "turn" and self.name.isdecimal() else None


IntentRecorder = Callable[[CallIntent], Awaitable[int]]
"""Commits the intent under its fence; how many of its key are open then."""


def ignore_status(_: AgentStatus) -> None:
    """Where nobody asks what goes on."""


@dataclass(frozen=True)
class PreparedCall:
    """A call that stays under its limit whatever the model answers."""

    request: ModelRequest
    """With the longest reply that fits."""
    worst_case: Amount
    prices: Sequence[Price]
    day: date
    """Whose prices hold for it: what was promised before the call is what is charged after it."""

    def with_messages(self, messages: tuple[Message, ...]) -> "PreparedCall":
        """With messages that are no longer than those it was fitted with."""
        return replace(self, request=self.request.replace(messages=messages))


@dataclass(frozen=True)
class CountedPrompt:
    """What a provider counted for the beginning of a request, when that was the whole of an earlier one."""

    tokens: int
    messages: int
    """So many of the request's messages it covers, from the first on."""
    same_head: bool
    """Whether system prompt and tools are certainly those that were counted; else they are added once more."""

    def compute_token_bound(self, request: ModelRequest, tools: str) -> int:
        """Tokens that the request certainly does not exceed: those counted, and the bytes of all that is new.

        `tools`: those of the request as JSON. No token reaches over the border of a message.
        """
        system, tools = ("", "") if self.same_head else (request.system, tools)
        return self.tokens + compute_request_upper_bound(system, tools, request.messages[self.messages :])


@dataclass(frozen=True)
class CallNotAffordable:
    """Not even the smallest useful reply fits."""

    needed: Amount
    """What it needs over what is left."""


@dataclass(frozen=True)
class MeteredModel:
    """A model whose every call is announced in the store. The caller commits the charge together with its use."""

    model: ChatModel
    store: Store
    clock: Clock
    meter: Meter
    tell: Callable[[AgentStatus], None] = ignore_status
    """Takes what goes on at this moment."""

    async def prepare_call(
        self,
        request: ModelRequest,
        left: Limit,
        floor: int,
        prices: Sequence[Price],
        counted: CountedPrompt | None = None,
    ) -> PreparedCall | CallNotAffordable:
        """The request with its reply shortened to what is left, down to `floor` tokens.

        The input's bound is its bytes; less than that if the provider `counted` the beginning of the request already,
        or if the bytes are too wide and the endpoint counts. Models that may answer in its place are reckoned with, at
        the dearest rates; where the bytes are too wide, those that count alike are left. Raises ModelError, and
        BadInput where dollars are limited and the model has no price.
        """
        day = self.clock().date()
        specs = [tool.model_dump(mode="json") for tool in request.tools]
        _require_json(specs)
        tools = json.dumps(specs)
        bytes_bound = compute_request_upper_bound(request.system, tools, request.messages)
        own = find_worst_rates(request.model, bytes_bound, day, prices)
        if own is None and left.micro_usd is not None:
            raise BadInput(f"{request.model} has no known price, so no call of it can be held under a limit in dollars")

        def bounded(tokens: int) -> CallCostBound:
            met = (find_worst_rates(model, tokens, day, prices) for model in (request.model, *request.fallbacks))
            return CallCostBound(input_tokens=tokens, rates=merge_worst_rates(met))

        others = self.model.list_fallbacks(request.model) if isinstance(self.model, FallbackChatModel) else ()
        priced = [one for one in others if left.micro_usd is None or find_price(one, day, prices) is not None]
        request = request.replace(fallbacks=tuple(priced))
        alike = tuple(one for one in priced if get_family_name(one) == get_family_name(request.model))
        known = bytes_bound if counted is None else min(bytes_bound, counted.compute_token_bound(request, tools))
        bound = bounded(known if len(alike) == len(priced) else bytes_bound)
        if not left.can_cover(bound.compute_worst_case(request.max_output)):
            known = min(known, await self._counted(request) or bytes_bound)
            if known < bytes_bound:
                request = request.replace(fallbacks=alike)
                bound = bounded(known)
        room = bound.compute_max_reply_tokens(left, request.max_output, floor)
        if room is None:
            return CallNotAffordable(bound.compute_shortfall(left, floor))
        return PreparedCall(request.replace(max_output=room), bound.compute_worst_case(room), prices, day)

    async def run_call(
        self, fence: Fence, key: CallKey, call: PreparedCall, record_intent: IntentRecorder | None = None
    ) -> tuple[ModelResponse, Charge]:
        """Ask once. `record_intent` commits the intent together with something else.

        An intent stays behind where the call may have been billed without a reply (crash, cancellation, cut stream);
        where the provider certainly refused, it is taken back. Raises ModelError, StaleFenceError; BrokenEndpointError
        where this was the last of `MAX_UNANSWERED_CALLS` in a row. ModelRejected before any intent where the request
        is no
        JSON: it could not have been billed.
        """
        _require_json(call.request.model_dump())
        books = CallLedger(self.store, self.clock, self.meter, self.tell, record_intent)
        input_bound = call.worst_case.tokens - call.request.max_output
        priced = PricedCall(call.request.model, call.worst_case, call.prices, call.day, input_bound)
        reply, charge = await books.run_metered_call(fence, key, priced, lambda: self._answer(call))
        return reply, charge.replace(
            stop=reply.stop.value, dropped_thinking=reply.dropped_thinking, cache_miss=reply.cache_miss
        )

    async def _counted(self, request: ModelRequest) -> int | None:
        """The provider's count; None also where its answer cannot be used, since the call does not depend on it."""
        try:
            return await self.model.count_tokens(request)
        except ModelUnavailable as error:
            if not error.possibly_billed:
                raise
            return None

    async def _answer(self, call: PreparedCall) -> ModelResponse:
        """The reply; what its endpoint did not report is reckoned with what it can have been at most."""
        reply = await self.model.complete(call.request)
        most = call.request.max_output
        shown = not reply.thought and bool(reply.blocks or reply.usage.prompt_tokens)
        said = compute_reply_upper_bound(reply.blocks, most) if shown else most
        return reply.replace(usage=reply.usage.fill_missing(call.worst_case.tokens - most, said))


def _require_json(value: object) -> None:
    """Raises ModelRejected. Clients serialise a request only when it is sent, and so after its intent is recorded."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False, default=str).encode()
    except (ValueError, RecursionError) as error:
        raise ModelRejected(
            f"the request cannot be written as JSON ({type(error).__name__}), so it was not sent and costs nothing: a "
            "tool's schema or a message has a value that JSON does not carry"
        ) from None


class BillableResponse(Protocol):
    """What an answer says that it used, and of whom it is."""

    @property
    def model(self) -> str:
        """Who answered, as the provider names it."""
        ...

    @property
    def asked(self) -> str:
        """Who was asked in the end, where it was another than was meant."""
        ...

    @property
    def usage(self) -> Usage:
        """As the provider counted it."""
        ...


UsedT = TypeVar("UsedT", bound=BillableResponse)


@dataclass(frozen=True)
class PricedCall:
    """What is known of a call's price before it is made."""

    model: str
    worst_case: Amount
    prices: Sequence[Price]
    day: date
    """Whose prices hold for it."""
    input_bound: int = 0
    """Tokens of the worst case that are input."""


@dataclass(frozen=True)
class CallLedger:
    """What calls that cost leave behind, whoever answers them."""

    store: Store
    clock: Clock
    meter: Meter
    tell: Callable[[AgentStatus], None] = ignore_status
    record_intent: IntentRecorder | None = None
    """None: by itself, under the fence of the call."""

    async def run_metered_call(
        self, fence: Fence, key: CallKey, call: PricedCall, answer: Callable[[], Awaitable[UsedT]]
    ) -> tuple[UsedT, Charge]:
        """The answer, and the charge for it, which is not committed yet. Raises as `MeteredModel.run_call` does."""
        intent = CallIntent(key=str(key), model=call.model, worst_case=call.worst_case, at=self.clock())
        unanswered = await (
            self.store.record_intent(fence, intent) if self.record_intent is None else self.record_intent(intent)
        )
        agent = fence.run_id.rpartition("/")[2]
        if key.kind != "search":  # that is a call of a tool
            self.tell(AgentStatus(agent=agent, what="model", turn=key.turn, since=intent.at))
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
        model = answered.asked or call.model
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
            self.tell(AgentStatus(agent=agent, what="between", turn=key.turn, since=charge.at))
        # Here and not where the charge is committed: this is what the provider bills, and no attempt passes it twice.
        self.meter.record_model_reply(charge)
        return answered, charge


MAX_UNANSWERED_CALLS = 5
"""Calls of one key that may have been billed and brought no reply that can be used: then a person has to see to it.
Each holds its worst case. The store counts them, those of workers that were killed included."""
IMMEDIATE_RETRIES = 2
"""So many are repeated as soon as any activity that failed."""
RETRY_DELAY_SECONDS = 30.0
"""Seconds before each later one: what passes by itself has some time to, at no further cost."""


def _in_a_row(error: ModelUnavailable, unanswered: int) -> ModelError:
    """What the failure of a call is, after so many of its key without a reply, it included."""
    if unanswered >= MAX_UNANSWERED_CALLS:
        named = f"{unanswered} calls in a row brought no reply that can be used, and may all have been billed"
        return BrokenEndpointError(f"{named}; the last one: {error}", possibly_billed=True)
    if unanswered <= IMMEDIATE_RETRIES or error.retry_after is not None:
        return error
    return ModelUnavailable(str(error), retry_after=RETRY_DELAY_SECONDS)


_MOST_BYTES_PER_TOKEN = 16
"""Of any request in any tokeniser, by a wide margin: an endpoint that reports fewer tokens has not counted it."""


def _reported_cost(call: PricedCall, error: ModelError) -> Amount | None:
    """What a call without a reply costs at most by its provider's report; None if the report says nothing about it.

    An upper bound as the worst case is: the input is what the provider will bill, at the rates of its kinds, and the
    output is bounded by the code that read the stream. It is never more than the worst case.
    """
    used = error.reported
    if used is None or used.prompt_tokens * _MOST_BYTES_PER_TOKEN < call.input_bound:
        return None
    worst, cost = call.worst_case, compute_cost_micro_usd(error.asked or call.model, used, call.day, call.prices)
    micro_usd = worst.micro_usd if cost is None else min(cost, worst.micro_usd)
    return Amount(tokens=min(used.fresh, worst.tokens), micro_usd=micro_usd)


def _possibly_billed(error: ModelError) -> bool:
    return isinstance(error, ContentFilterError) or (
        isinstance(error, ModelUnavailable | BrokenEndpointError) and error.possibly_billed
    )


@dataclass(frozen=True)
class MeteredSearch:
    """A search whose every call leaves a trace, and is charged once."""

    web: WebSearch
    store: Store
    clock: Clock
    meter: Meter
    prices: Sequence[Price]

    async def search(
        self, fence: Fence, call_id: str, query: str, most: int, limit: Limit
    ) -> WebSearchResponse | CallNotAffordable:
        """Search once for at most so many pages, within the run's limit.

        A search is reckoned with what it costs at most, and its charge is committed here: it may turn out higher only
        where the provider reads more than any search does. Raises ModelError, BadInput, StoreError.
        """
        spent = (await self.store.get_run_usage(fence.run_id)).spent
        call = self._priced(limit)
        if not limit.remaining_after(spent).can_cover(call.worst_case):
            return CallNotAffordable(limit.remaining_after(spent).compute_excess(call.worst_case))
        books = CallLedger(self.store, self.clock, self.meter)
        found, charge = await books.run_metered_call(
            fence, CallKey("search", call_id), call, lambda: self._answer(query, most)
        )
        await self.store.commit_charge(fence, charge)
        return found

    async def _answer(self, query: str, most: int) -> WebSearchResponse:
        """What was found; what the endpoint did not report is reckoned as any search was before it was made."""
        found = await self.web.search(query, most)
        return found.replace(usage=found.usage.fill_missing(SEARCH_INPUT_TOKENS, SEARCH_OUTPUT_TOKENS))

    def _priced(self, limit: Limit) -> PricedCall:
        day, model = self.clock().date(), self.web.model
        price = find_price(model, day, self.prices)
        if price is None and limit.micro_usd is not None:
            raise BadInput(f"{model} has no known price, so no search by it can be held under a limit in dollars")
        rates = None if price is None else price.compute_worst_rates(SEARCH_INPUT_TOKENS)
        searching = Amount() if price is None else Amount(micro_usd=int(price.compute_search_cost(1)))
        worst = (
            CallCostBound(input_tokens=SEARCH_INPUT_TOKENS, rates=rates).compute_worst_case(SEARCH_OUTPUT_TOKENS)
            + searching
        )
        return PricedCall(model, worst, self.prices, day)
