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
from typing import NamedTuple

from waystation.kernel.errors import ModelUnavailable, StoreError
from waystation.kernel.text import format_count
from waystation.kernel.usage import Usage
from waystation.models.http_errors import parse_http_date, watch_responses
from waystation.models.ports import LimitRepository, LimitScope, WaitObserver
from waystation.models.rate_limits import (
    NO_LIMITS,
    NOTHING,
    CallSizeEstimator,
    Dimension,
    FairQueue,
    LeaseRequest,
    LimitReport,
    RateLimitAmount,
    RateLimits,
    Refusal,
    build_rate_limit_amount,
    describe_limits,
    parse_limit_report,
)

_log = logging.getLogger(__name__)

MAX_QUEUE_SECONDS = 300.0
"""Longest time that a call waits here; then its attempt fails, and Temporal's timer waits for it."""
RETRY_AFTER_QUEUE_SECONDS = 61.0
"""When such a call is made again: after a minute, in which a minute's quota becomes free."""
STORE_PAUSE_SECONDS = 1.0
"""Pause before the store is asked again after it did not answer."""
RECENT_SECONDS = 60.0
"""Calls of this time are expected again within the next lease."""
RATE_SECONDS = 10.0
"""Period for which the rate of calls before a refusal is measured."""
_REFUSED, _OVERLOADED = 429, 529


@dataclass(eq=False)
class _Waiter:
    request_tokens: int
    max_output: int
    admitted: asyncio.Future[None]
    observer: WaitObserver
    taken: RateLimitAmount = NOTHING
    """What was subtracted from the lease for it."""
    is_waiting: bool = False
    """Whether it waits for the provider, as its observer knows."""

    def begin_wait(self) -> None:
        if not self.is_waiting:
            self.is_waiting = True
            self.observer.begin_wait()


@dataclass
class AdmittedCall:
    """A call that was admitted, until its actual size is known."""

    size: RateLimitAmount
    """As it was admitted."""
    actual: RateLimitAmount | None = None
    """As the provider counted it; None if there was no reply."""
    status: int = 0
    """HTTP status of the response; 0 before it has arrived."""

    def record_usage(self, usage: Usage, *, counts_cache_reads: bool) -> None:
        """Record what the call used.

        Args:
            usage: Usage of the reply.
            counts_cache_reads: Whether input tokens read from the cache count towards the limit.
        """
        read = usage.cache_read if counts_cache_reads else 0
        fresh = usage.input + usage.cache_write + read
        self.actual = RateLimitAmount(requests=1.0, input_tokens=fresh, output_tokens=usage.output)


