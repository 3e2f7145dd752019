"""Redacted texts are shortened without breaking a placeholder, which nothing could restore."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.privacy.policy import PLACEHOLDER_PATTERN, truncate_redacted, truncate_title

NAME = "<PERSON_7f3a2c91d04e>"


@pytest.mark.parametrize(
    ("characters", "left"),
    [(40, f"It asks; {NAME} answers"), (34, f"It asks; {NAME} a …"), (32, f"It asks; {NAME} …"), (31, "It asks; …")],
)
def test_a_text_is_cut_before_a_placeholder_and_never_within(characters: int, left: str) -> None:
    assert truncate_redacted(f"It asks; {NAME} answers", characters, " …") == left


@given(st.lists(st.sampled_from(["a", " ", NAME]), max_size=20).map("".join), st.integers(2, 200))
def test_what_is_left_fits_and_has_whole_placeholders_only(text: str, characters: int) -> None:
    left = truncate_redacted(text, characters, " …")
    assert len(left) <= characters
    assert "<" not in PLACEHOLDER_PATTERN.sub("", left)


@pytest.mark.parametrize(
    ("text", "characters", "left"),
    [
        ("Why it silted up", 16, "Why it silted up"),
        ("Why it silted up", 15, "Why it silted…"),
        ("Why it silted up", 14, "Why it silted…"),
        ("Why it silted up", 13, "Why it…"),
        ("Why it, perhaps", 9, "Why it…"),
        ("Siltation", 5, "Silt…"),
        (f"It asks {NAME} why", 12, "It asks…"),
    ],
)
def test_a_title_is_cut_at_the_end_of_a_word_with_a_mark(text: str, characters: int, left: str) -> None:
    assert truncate_title(text, characters) == left
    assert len(left) <= characters
