"""Tags of ours in letters and signs that only look like them: every one that Unicode knows of, and any mixture."""

import json
import sys
import unicodedata
from collections import defaultdict
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.security.untrusted import PROMPT_TAGS, escape_tags, sanitize_line

CONFUSABLES: dict[str, list[str]] = json.loads(
    (resources.files("homoglyphs_fork") / "confusables.json").read_text(encoding="utf-8")
)
EVERY = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
INVISIBLE = 0xE0000


def without_marks(sign: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFKD", sign) if not unicodedata.combining(one))


DECOMPOSED: defaultdict[str, list[str]] = defaultdict(list)
for one in EVERY:
    DECOMPOSED[without_marks(one)].append(one)


def lookalikes(sign: str) -> list[str]:
    """What the table has beside it, what decomposes to it, and its tag."""
    beside = [other for other, same in CONFUSABLES.items() if sign in same]
    return sorted({sign, *CONFUSABLES.get(sign, ()), *beside, *DECOMPOSED[sign], chr(INVISIBLE + ord(sign))})


SMALL_CAPITALS = dict(zip("abcdefghijklmnoprstuvwyz", "ᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ", strict=True))
LETTERS = {
    letter: [*lookalikes(letter), *lookalikes(letter.upper()), *filter(None, [SMALL_CAPITALS.get(letter)])]
    for letter in sorted(set("".join(PROMPT_TAGS)))
}
OPENINGS = lookalikes("<")
PREFIXES = [
    *("", "/", "//", " / ", "ns:", "/ns:", "x/", "/x/", "x/y/", "x::"),
    *("ns:\u200b", "\U000e003c", "\u0444:", "x\u2236", "x\uff0f"),
]


def test_no_letter_looks_like_one_of_a_tag_and_is_another() -> None:
    def survive(letter: str) -> list[str]:
        tag = min(name for name in PROMPT_TAGS if letter in name)
        return [look for look in LETTERS[letter] if not escape_tags(f"</{tag.replace(letter, look)}>").startswith("&")]

    assert {letter: survive(letter) for letter in LETTERS} == {letter: [] for letter in LETTERS}


def test_no_sign_looks_like_an_opening_and_is_none() -> None:
    def survive(tag: str) -> list[str]:
        return [opening for opening in OPENINGS if not escape_tags(f"{opening}/{tag}>").startswith("&lt;")]

    assert {tag: survive(tag) for tag in PROMPT_TAGS} == {tag: [] for tag in PROMPT_TAGS}


@given(st.data())
def test_no_mixture_of_lookalikes_is_left(data: st.DataObject) -> None:
    tag = data.draw(st.sampled_from(sorted(PROMPT_TAGS)))
    spelled = "".join(data.draw(st.sampled_from(LETTERS[letter])) for letter in tag)
    opening, prefix = data.draw(st.sampled_from(OPENINGS)), data.draw(st.sampled_from(PREFIXES))
    shown = escape_tags(f"{opening}{prefix}{spelled}>")
    assert shown.startswith("&lt;")
    assert escape_tags(shown) == shown
    assert sanitize_line(f"{opening}{prefix}{spelled}>") != f"{opening}{prefix}{spelled}>"


@given(st.sampled_from(sorted(PROMPT_TAGS)), st.integers(0, 20))
def test_an_opening_that_nobody_sees_hides_none_that_is_seen(tag: str, place: int) -> None:
    hidden = f"{tag[:place]}{chr(INVISIBLE + ord('<'))}{tag[place:]}"
    assert escape_tags(f"</{hidden}>").startswith("&lt;")
    invisible = "".join(chr(INVISIBLE + ord(sign)) for sign in f"x:{tag}")
    assert escape_tags(f"<{invisible}>").startswith("&lt;")
    assert escape_tags(f"<x{chr(INVISIBLE + ord('<'))}{tag}>").startswith("&lt;x&lt;")


@pytest.mark.parametrize(
    "text",
    [
        "ᎣᏏᏲ < ᎤᎵᎮᎵᏍᏗ > ᏣᎳᎩ ‹ᎦᏬᏂᎯᏍᏗ›",
        "Если а < б, то ‹Задача› решена; <смотри ниже>, и так далее.",
        "Αν α < β τότε ‹σχέδιο› και <δες παρακάτω>.",
        "⟨x, y⟩ ≤ ‖x‖ ≪ 1, a ≮ b, 〈例〉と《本》、くだもの",
        "Map<String, List<Integer>> m; std::vector<std::pair<int, T>> v; Vec<crate::domain::Tasks<'a>>",
        "if a < b: task = 1\nwhile x<y: plan()\nfor (i = 0; i < n; i++) found |= 1 << shift;",
        "<https://example.org/task> <a href='/plan'> <mailto:a@b.example> <p>1</p> <li>",
    ],
)
def test_prose_and_code_stay_what_they_are(text: str) -> None:
    assert escape_tags(text) == text
