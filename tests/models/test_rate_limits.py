"""Decisions of the rate limiter: how much is granted, what is learned from headers and refusals, and who is next."""

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.models.rate_limits import (
    BURST_SECONDS,
    DECREASE_INTERVAL_SECONDS,
    EMPTY_STATE,
    FORGET_FACTOR,
    LEASE_SECONDS,
    MAX_CLOSED_SECONDS,
    MAX_RETRY_SECONDS,
    NOTHING,
    RECOVERY_SECONDS,
    AdaptiveLimit,
    CallSizeEstimator,
    FairQueue,
    LeaseGrant,
    LeaseRequest,
    LimitReport,
    LimitState,
    RateLimitAmount,
    RateLimits,
    Refusal,
    compute_capacity,
    decrease_limit,
    grant_lease,
    parse_limit_report,
)

CALL = RateLimitAmount(requests=1)
NOW = 1_800_000_000.0


def ask(
    state: LimitState, now: float, size: RateLimitAmount = CALL, worker: str = "a", fixed: RateLimits | None = None
) -> tuple[LimitState, LeaseGrant]:
    wanted = LeaseRequest(worker=worker, head=size, wanted=size, waiting=1, fixed=fixed or RateLimits())
    return grant_lease(state, wanted, now)


# --------------------------------------------------------------------------------------------------------- buckets


def test_without_limits_nothing_is_granted_and_nothing_is_waited_for() -> None:
    _, grant = ask(EMPTY_STATE, NOW)
    assert (grant.limits.is_empty, grant.amount, grant.retry_in) == (True, NOTHING, 0.0)


steps = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.floats(0.0, 20.0),
        st.floats(0.0, 2_000.0),
    ),
    max_size=60,
)


@given(st.floats(1.0, 10_000.0), steps)
def test_in_no_period_more_is_granted_than_the_limit_permits_and_its_slack(
    limit: float, asked: list[tuple[str, float, float]]
) -> None:
    """The slack of what is granted is one burst, and one call of any size."""
    state, now, fixed = EMPTY_STATE, NOW, RateLimits(input_tokens=limit)
    granted: list[tuple[float, float]] = []
    for worker, pause, tokens in asked:
        now += pause
        state, grant = ask(state, now, RateLimitAmount(input_tokens=tokens), worker, fixed)
        granted.append((now, grant.amount.input_tokens))
    largest = max((tokens for _, _, tokens in asked), default=0.0)
    for first, (since, _) in enumerate(granted):
        for last in range(first, len(granted)):
            total = sum(amount for _, amount in granted[first : last + 1])
            permitted = limit / 60 * (granted[last][0] - since) + compute_capacity(limit) + largest
            assert total <= permitted * (1 + 1e-9) + 1e-3


@given(st.floats(1.0, 10_000.0), st.floats(1.0, 1e9))
def test_a_call_of_any_size_is_granted_whole_and_repaid_before_the_next(limit: float, tokens: float) -> None:
    fixed, size = RateLimits(input_tokens=limit), RateLimitAmount(input_tokens=tokens)
    state, grant = ask(EMPTY_STATE, NOW, size, fixed=fixed)
    assert grant.amount.input_tokens >= tokens
    owed = tokens - compute_capacity(limit)
    if owed > 1:
        _, refused = ask(state, NOW + 0.001, RateLimitAmount(input_tokens=1), fixed=fixed)
        assert refused.amount == NOTHING
        assert 0 < refused.retry_in <= MAX_RETRY_SECONDS


