import pytest

from waystation.cli.amounts import parse_tokens, short_tokens
from waystation.domain.errors import BadInput


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("600k", 600_000),
        ("1.5M", 1_500_000),
        ("600_000", 600_000),
        ("600,000", 600_000),
        ("2000", 2_000),
        ("30K", 30_000),
        (" 30 k ", 30_000),
        ("0.5k", 500),
    ],
)
def test_amounts_are_read_as_people_write_them(text: str, tokens: int) -> None:
    assert parse_tokens(text, "--budget") == tokens


@pytest.mark.parametrize("text", ["-5k", "0", "", "many", "1.2345k", "5G", "$2.00", "2000000k", "1e6"])
def test_other_amounts_are_refused_with_the_name_and_what_is_allowed(text: str) -> None:
    with pytest.raises(
        BadInput, match=r"^--budget takes 1 to 1,000,000,000 tokens, written like 30k, 1\.5M or 600_000"
    ):
        parse_tokens(text, "--budget")


def test_an_amount_under_the_lowest_is_refused() -> None:
    with pytest.raises(BadInput, match="--budget takes 2,000 to"):
        parse_tokens("1999", "--budget", lowest=2_000)


@pytest.mark.parametrize(("tokens", "text"), [(0, "0"), (950, "950"), (41_200, "41.2k"), (1_000_000, "1M")])
def test_tokens_are_shown_at_a_glance(tokens: int, text: str) -> None:
    assert short_tokens(tokens) == text
