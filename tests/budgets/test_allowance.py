from datetime import date
from decimal import Decimal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.support.prices import PRICES
from waystation.budgets.budget import CallCostBound, WorstCaseRates
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.usage import Usage
from waystation.models.profiles import LongPromptTier, Price, TokenRates, compute_cost_micro_usd, find_worst_rates

TODAY = date(2026, 11, 21)
FLOOR = 256

USD = st.decimals(0, 50, places=3)
RATES = st.builds(TokenRates, input=USD, output=st.decimals(0, 100, places=3), cache_write=USD, cache_read=USD)
MADE_UP = st.builds(
    Price,
    model=st.just("made-up"),
    rates=RATES,
    long_prompts=st.none() | st.builds(LongPromptTier, over=st.integers(1, 200_000), rates=RATES),
)
BUILT_IN = st.sampled_from(PRICES)
INPUT = st.integers(1, 300_000) | st.integers(99_900, 100_100)
"""Also around the 100,000 tokens at which the price of claude-haiku-5-5 jumps."""
MAX_OUTPUT = st.integers(FLOOR, 32_000)


@st.composite
def lefts(draw: st.DrawFn) -> Limit:
    """What is left: of either unit, of both, or without a limit."""
    return Limit(
        tokens=draw(st.none() | st.integers(0, 400_000)), micro_usd=draw(st.none() | st.integers(0, 5_000_000))
    )


@st.composite
def usages(draw: st.DrawFn, input_bound: int, room: int) -> Usage:
    """What the call really used: any prompt up to its bound, cached in any way, and any reply up to its room."""
    prompt = draw(st.integers(0, input_bound) | st.just(input_bound))
    cached = draw(st.integers(0, prompt) | st.sampled_from([0, prompt]))
    written = draw(st.integers(0, prompt - cached) | st.sampled_from([0, prompt - cached]))
    output = draw(st.integers(0, room) | st.just(room))
    return Usage(input=prompt - cached - written, cache_write=written, cache_read=cached, output=output)


@pytest.mark.parametrize(
    ("left", "input_tokens", "room", "missing"),
    [
        (10_000, 2_000, 4_000, 0),
        (6_000, 2_000, 4_000, 0),
        (5_999, 2_000, 3_999, 0),
        (2_256, 2_000, 256, 0),
        (2_255, 2_000, None, 1),
        (0, 2_000, None, 2_256),
    ],
)
def test_a_reply_shrinks_to_the_tokens_left_and_not_under_its_floor(
    left: int, input_tokens: int, room: int | None, missing: int
) -> None:
    bound = CallCostBound(input_tokens=input_tokens, rates=None)
    assert bound.compute_max_reply_tokens(Limit(tokens=left), max_output=4_000, floor=FLOOR) == room
    assert bound.compute_shortfall(Limit(tokens=left), floor=FLOOR) == Amount(tokens=missing)


@pytest.mark.parametrize(
    ("micro_usd", "room", "missing"),
    [
        (90_000, 4_000, 0),
        (85_000, 4_000, 0),
        (84_999, 3_999, 0),
        (10_120, 256, 0),
        (10_119, None, 1),
        (0, None, 10_120),
    ],
)
def test_a_reply_shrinks_to_the_dollars_left_and_not_under_its_floor(
    micro_usd: int, room: int | None, missing: int
) -> None:
    bound = CallCostBound(input_tokens=2_000, rates=WorstCaseRates(input=Decimal("2.5"), output=Decimal(20)))
    assert bound.compute_max_reply_tokens(Limit(micro_usd=micro_usd), max_output=4_000, floor=FLOOR) == room
    assert bound.compute_shortfall(Limit(micro_usd=micro_usd), floor=FLOOR) == Amount(micro_usd=missing)


def test_the_tighter_unit_decides() -> None:
    bound = CallCostBound(input_tokens=2_000, rates=WorstCaseRates(input=Decimal(1), output=Decimal(10)))
    assert bound.compute_max_reply_tokens(Limit(tokens=3_000, micro_usd=52_000), 4_000, FLOOR) == 1_000
    assert bound.compute_max_reply_tokens(Limit(tokens=9_000, micro_usd=9_000), 4_000, FLOOR) == 700
    assert bound.compute_max_reply_tokens(Limit(), 4_000, FLOOR) == 4_000