@given(st.floats(1.0, 6_000.0), st.lists(st.floats(1.0, 5_000.0), min_size=1, max_size=30))
def test_no_call_starves_whatever_its_size_and_whatever_others_use(limit: float, sizes: list[float]) -> None:
    """Two workers ask in turns as often as they are let; each call is granted after its predecessors are repaid."""
    state, now, fixed = EMPTY_STATE, NOW, RateLimits(input_tokens=limit)
    served = Counter[str]()
    for size in sizes:
        for worker in ("greedy", "patient"):
            for _ in range(100_000):
                state, grant = ask(state, now, RateLimitAmount(input_tokens=size), worker, fixed)
                if grant.amount != NOTHING:
                    served[worker] += 1
                    break
                owed = -(state.level.input_tokens or 0.0)
                now += max(grant.retry_in, owed * 60 / limit)
    assert served == {"greedy": len(sizes), "patient": len(sizes)}


@given(st.floats(-1e6, 0.0), st.floats(1.0, 1_000.0))
def test_a_clock_that_jumps_backwards_refills_nothing_and_stops_nobody(jump: float, limit: float) -> None:
    fixed = RateLimits(requests=limit)
    state, _ = ask(EMPTY_STATE, NOW, RateLimitAmount(requests=compute_capacity(limit) + 1), fixed=fixed)
    debt = state.level.requests
    assert debt is not None
    state, refused = ask(state, NOW + jump, fixed=fixed)
    assert state.level.requests == debt
    assert refused.amount == NOTHING
    _, granted = ask(state, NOW + jump + 120 / limit + 1, fixed=fixed)
    assert granted.amount.requests >= 1


def test_what_is_returned_can_be_granted_again_but_no_more_than_a_bucket_holds() -> None:
    fixed = RateLimits(requests=60)
    state, first = ask(EMPTY_STATE, NOW, fixed=fixed)
    assert 1 <= first.amount.requests <= BURST_SECONDS
    returned = LeaseRequest(worker="a", returned=RateLimitAmount(requests=1_000), fixed=fixed)
    state, _ = grant_lease(state, returned, NOW)
    assert state.level.requests == pytest.approx(BURST_SECONDS)


def test_workers_that_wait_share_what_there_is() -> None:
    fixed, want = RateLimits(requests=600), RateLimitAmount(requests=1_000)
    state = EMPTY_STATE
    for worker in ("a", "b"):
        request = LeaseRequest(worker=worker, head=CALL, wanted=want, waiting=1_000, fixed=fixed)
        state, _ = grant_lease(state, request, NOW)
    for worker in ("a", "b"):
        request = LeaseRequest(worker=worker, head=CALL, wanted=want, waiting=1_000, fixed=fixed)
        before = max(0.0, (state.level.requests or 0.0) + 20)
        state, grant = grant_lease(state, request, NOW + 2 if worker == "a" else NOW + 4)
        assert grant.amount.requests <= before / 2 + 1
    assert state.count_waiting(NOW + 4) == 2_000


def test_with_plenty_a_lease_covers_many_calls_and_is_valid_for_a_minute() -> None:
    fixed = RateLimits(requests=4_000, input_tokens=2_000_000)
    size = RateLimitAmount(requests=1, input_tokens=1_000)
    _, grant = ask(EMPTY_STATE, NOW, size, fixed=fixed)
    assert grant.valid_for == LEASE_SECONDS
    assert grant.amount.requests > 100
    assert grant.amount.input_tokens > 100_000


# --------------------------------------------------------------------------------------------------------- headers

RESPONSE = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HEADERS = {
    "anthropic-ratelimit-requests-limit": "50",
    "anthropic-ratelimit-requests-remaining": "3",
    "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:56Z",
    "anthropic-ratelimit-input-tokens-limit": "30000",
    "anthropic-ratelimit-input-tokens-remaining": "12000",
    "anthropic-ratelimit-input-tokens-reset": "2026-11-30T12:00:36Z",
    "anthropic-ratelimit-output-tokens-limit": "8000",
    "anthropic-ratelimit-output-tokens-remaining": "0",
    "anthropic-ratelimit-output-tokens-reset": "2026-11-30T12:01:00Z",
}


