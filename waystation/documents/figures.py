"""Finds the figures, dates and times in texts of several languages."""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from waystation.documents.date_mentions import DateMention, iter_dates, iter_short_years, iter_times
from waystation.documents.figure_units import CURRENCIES, PERCENT, find_currency_before, read_unit
from waystation.documents.spelled_numbers import SpelledNumber, iter_spelled_numbers
from waystation.kernel.patterns import compile_bounded

MAX_FIGURES = 5_000
"""Maximum figures of one text that are read."""
_MAX_DIGITS = 15
"""Longer numbers are identifiers: they are compared as they are written."""
_FIRST_YEAR, _LAST_YEAR = 1000, 2199
_MIN_SPELLED = 13
"""Spelled numbers below this one count things in the writer's own words, as in `two reasons`, unless a unit follows."""

_NUMBER = compile_bounded(
    r"(?<![^\W_])(?<!\d[.,])(?:\d{1,3}(?:[ '’]\d{3}(?!\d)){1,5}(?:[.,]\d{1,9})?+|\d{1,40}+(?:[.,]\d{1,20}+){0,6})"
)
_ORDINAL = compile_bounded(r"(?:st|nd|rd|th|er|e|ème|º|ª)(?![^\W_])")
_CENTURY = compile_bounded(r"[ -](?:century|centuries|Jahrhundert|siècle|siglo)", re.IGNORECASE)
_JOIN = compile_bounded(r"[ ]?(?:-|–|—|to|and|or|bis|und|oder|à|et|ou|a|y|,|/)[ ]?[$€£¥₹]?\Z")
_SUPERSCRIPTS = dict.fromkeys(map(ord, "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺"))
_ABOUT = compile_bounded(
    r"(?:\b(?:about|around|roughly|approximately|approx\.|circa|ca\.|some|or so|an estimated|etwa|rund|ungefähr|circa|"
    r"environ|près de|unos|cerca de|aproximadamente|almost|nearly|close to|just under|just over|knapp|presque|casi|"
    r"over|more than|above|at least|exceed(?:s|ed|ing)?|under|less than|fewer than|below|up to|at most|mehr als|über|"
    r"plus de|más de)|[~≈])[ ]?(?:the |a |US\$|[$€£¥₹])?[ ]?\Z",
    re.IGNORECASE,
)
BEFORE_CHARACTERS = 28
"""Characters before a figure in which words such as `about` are looked for."""


FigureKind = Literal["plain", "year", "decade", "century", "ordinal", "accounting"]


class Figure(NamedTuple):
    """A number in a text, with what gives it its meaning."""

    text: str
    start: int
    end: int
    values: tuple[float | str, ...]
    """What it may be, without its sign: `1.234` is one and a bit or more than a thousand. A string is an identifier."""
    unit: str = ""
    negative: bool = False
    step: float = 0
    """Value of one in its last digit that counts, as it is written."""
    scale: int = 1
    """Factor that a word such as `million` gives it."""
    digit: float = 0
    """Value of one in its last digit, which is smaller than `step` if it ends in zeros."""
    kind: FigureKind = "plain"
    before: str = ""
    """The words before it."""
    is_spelled: bool = False

    @property
    def is_word(self) -> bool:
        """Whether it is a word such as `first` or `two`, which counts something in the writer's own words."""
        number = self.values[0]
        is_large = self.kind == "plain" and isinstance(number, float) and number >= _MIN_SPELLED
        return self.is_spelled and (not is_large or self.text[0] in "hq")

    @property
    def is_year(self) -> bool:
        """Whether it looks like a year."""
        return self.kind == "year"

    @property
    def approximation(self) -> str:
        """The words before it that make it less exact, such as `about` or `more than`; empty if there are none."""
        match = _ABOUT.search(self.before)
        return match[0].casefold() if match else ""

    @property
    def numbers(self) -> tuple[float, ...]:
        """What it may be, as far as it is a number."""
        return tuple(value for value in self.values if isinstance(value, float))

    @property
    def signed(self) -> float | None:
        """Its likeliest value with its sign; None if it is an identifier."""
        return next((-one if self.negative else one for one in self.numbers), None)