@pytest.mark.parametrize(("input_", "micro_usd", "room"), [(0, 0, 4_000), (1, 2_000, 4_000), (1, 1_999, None)])
def test_a_reply_that_costs_nothing_has_all_the_room_where_its_request_is_covered(
    input_: int, micro_usd: int, room: int | None
) -> None:
    bound = CallCostBound(input_tokens=2_000, rates=WorstCaseRates(input=Decimal(input_), output=Decimal(0)))
    assert bound.compute_max_reply_tokens(Limit(micro_usd=micro_usd), 4_000, FLOOR) == room


@given(st.data(), MADE_UP | BUILT_IN, INPUT, lefts(), MAX_OUTPUT)
def test_whatever_a_call_uses_within_its_bound_it_never_passes_what_was_left(
    data: st.DataObject, price: Price, input_bound: int, left: Limit, max_output: int
) -> None:
    prices = (price,)
    bound = CallCostBound(input_tokens=input_bound, rates=find_worst_rates(price.model, input_bound, TODAY, prices))
    room = bound.compute_max_reply_tokens(left, max_output, FLOOR)
    if room is None:
        assert not left.can_cover(bound.compute_worst_case(FLOOR))
        return
    assert FLOOR <= room <= max_output
    used = data.draw(usages(input_bound, room))
    cost = compute_cost_micro_usd(price.model, used, TODAY, prices)
    assert cost is not None
    spent = Amount(tokens=used.fresh, micro_usd=cost)
    assert left.can_cover(spent)
    assert left.can_cover(bound.compute_worst_case(room))
    assert Limit(**bound.compute_worst_case(room).model_dump()).can_cover(spent)


@given(MADE_UP | BUILT_IN, INPUT, lefts(), MAX_OUTPUT)
def test_a_reply_is_given_all_the_room_there_is(price: Price, input_bound: int, left: Limit, max_output: int) -> None:
    bound = CallCostBound(input_tokens=input_bound, rates=find_worst_rates(price.model, input_bound, TODAY, (price,)))
    room = bound.compute_max_reply_tokens(left, max_output, FLOOR)
    assume(room is not None)
    assert room == max_output or not left.can_cover(bound.compute_worst_case((room or 0) + 1))


@given(MADE_UP | BUILT_IN, INPUT, lefts(), MAX_OUTPUT)
def test_what_is_missing_is_exactly_what_makes_a_call_possible(
    price: Price, input_bound: int, left: Limit, max_output: int
) -> None:
    bound = CallCostBound(input_tokens=input_bound, rates=find_worst_rates(price.model, input_bound, TODAY, (price,)))
    missing = bound.compute_shortfall(left, FLOOR)
    assert (bound.compute_max_reply_tokens(left, max_output, FLOOR) is None) == (not missing.is_zero)
    assert bound.compute_max_reply_tokens(left.increase_by(missing), max_output, FLOOR) is not None
    for less in (Amount(tokens=1), Amount(micro_usd=1)):
        smaller = missing.subtract_clamped(less)
        if smaller != missing:
            assert bound.compute_max_reply_tokens(left.increase_by(smaller), max_output, FLOOR) is None


@given(INPUT, st.integers(0, 10**12), MAX_OUTPUT)
def test_a_limit_in_dollars_lets_no_call_of_an_unpriced_model_through(
    input_bound: int, micro_usd: int, max_output: int
) -> None:
    unpriced = CallCostBound(input_tokens=input_bound, rates=None)
    assert unpriced.compute_max_reply_tokens(Limit(micro_usd=micro_usd), max_output, FLOOR) is None
    assert unpriced.compute_max_reply_tokens(Limit(), max_output, FLOOR) == max_output


def test_the_bound_of_a_prompt_that_may_be_long_is_priced_as_a_long_one() -> None:
    short = find_worst_rates("claude-haiku-5-5", 100_000, TODAY, PRICES)
    long = find_worst_rates("claude-haiku-5-5", 100_001, TODAY, PRICES)
    assert short == WorstCaseRates(input=Decimal("0.125"), output=Decimal("0.50"))
    assert long == WorstCaseRates(input=Decimal("0.625"), output=Decimal("2.50"))
