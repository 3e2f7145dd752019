"""Large tool results: what stays in the conversation."""

import pytest

from tests.support.conversations import make_filler_text
from waystation.context.stages import build_offload_preview, is_too_large

BLOB = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


@pytest.mark.parametrize(
    ("tokens", "window", "large"),
    [(40_000, 1_000_000, False), (40_001, 1_000_000, True), (5_000, 20_000, False), (5_001, 20_000, True)],
)
def test_a_result_is_too_large_over_40_000_tokens_or_a_quarter_of_the_window(
    tokens: int, window: int, large: bool
) -> None:
    assert is_too_large("abcd" * tokens, window) is large


def test_one_line_of_five_megabytes_leaves_its_ends_and_a_pointer_that_works() -> None:
    text = "a" * 2_500_000 + "z" * 2_500_000
    shown = build_offload_preview(text, BLOB)
    head, pointer, tail = shown.split("\n")
    assert (head, tail) == ("a" * 2_000, "z" * 2_000)
    assert BLOB in pointer
    assert "5,000,000 characters" in pointer
    assert "read_stored" in pointer
    assert "begins at character 2000" in pointer


def test_the_preview_of_a_short_text_shows_at_most_half_of_it() -> None:
    text = make_filler_text(1_000)
    shown = build_offload_preview(text, BLOB)
    assert len(shown) < len(text) // 2 + 300


def test_cuts_fall_on_characters() -> None:
    text = "報告" * 10_000
    assert build_offload_preview(text, BLOB).startswith("報告" * 1_000 + "\n")