def test_limits_and_what_is_left_are_read_from_the_providers_headers() -> None:
    assert parse_limit_report(HEADERS, RESPONSE) == LimitReport(
        limits=RateLimits(requests=50, input_tokens=30_000, output_tokens=8_000),
        remaining=RateLimits(requests=3, input_tokens=12_000, output_tokens=0),
    )


def test_what_was_left_before_a_reset_that_has_passed_says_nothing() -> None:
    report = parse_limit_report({**HEADERS, "anthropic-ratelimit-requests-reset": "2026-11-30T11:59:59Z"}, RESPONSE)
    assert report is not None
    assert report.remaining == RateLimits(requests=None, input_tokens=12_000, output_tokens=0)


@pytest.mark.parametrize("limit", ["", "0", "-5", "many", "1e9", "nan", "\u0665", "9" * 40])
def test_what_is_no_limit_is_ignored(limit: str) -> None:
    assert parse_limit_report({"anthropic-ratelimit-requests-limit": limit}, RESPONSE) is None


OPENAI = {
    "x-ratelimit-limit-requests": "5000",
    "x-ratelimit-limit-tokens": "160000",
    "x-ratelimit-remaining-requests": "4999",
    "x-ratelimit-remaining-tokens": "149976",
    "x-ratelimit-reset-requests": "12ms",
    "x-ratelimit-reset-tokens": "6m0s",
}
"""As https://platform.openai.com/docs/guides/rate-limits describes them."""


def test_a_limit_on_tokens_of_chat_completions_is_kept_for_input_and_for_output() -> None:
    assert parse_limit_report(OPENAI, RESPONSE) == LimitReport(
        limits=RateLimits(requests=5_000, input_tokens=160_000, output_tokens=160_000),
        remaining=RateLimits(requests=4_999, input_tokens=149_976, output_tokens=149_976),
    )


@pytest.mark.parametrize(
    "reset",
    [
        "1s",
        "6m0s",
        "12ms",
        "7.66s",
        "2m59.56s",
        "1h0m1s",
        "24h0m0s",
        "60",
        "0.5",
        "1796040001",
        "1796040001000",
        "2026-11-30T12:00:01Z",
    ],
)
def test_every_form_of_a_reset_in_the_future_is_read(reset: str) -> None:
    """Two are Unix times, one second after the response."""
    assert RESPONSE.timestamp() == 1_796_040_000
    ignored = list[str]()
    report = parse_limit_report({**OPENAI, "x-ratelimit-reset-tokens": reset}, RESPONSE, ignored.append)
    assert report is not None
    assert (report.remaining.input_tokens, ignored) == (149_976, [])


@pytest.mark.parametrize("reset", ["1796039999", "1796039999000", "2026-11-30T11:59:59Z"])
def test_every_form_of_a_reset_that_has_passed_is_read(reset: str) -> None:
    report = parse_limit_report({**OPENAI, "x-ratelimit-reset-tokens": reset}, RESPONSE)
    assert report is not None
    assert (report.remaining.requests, report.remaining.input_tokens) == (4_999, None)


@pytest.mark.parametrize("reset", ["soon", "25h", "9999999999", "-3", "1s6m", "1e3", "nan", "s", "2026-11-30T12:00"])
def test_a_reset_that_cannot_be_right_is_reported_and_what_is_left_counts(reset: str) -> None:
    ignored = list[str]()
    report = parse_limit_report({**OPENAI, "x-ratelimit-reset-requests": reset}, RESPONSE, ignored.append)
    assert report is not None
    assert (report.remaining.requests, ignored) == (4_999, ["x-ratelimit-reset-requests"])


def test_limits_that_an_endpoint_does_not_know_are_no_limits_and_no_fault() -> None:
    """Azure sends these for some of its models (https://learn.microsoft.com/en-us/answers/questions/5625878)."""
    unknown = {
        "x-ratelimit-limit-tokens": "-1",
        "x-ratelimit-remaining-tokens": "-1",
        "x-ratelimit-reset-tokens": "0",
    }
    ignored = list[str]()
    assert parse_limit_report(unknown, RESPONSE, ignored.append) is None
    assert not ignored