class TextFigures(NamedTuple):
    """All figures and dates of a text."""

    text: str
    figures: Sequence[Figure]
    dates: Sequence[DateMention]
    times: Mapping[int, tuple[int, int]]
    """Times of day, in minutes, with their places."""
    spans: Sequence[tuple[int, int]]
    """Places of the dates and times, in order."""

    def blank_out(self) -> str:
        """Return the text without its figures, dates and times."""
        parts: list[str] = []
        end = 0
        for start, stop in sorted([*self.spans, *((one.start, one.end) for one in self.figures if not one.is_word)]):
            parts.append(self.text[end : max(end, start)])
            end = max(end, stop)
        return " ".join([*parts, self.text[end:]])


def normalize_text(text: str) -> str:
    """Return the text in the form that figures are read in: without narrow spaces, full-width digits, superscripts."""
    return unicodedata.normalize("NFKC", text.translate(_SUPERSCRIPTS)).replace("−", "-")


def extract_figures(text: str) -> TextFigures:
    """Extract the figures and dates of a text, as `normalize_text` returns it, in order.

    At most `MAX_FIGURES` figures are read.
    """
    dates = [*iter_dates(text)]
    times = dict(iter_times(text))
    taken = sorted([*((date.start, date.end) for date in dates), *times.values()])
    years = {span: year for span, year in _iter_short_years(text) if not _is_taken(span, taken)}
    found: list[Figure] = [*years.values()]
    place, blocked = 0, sorted([*taken, *years])
    for match in _NUMBER.finditer(text):
        while place < len(blocked) and blocked[place][1] <= match.start():
            place += 1
        if place < len(blocked) and blocked[place][0] < match.end():
            continue
        found.append(_read_figure(text, match))
        if len(found) >= MAX_FIGURES:
            break
    found += (
        _read_spelled(text, one) for one in iter_spelled_numbers(text) if not _is_taken((one.start, one.end), taken)
    )
    found.sort(key=lambda figure: figure.start)
    return TextFigures(text, _share_units(text, found), dates, times, taken)


def _is_taken(span: tuple[int, int], taken: Sequence[tuple[int, int]]) -> bool:
    """Return whether a span overlaps one of these, which are in order."""
    last = bisect_left(taken, (span[1], 0))
    return any(end > span[0] for _, end in taken[max(0, last - 2) : last])


def _iter_short_years(text: str) -> Iterable[tuple[tuple[int, int], Figure]]:
    for one in iter_short_years(text):
        values = (*map(float, one.years), *([float(one.text)] if one.text.isdecimal() else []))
        before = text[max(0, one.start - BEFORE_CHARACTERS) : one.start]
        yield (
            (one.start, one.end),
            Figure(one.text, one.start, one.end, values, step=1, digit=1, kind="year", before=before),
        )


def _read_figure(text: str, match: re.Match[str]) -> Figure:
    written, start, end = match[0], match.start(), match.end()
    values, step, digit = _read_number(written)
    unit, length = find_currency_before(text[max(0, start - BEFORE_CHARACTERS) : start])
    start -= length
    before = text[max(0, start - BEFORE_CHARACTERS) : start]
    negative = before.endswith("-") and not before[-2:-1].isalnum() and before[-2:-1] not in {"-", ")", "%"}
    if negative:
        start, before = start - 1, before[:-1]
    kind: FigureKind = "plain"
    scale = 1
    if ordinal := _ORDINAL.match(text, end):
        kind, end = "century" if _CENTURY.match(text, ordinal.end()) else "ordinal", ordinal.end()
    elif ending := _find_decade_ending(text, written, end):
        kind, end = "decade", ending
    else:
        unit, scale, end = read_unit(text, end, unit)
        if not unit and scale == 1 and _is_year(written):
            kind = "year"
        elif before.endswith("(") and text[end : end + 1] == ")":
            kind = "accounting"
    return Figure(
        text=text[start:end].strip(),
        start=start,
        end=end,
        values=tuple(value * scale if isinstance(value, float) else value for value in values),
        unit=unit,
        negative=negative,
        step=step * scale,
        scale=scale,
        digit=digit * scale,
        kind=kind,
        before=before,
    )


