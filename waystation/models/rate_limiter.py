"""Makes the calls of one process wait until their provider's rate limits permit them.

Leases come from the store, so that all workers together keep to the limits. Where no limit is known, a call neither
waits nor asks the store, except for the first one of a process.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from waystation.kernel.errors import ModelUnavailable, StoreError
from waystation.kernel.usage import Usage
from waystation.models.http_errors import parse_http_date, watch_responses
from waystation.models.ports import LimitRepository, LimitScope, ScopedLimitState, WaitObserver
from waystation.models.rate_limits import (
    EMPTY_STATE,
    NO_LIMITS,
    NOTHING,
    CallSizeEstimate,
    FairQueue,
    LeaseGrant,
    LeaseRequest,
    LimitReport,
    LimitState,
    RateAmount,
    RateLimits,
    Refusal,
    build_rate_amount,
    grant_lease,
    parse_limit_report,
)

_log = logging.getLogger(__name__)

MAX_QUEUE_SECONDS = 300.0
"""Longest time that a call waits here; then its attempt fails, and Temporal's timer waits for it."""
RETRY_AFTER_QUEUE_SECONDS = 61.0
"""When such a call is made again: after a minute, in which a minute's quota becomes free."""
FETCH_SECONDS = 0.25
"""A call that is admitted within this time has not waited: its lease was fetched from the store."""
STORE_PAUSE_SECONDS = 1.0
"""Pause before the store is asked again after it did not answer."""
RECENT_SECONDS = 60.0
"""Calls of this time are expected again within the next lease."""
RATE_SECONDS = 10.0
"""Period for which the rate of calls before a refusal is measured."""
_REFUSED, _OVERLOADED = 429, 529


@dataclass(eq=False)
class _Waiter:
    size: RateAmount
    admitted: asyncio.Future[None]


@dataclass
class AdmittedCall:
    """A call that was admitted, until its actual size is known."""

    size: RateAmount
    """As it was admitted."""
    actual: RateAmount | None = None
    """As the provider counted it; None if there was no reply."""

    def record_usage(self, usage: Usage, *, counts_cache_reads: bool) -> None:
        """Record what the call used.

        Args:
            usage: Usage of the reply.
            counts_cache_reads: Whether input tokens read from the cache count towards the limit.
        """
        read = usage.cache_read if counts_cache_reads else 0
        fresh = usage.input + usage.cache_write + read
        self.actual = RateAmount(requests=1.0, input_tokens=fresh, output_tokens=usage.output)


