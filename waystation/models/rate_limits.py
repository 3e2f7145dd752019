"""Rate limits of a provider: requests, input tokens and output tokens per minute, kept by token buckets that workers
share.

Everything here is pure. A worker takes a lease: an amount that it may use without asking again. Limits come from the
settings, from the provider's headers, or, if no header names them, from its refusals.

How far a limit can be exceeded: in any period of T seconds, calls use at most what the limit permits in T seconds, plus
two bursts of `BURST_SECONDS` each (one in the bucket and one in leases), plus one call, since a call larger than the
bucket must get through, too. A provider whose own bucket holds a minute of the limit never sees the difference.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Literal, TypeVar

from waystation.kernel.patterns import compile_bounded
from waystation.kernel.value import Value

BURST_SECONDS = 10.0
"""What a bucket holds at most, in seconds of its limit."""
LEASE_SECONDS, CONTENDED_LEASE_SECONDS = 60.0, 2.0
"""How long a lease is valid while there is plenty, and while workers wait."""
ACTIVE_SECONDS = 5.0
"""Workers that asked within this time share the limit."""
FORGOTTEN_SECONDS = 3_600.0
"""Limits from headers are forgotten if no header has named them for this long."""
MAX_CLOSED_SECONDS = 60.0
"""Longest time for which a refusal closes the limiter, in seconds."""
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.5, 2.0
"""Bounds of the time until a worker that got nothing asks again, in seconds."""

MIN_ADAPTIVE_PER_MINUTE = 1.0
DECREASE_FACTOR = 0.5
DECREASE_INTERVAL_SECONDS = 5.0
"""Refusals within this time are one: calls that were in progress together are refused together."""
RECOVERY_SECONDS = 60.0
"""Time after which an adaptive limit has grown back to the rate at which it was refused, if nothing is refused."""
FORGET_FACTOR = 2.0
"""An adaptive limit that has grown to this multiple of the rate at which it was refused is dropped."""

Dimension = Literal["requests", "input_tokens", "output_tokens"]
DIMENSIONS: tuple[Dimension, ...] = ("requests", "input_tokens", "output_tokens")


class RateLimitAmount(Value):
    """An amount in each dimension. Negative for a debt."""

    requests: float = 0.0
    input_tokens: float = 0.0
    output_tokens: float = 0.0

    def __add__(self, other: "RateLimitAmount") -> "RateLimitAmount":
        return build_rate_limit_amount(lambda name: self.get(name) + other.get(name))

    def __sub__(self, other: "RateLimitAmount") -> "RateLimitAmount":
        return build_rate_limit_amount(lambda name: self.get(name) - other.get(name))

    def get(self, name: Dimension) -> float:
        """Return the amount in one dimension."""
        match name:
            case "requests":
                return self.requests
            case "input_tokens":
                return self.input_tokens
            case "output_tokens":
                return self.output_tokens


NOTHING = RateLimitAmount()


def build_rate_limit_amount(amount: Callable[[Dimension], float]) -> RateLimitAmount:
    """Build an amount from its value in each dimension."""
    return RateLimitAmount(
        requests=amount("requests"), input_tokens=amount("input_tokens"), output_tokens=amount("output_tokens")
    )


class RateLimits(Value):
    """Limits per minute. None: no limit is known."""

    requests: float | None = None
    input_tokens: float | None = None
    output_tokens: float | None = None

    def get(self, name: Dimension) -> float | None:
        """Return the limit in one dimension."""
        match name:
            case "requests":
                return self.requests
            case "input_tokens":
                return self.input_tokens
            case "output_tokens":
                return self.output_tokens

    def iter_limits(self) -> Iterator[tuple[Dimension, float]]:
        """Yield the known limits."""
        for name in DIMENSIONS:
            if (limit := self.get(name)) is not None:
                yield name, limit

    @property
    def is_empty(self) -> bool:
        """Whether nothing is limited."""
        return not any(True for _ in self.iter_limits())

    def restrict_to(self, other: "RateLimits") -> "RateLimits":
        """Return the lower limit in each dimension."""
        return self.map_each(
            lambda name: min((one for one in (self.get(name), other.get(name)) if one is not None), default=None)
        )

    def with_newer(self, newer: "RateLimits") -> "RateLimits":
        """Return these limits with those that the newer ones name."""
        return self.map_each(lambda name: self.get(name) if newer.get(name) is None else newer.get(name))

    @staticmethod
    def map_each(limit: Callable[[Dimension], float | None]) -> "RateLimits":
        """Build limits from the value in each dimension."""
        return RateLimits(
            requests=limit("requests"), input_tokens=limit("input_tokens"), output_tokens=limit("output_tokens")
        )

    def compute_share(self, size: RateLimitAmount) -> float:
        """Return the part of a minute's quota that a call uses: in the dimension of which it uses most."""
        return max((size.get(name) / limit for name, limit in self.iter_limits()), default=0.0)