def _is_year(written: str) -> bool:
    return len(written) == len("2026") and written.isdecimal() and _FIRST_YEAR <= int(written) <= _LAST_YEAR


def _find_decade_ending(text: str, written: str, end: int) -> int:
    """Return where `1990s` or `1990's` ends; 0 if the number is no decade. `2019's` is a year."""
    if len(written) == len("1990") and written.endswith("0"):
        for ending in ("s", "'s", "’s"):
            if text.startswith(ending, end) and not text[end + len(ending) : end + len(ending) + 1].isalnum():
                return end + len(ending)
    return 0


def _read_number(written: str) -> tuple[tuple[float | str, ...], float, float]:
    """Return what a number may be, and the values of one in its last digit that counts and in its last digit."""
    plain = written.replace(" ", "").replace("'", "").replace("’", "")
    digits = plain.replace(".", "").replace(",", "")
    if len(digits) > _MAX_DIGITS or (digits.startswith("0") and len(digits) > 1 and digits == plain):
        return (plain,), 1, 1
    grouped = plain != written
    marks = [sign for sign in plain if sign in ".,"]
    if not marks:
        return (float(plain),), _find_step(plain), 1
    last = marks[-1]
    *groups, tail = plain.replace(",", ".").split(".")
    decimal_step = 10.0 ** -len(tail)
    if len(set(marks)) == 2 and marks.count(last) == 1:
        return (float(f"{''.join(groups)}.{tail}"),), decimal_step, decimal_step
    by_thousands = len(groups[0]) <= 3 and groups[0] != "0" and all(len(one) in {2, 3} for one in groups[1:])
    if len(marks) > 1:
        is_number = by_thousands and len(tail) == 3
        return ((float(digits), plain), _find_step(digits), 1) if is_number else ((plain,), 1, 1)
    decimal = float(f"{groups[0]}.{tail}")
    if len(tail) == 3 and by_thousands and not grouped:
        thousands = float(digits)
        return (thousands, decimal) if last == "," else (decimal, thousands), _find_step(digits), 1
    return (decimal,), decimal_step, decimal_step


def _find_step(digits: str) -> float:
    return 10.0 ** (len(digits) - len(digits.rstrip("0"))) if digits.strip("0") else 1.0


def _read_spelled(text: str, number: SpelledNumber) -> Figure:
    if number.kind != "number":
        return Figure(
            text=number.text,
            start=number.start,
            end=number.end,
            values=(number.value,),
            unit="" if number.kind == "ordinal" else PERCENT,
            kind="ordinal" if number.kind == "ordinal" else "plain",
            is_spelled=True,
        )
    unit, scale, end = read_unit(text, number.end, "")
    return Figure(
        text=text[number.start : end],
        start=number.start,
        end=end,
        values=(number.value * scale,),
        unit=unit,
        step=_find_step(str(int(number.value * scale))),
        scale=scale,
        digit=scale,
        before=text[max(0, number.start - BEFORE_CHARACTERS) : number.start],
        is_spelled=True,
    )


def _share_units(text: str, found: Sequence[Figure]) -> list[Figure]:
    """Give the figures of a range or list the unit of its end: `10 to 12 %`, `$5 or 10 million`."""
    shared = [*found]
    for place in range(len(shared) - 2, -1, -1):
        one, following = shared[place], shared[place + 1]
        between = text[one.end : following.start]
        if len(between) > len(" oder $") or not _JOIN.match(between) or one.kind != "plain" or one.is_year:
            continue
        if not one.unit and following.unit:
            one = one._replace(unit=following.unit)
        if one.scale == 1 and following.scale > 1:
            bigger = tuple(value * following.scale for value in one.values if isinstance(value, float))
            one = one._replace(values=(*one.values, *bigger), scale=following.scale)
        shared[place] = one
    for place, one in enumerate(shared[1:], 1):
        before = shared[place - 1]
        between = text[before.end : one.start]
        if not one.unit and before.unit in CURRENCIES and len(between) < len(" oder $") and _JOIN.match(between):
            shared[place] = one._replace(unit=before.unit)
    return shared