Sleep = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class LimiterContext:
    """What the limiters of one process share."""

    leases: LimitRepository
    worker: str
    """Name of this process among the workers of the store."""
    clock: Callable[[], float]
    """Seconds that only grow."""
    jitter: Callable[[], float]
    """Returns a random number from 0 to 1."""
    sleep: Sleep = asyncio.sleep
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Weights of tenants; 1 for all others."""
    fixed: Mapping[tuple[str, str], RateLimits] = field(default_factory=dict[tuple[str, str], RateLimits])
    """Limits by the settings, by address of the endpoint and name of the model."""


class ScopeLimiter:
    """The calls of one process to one model of one account."""

    def __init__(self, scope: LimitScope, context: LimiterContext) -> None:
        """Create the limiter; it asks the store at its first call."""
        self.scope, self.limits = scope, NO_LIMITS
        self._context, self._fixed = context, context.fixed.get((scope.endpoint, scope.model), NO_LIMITS)
        self._queue: FairQueue[_Waiter] = FairQueue(context.weights)
        self._estimate = CallSizeEstimate()
        self._known = False
        self._lease, self._lease_until, self._closed_until = NOTHING, 0.0, 0.0
        self._named_limits = NO_LIMITS
        self._report: LimitReport | None = None
        self._refusal: Refusal | None = None
        self._recent: deque[tuple[float, RateAmount]] = deque()
        self._asking = asyncio.Lock()
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        return len(self._queue)

    @asynccontextmanager
    async def admit_call(
        self, request_tokens: Callable[[], int], max_output: int, tenant: str, observer: WaitObserver
    ) -> AsyncGenerator[AdmittedCall]:
        """Wait until a call is permitted; at the end, learn from its usage, its headers and its refusal.

        Args:
            request_tokens: Returns the estimated tokens of the request; only called if something is limited.
            max_output: Longest reply in tokens.
            tenant: Whose call it is.
            observer: Is notified if the call waits.

        Raises:
            ModelUnavailable: The call would wait for too long. It was not made.
        """
        if not self._known:
            await self._ask(NOTHING)
        tokens = 0 if self.limits.is_empty else request_tokens()
        call = AdmittedCall(self._estimate.compute_size(tokens, max_output))
        if not self._is_admitted_now(call.size):
            await self._wait(call.size, tenant, observer)
        self._note_call(call.size)
        try:
            with watch_responses(self._listen):
                yield call
        except ModelUnavailable as error:
            if not error.possibly_billed:
                self._lease += call.size
                self._note_refusal(error)
                await self._ask(NOTHING)
            raise
        finally:
            if call.actual is not None:
                self._lease += call.size - call.actual
                if tokens:
                    self._estimate = self._estimate.after_call(tokens, call.actual)

    async def aclose(self) -> None:
        """Stop admitting calls, and give the lease back."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if not self.limits.is_empty:
            await self._ask(NOTHING)

    def _is_admitted_now(self, size: RateAmount) -> bool:
        """Return whether a call need not wait; it is then subtracted from the lease."""
        return not self._queue and self._now >= self._closed_until and self._take(size)

    @property
    def _now(self) -> float:
        return self._context.clock()

    def _take(self, size: RateAmount) -> bool:
        """Subtract a call from the lease, if it covers the call."""
        if not self.limits.is_empty:
            covered = all(self._lease.get(name) >= size.get(name) for name, _ in self.limits.items())
            if not covered or self._now >= self._lease_until:
                return False
            self._lease -= size
        return True

    async def _wait(self, size: RateAmount, tenant: str, observer: WaitObserver) -> None:
        waiter, began = _Waiter(size, asyncio.get_running_loop().create_future()), self._now
        self._queue.add(tenant, waiter)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._admit_waiting())
        # A lease that only has to be fetched from the store is no wait for the provider.
        done, _ = await self._shielded(tenant, waiter, FETCH_SECONDS)
        if not done:
            observer.begin_wait()
            done, _ = await self._shielded(tenant, waiter, MAX_QUEUE_SECONDS)
            if done:
                observer.end_wait(self._now - began)
        if not done:
            self._queue.remove(tenant, waiter)
            raise ModelUnavailable(
                f"{self.scope.model}: the call waited {MAX_QUEUE_SECONDS:,.0f} s for the provider's rate limit "
                f"({describe_limits(self.limits)}), with {self.waiting:,} others",
                retry_after=RETRY_AFTER_QUEUE_SECONDS,
                possibly_billed=False,
            )

    async def _shielded(
        self, tenant: str, waiter: _Waiter, seconds: float
    ) -> tuple[set[asyncio.Future[None]], set[asyncio.Future[None]]]:
        try:
            return await asyncio.wait([waiter.admitted], timeout=seconds)
        except asyncio.CancelledError:
            self._queue.remove(tenant, waiter)
            if waiter.admitted.done():
                self._lease += waiter.size
            raise

    async def _admit_waiting(self) -> None:
        """Admit the calls that wait, one after the other, until none is left."""
        while (found := self._queue.find_next()) is not None:
            tenant, waiter = found
            if (closed := self._closed_until - self._now) > 0:
                await self._context.sleep(closed)
            elif self._take(waiter.size):
                self._queue.take(tenant, self.limits.compute_share(waiter.size))
                waiter.admitted.set_result(None)
            elif (pause := await self._ask(waiter.size)) > 0:
                await self._context.sleep(pause * (1 + self._context.jitter() / 4))

    async def _ask(self, head: RateAmount) -> float:
        """Report to the store and fetch a lease that covers the next call. Returns the seconds until asking again."""
        async with self._asking:
            request = LeaseRequest(
                worker=self._context.worker,
                head=head,
                wanted=self._compute_wanted(head),
                returned=self._lease,
                waiting=self.waiting,
                report=self._report,
                refusal=self._refusal,
                fixed=self._fixed,
            )
            self._lease, self._report, self._refusal = NOTHING, None, None
            try:
                grant = await self._context.leases.lease_quota(self.scope, request)
            except StoreError as error:
                _log.warning("no lease for %s (%s)", self.scope.model, type(error).__name__)
                self._lease += request.returned
                return STORE_PAUSE_SECONDS
            now, self._known = self._now, True
            self.limits, self._lease = grant.limits, self._lease + grant.amount
            self._lease_until, self._closed_until = now + grant.valid_for, now + grant.closed_for
            return grant.retry_in

    def _compute_wanted(self, head: RateAmount) -> RateAmount:
        """Return the size of the calls that wait or, if more, of those of the last minute, and the next one."""
        if head == NOTHING:
            return NOTHING
        self._drop_old_calls()
        waiting = _sum(waiter.size for waiter in self._queue.iter_items())
        recent = _sum(size for _, size in self._recent)
        return build_rate_amount(lambda name: max(waiting.get(name), recent.get(name) + head.get(name)))

    def _note_call(self, size: RateAmount) -> None:
        self._recent.append((self._now, size))
        self._drop_old_calls()

    def _drop_old_calls(self) -> None:
        while self._recent and self._recent[0][0] < self._now - RECENT_SECONDS:
            self._recent.popleft()

    def _note_refusal(self, error: ModelUnavailable) -> None:
        """Remember a refusal for the store. One without a response or a delay says nothing about limits."""
        noted = self._refusal
        if error.retry_after is None and noted is None:
            return
        newest = sum(at >= self._now - RATE_SECONDS for at, _ in self._recent)
        self._refusal = Refusal(
            overloaded=noted is not None and noted.overloaded,
            retry_after=error.retry_after,
            per_minute=newest * 60 / RATE_SECONDS,
        )

    def _listen(self, status: int, headers: Mapping[str, str]) -> None:
        """Learn from a response as soon as its headers arrive."""
        if (report := parse_limit_report(headers, parse_http_date(headers.get("date")))) is not None:
            if report.limits != self._named_limits:
                self.limits = self.limits.override(report.limits).restrict_to(self._fixed)
            self._named_limits, self._report = report.limits, report
            self._lease = build_rate_amount(
                lambda name: (
                    self._lease.get(name)
                    if (left := report.remaining.get(name)) is None
                    else min(self._lease.get(name), left)
                )
            )
        if status in {_REFUSED, _OVERLOADED}:
            self._refusal = Refusal(overloaded=status == _OVERLOADED)