def test_a_limit_so_low_that_one_call_would_stop_all_workers_is_ignored() -> None:
    ignored = list[str]()
    report = parse_limit_report({**HEADERS, "anthropic-ratelimit-input-tokens-limit": "1"}, RESPONSE, ignored.append)
    assert report is not None
    assert report.limits == RateLimits(requests=50, output_tokens=8_000)
    assert report.remaining == RateLimits(requests=3, output_tokens=0)
    assert ignored == ["anthropic-ratelimit-input-tokens-limit"]


@given(st.dictionaries(st.sampled_from(sorted(HEADERS | OPENAI)), st.text(max_size=30) | st.from_regex("[0-9.hms]+")))
def test_headers_of_any_kind_are_read_without_an_error(headers: dict[str, str]) -> None:
    for now in (RESPONSE, None):
        parse_limit_report(headers, now)


def test_a_provider_that_has_less_left_than_the_bucket_empties_it() -> None:
    limits = RateLimits(requests=60)
    report = LimitReport(limits=limits, remaining=RateLimits(requests=2))
    state, _ = grant_lease(EMPTY_STATE, LeaseRequest(worker="a", report=report), NOW)
    assert state.level.requests == 2
    state, _ = grant_lease(state, LeaseRequest(worker="b"), NOW + 3)
    assert state.level.requests == pytest.approx(5)


def test_settings_never_raise_what_a_provider_names() -> None:
    state, _ = grant_lease(
        EMPTY_STATE, LeaseRequest(worker="a", report=LimitReport(limits=RateLimits(requests=50))), NOW
    )
    fixed = RateLimits(requests=1_000, output_tokens=500)
    assert state.get_effective_limits(fixed, NOW) == RateLimits(requests=50, output_tokens=500)


# -------------------------------------------------------------------------------------------------------- refusals


@given(st.floats(0.1, 1e6), st.lists(st.floats(DECREASE_INTERVAL_SECONDS, 600.0), max_size=20))
def test_each_refusal_halves_the_rate_and_time_without_one_raises_it_again(rate: float, pauses: list[float]) -> None:
    now, adaptive = NOW, decrease_limit(None, rate, NOW)
    for pause in pauses:
        limits = [adaptive.compute_limit(now + pause * part / 10) for part in range(11)]
        known = [limit for limit in limits if limit is not None]
        assert all(before <= after for before, after in pairwise(known))
        now += pause
        before = adaptive.compute_limit(now)
        adaptive = decrease_limit(adaptive, rate, now)
        after = adaptive.compute_limit(now)
        assert after is not None
        assert 1.0 <= after <= max(1.0, rate if before is None else before)


def test_refusals_of_the_same_moment_count_as_one() -> None:
    first = decrease_limit(None, 10, NOW)
    # The first refusal is known before the other calls of its moment are.
    assert decrease_limit(first, 640, NOW + 1).per_minute == 320
    assert decrease_limit(first, 640, NOW + 1) == decrease_limit(decrease_limit(first, 640, NOW + 1), 640, NOW + 2)


def test_a_rate_that_is_not_refused_any_more_is_back_after_a_minute_and_forgotten_after_three() -> None:
    adaptive = AdaptiveLimit(per_minute=50, refused_per_minute=100, at=NOW)
    assert adaptive.compute_limit(NOW + RECOVERY_SECONDS) == 100
    assert adaptive.compute_limit(NOW + (FORGET_FACTOR * 2 - 1) * RECOVERY_SECONDS) is None


def refuse(state: LimitState, refusal: Refusal, now: float = NOW) -> LimitState:
    return grant_lease(state, LeaseRequest(worker="a", refusal=refusal), now)[0]


