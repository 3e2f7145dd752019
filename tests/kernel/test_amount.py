import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.kernel.amount import (
    Amount,
    Limit,
    format_amount,
    format_limit,
    format_usd,
    format_used_amount,
    parse_bounded_limit,
    parse_limit,
)

NUMBERS = st.integers(0, 10**12)
AMOUNTS = st.builds(Amount, tokens=NUMBERS, micro_usd=NUMBERS)
LIMITS = st.builds(Limit, tokens=st.none() | NUMBERS, micro_usd=st.none() | NUMBERS)
BOTH = Limit(tokens=100, micro_usd=1_000)


LIMITS_AS_WRITTEN = {
    "600k": Limit(tokens=600_000),
    " 1.5M ": Limit(tokens=1_500_000),
    "600_000": Limit(tokens=600_000),
    "$2": Limit(micro_usd=2_000_000),
    "$ 2.00": Limit(micro_usd=2_000_000),
    "$0.000001": Limit(micro_usd=1),
    "$1,000,000": Limit(micro_usd=10**12),
    "$1_000.5": Limit(micro_usd=1_000_500_000),
    "600k+$2.00": Limit(tokens=600_000, micro_usd=2_000_000),
    "$2.00 + 600k": Limit(tokens=600_000, micro_usd=2_000_000),
    "0": Limit(tokens=0),
    "$1,250.50": Limit(micro_usd=1_250_500_000),
    "1,500,000": Limit(tokens=1_500_000),
    "1,500k+$12,000": Limit(tokens=1_500_000, micro_usd=12 * 10**9),
}


def test_limits_are_read_as_people_write_them() -> None:
    assert {text: parse_limit(text) for text in LIMITS_AS_WRITTEN} == LIMITS_AS_WRITTEN


NO_LIMITS = (
    "",
    "+",
    "+600k",
    "$",
    "$-2",
    "-5k",
    "$2.0000001",
    "$1e3",
    "2 $",
    "0.5",
    "1.2345k",
    "many",
    "$nan",
    "€2",
)


def refusal(text: str) -> str:
    """Why this is no limit."""
    try:
        return f"taken as {parse_limit(text)}"
    except ValueError as refused:
        return str(refused)


def test_what_is_no_limit_is_refused_with_what_it_should_look_like() -> None:
    refusals = {text: refusal(text) for text in NO_LIMITS}
    assert {text: said for text, said in refusals.items() if " is not an amount" not in said} == {}


def test_the_refusal_of_a_fraction_of_a_microdollar_says_how_many_decimals_dollars_have() -> None:
    for text in ("$0.000000001", "600k+$1.1234567"):
        assert refusal(text).endswith("; dollars have at most six decimals")
        with pytest.raises(ValueError, match=r"is not an amount; dollars have at most six decimals$"):
            parse_bounded_limit(text, Amount())
    assert parse_limit("$0.000001") == Limit(micro_usd=1)


ODD_COMMAS_AND_DIGITS = (
    "$2,50",
    "1,5M",
    "$0,500",
    "1,25,000",
    "$1,2500",
    ",500",
    "5,",
    "1,,000",
    "1_0",
    "٣k",
    "$٢",
    "３000",
    "1.٥M",
)


def test_commas_that_group_no_thousands_and_digits_of_other_scripts_are_refused() -> None:
    refusals = {text: refusal(text) for text in ODD_COMMAS_AND_DIGITS}
    assert {text: said for text, said in refusals.items() if " is not an amount" not in said} == {}


@pytest.mark.parametrize(
    ("text", "unit"), [("5k+5k", "tokens"), ("$1+$1", "dollars"), ("$1+5k+$1", "dollars"), ("5k+$1+6k", "tokens")]
)
def test_a_unit_that_is_named_twice_is_refused(text: str, unit: str) -> None:
    with pytest.raises(ValueError, match=f"names {unit} twice$"):
        parse_limit(text)


@pytest.mark.parametrize(
    ("micro_usd", "text"),
    [
        (0, "$0.00"),
        (1, "$0.000001"),
        (100_000, "$0.10"),
        (123_456, "$0.123456"),
        (1_500_000, "$1.50"),
        (2_000_000, "$2.00"),
        (1_234_567_800_000, "$1,234,567.80"),
    ],
)
def test_dollars_are_shown_exactly_and_in_whole_cents_where_that_is_exact(micro_usd: int, text: str) -> None:
    assert format_usd(micro_usd) == text