class CallSize(NamedTuple):
    """Measures a call that is about to be made."""

    estimate_tokens: Callable[[], int]
    """Returns the estimated tokens of the whole request. Only called if something is limited."""
    max_output: int
    """Longest reply in tokens."""


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
        self._estimate = CallSizeEstimator()
        self._known = self._pausing = False
        self._lease, self._lease_until, self._closed_until, self._ask_after = NOTHING, 0.0, 0.0, 0.0
        self._named_limits: RateLimits = NO_LIMITS
        self._ignored_headers: set[str] = set()
        self._report: LimitReport | None = None
        self._refusal: Refusal | None = None
        self._recent: deque[tuple[float, RateLimitAmount]] = deque()
        self._asking, self._first_question, self._refunded = asyncio.Lock(), asyncio.Lock(), asyncio.Event()
        self._pump: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Number of calls that wait."""
        return len(self._queue)

    @asynccontextmanager
    async def admit_call(
        self, size: CallSize, tenant: str, observer: WaitObserver, max_wait: float = MAX_QUEUE_SECONDS
    ) -> AsyncGenerator[AdmittedCall]:
        """Wait until a call is permitted; at the end, learn from its usage, its headers and its refusal.

        Args:
            size: Measures the call.
            tenant: Whose call it is.
            observer: Is notified if the call waits.
            max_wait: Longest time to wait, in seconds.

        Raises:
            ModelUnavailable: The call would wait for too long. It was not made.
        """
        if not self._known:
            async with self._first_question:
                if not self._known:
                    await self._ask(NOTHING)
        tokens = 0 if self.limits.is_empty else size.estimate_tokens()
        expected = self._estimate.compute_size(tokens, size.max_output)
        taken = None if self._must_wait else self._take(expected)
        if taken is None:
            taken = await self._wait(tokens, size.max_output, tenant, observer, max_wait)
            expected = self._estimate.compute_size(tokens, size.max_output)
        call = AdmittedCall(taken)
        self._note_call(expected)

        def listen(status: int, headers: Mapping[str, str]) -> None:
            call.status = status
            self._learn(headers)

        try:
            with watch_responses(listen):
                yield call
        except ModelUnavailable as error:
            if not error.possibly_billed:
                self._give_back(call.size)
                await self._report_refusal(call, error)
            raise
        if call.actual is not None:
            if tokens:
                self._estimate = self._estimate.after_call(tokens, call.actual)
            self._give_back(call.size - call.actual)

    async def aclose(self) -> None:
        """Stop admitting calls, and give the lease back."""
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.gather(self._pump, return_exceptions=True)
        if not self.limits.is_empty:
            await self._ask(NOTHING)

    @property
    def _must_wait(self) -> bool:
        """Whether a call has to wait whatever the lease holds: behind others, or because the provider said so."""
        return bool(self._queue) or self._now < self._closed_until

    @property
    def _now(self) -> float:
        return self._context.clock()

    def _take(self, size: RateLimitAmount) -> RateLimitAmount | None:
        """Subtract a call from the lease. Returns what was subtracted; None if the lease does not cover the call."""
        if self.limits.is_empty:
            return NOTHING
        covered = all(self._lease.get(name) >= size.get(name) for name, _ in self.limits.iter_limits())
        if not covered or self._now >= self._lease_until:
            return None
        self._lease -= size
        return size

    def _give_back(self, amount: RateLimitAmount) -> None:
        """Add to the lease what a call did not use, which may cover a call that waits."""
        self._lease += amount
        self._refunded.set()

    async def _wait(
        self, request_tokens: int, max_output: int, tenant: str, observer: WaitObserver, max_wait: float
    ) -> RateLimitAmount:
        """Wait until a call is admitted. Returns what was subtracted from the lease for it."""
        waiter = _Waiter(request_tokens, max_output, asyncio.get_running_loop().create_future(), observer)
        began = self._now
        self._queue.add(tenant, waiter)
        if self._pausing:
            waiter.begin_wait()
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._admit_waiting())
        try:
            async with asyncio.timeout(max_wait):
                await asyncio.shield(waiter.admitted)
        except TimeoutError:
            self._leave_queue(tenant, waiter)
            raise ModelUnavailable(
                f"{self.scope.model}: the call waited {max_wait:,.0f} s for the provider's rate limit "
                f"({describe_limits(self.limits)} a minute) and was not sent; still in the queue: "
                f"{format_count(self.waiting, 'other call')}",
                retry_after=RETRY_AFTER_QUEUE_SECONDS,
                possibly_billed=False,
            ) from None
        except asyncio.CancelledError:
            self._leave_queue(tenant, waiter)
            raise
        if waiter.is_waiting:
            observer.end_wait(self._now - began)
        return waiter.taken

    def _leave_queue(self, tenant: str, waiter: _Waiter) -> None:
        """Remove a call that is given up. If it was admitted at the same moment, its share goes back to the lease."""
        self._queue.remove(tenant, waiter)
        if waiter.admitted.done():
            self._give_back(waiter.taken)
        waiter.admitted.cancel()

    async def _admit_waiting(self) -> None:
        """Admit the calls that wait, one after the other, until none is left."""
        while (found := self._queue.find_next()) is not None:
            tenant, waiter = found
            self._refunded.clear()
            if (closed := self._closed_until - self._now) > 0:
                await self._pause(closed)
                continue
            # Measured now, by what was learned while it waited.
            size = self._measure(waiter)
            if (taken := self._take(size)) is not None:
                self._queue.take(tenant, self.limits.compute_share(size))
                waiter.taken = taken
                waiter.admitted.set_result(None)
            elif (early := self._ask_after - self._now) > 0:
                await self._pause(early)
            else:
                await self._ask(size)

    def _measure(self, waiter: _Waiter) -> RateLimitAmount:
        return self._estimate.compute_size(waiter.request_tokens, waiter.max_output)

    async def _pause(self, seconds: float) -> None:
        """Wait for the provider, or until a call gives something back to the lease.

        A lease that only has to be fetched from the store is no such wait.
        """
        self._pausing = True
        for waiter in self._queue.iter_items():
            waiter.begin_wait()
        events = (asyncio.ensure_future(self._context.sleep(seconds)), asyncio.ensure_future(self._refunded.wait()))
        try:
            await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for event in events:
                event.cancel()
            self._pausing = False

    async def _ask(self, head: RateLimitAmount) -> None:
        """Report to the store, and fetch a lease that covers the next call."""
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
                grant = await self._context.leases.acquire_lease(self.scope, request)
            except StoreError as error:
                _log.warning("no lease for %s (%s)", self.scope.model, type(error).__name__)
                self._lease += request.returned
                self._ask_after = self._now + STORE_PAUSE_SECONDS
                return
            now, self._known = self._now, True
            self.limits, self._lease = grant.limits, self._lease + grant.amount
            self._lease_until, self._closed_until = now + grant.valid_for, now + grant.closed_for
            # Workers that wait for the same limit do not ask in step.
            self._ask_after = now + grant.retry_in * (1 + self._context.jitter() / 4)

    def _compute_wanted(self, head: RateLimitAmount) -> RateLimitAmount:
        """Return the size of the calls that wait or, if more, of those of the last minute, and the next one."""
        if head == NOTHING:
            return NOTHING
        self._drop_old_calls()
        waiting = _sum(self._measure(waiter) for waiter in self._queue.iter_items())
        recent = _sum(size for _, size in self._recent)
        return build_rate_limit_amount(lambda name: max(waiting.get(name), recent.get(name) + head.get(name)))

    def _note_call(self, size: RateLimitAmount) -> None:
        self._recent.append((self._now, size))
        self._drop_old_calls()

    def _drop_old_calls(self) -> None:
        while self._recent and self._recent[0][0] < self._now - RECENT_SECONDS:
            self._recent.popleft()

    async def _report_refusal(self, call: AdmittedCall, error: ModelUnavailable) -> None:
        """Let all workers know of a refusal. A connection that failed says nothing about limits."""
        if call.status not in {_REFUSED, _OVERLOADED} and error.retry_after is None:
            return
        newest = sum(at >= self._now - RATE_SECONDS for at, _ in self._recent)
        self._refusal = Refusal(
            overloaded=call.status == _OVERLOADED,
            retry_after=error.retry_after,
            per_minute=newest * 60 / RATE_SECONDS,
        )
        await self._ask(NOTHING)

    def _learn(self, headers: Mapping[str, str]) -> None:
        """Learn from the headers of a response, as soon as they arrive. The store is notified with the next lease."""
        report = parse_limit_report(headers, parse_http_date(headers.get("date")), self._log_ignored_header)
        if report is None:
            return
        if report.limits != self._named_limits:
            self.limits = self.limits.with_newer(report.limits).restrict_to(self._fixed)
        self._named_limits, self._report = report.limits, report

        def left(name: Dimension) -> float:
            remaining = report.remaining.get(name)
            return self._lease.get(name) if remaining is None else min(self._lease.get(name), remaining)

        self._lease = build_rate_limit_amount(left)

    def _log_ignored_header(self, name: str) -> None:
        """Log a header that cannot be right, once for each process. Its value, which is not ours, is not logged."""
        if name not in self._ignored_headers:
            self._ignored_headers.add(name)
            _log.warning("%s: the value of the header %s is no rate limit and is ignored", self.scope.model, name)


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


def _sum(amounts: Iterable[RateLimitAmount]) -> RateLimitAmount:
    """Add up many amounts, without a validated value for each intermediate sum."""
    requests = input_tokens = output_tokens = 0.0
    for one in amounts:
        requests, input_tokens = requests + one.requests, input_tokens + one.input_tokens
        output_tokens += one.output_tokens
    return RateLimitAmount(requests=requests, input_tokens=input_tokens, output_tokens=output_tokens)