NO_LIMITS = RateLimits()


class LimitReport(Value):
    """What the headers of one response say."""

    limits: RateLimits = NO_LIMITS
    remaining: RateLimits = NO_LIMITS
    """What is left now, as far as it is named; None where the named time of replenishment has passed."""


class Refusal(Value):
    """A call that was refused because of a limit or of an overload."""

    overloaded: bool = False
    """The provider has no capacity, whatever the account may use."""
    retry_after: float | None = None
    """Seconds until the provider wants to be asked again."""
    per_minute: float = 0.0
    """Calls per minute that the worker made shortly before."""


_RATE_HEADERS: Mapping[Dimension, tuple[str, str]] = {
    "requests": ("anthropic-ratelimit-requests-{}", "x-ratelimit-{}-requests"),
    "input_tokens": ("anthropic-ratelimit-input-tokens-{}", "x-ratelimit-{}-tokens"),
    "output_tokens": ("anthropic-ratelimit-output-tokens-{}", "x-ratelimit-{}-tokens"),
}
MAX_LIMIT = 1e12
"""Larger numbers in a header are no limits."""
LEAST_LIMITS: Mapping[Dimension, int] = {"requests": 1, "input_tokens": 1_000, "output_tokens": 1_000}
"""Smaller numbers in a header are no limits: with one token a minute, a single call would stop all workers for days."""
MAX_RESET_SECONDS = 86_400.0
"""Resets that are further away are ignored."""
UNKNOWN_COUNT = "-1"
"""Some endpoints send it for a limit that they do not know
(https://learn.microsoft.com/en-us/answers/questions/5625878).
"""
_DURATION = compile_bounded(
    r"(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?(?:(\d{1,9}(?:\.\d{1,9})?)ms)?"
)
_NUMBER = compile_bounded(r"\d{1,15}(?:\.\d{1,9})?")
_EPOCH, _EPOCH_MILLISECONDS = 1e9, 1e12
"""From these on, a plain number is a time in seconds or milliseconds, and not a duration."""


def parse_limit_report(
    headers: Mapping[str, str], now: datetime | None, ignored: Callable[[str], None] = lambda _: None
) -> LimitReport | None:
    """Return what the headers say about limits; None if they say nothing.

    Anthropic names three limits, and RFC 3339 times at which they are replenished
    (https://platform.claude.com/docs/en/api/rate-limits, "Response headers"). OpenAI and many servers of its protocol
    name requests and tokens, and durations such as `1s`, `6m0s` or `12ms` until then
    (https://platform.openai.com/docs/guides/rate-limits, "Rate limits in headers"); others send plain seconds or a Unix
    time. Their limit on tokens is kept for input and for output, because it is one for both. A limit on requests may be
    one per day (https://pub.dev/documentation/groq_sdk/latest/models_groq_rate_limit_information/); it then slows down
    nothing before the provider says that little is left.

    A value that cannot be right is ignored, and the rest of the headers is used.

    Args:
        headers: Headers of a response, by lower-case names.
        now: When the response was made, by the provider's clock; None if it does not say so.
        ignored: Receives the name of each header whose value is ignored.
    """

    def read_header(name: Dimension, field_name: str) -> tuple[str, str]:
        """Return the header's name and value; the value is empty if there is none or if it says nothing."""
        names = [pattern.format(field_name) for pattern in _RATE_HEADERS[name]]
        header = next((one for one in names if one in headers), names[0])
        text = headers.get(header, "").strip()
        return header, "" if text == UNKNOWN_COUNT else text

    def count(name: Dimension, field_name: str, least: int) -> float | None:
        header, text = read_header(name, field_name)
        number = _parse_count(text, least)
        if text and number is None:
            ignored(header)
        return number

    limits = RateLimits.map_each(lambda name: count(name, "limit", LEAST_LIMITS[name]))
    if limits.is_empty:
        return None

    def remaining(name: Dimension) -> float | None:
        if limits.get(name) is None:
            return None
        left = count(name, "remaining", 0)
        header, text = read_header(name, "reset")
        seconds = _parse_reset(text, now)
        if text and seconds is None and now is not None:
            ignored(header)
        replenished = seconds is not None and seconds < 0
        # Where everything is left, the time of replenishment is that of the response.
        return None if replenished and left != limits.get(name) else left

    return LimitReport(limits=limits, remaining=RateLimits.map_each(remaining))


