from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waystation.documents.word_normalization import contains_phrase, normalize_words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1,234,567", "1234567"),
        ("1.5 million", "1,500,000"),
        ("2 thousand", "2000"),
        ("three", "3"),
        ("12 percent", "12 %"),
        ("12 per cent", "12%"),
        ("$5", "5 dollars"),
        ("$1.5 million", "1500000 USD"),
        ("22 November 2026", "2026-11-22"),
        ("Nov 22nd, 2026", "2026/11/22"),
        ("the 1st of March 2024", "the 2024-03-01"),
        ("**Bold** `code`", "bold code"),
        ("\uff11\uff12", "12"),
    ],
)
def test_the_same_figure_in_two_writings_is_the_same(one: str, other: str) -> None:
    assert normalize_words(one) == normalize_words(other)


@pytest.mark.parametrize(
    ("one", "other"), [("3.10", "3.1"), ("1,23", "123"), ("1234,567", "1234567"), ("10", "100"), ("2026-13-40", "2026")]
)
def test_what_is_not_the_same_stays_apart(one: str, other: str) -> None:
    assert normalize_words(one) != normalize_words(other)


@given(st.integers(0, 10**15))
def test_thousands_may_be_written_with_commas(number: int) -> None:
    assert normalize_words(f"{number:,}") == normalize_words(str(number))


@given(st.dates(min_value=date(1000, 1, 1)))
def test_a_date_is_the_same_in_every_writing(day: date) -> None:
    written = [f"{day.day} {day:%B %Y}", f"{day:%B} {day.day}, {day.year}", f"{day:%b} {day.day} {day.year}"]
    assert {normalize_words(text) for text in written} == {(day.isoformat(),)}


@given(st.text(), st.text(), st.text())
def test_a_phrase_is_found_wherever_it_stands_between_other_lines(before: str, phrase: str, behind: str) -> None:
    """A figure may join with what stands next to it, so that words of marks alone stand between."""
    text = (*normalize_words(before), *normalize_words(phrase), *normalize_words(behind))
    assert contains_phrase(text, phrase) or not normalize_words(phrase)


@given(st.text())
@example("$¼")
@example("$1 $4")
def test_one_writing_is_its_own_writing(text: str) -> None:
    once = normalize_words(text)
    assert normalize_words(" ; ".join(once)) == once


def test_a_word_is_not_found_inside_another() -> None:
    assert not contains_phrase(normalize_words("the harbourmaster of 18110"), "harbour")
    assert not contains_phrase(normalize_words("in 18110"), "1811")