@given(NUMBERS)
def test_dollars_that_are_shown_read_back_as_the_same(micro_usd: int) -> None:
    assert parse_limit(format_usd(micro_usd)) == Limit(micro_usd=micro_usd)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(tokens=600_000), "600,000 tokens"),
        (Limit(micro_usd=2_000_000), "$2.00"),
        (Limit(tokens=0, micro_usd=0), "0 tokens and $0.00"),
        (Limit(), "no limit"),
    ],
)
def test_a_limit_is_shown_in_the_units_that_it_has(limit: Limit, text: str) -> None:
    assert format_limit(limit) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Amount(), "0 tokens"),
        (Amount(tokens=1_200), "1,200 tokens"),
        (Amount(micro_usd=250_000), "$0.25"),
        (Amount(tokens=1_200, micro_usd=250_000), "1,200 tokens and $0.25"),
    ],
)
def test_an_amount_is_shown_in_the_units_that_it_has(amount: Amount, text: str) -> None:
    assert format_amount(amount) == text


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (Limit(tokens=100_000), "1,200 of 100,000 tokens"),
        (Limit(micro_usd=500_000), "$0.10 of $0.50"),
        (Limit(tokens=100_000, micro_usd=500_000), "1,200 of 100,000 tokens and $0.10 of $0.50"),
        (Limit(), "1,200 tokens and $0.10"),
    ],
)
def test_what_is_used_is_shown_beside_what_may_be(limit: Limit, text: str) -> None:
    assert format_used_amount(Amount(tokens=1_200, micro_usd=100_000), limit) == text


@pytest.mark.parametrize(
    ("used", "limit", "share"),
    [
        (Amount(tokens=50, micro_usd=900), BOTH, 0.9),
        (Amount(tokens=95, micro_usd=900), BOTH, 0.95),
        (Amount(tokens=200), BOTH, 2.0),
        (Amount(tokens=95, micro_usd=100), Limit(micro_usd=1_000), 0.1),
        (Amount(tokens=95), Limit(), 0.0),
        (Amount(), Limit(tokens=0), 1.0),
    ],
)
def test_the_unit_that_is_used_most_says_how_much_is_used(used: Amount, limit: Limit, share: float) -> None:
    assert limit.compute_used_share(used) == share


@given(LIMITS, AMOUNTS)
def test_a_limit_covers_an_amount_unless_it_is_over_in_some_limited_unit(limit: Limit, amount: Amount) -> None:
    over = (limit.tokens is not None and amount.tokens > limit.tokens) or (
        limit.micro_usd is not None and amount.micro_usd > limit.micro_usd
    )
    assert limit.can_cover(amount) == (not over)
    assert limit.increase_by(limit.compute_excess(amount)).can_cover(amount)


@given(LIMITS, AMOUNTS, AMOUNTS)
def test_what_is_left_is_never_negative_and_never_more_than_there_was(limit: Limit, one: Amount, other: Amount) -> None:
    left = limit.remaining_after(one)
    assert left.remaining_after(other) == limit.remaining_after(one + other)
    assert limit.can_cover(left.amount)
    assert (left.tokens is None, left.micro_usd is None) == (limit.tokens is None, limit.micro_usd is None)
    assert min(left.amount.tokens, left.amount.micro_usd) >= 0


@given(LIMITS, st.integers(1, 50))
def test_equal_parts_together_never_exceed_the_whole(limit: Limit, parts: int) -> None:
    assert limit.can_cover(sum([limit.divide_by(parts).amount] * parts, Amount()))


@given(AMOUNTS, AMOUNTS)
def test_amounts_are_compared_and_taken_off_in_each_unit(one: Amount, other: Amount) -> None:
    assert one.subtract_clamped(other) + one.min_with(other) == one
    assert one.subtract_clamped(one).is_zero
    assert (one + other).subtract_clamped(other) == one


@given(AMOUNTS, LIMITS)
def test_amounts_and_limits_survive_being_stored(amount: Amount, limit: Limit) -> None:
    assert Amount.model_validate_json(amount.model_dump_json()) == amount
    assert Limit.model_validate_json(limit.model_dump_json()) == limit