def test_a_refusal_closes_the_limiter_for_all_workers_for_as_long_as_the_provider_says() -> None:
    state = refuse(EMPTY_STATE, Refusal(retry_after=5, per_minute=640))
    state, grant = ask(state, NOW + 1, worker="b")
    assert (grant.amount, grant.closed_for) == (NOTHING, 4.0)
    _, grant = ask(state, NOW + 5.5, worker="b")
    assert grant.amount.requests >= 1


def test_no_refusal_and_no_jump_of_the_clock_closes_it_for_longer_than_the_bound() -> None:
    state = refuse(EMPTY_STATE, Refusal(retry_after=86_400, per_minute=1))
    assert state.closed_until == NOW + MAX_CLOSED_SECONDS
    _, grant = ask(state, NOW - 1_000_000)
    assert grant.closed_for <= MAX_CLOSED_SECONDS


def test_where_headers_name_the_limit_a_rate_limit_changes_it_not_and_an_overload_lowers_the_rate() -> None:
    report = LimitReport(limits=RateLimits(requests=600))
    state, _ = grant_lease(EMPTY_STATE, LeaseRequest(worker="a", report=report), NOW)
    assert refuse(state, Refusal(per_minute=100)).get_effective_limits(RateLimits(), NOW).requests == 600
    overloaded = refuse(state, Refusal(overloaded=True, per_minute=100))
    assert overloaded.get_effective_limits(RateLimits(), NOW).requests == 50


# ----------------------------------------------------------------------------------------------------- sizes, turns


def test_the_estimate_follows_what_calls_really_use() -> None:
    estimator = CallSizeEstimator()
    assert estimator.compute_size(10_000, 500) == RateLimitAmount(requests=1, input_tokens=10_000, output_tokens=500)
    for _ in range(100):
        estimator = estimator.after_call(10_000, RateLimitAmount(requests=1, input_tokens=500, output_tokens=80))
    size = estimator.compute_size(20_000, 4_000)
    assert size.input_tokens == pytest.approx(1_000, rel=0.01)
    assert size.output_tokens == pytest.approx(80, rel=0.01)


@given(
    st.dictionaries(st.sampled_from("abc"), st.floats(0.5, 4.0), min_size=2),
    st.floats(0.1, 10.0),
)
def test_tenants_that_wait_are_served_by_their_weights(weights: dict[str, float], cost: float) -> None:
    queue: FairQueue[int] = FairQueue(weights)
    for tenant in weights:
        for number in range(400):
            queue.add(tenant, number)
    served = Counter[str]()
    for _ in range(200):
        found = queue.find_next()
        assert found is not None
        queue.take(found[0], cost)
        served[found[0]] += 1
    for tenant, weight in weights.items():
        assert abs(served[tenant] - 200 * weight / sum(weights.values())) <= 6


def test_a_quiet_tenants_call_is_next_but_one_behind_any_number_of_anothers() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(450):
        queue.add("large", number)
    for _ in range(100):
        queue.take("large", 1.0)
    queue.add("small", 0)
    order: list[str] = []
    for _ in range(2):
        found = queue.find_next()
        assert found is not None
        order.append(found[0])
        queue.take(found[0], 1.0)
    assert "small" in order


def test_a_tenant_that_was_idle_has_saved_up_nothing() -> None:
    queue: FairQueue[int] = FairQueue()
    for number in range(20):
        queue.add("busy", number)
    for _ in range(10):
        queue.take("busy", 1.0)
    for number in range(10):
        queue.add("back", number)
    first: list[str] = []
    for _ in range(10):
        found = queue.find_next()
        assert found is not None
        first.append(found[0])
        queue.take(found[0], 1.0)
    assert 4 <= first.count("back") <= 6


def test_what_is_removed_is_not_served() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.add("a", "first")
    queue.remove("a", "first")
    queue.remove("a", "first")
    assert (len(queue), queue.find_next()) == (0, None)
