"""The limiter of one process: which calls wait, for how long, and what it learns from them."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2
import pytest

from waystation.kernel.errors import ModelRejected, ModelUnavailable, StoreUnavailable
from waystation.kernel.usage import Usage
from waystation.models.http_errors import install_stream_watchdog
from waystation.models.ports import LimitScope, ScopedLimitState
from waystation.models.rate_limiter import CallSize, LimiterContext, RateLimiter, ScopeLimiter
from waystation.models.rate_limits import LeaseGrant, LeaseRequest, RateLimits
from waystation.testing.doubles import LocalLimitRepository

RESPONSE_DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
SCOPE = LimitScope("https://models.example", "account", "claude-sonnet-5-5")
KEY = (SCOPE.endpoint, SCOPE.model)


@dataclass
class ManualTime:
    """A clock that moves only while someone sleeps."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Leases:
    """Counts what is asked of the store."""

    time: ManualTime
    requests: list[LeaseRequest] = field(default_factory=list[LeaseRequest])
    failures: int = 0

    def __post_init__(self) -> None:
        self._local = LocalLimitRepository(self.time)

    async def acquire_lease(self, scope: LimitScope, request: LeaseRequest) -> LeaseGrant:
        self.requests.append(request)
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("the database does not answer")
        return await self._local.acquire_lease(scope, request)

    async def list_limit_states(self) -> tuple[ScopedLimitState, ...]:
        return await self._local.list_limit_states()


@dataclass
class Waits:
    """Observes one call."""

    begun: int = 0
    seconds: list[float] = field(default_factory=list[float])

    def begin_wait(self) -> None:
        self.begun += 1

    def end_wait(self, seconds: float) -> None:
        self.seconds.append(seconds)


@dataclass
class Process:
    """One process with its limiter."""

    time: ManualTime = field(default_factory=ManualTime)
    fixed: RateLimits = field(default_factory=RateLimits)
    weights: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        self.leases = Leases(self.time)
        self.limiter = self.start_worker("worker").get_scope_limiter(SCOPE)
        self.order: list[str] = []

    def start_worker(self, name: str) -> RateLimiter:
        fixed = {KEY: self.fixed}
        return RateLimiter(
            LimiterContext(self.leases, name, self.time, lambda: 0.0, self.time.sleep, self.weights, fixed)
        )

    async def call(
        self,
        tokens: int = 100,
        *,
        tenant: str = "tenant",
        usage: Usage | None = None,
        limiter: ScopeLimiter | None = None,
        error: Exception | None = None,
        headers: Mapping[str, str] | None = None,
        status: int = 200,
    ) -> Waits:
        waits = Waits()
        chosen = limiter or self.limiter
        async with chosen.admit_call(CallSize(lambda: tokens, 1_000), tenant, waits) as call:
            self.order.append(tenant)
            if headers is not None or status != 200:
                await respond(status, headers or {})
            if error is not None:
                raise error
            call.record_usage(usage or Usage(input=tokens, output=10), counts_cache_reads=False)
        return waits


async def respond(status: int, headers: Mapping[str, str]) -> None:
    """A response as a vendor's client receives it."""
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, headers=headers))
    async with install_stream_watchdog(httpx2.AsyncClient(transport=transport), 10) as client:
        await client.get("https://models.example")


def name_limits(requests: int, remaining: int | None = None) -> dict[str, str]:
    left = requests if remaining is None else remaining
    return {
        "anthropic-ratelimit-requests-limit": str(requests),
        "anthropic-ratelimit-requests-remaining": str(left),
    }


async def test_without_limits_no_call_waits_and_the_store_is_asked_once() -> None:
    process = Process()
    waits = await asyncio.gather(*(process.call() for _ in range(50)))
    waits += [await process.call() for _ in range(50)]
    assert all(one == Waits() for one in waits)
    assert len(process.leases.requests) == 1


async def test_with_plenty_of_quota_a_call_costs_no_transaction_of_its_own() -> None:
    process = Process(fixed=RateLimits(requests=4_000, input_tokens=2_000_000, output_tokens=400_000))
    for _ in range(100):
        assert await process.call() == Waits()
        process.time.now += 0.1
    assert len(process.leases.requests) <= 4


async def test_calls_beyond_the_limit_wait_and_none_fails() -> None:
    process = Process(fixed=RateLimits(requests=60))
    began = process.time.now
    waits = await asyncio.gather(*(process.call() for _ in range(70)))
    # Ten of them are the burst, the others are permitted one a second.
    assert 55 <= process.time.now - began <= 66
    waited = [seconds for one in waits for seconds in one.seconds]
    assert 55 <= len(waited) <= 65
    assert all(one.begun == len(one.seconds) for one in waits)


