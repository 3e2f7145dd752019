"""Rate limits that workers share: in memory, in SQLite and in PostgreSQL alike."""

import asyncio

import pytest

from waystation.models.ports import LimitRepository, LimitScope
from waystation.models.rate_limits import LeaseRequest, LimitReport, RateLimitAmount, RateLimits, Refusal
from waystation.runtime.sql_store import SqlStore
from waystation.testing.doubles import LocalLimitRepository

CALL = RateLimitAmount(requests=1)
SCOPE = LimitScope("https://models.example", "0123456789abcdef", "claude-sonnet-5-5")
SLOW = RateLimits(requests=0.6)
"""So little that nothing is refilled while a test runs."""


def request(worker: str = "a", limits: RateLimits = SLOW, refusal: Refusal | None = None) -> LeaseRequest:
    report = LimitReport(limits=limits)
    return LeaseRequest(worker=worker, head=CALL, wanted=CALL, waiting=1, report=report, refusal=refusal)


@pytest.fixture(params=["memory", "store"])
async def leases(request: pytest.FixtureRequest, store: SqlStore) -> LimitRepository:
    return store.build_limit_repository() if request.param == "store" else LocalLimitRepository(lambda: 1_000.0)


async def test_what_one_worker_learns_and_uses_all_others_know(leases: LimitRepository) -> None:
    large = RateLimitAmount(requests=2)  # more than the bucket holds, so that nothing is left for minutes
    first = await leases.acquire_lease(SCOPE, request().replace(head=large, wanted=large))
    assert (first.limits, first.amount) == (SLOW, large)
    second = await leases.acquire_lease(SCOPE, LeaseRequest(worker="b", head=CALL, wanted=CALL, waiting=3))
    assert (second.limits, second.amount) == (SLOW, RateLimitAmount())
    assert second.retry_in > 0
    (known,) = await leases.list_limit_states()
    assert known.scope == SCOPE
    assert known.state.limits == SLOW
    assert known.state.count_waiting(known.read_at) == 4


async def test_endpoints_accounts_and_models_have_limits_of_their_own(leases: LimitRepository) -> None:
    scopes = [SCOPE, SCOPE._replace(endpoint="https://b"), SCOPE._replace(account="b"), SCOPE._replace(model="b")]
    for scope in scopes:
        assert (await leases.acquire_lease(scope, request())).amount == CALL
    assert {one.scope for one in await leases.list_limit_states()} == set(scopes)


async def test_a_refusal_is_known_to_all(leases: LimitRepository) -> None:
    await leases.acquire_lease(SCOPE, request(refusal=Refusal(retry_after=30, per_minute=10)))
    other = await leases.acquire_lease(SCOPE, LeaseRequest(worker="b", head=CALL, wanted=CALL))
    assert other.amount == RateLimitAmount()
    assert 0 < other.closed_for <= 30


async def test_workers_that_ask_at_once_are_granted_no_more_than_there_is(leases: LimitRepository) -> None:
    limits = RateLimits(requests=6)  # a bucket of one
    grants = await asyncio.gather(*(leases.acquire_lease(SCOPE, request(f"w{n}", limits)) for n in range(20)))
    # The first takes what is there; while the others ask, at most one more is refilled.
    assert 1 <= sum(grant.amount.requests for grant in grants) <= 3


async def test_a_lease_that_is_returned_is_granted_again(leases: LimitRepository) -> None:
    assert (await leases.acquire_lease(SCOPE, request())).amount == CALL
    again = request().replace(returned=CALL)
    assert (await leases.acquire_lease(SCOPE, again)).amount == CALL