def _parse_count(text: str, least: int) -> float | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 15:
        return None
    number = float(text)
    return number if least <= number <= MAX_LIMIT else None


def _parse_reset(text: str, now: datetime | None) -> float | None:
    """Return the seconds until a limit is replenished, negative for a time that has passed; None if it is not known."""
    if not text.isascii():
        return None
    if _NUMBER.fullmatch(text):
        seconds = float(text)
        if seconds >= _EPOCH:
            moment = seconds / 1000 if seconds >= _EPOCH_MILLISECONDS else seconds
            seconds = None if now is None else moment - now.timestamp()
    elif text and (parts := _DURATION.fullmatch(text)) is not None:
        hours, minutes, whole, thousandths = (float(part or 0) for part in parts.groups())
        seconds = hours * 3_600 + minutes * 60 + whole + thousandths / 1000
    else:
        moment_named = _parse_moment(text)
        seconds = None if moment_named is None or now is None else (moment_named - now).total_seconds()
    return seconds if seconds is not None and abs(seconds) <= MAX_RESET_SECONDS else None


def _parse_moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


class AdaptiveLimit(Value):
    """A limit on requests per minute that no header names: it falls with refusals and grows while there are none."""

    per_minute: float
    """Right after the last refusal."""
    refused_per_minute: float
    """The rate that was refused."""
    at: float
    """When it was refused last, in seconds."""

    def compute_limit(self, now: float) -> float | None:
        """Return the limit at a moment; None if it has grown so far that it limits nothing."""
        grown = (self.refused_per_minute - self.per_minute) * max(0.0, now - self.at) / RECOVERY_SECONDS
        limit = self.per_minute + grown
        return None if limit >= FORGET_FACTOR * self.refused_per_minute else limit


def decrease_limit(adaptive: AdaptiveLimit | None, per_minute: float, now: float) -> AdaptiveLimit:
    """Return the limit after a refusal.

    Args:
        adaptive: The limit so far.
        per_minute: Rate of all workers' calls before the refusal.
        now: Time in seconds.
    """
    if adaptive is not None and abs(now - adaptive.at) < DECREASE_INTERVAL_SECONDS:
        # The first refusals may arrive before most of the calls of that moment were counted.
        refused = max(adaptive.refused_per_minute, per_minute)
        return adaptive.replace(per_minute=refused * DECREASE_FACTOR, refused_per_minute=refused)
    limit = None if adaptive is None else adaptive.compute_limit(now)
    refused = max(MIN_ADAPTIVE_PER_MINUTE / DECREASE_FACTOR, per_minute if limit is None else min(limit, per_minute))
    return AdaptiveLimit(per_minute=refused * DECREASE_FACTOR, refused_per_minute=refused, at=now)


class WorkerDemand(Value):
    """What a worker last said."""

    seen: float
    """When it asked last, in seconds."""
    waiting: int = 0
    """Number of its calls that wait."""


