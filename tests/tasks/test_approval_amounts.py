"""In which unit and how much a person grants: what was requested, and never over the task's ceiling."""

from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from inline_snapshot import snapshot
from pydantic import JsonValue

from tests.support.approval_answers import apply_approval
from waystation.kernel.amount import Amount, Limit
from waystation.tasks.approvals import MAX_GRANT_USD, ApprovalContext
from waystation.tasks.task import ApprovalRequest, RejectedMessage

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
TOKENS = Amount(tokens=20_000)
DOLLARS = Amount(micro_usd=500_000)
AMOUNTS = st.builds(Amount, tokens=st.integers(0, 10**9), micro_usd=st.integers(0, 10**12)).filter(
    lambda amount: not amount.is_zero
)
BOTH = Limit(tokens=1_000_000, micro_usd=10_000_000)
"""Of a budget that counts both units, as those do of which both can be asked."""
LIMITS = st.builds(
    Limit, tokens=st.none() | st.integers(0, 2 * 10**9), micro_usd=st.none() | st.integers(0, 2 * 10**12)
)


def answered(asked: Amount, sent: JsonValue, limit: Limit | None = None, ceiling: Limit | None = None) -> Amount | str:
    """What is granted, or why nothing is."""
    request = ApprovalRequest(request_id="research-1-1", agent="research-1", requested=asked)
    standing = ApprovalContext(approvals=(request,), limit=limit or BOTH, ceiling=ceiling or Limit())
    answer = apply_approval(standing, sent, NOON)
    if isinstance(answer, RejectedMessage):
        assert (answer.signal, answer.at) == ("approve_budget", NOON)
        return answer.reason
    assert answer.decision == "approved"
    return answer.granted


@given(AMOUNTS)
def test_a_grant_that_names_no_amount_is_what_was_asked_for(asked: Amount) -> None:
    assert answered(asked, {}) == asked
    assert answered(asked, {"tokens": None, "usd": None}) == asked


@pytest.mark.parametrize(
    ("usd", "micro_usd"),
    [(2, 2_000_000), (2.5, 2_500_000), (0.1, 100_000), (0.000001, 1), ("2.50", 2_500_000), ("0.000001", 1)],
)
def test_dollars_may_be_a_number_or_in_quotes(usd: JsonValue, micro_usd: int) -> None:
    assert answered(DOLLARS, {"usd": usd}) == Amount(micro_usd=micro_usd)


@pytest.mark.parametrize(
    ("asked", "sent", "granted"),
    [
        (TOKENS, {"tokens": 5}, Amount(tokens=5)),
        (TOKENS, {"tokens": 5, "usd": 1}, Amount(tokens=5, micro_usd=1_000_000)),
        (TOKENS + DOLLARS, {"tokens": 5, "usd": 1}, Amount(tokens=5, micro_usd=1_000_000)),
    ],
)
def test_a_grant_may_be_of_any_size_in_the_units_that_were_asked_for(
    asked: Amount, sent: JsonValue, granted: Amount
) -> None:
    assert answered(asked, sent) == granted


@pytest.mark.parametrize(
    ("asked", "sent", "reason"),
    [
        (
            DOLLARS,
            {"tokens": 5_000},
            snapshot("dollars are requested: say how many, like `--add '$0.10'`, or `usd` in a signal"),
        ),
        (TOKENS, {"usd": 5}, snapshot("tokens are requested: say how many, like `--add 50k`, or `tokens` in a signal")),
        (
            TOKENS + DOLLARS,
            {"tokens": 5_000},
            snapshot("dollars are requested: say how many, like `--add '$0.10'`, or `usd` in a signal"),
        ),
        (
            TOKENS + DOLLARS,
            {"usd": 5},
            snapshot("tokens are requested: say how many, like `--add 50k`, or `tokens` in a signal"),
        ),
    ],
)
def test_a_grant_in_another_unit_than_was_asked_for_is_refused_with_the_reason(
    asked: Amount, sent: JsonValue, reason: str
) -> None:
    assert answered(asked, sent) == reason