async def test_input_tokens_that_were_read_from_the_cache_are_given_back() -> None:
    process = Process(fixed=RateLimits(input_tokens=60_000))
    cached = Usage(input=100, cache_read=9_900, output=10)
    await process.call(10_000, usage=cached)
    for _ in range(60):
        await process.call(10_000, usage=cached)
    began = process.time.now
    for _ in range(20):
        await process.call(10_000, usage=cached)
    # At 100 tokens a call the limit permits ten a second.
    assert process.time.now - began <= 20


async def test_a_call_larger_than_the_limit_gets_through_and_the_next_waits_until_it_is_repaid() -> None:
    process = Process(fixed=RateLimits(input_tokens=6_000))
    assert await process.call(30_000) == Waits()
    began = process.time.now
    await process.call(100)
    assert 200 <= process.time.now - began <= 300


async def test_limits_are_learned_from_the_headers_of_a_reply_as_soon_as_they_arrive() -> None:
    process = Process()
    await process.call(headers=name_limits(120, remaining=0))
    assert process.limiter.limits == RateLimits(requests=120)
    waits = await process.call()
    assert waits.begun == 1
    assert 0 < waits.seconds[0] <= 2


async def test_a_header_that_cannot_be_right_is_logged_once_without_its_value(
    caplog: pytest.LogCaptureFixture,
) -> None:
    process = Process()
    wrong = {**name_limits(60), "anthropic-ratelimit-requests-reset": "tomorrow", "date": RESPONSE_DATE}
    for _ in range(3):
        await process.call(headers=wrong)
    assert process.limiter.limits == RateLimits(requests=60)
    assert [record.getMessage() for record in caplog.records] == [
        "claude-sonnet-5-5: the value of the header anthropic-ratelimit-requests-reset is no rate limit and is ignored"
    ]


async def test_a_refusal_lets_all_workers_wait_and_then_come_back_one_by_one() -> None:
    process = Process()
    other = process.start_worker("other").get_scope_limiter(SCOPE)
    await process.call(limiter=other)
    busy = ModelUnavailable("rate limit", retry_after=5, possibly_billed=False)
    with pytest.raises(ModelUnavailable):
        await process.call(status=429, headers={"retry-after": "5"}, error=busy)
    began = process.time.now
    await process.call()
    assert process.time.now - began >= 5
    assert process.limiter.limits.requests is not None


async def test_a_connection_that_failed_and_a_rejected_request_teach_nothing() -> None:
    process = Process()
    for error in (ModelUnavailable("no connection", possibly_billed=False), ModelRejected("a bad request")):
        with pytest.raises(type(error)):
            await process.call(error=error)
    assert process.limiter.limits.is_empty
    assert not any(request.refusal for request in process.leases.requests)


async def test_a_quiet_tenants_call_gets_through_behind_a_large_backlog_of_another() -> None:
    process = Process(fixed=RateLimits(requests=60))
    loud = [asyncio.create_task(process.call(tenant="loud")) for _ in range(100)]
    while len(process.order) < 20:
        await asyncio.sleep(0)
    began, before = process.time.now, len(process.order)
    await process.call(tenant="quiet")
    assert process.time.now - began <= 4
    assert len(process.order) - before <= 6
    await asyncio.gather(*loud)


async def test_weights_decide_who_gets_how_much_of_a_scarce_quota() -> None:
    process = Process(fixed=RateLimits(requests=60), weights={"double": 2.0})
    await process.call()  # the store is asked once before
    tasks = [asyncio.create_task(process.call(tenant=tenant)) for tenant in ("single", "double") for _ in range(90)]
    while len(process.order) < 100:
        await asyncio.sleep(0)
    served = process.order[20:80]
    assert 36 <= served.count("double") <= 44
    await asyncio.gather(*tasks)


async def test_a_cancelled_call_leaves_the_queue_and_takes_nothing_with_it() -> None:
    process = Process(fixed=RateLimits(requests=6))
    await process.call()
    waiting = asyncio.create_task(process.call(tenant="gone"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], asyncio.CancelledError)
    assert process.limiter.waiting == 0
    await process.call()


async def test_a_store_that_does_not_answer_delays_calls_that_need_a_lease_and_loses_none() -> None:
    process = Process(fixed=RateLimits(requests=600))
    await process.call()
    process.leases.failures = 3
    process.time.now += 120
    waits = await process.call()
    assert waits.seconds == [3.0]


async def test_at_its_end_a_process_gives_its_lease_back() -> None:
    process = Process(fixed=RateLimits(requests=600))
    limiter = process.start_worker("ending")
    await process.call(limiter=limiter.get_scope_limiter(SCOPE))
    await limiter.aclose()
    assert process.leases.requests[-1].returned.requests >= 1