class LimitState(Value):
    """State of one limiter, shared by all workers. Times are in seconds on the store's clock."""

    at: float = 0.0
    """When the levels were computed."""
    limits: RateLimits = NO_LIMITS
    """As named by headers."""
    limits_at: float = 0.0
    """When a header named them last."""
    adaptive: AdaptiveLimit | None = None
    level: RateLimits = NO_LIMITS
    """What the buckets hold, negative for a debt; None for a dimension that was not limited so far."""
    closed_until: float = 0.0
    """Before this time nothing is granted, because the provider said so."""
    workers: dict[str, WorkerDemand] = {}

    def get_effective_limits(self, fixed: RateLimits, now: float) -> RateLimits:
        """Return the limits that are kept. `fixed`: limits by the settings."""
        limits = self.limits.restrict_to(fixed)
        adaptive = None if self.adaptive is None else self.adaptive.compute_limit(now)
        return limits.restrict_to(RateLimits(requests=adaptive))

    def count_waiting(self, now: float) -> int:
        """Return the number of calls that wait, of all workers that asked shortly before."""
        return sum(one.waiting for one in self.workers.values() if abs(now - one.seen) <= ACTIVE_SECONDS)


EMPTY_STATE = LimitState()


class LeaseRequest(Value):
    """What a worker asks for and reports."""

    worker: str
    head: RateLimitAmount = NOTHING
    """Size of the call that is next."""
    wanted: RateLimitAmount = NOTHING
    """Size of all calls that wait or are expected soon, the next one included."""
    returned: RateLimitAmount = NOTHING
    """What is left of its last lease; negative if it used more."""
    waiting: int = 0
    report: LimitReport | None = None
    refusal: Refusal | None = None
    fixed: RateLimits = NO_LIMITS


class LeaseGrant(Value):
    """What a worker may use."""

    limits: RateLimits = NO_LIMITS
    """The limits that are kept now; all unknown if nothing is limited."""
    amount: RateLimitAmount = NOTHING
    valid_for: float = LEASE_SECONDS
    """Seconds."""
    retry_in: float = 0.0
    """Seconds until asking again is worthwhile."""
    closed_for: float = 0.0
    """Seconds for which nothing is granted, because the provider said so."""


def grant_lease(state: LimitState, request: LeaseRequest, now: float) -> tuple[LimitState, LeaseGrant]:
    """Apply what a worker reports, and grant it a lease.

    A call is granted whenever every bucket has something left, whatever its size: the bucket then owes the rest, and
    grants nothing until it is repaid. So a call larger than any bucket gets through, and none waits behind smaller ones
    for ever.

    Args:
        state: State before.
        request: What the worker asks for and reports.
        now: Time in seconds. It may jump backwards, which refills nothing.

    Returns:
        The state afterwards, and the grant.
    """
    state = _learn(_refill(state, request.fixed, now), request, now)
    demand = WorkerDemand(seen=now, waiting=request.waiting)
    others = {name: one for name, one in state.workers.items() if abs(now - one.seen) <= LEASE_SECONDS}
    limits = state.get_effective_limits(request.fixed, now)
    level = _compute_levels(state, request, limits)
    state = state.replace(at=now, level=level, workers={**others, request.worker: demand})
    closed = max(0.0, state.closed_until - now)
    if closed or request.head == NOTHING or limits.is_empty:
        return state, LeaseGrant(limits=limits, retry_in=closed, closed_for=closed)
    owed = max((_compute_delay(level.get(name), limit) for name, limit in limits.iter_limits()), default=0.0)
    active = sum(abs(now - one.seen) <= ACTIVE_SECONDS for one in state.workers.values())
    # In this time the limit permits one such call of every worker.
    turn = max((request.head.get(name) * 60 / limit for name, limit in limits.iter_limits()), default=0.0) * active
    pause = min(max(owed, turn, MIN_RETRY_SECONDS), MAX_RETRY_SECONDS)
    if owed > 0:
        return state, LeaseGrant(limits=limits, retry_in=pause)
    plenty = all((level.get(name) or 0.0) >= compute_capacity(limit) / 2 for name, limit in limits.iter_limits())

    def granted(name: Dimension) -> float:
        if limits.get(name) is None:
            return 0.0
        fair = (level.get(name) or 0.0) / active
        wanted = max(request.wanted.get(name), fair / 2 if plenty else 0.0)
        return max(request.head.get(name), min(wanted, fair))

    amount = build_rate_limit_amount(granted)
    left = RateLimits.map_each(lambda name: None if (held := level.get(name)) is None else held - amount.get(name))
    granted_state = state.replace(level=left)
    if plenty:
        return granted_state, LeaseGrant(limits=limits, amount=amount)
    return granted_state, LeaseGrant(limits=limits, amount=amount, valid_for=CONTENDED_LEASE_SECONDS, retry_in=pause)


