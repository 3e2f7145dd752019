"""Normalises the words, figures and dates of a text, so that two spellings of the same thing compare as equal."""

import unicodedata
from collections.abc import Iterable, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation

from waystation.kernel.patterns import compile_bounded

_WORD = compile_bounded(r"\d[\d.,/-]*+|[^\W\d_]++|[%$€£]")
_NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six"),
    *("seven", "eight", "nine", "ten", "eleven", "twelve"),
)
_SAME = {word: str(number) for number, word in enumerate(_NUMBER_WORDS)} | {"percent": "%", "€": "euros", "£": "pounds"}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}
_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_MONTH = {name: number for number, month in enumerate(_MONTHS, 1) for name in (month, month[:3])} | {"sept": 9}
_MAX_DIGITS = 18
"""Maximum digits of a number whose value matters; longer ones are identifiers, and are kept as written."""


def normalize_words(text: str) -> tuple[str, ...]:
    """Normalise the words and figures of a text.

    `1,234` becomes `1234`, `1.5 million` `1500000`, `three` `3`, `12 percent` `12 %`, `$5` `5 $`, and `22 November
    2026` or `Nov 22nd, 2026` `2026-11-22`. Versions are kept (`3.10` is not `3.1`), and marks between words are
    dropped.
    """
    found = _WORD.findall(unicodedata.normalize("NFKC", text).casefold())
    return tuple(_joined([_SAME.get(part, part) for word in found for part in _figures(word)]))


def split_figures(text: str) -> frozenset[str]:
    """Return the words and figures of a text as they are written, without thousands separators."""
    return frozenset(figure for word in _WORD.findall(text) for figure in _figures(word))


def _figures(word: str) -> Sequence[str]:
    """Split a run of digits and marks if it is several figures."""
    if not word[0].isdecimal():
        return (word,)
    word = word.rstrip(".,/-")
    if (day := _iso(word)) is not None:
        return (day,)
    parts = word.replace("/", "-").split("-")
    return [figure for part in parts if part for figure in _without_thousands(part.strip(".,"))]


def _iso(word: str) -> str | None:
    parts = word.replace("/", "-").split("-")
    return _day(*parts) if [len(part) for part in parts] == [4, 2, 2] else None


def _day(year: str, month: str | int, day: str) -> str | None:
    try:
        return date(int(year), int(month), int(day)).isoformat()
    except ValueError:
        return None


def _without_thousands(part: str) -> Sequence[str]:
    first, *groups = part.split(",")
    whole, dot, fraction = groups[-1].partition(".") if groups else ("", "", "")
    if groups and 1 <= len(first) <= 3 and all(len(group) == 3 for group in [*groups[:-1], whole]):
        return ("".join([first, *groups[:-1], whole, dot, fraction]),)
    return [figure.strip(".") for figure in (first, *groups) if figure.strip(".")]


def _joined(words: Sequence[str]) -> Iterable[str]:
    """Join what takes several words: dates, scales, amounts of money, percentages."""
    at = 0
    while at < len(words):
        took, meant = _date_at(words, at) or _amount_at(words, at) or (1, (words[at],))
        yield from meant
        at += took


_Meant = tuple[int, tuple[str, ...]]
"""Number of words it takes, and their normalised form."""


def _date_at(words: Sequence[str], at: int) -> _Meant | None:
    """Parse `22 november 2026`, `22nd of november 2026` or `november 22 2026`."""
    near = [
        (place, word) for place, word in enumerate(words[at : at + 6]) if word not in {"st", "nd", "rd", "th", "of"}
    ]
    if len(near) < 3 or near[0][0]:
        return None
    (_, first), (_, second), (last, year) = near[:3]
    day, month = (second, first) if first in _MONTH else (first, second)
    if month not in _MONTH or not (day.isdecimal() and year.isdecimal() and len(year) == 4):
        return None
    written = _day(year, _MONTH[month], day) if len(day) <= 2 else None
    return None if written is None else (last + 1, (written,))


def _amount_at(words: Sequence[str], at: int) -> _Meant | None:
    near = words[at : at + 3]
    behind = at > 0 and words[at - 1][0].isdecimal() and words[at - 2 : at - 1] != ["$"]
    if near[0] == "$" and not behind and len(near) > 1 and near[1][0].isdecimal():
        took, meant = _amount_at(words, at + 1) or (1, (near[1],))
        return took + 1, (*meant, "$")
    if near[0] == "per" and near[1:2] == ["cent"]:
        return 2, ("%",)
    if len(near) > 1 and near[1] in _SCALES and (value := _decimal(near[0])) is not None:
        return 2, (f"{(value * _SCALES[near[1]]).normalize():f}",)
    if near[0] in {"dollar", "dollars", "usd"}:
        return 1, ("$",)
    return None


def _decimal(word: str) -> Decimal | None:
    try:
        return Decimal(word) if word[0].isdecimal() and len(word) <= _MAX_DIGITS else None
    except InvalidOperation:
        return None


def contains_phrase(text_words: Sequence[str], phrase: str) -> bool:
    """Return whether the words and figures of the phrase occur in the text, consecutively and in order."""
    wanted = " ".join(normalize_words(phrase))
    return bool(wanted) and f" {wanted} " in f" {' '.join(text_words)} "
