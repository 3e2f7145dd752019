import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.budgets.budget import WARN_SHARE, compute_delay_seconds

SHARES = st.floats(0, 3)


@pytest.mark.parametrize(
    ("used", "seconds"),
    [
        (0.0, 0.0),
        (0.79, 0.0),
        (0.80, 0.05),
        (0.849, 0.05),
        (0.85, 0.3),
        (0.899, 0.3),
        (0.90, 0.75),
        (0.949, 0.75),
        (0.95, 1.5),
        (1.0, 1.5),
        (2.5, 1.5),
    ],
)
def test_a_call_waits_the_longer_the_more_of_a_budget_is_used(used: float, seconds: float) -> None:
    assert compute_delay_seconds(used) == seconds


@given(SHARES, SHARES)
def test_a_call_never_waits_less_for_more_use_and_never_before_people_are_warned(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert compute_delay_seconds(less) <= compute_delay_seconds(more)
    assert (compute_delay_seconds(one) > 0) == (one >= WARN_SHARE)
