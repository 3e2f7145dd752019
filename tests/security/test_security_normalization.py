"""What a reader sees of a text: plain forms of characters, without those that cannot be seen."""

from hypothesis import example, given
from hypothesis import strategies as st

from waystation.security.normalization import is_unseen, normalize_characters, strip_invisible_characters

PLAIN = {"ｅxample": "example", "a\u2010b": "a-b", "\u0663": "3", "𝒜": "A", "a\u00a0b": "a b", "straße": "straße"}
UNSEEN = "\u200b\u00ad\u202e\ufe0f\U000e0041"


def test_characters_have_the_plain_form_that_they_look_like() -> None:
    assert {text: normalize_characters(text) for text in PLAIN} == PLAIN


def test_unseen_characters_are_removed() -> None:
    assert normalize_characters(f"exam{UNSEEN}ple") == strip_invisible_characters(f"exam{UNSEEN}ple") == "example"
    assert all(map(is_unseen, UNSEEN))
    assert not any(map(is_unseen, "aé漢 \n"))


@given(st.text())
@example("\U0010ffff\U000e0041é")
def test_what_was_read_before_changes_nothing(text: str) -> None:
    assert normalize_characters(text) == "".join(map(normalize_characters, text))
    assert strip_invisible_characters(text) == "".join(one for one in text if not is_unseen(one) or one.isascii())
