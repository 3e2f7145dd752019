import re
import shlex
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.cli.options import (
    format_amount_option,
    format_short_limit,
    format_short_spent,
    parse_amount,
    parse_budget,
    parse_limit,
    parse_tokens,
)
from waystation.kernel.amount import MAX_AMOUNT, Amount, Limit, format_tokens_short
from waystation.kernel.errors import BadInput

TOKENS = {
    "600k": 600_000,
    "1.5M": 1_500_000,
    "600_000": 600_000,
    "600,000": 600_000,
    "2000": 2_000,
    "30K": 30_000,
    " 30 k ": 30_000,
    "0.5k": 500,
}


def test_amounts_are_read_as_people_write_them() -> None:
    assert {text: parse_tokens(text, "--budget") for text in TOKENS} == TOKENS


def unlike(read: Callable[[str, str], object], texts: Iterable[str], pattern: str) -> dict[str, str]:
    """Of the texts that are refused in other words than these, or taken, what happened to them."""

    def refusal(text: str) -> str:
        try:
            return f"taken as {read(text, '--budget')}"
        except BadInput as refused:
            return str(refused)

    return {text: said for text in texts if not re.search(pattern, said := refusal(text))}


def test_other_amounts_are_refused_with_the_name_and_what_is_allowed() -> None:
    texts = ("-5k", "0", "", "many", "1.2345k", "5G", "$2.00", "2000000k", "1e6")
    words = r"^--budget takes 1 to 1,000,000,000 tokens, written like 30k, 1\.5M or 600_000"
    assert unlike(parse_tokens, texts, words) == {}


@pytest.mark.parametrize("read", [parse_limit, parse_tokens])
def test_of_an_endless_amount_the_beginning_is_shown(read: Callable[[str, str], object]) -> None:
    with pytest.raises(BadInput, match="'999") as refused:
        read("9" * 100_000, "--budget")
    assert len(str(refused.value)) < 1_000


def test_an_amount_under_the_lowest_is_refused() -> None:
    with pytest.raises(BadInput, match="--budget takes 2,000 to"):
        parse_tokens("1999", "--budget", lowest=2_000)


@pytest.mark.parametrize(("tokens", "text"), [(0, "0"), (950, "950"), (41_200, "41.2k"), (1_000_000, "1M")])
def test_tokens_are_shown_at_a_glance(tokens: int, text: str) -> None:
    assert format_tokens_short(tokens) == text


AMOUNTS = st.builds(Amount, tokens=st.integers(0, MAX_AMOUNT.tokens), micro_usd=st.integers(0, MAX_AMOUNT.micro_usd))


@given(AMOUNTS.filter(lambda amount: not amount.is_zero))
def test_an_amount_that_is_written_out_is_taken_back_as_the_same(amount: Amount) -> None:
    assert parse_amount(format_amount_option(amount), "--add") == amount
    assert shlex.split(shlex.quote(format_amount_option(amount))) == [format_amount_option(amount)]


def test_a_plain_small_number_is_no_grant_since_its_unit_was_probably_forgotten() -> None:
    for text in ("5", "1999"):
        hint = f"--add {text} is {text} tokens, too few to be worth a grant: did you mean {text}k or '${text}'?"
        with pytest.raises(BadInput, match=re.escape(hint)):
            parse_amount(text, "--add")
    taken = {"5k": 5_000, "1_500": 1_500, "0.5k": 500, "2000": 2_000}
    assert {text: parse_amount(text, "--add").tokens for text in taken} == taken


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Amount(tokens=30_000), "30000"),
        (Amount(tokens=1_999), "1.999k"),
        (Amount(micro_usd=500_000), "$0.50"),
        (Amount(tokens=30_000, micro_usd=1_500_000), "30000+$1.50"),
    ],
)
def test_an_amount_is_written_in_the_units_that_it_has(amount: Amount, text: str) -> None:
    assert format_amount_option(amount) == text


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("600k", Limit(tokens=600_000)),
        ("$2.00", Limit(micro_usd=2_000_000)),
        ("600k+$2", Limit(tokens=600_000, micro_usd=2_000_000)),
    ],
)
def test_a_limit_is_taken_in_tokens_dollars_or_both(text: str, limit: Limit) -> None:
    assert parse_limit(text, "--budget") == limit


def test_what_is_no_limit_is_refused_with_the_name_and_what_is_allowed() -> None:
    texts = ("", "many", "$", "$0.0000001", "5k+5k", "$1+$1", "-5k", "$-1", "1e6")
    words = r"^--budget takes tokens like 600k, .*, dollars like \$2\.00, or both like 600k\+\$2\.00; "
    assert unlike(parse_limit, texts, words) == {}


def test_nothing_and_too_much_are_refused_with_the_least_and_the_most() -> None:
    texts = ("0", "$0", "0+$1", "5k+$0.00", "1000000001", "$1000000.01", f"$1{'0' * 40}")
    words = r"^--budget takes 1 to 1,000,000,000 tokens, \$0\.000001 to \$1,000,000\.00, or both; not "
    assert unlike(parse_limit, texts, words) == {}


def test_a_budget_that_nothing_can_begin_with_is_refused_with_the_least() -> None:
    texts = ("0", "1999", "$0.0009", "1999+$1", "2k+$0.0001")
    words = r"^--budget takes 2,000 to 1,000,000,000 tokens, \$0\.001 to "
    assert unlike(parse_budget, texts, words) == {}
    hint = r"^--budget 5 is 5 tokens, too few to start with: did you mean 5k or '\$5'\?$"
    assert unlike(parse_budget, ("5",), hint) == {}
    assert parse_budget("2k+$0.001", "--budget") == Limit(tokens=2_000, micro_usd=1_000)


def test_a_comma_in_the_place_of_a_point_is_refused_with_how_commas_are_read() -> None:
    words = r"; a comma only separates thousands, .*: write decimals with a point$"
    for read in (parse_limit, parse_tokens):
        assert unlike(read, ("$2,50", "1,5M", "$1,2345", "2,50"), words) == {}


@pytest.mark.parametrize(
    ("limit", "shown", "spent"),
    [
        (Limit(tokens=600_000), "600k", "1.2k"),
        (Limit(micro_usd=2_000_000), "$2.00", "$0.10"),
        (Limit(tokens=600_000, micro_usd=2_000_000), "600k $2.00", "1.2k $0.10"),
        (Limit(), "-", "1.2k"),
    ],
)
def test_limits_and_spending_are_shown_at_a_glance_in_the_same_units(limit: Limit, shown: str, spent: str) -> None:
    assert format_short_limit(limit) == shown
    assert format_short_spent(Amount(tokens=1_200, micro_usd=100_000), limit) == spent
