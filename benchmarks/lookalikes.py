"""`make lookalikes`: writes `waystation/security/confusables.toml`, the characters that are confused with those of a
tag, and invisible ones.

Sources: confusables.txt of Unicode (TR39, in the release that the package `homoglyphs_fork` ships); names and
decompositions of the interpreter's `unicodedata`, which is that of Python 3.11, the oldest supported version; and for
invisible characters the property Default_Ignorable_Code_Point, as in the package `regex`.
"""

import json
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata, resources
from itertools import groupby, product
from pathlib import Path
from textwrap import fill

import regex

TARGET = Path(__file__).parents[1] / "waystation/security/confusables.toml"
OLDEST = unicodedata.ucd_3_2_0
"""What decomposes here does so on every Python, and needs no row."""
TAGS = 0xE0000
"""Signs that nobody sees, one for each of ASCII from here on."""
DIRECTION = "\u200e\u200f"
"""Marks that the table has around letters which are written from the right."""
SAME = {"m": "rn"}
"""Letters that are read as several, here and in the names of tags."""
_ONE_LETTER = re.compile(
    r"(?!.*SIDEWAYS).*\b(?:LATIN|REGIONAL INDICATOR SYMBOL)\b[A-Z ]*\b(?:LETTER|CAPITAL)\b[A-Z ]*? ([A-Z])(?: WITH .*)?"
)
"""Signs that are called like one letter: small capitals, letters in squares, above others, with hooks, turned round."""
_ANGLE = re.compile(r"(?!.*DOUBLE).*\b(LEFT|RIGHT)\b.*\bANGLE (?:BRACKET|QUOTATION MARK)\b.*")
ABOUT = """# Written by `make lookalikes` from {}; not by hand.
# Code points in hexadecimal, and ranges of them. Readings: what a sign is taken for, and the signs that are.
"""


@cache
def confusables() -> Mapping[str, frozenset[str]]:
    """Each sign or string of the table, with all that looks like it."""
    table = json.loads((resources.files("homoglyphs_fork") / "confusables.json").read_text(encoding="utf-8"))
    groups: dict[str, set[str]] = {}
    for one, others in table.items():
        for pair in ((one.strip(DIRECTION), other.strip(DIRECTION)) for other in others):
            merged = {*pair}.union(*(groups.get(same, ()) for same in pair))
            groups |= dict.fromkeys(merged, merged)
    return {one: frozenset(same) for one, same in groups.items()}


def readings(sign: str) -> frozenset[str]:
    """Letters of ours that a sign may be taken for: by its look, else by what it decomposes to, else by its name, else
    by what looks like it, else by the look of its other case. Empty where it is not taken for any.
    """
    if TAGS <= ord(sign) < TAGS + 0x80:
        return readings(chr(ord(sign) - TAGS))
    same = confusables().get(sign, frozenset({sign}))
    parts = unicodedata.normalize("NFKD", sign)
    by_parts = {to_ascii_letters(sign)} if sign.isascii() else read_letters(parts) if parts != sign else set[str]()
    by_look = {to_ascii_letters(one) for one in same if one.isascii() and not (sign.isascii() and one == sign)}
    if (found := frozenset({*by_look, *by_parts} - {""})) or sign.isascii() or parts != sign:
        return found
    if (named := letter_from_name(sign)) or not sign.isalpha():
        return named
    strings = union(read_letters(one) for one in same if len(one) > 1)
    names = union(letter_from_name(one) for one in same if len(one) == 1)
    other_case = (to_ascii_letters(one) for one in confusables().get(sign.swapcase(), ()) if one.isascii())
    return strings or names or frozenset(other_case) - {""}


def union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """All that is in any of them."""
    return frozenset[str]().union(*sets)


def read_letters(signs: str) -> frozenset[str]:
    """Letters of all that are letters: marks above and below are left out."""
    each = (readings(one) or {""} for one in signs if not unicodedata.category(one).startswith("M"))
    return frozenset(map("".join, product(*each))) - {""}


def letter_from_name(sign: str) -> frozenset[str]:
    """The letter that it is called after."""
    named = _ONE_LETTER.fullmatch(unicodedata.name(sign, ""))
    return frozenset({to_ascii_letters(named[1])} if named else ())


def to_ascii_letters(text: str) -> str:
    """Its ASCII letters."""
    lower = (one.lower() for one in text if one.isascii() and one.isalpha())
    return "".join(SAME.get(one, one) for one in lower)


def find_tag_end_signs(end: str) -> list[str]:
    """What is taken for this end of a tag: by its look, by what it decomposes to, or as an angle that is not double."""
    side = {"<": "LEFT", ">": "RIGHT"}.get(end, "")
    found: list[str] = []
    for sign in iter_all_characters():
        same = confusables().get(sign, frozenset({sign})) | {unicodedata.normalize("NFKD", sign)}
        named = _ANGLE.fullmatch(unicodedata.name(sign, ""))
        if any(one.startswith(end) for one in same) or (named and named[1] == side):
            found.append(sign)
    return [*found, chr(TAGS + ord(end))]


def iter_all_characters() -> Iterable[str]:
    """All signs but halves of them."""
    return (chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000)


def main() -> None:
    """One line of the file is one of the tables."""
    rows: dict[str, list[str]] = {}
    for sign in iter_all_characters():
        letters = sorted(readings(sign))
        if letters and letters != [to_ascii_letters(OLDEST.normalize("NFKD", sign))]:
            rows.setdefault(" ".join(letters), []).append(sign)
    signs: dict[str, Iterable[str]] = {
        "opening": find_tag_end_signs("<"),
        "closing": find_tag_end_signs(">"),
        "separators": sorted(one for mark in ":/" for one in find_tag_end_signs(mark) if not one.isalpha()),
        "unseen": (one for one in iter_all_characters() if regex.match(r"\p{Default_Ignorable_Code_Point}", one)),
    }
    packages = " and ".join(f"{name} {metadata.version(name)}" for name in ("homoglyphs_fork", "regex"))
    lines = [
        ABOUT.format(f"{packages}, and Unicode {unicodedata.unidata_version}"),
        *(table(name, of_kind) for name, of_kind in signs.items()),
        "[readings]",
        *(table(f'"{letters}"', read_so) for letters, read_so in sorted(rows.items())),
    ]
    TARGET.write_text("\n".join(lines) + "\n", encoding="utf-8")


def table(name: str, signs: Iterable[str]) -> str:
    """As TOML, in lines that fit on a screen."""
    written = fill(numbers(signs), 110)
    return f'{name} = """\n{written}"""' if "\n" in written else f'{name} = "{written}"'


def numbers(signs: Iterable[str]) -> str:
    """In hexadecimal; neighbours as a range."""
    runs = groupby(enumerate(map(ord, signs)), lambda at: at[1] - at[0])
    firsts_lasts = [(codes[0], codes[-1]) for codes in ([code for _, code in run] for _, run in runs)]
    return " ".join(f"{first:x}" if first == last else f"{first:x}-{last:x}" for first, last in firsts_lasts)


if __name__ == "__main__":
    main()