@pytest.mark.parametrize(
    ("limit", "asked", "reason"),
    [
        (
            Limit(micro_usd=2_000_000),
            DOLLARS,
            snapshot("the task's budget is in dollars only: give dollars and no tokens"),
        ),
        (Limit(tokens=600_000), TOKENS, snapshot("the task's budget is in tokens only: give tokens and no dollars")),
    ],
)
def test_a_grant_that_gives_a_unit_too_which_the_budget_does_not_count_is_refused(
    limit: Limit, asked: Amount, reason: str
) -> None:
    request = ApprovalRequest(request_id="research-1-1", agent="research-1", requested=asked)
    standing = ApprovalContext(approvals=(request,), limit=limit)
    both: JsonValue = {"tokens": 50_000, "usd": 0.1}
    refused = apply_approval(standing, both, NOON)
    assert isinstance(refused, RejectedMessage)
    assert refused.reason == reason


MALFORMED: dict[str, tuple[JsonValue, str]] = {
    "nothing": (0, snapshot("usd: it should be more than 0")),
    "negative": (-0.5, snapshot("usd: it should be more than 0")),
    "not a number": (float("nan"), snapshot("usd: it should be a finite number")),
    "not a number in quotes": ("NaN", snapshot("usd: it should be a finite number")),
    "infinitely many": (float("inf"), snapshot("usd: it should be a finite number")),
    "seven places": (0.1234567, snapshot("usd: it should have no more than 6 decimal places")),
    "seven places in quotes": ("0.0000001", snapshot("usd: it should have no more than 6 decimal places")),
    "too many": (MAX_GRANT_USD + 1, snapshot("usd: it should be at most 1000000")),
    "absurdly many": (10**40, snapshot("usd: it should be at most 1000000")),
    "absurdly many in quotes": ("1e400", snapshot("usd: it should be at most 1000000")),
    "in words": ("sk-secret-0001", snapshot("usd: it should be a number")),
    "with a sign": ("$2.00", snapshot("usd: it should be a number")),
    "empty": ("", snapshot("usd: it should be a number")),
    "a list": ([2], snapshot("usd: it should be an integer, float, string or Decimal object")),
    "true": (True, snapshot("usd: it should be an integer, float, string or Decimal object")),
}


@pytest.mark.parametrize(("usd", "reason"), MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_dollars_are_refused_with_a_reason_and_without_what_was_typed(usd: JsonValue, reason: str) -> None:
    refused = answered(DOLLARS, {"usd": usd})
    assert refused == reason
    assert "sk-secret" not in str(refused)


@pytest.mark.parametrize(
    ("limit", "ceiling", "granted", "reason"),
    [
        (Limit(tokens=600_000), Limit(tokens=620_000), TOKENS, None),
        (
            Limit(tokens=600_000),
            Limit(tokens=619_999),
            TOKENS,
            snapshot(
                "the grant would raise the task's budget to 620,000 tokens, over its ceiling of 619,999 tokens, "
                "which leaves 19,999 tokens for grants"
            ),
        ),
        (
            Limit(tokens=600_000, micro_usd=2_000_000),
            Limit(micro_usd=2_400_000),
            DOLLARS,
            snapshot(
                "the grant would raise the task's budget to 600,000 tokens and $2.50, over its ceiling of $2.40, "
                "which leaves $0.40 for grants"
            ),
        ),
        (Limit(tokens=600_000, micro_usd=2_000_000), Limit(tokens=600_000), DOLLARS, None),
        (Limit(micro_usd=2_000_000), Limit(), DOLLARS, None),
    ],
)
def test_a_grant_over_the_tasks_ceiling_is_refused_with_both_numbers(
    limit: Limit, ceiling: Limit, granted: Amount, reason: str | None
) -> None:
    assert answered(granted, {}, limit, ceiling) == (reason or granted)


@given(AMOUNTS, LIMITS, LIMITS)
def test_no_grant_raises_a_task_over_its_ceiling(asked: Amount, limit: Limit, ceiling: Limit) -> None:
    asked = limit.restrict_to_limited_units(asked)
    assume(not asked.is_zero)
    granted = answered(asked, {}, limit, ceiling)
    assert isinstance(granted, Amount) == ceiling.can_cover(limit.increase_by(asked).amount)