def compute_capacity(limit: float) -> float:
    """Return what a bucket holds at most; at least one request."""
    return max(limit * BURST_SECONDS / 60, 1.0)


def _compute_delay(level: float | None, limit: float) -> float:
    """Return the seconds until a bucket has something; 0 if it has."""
    return 0.0 if level is None or level > 0 else (-level + 1e-6) * 60 / limit


def _refill(state: LimitState, fixed: RateLimits, now: float) -> LimitState:
    """Return the state at a later moment. If the clock was set back, nothing is refilled and nothing is closed for
    longer than a refusal may close it.
    """
    elapsed = max(0.0, now - state.at)
    limits = state.get_effective_limits(fixed, now)

    def refilled(name: Dimension) -> float | None:
        level, limit = state.level.get(name), limits.get(name)
        if level is None or limit is None:
            return None
        return min(level + limit / 60 * elapsed, compute_capacity(limit))

    closed = min(state.closed_until, now + MAX_CLOSED_SECONDS)
    return state.replace(level=RateLimits.map_each(refilled), closed_until=closed)


def _learn(state: LimitState, request: LeaseRequest, now: float) -> LimitState:
    """Return the state with what headers and refusals say."""
    report, refusal = request.report, request.refusal
    if report is not None:
        state = state.replace(limits=state.limits.with_newer(report.limits), limits_at=now)
    elif abs(now - state.limits_at) > FORGOTTEN_SECONDS:
        state = state.replace(limits=NO_LIMITS)
    if refusal is None:
        return state
    if refusal.retry_after is not None:
        closed = now + min(refusal.retry_after, MAX_CLOSED_SECONDS)
        state = state.replace(closed_until=max(state.closed_until, closed))
    if not refusal.overloaded and not state.limits.restrict_to(request.fixed).is_empty:
        return state
    active = max(1, sum(abs(now - one.seen) <= ACTIVE_SECONDS for one in state.workers.values()))
    return state.replace(adaptive=decrease_limit(state.adaptive, refusal.per_minute * active, now))


def _compute_levels(state: LimitState, request: LeaseRequest, limits: RateLimits) -> RateLimits:
    """Return the levels with what the worker gives back, and no higher than the provider says.

    The bucket of a limit that is new is full, and empty if the limit follows from a refusal.
    """
    report = request.report or LimitReport()

    def level(name: Dimension) -> float | None:
        limit = limits.get(name)
        if limit is None:
            return None
        held = state.level.get(name)
        if held is None:
            held = 0.0 if request.refusal is not None else compute_capacity(limit)
        else:
            held = min(held + request.returned.get(name), compute_capacity(limit))
        remaining = report.remaining.get(name)
        return held if remaining is None else min(held, remaining)

    return RateLimits.map_each(level)


class LimitStatus(Value):
    """A limiter as people see it."""

    limits: RateLimits
    remaining: RateLimits
    """What its buckets hold now, of the `BURST_SECONDS` of the limit that they hold at most; negative for a debt."""
    waiting: int
    """Number of calls that wait, of all workers."""
    closed_for: float
    """Seconds for which the provider wants no calls."""


def build_limit_status(state: LimitState, fixed: RateLimits, now: float) -> LimitStatus:
    """Build the status of a limiter. `fixed`: limits by the settings; `now`: time in seconds on the store's clock."""
    limits, refilled = state.get_effective_limits(fixed, now), _refill(state, fixed, now)

    def left(name: Dimension) -> float | None:
        limit, level = limits.get(name), refilled.level.get(name)
        return compute_capacity(limit) if level is None and limit is not None else level

    remaining = RateLimits.map_each(left)
    closed = max(0.0, refilled.closed_until - now)
    return LimitStatus(limits=limits, remaining=remaining, waiting=state.count_waiting(now), closed_for=closed)


