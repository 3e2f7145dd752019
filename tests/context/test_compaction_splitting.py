"""A conversation that is too long to be read at once is cut into parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.conversations import make_filler_text
from waystation.context.pipeline import compute_part_token_range, split_into_parts
from waystation.context.tokens import estimate_text


def test_what_fits_is_one_part() -> None:
    assert split_into_parts(["one", "two"], 100) == ("one\ntwo",)
    assert split_into_parts([], 100) == ("",)


def test_parts_are_whole_messages_in_order() -> None:
    texts = [make_filler_text(40) + str(number) for number in range(5)]
    assert split_into_parts(texts, 100) == ("\n".join(texts[:2]), "\n".join(texts[2:4]), texts[4])


@given(st.lists(st.text(max_size=300)), st.integers(1, 60))
def test_nothing_is_lost_or_moved(texts: list[str], room: int) -> None:
    parts = split_into_parts(texts, room)
    assert "".join("".join(parts).split("\n")) == "".join("".join(texts).split("\n"))


@pytest.mark.parametrize("text", [make_filler_text(5_000), "四月の報告書" * 700, "x" * 20_000 + "{[1]}" * 4_000])
def test_one_message_that_is_too_long_is_cut(text: str) -> None:
    parts = split_into_parts(["before", text, "after"], 1_000)
    assert max(map(estimate_text, parts)) <= 1_000
    assert "".join(parts).replace("\n", "") == f"before{text}after"


@pytest.mark.parametrize(
    ("parts", "room", "length"), [(2, 10_000, (500, 1_000)), (40, 10_000, (250, 250)), (500, 100, (1, 1))]
)
def test_the_summaries_of_all_parts_fit_the_room_together(parts: int, room: int, length: tuple[int, int]) -> None:
    assert compute_part_token_range((500, 1_000), parts, room) == length