class RateLimiter:
    """The limiters of one process, by endpoint, account and model."""

    def __init__(self, context: LimiterContext) -> None:
        """Create the limiter; see `LimiterContext`."""
        self._context = context
        self._by_scope: dict[LimitScope, ScopeLimiter] = {}

    def get_scope_limiter(self, scope: LimitScope) -> ScopeLimiter:
        """Return the limiter of a scope."""
        if scope not in self._by_scope:
            self._by_scope[scope] = ScopeLimiter(scope, self._context)
        return self._by_scope[scope]

    @property
    def scopes(self) -> tuple[ScopeLimiter, ...]:
        """All limiters that were used."""
        return tuple(self._by_scope.values())

    async def aclose(self) -> None:
        """Give all leases back."""
        for limiter in self._by_scope.values():
            await limiter.aclose()


def describe_limits(limits: RateLimits) -> str:
    """Describe limits for a person."""
    named = {"requests": "requests", "input_tokens": "input tokens", "output_tokens": "output tokens"}
    said = [f"{limit:,.0f} {named[name]}" for name, limit in limits.items()]
    return f"{', '.join(said)} a minute" if said else "no limit is known"


def _sum(amounts: Iterable[RateAmount]) -> RateAmount:
    requests = input_tokens = output_tokens = 0.0
    for one in amounts:
        requests, input_tokens = requests + one.requests, input_tokens + one.input_tokens
        output_tokens += one.output_tokens
    return RateAmount(requests=requests, input_tokens=input_tokens, output_tokens=output_tokens)


class LocalLimitRepository:
    """Limits of one process alone, in memory: for a program without a store, and for tests."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Create it empty. `clock` returns seconds."""
        self._clock = clock
        self._states: dict[LimitScope, LimitState] = {}

    async def lease_quota(self, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        """See `LimitRepository`."""
        before = self._states.get(scope, EMPTY_STATE)
        self._states[scope], grant = grant_lease(before, request, self._clock())
        return grant

    async def list_limit_states(self) -> tuple[ScopedLimitState, ...]:
        """See `LimitRepository`."""
        now = self._clock()
        return tuple(ScopedLimitState(scope, state, now) for scope, state in self._states.items())