def describe_limits(limits: RateLimits) -> str:
    """Describe amounts for a person: `50 requests, 30,000 input tokens`; empty if there are none."""
    named = {"requests": "requests", "input_tokens": "input tokens", "output_tokens": "output tokens"}
    return ", ".join(f"{amount:,.0f} {named[name]}" for name, amount in limits.iter_limits())


MIN_INPUT_SHARE, MIN_AVERAGE_WEIGHT = 0.02, 0.1
FIRST_OUTPUT_TOKENS = 1_000.0


class CallSizeEstimator(Value):
    """Expected size of the next call, by the calls before it."""

    input_share: float = 1.0
    """Input tokens that count towards the limit, by estimated tokens of the request."""
    output_tokens: float = FIRST_OUTPUT_TOKENS
    weight: float = 0.5
    """Of the next call. It falls with each call to `MIN_AVERAGE_WEIGHT`, so that the first guess is soon forgotten."""

    def compute_size(self, request_tokens: int, max_output: int) -> RateLimitAmount:
        """Return the expected size of a call.

        Args:
            request_tokens: Estimated tokens of the whole request.
            max_output: Longest reply in tokens.
        """
        return RateLimitAmount(
            requests=1.0,
            input_tokens=request_tokens * self.input_share,
            output_tokens=min(self.output_tokens, float(max_output)),
        )

    def after_call(self, request_tokens: int, actual: RateLimitAmount) -> "CallSizeEstimator":
        """Return the estimate after a call of which the size is known: a mean at first, then a moving average."""
        share = max(MIN_INPUT_SHARE, actual.input_tokens / max(1, request_tokens))
        return CallSizeEstimator(
            input_share=self.input_share + self.weight * (share - self.input_share),
            output_tokens=self.output_tokens + self.weight * (actual.output_tokens - self.output_tokens),
            weight=max(MIN_AVERAGE_WEIGHT, self.weight / (1 + self.weight)),
        )


ItemT = TypeVar("ItemT")


@dataclass
class FairQueue(Generic[ItemT]):
    """A queue that is fair between tenants: each gets the share of its weight while it has something waiting.

    Every tenant has a virtual time that grows with what it has used, divided by its weight. The next item is the oldest
    one of the tenant with the smallest virtual time. A tenant that was idle begins at the time of the others, so that
    it cannot save up.
    """

    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """1 for tenants that are not listed."""
    _items: dict[str, deque[ItemT]] = field(default_factory=dict[str, deque[ItemT]])
    _times: dict[str, float] = field(default_factory=dict[str, float])
    _now: float = 0.0
    """Virtual time of the tenant that was served last."""

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))

    def add(self, tenant: str, item: ItemT) -> None:
        """Add an item behind the others of its tenant."""
        if tenant not in self._items:
            self._items[tenant] = deque()
            self._times[tenant] = max(self._times.get(tenant, 0.0), self._now)
        self._items[tenant].append(item)

    def find_next(self) -> tuple[str, ItemT] | None:
        """Return the tenant and the item that is next; None if nothing waits."""
        if not self._items:
            return None
        tenant = min(self._items, key=lambda one: self._times[one])
        return tenant, self._items[tenant][0]

    def take(self, tenant: str, cost: float) -> ItemT:
        """Remove the tenant's oldest item and count its cost."""
        item = self._items[tenant].popleft()
        self._now = self._times[tenant]
        self._times[tenant] += cost / self.weights.get(tenant, 1.0)
        self._drop_if_empty(tenant)
        return item

    def remove(self, tenant: str, item: ItemT) -> None:
        """Remove an item that waits no longer, if it is there."""
        if item in self._items.get(tenant, ()):
            self._items[tenant].remove(item)
            self._drop_if_empty(tenant)

    def iter_items(self) -> Iterator[ItemT]:
        """Yield all items, in no particular order."""
        for waiting in self._items.values():
            yield from waiting

    def _drop_if_empty(self, tenant: str) -> None:
        if self._items[tenant]:
            return
        del self._items[tenant]
        # Times that everyone has passed are those of tenants that begin at the present time anyway.
        self._times = {one: time for one, time in self._times.items() if one in self._items or time > self._now}
