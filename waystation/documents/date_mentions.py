"""Finds dates, times and quarters in texts of several languages."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from waystation.kernel.patterns import compile_bounded

_MONTH_NAMES = (
    "january jan januar janvier enero gennaio janeiro januari",
    "february feb februar février febrero febbraio fevereiro februari",
    "march mar märz mars marzo março maart",
    "april apr avril abril aprile",
    "may mai mayo maggio maio mei",
    "june jun juni juin junio giugno junho",
    "july jul juli juillet julio luglio julho",
    "august aug août agosto augustus",
    "september sep sept septembre septiembre settembre setembro",
    "october oct oktober okt octobre octubre ottobre outubro",
    "november nov novembre noviembre novembro",
    "december dec dezember dez décembre diciembre dicembre dezembro",
)
MONTHS: Mapping[str, int] = {word: number for number, words in enumerate(_MONTH_NAMES, 1) for word in words.split()}
"""Numbers of the months by their names, in small letters, in English, German, French, Spanish, Italian, Portuguese and
Dutch.
"""
_MONTH = "|".join(sorted(MONTHS, key=len, reverse=True))
_DATE_WORDS = compile_bounded(
    rf"(?<![^\W_])(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th|er|º|\.)?[ ]?(?:of |de |di )?)?(?P<month>{_MONTH})\b\.?"
    rf"(?:[ ](?P<after>\d{{1,2}})(?:st|nd|rd|th)?(?![\d.%:]\d|\d|[ ]?%))?"
    r"(?:,?[ ](?:of |de |del )?(?P<year>\d{4})(?!\d)|[ ]?['’](?P<short>\d{2})(?!\d))?",
    re.IGNORECASE,
)
_DATE_NUMBERS = compile_bounded(
    r"(?<![\w.,])(?:(\d{4})([-/.])(\d{1,2})\2(\d{1,2})|(\d{1,2})([-/.])(\d{1,2})\6(\d{4}|\d{2})|"
    r"(\d{4})年(\d{1,2})月(?:(\d{1,2})日)?)(?![\w]|[.,]\d)"
)
_TIME = compile_bounded(r"(?<![\w:.])(\d{1,2})[:.h](\d{2})(?![\d:]|\.\d)(?:[ ]?([ap])\.?m\b\.?)?", re.IGNORECASE)
_YEAR_IN_WORD = compile_bounded(r"(?<!\d)(1[5-9]\d\d|20\d\d)(?!\d)")
_SHORT_YEAR = compile_bounded(
    r"(?<![^\W_])(?:FY|CY)[ ]?['’]?(?P<fiscal>\d{4}|\d{2})(?!\d)|(?<![\w'’])['’](?P<late>\d{2})(?![\w'’])|"
    r"(?<![\d.,])(?P<first>1[5-9]\d\d|20\d\d)[-–/](?P<second>\d{2})(?!\w|[-–/.,:]\d)"
)
_QUARTER = compile_bounded(
    r"(?:(?<![^\W_])|(?<=\d))(Q[1-4]|H[12])(?![^\W_])|(?<![^\W_])([1-4]Q)['’]?(?=\d{0,4}(?![^\W_]))"
)
_QUARTER_WORDS = compile_bounded(
    r"\b(first|1st|second|2nd|third|3rd|fourth|4th)[ -](?:fiscal )?(quarter|half)\b", re.IGNORECASE
)
_QUARTER_NUMBERS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4}
_ANY_QUARTER = compile_bounded(r"\b(?:three months|quarter ended|13 weeks|thirteen weeks)\b", re.IGNORECASE)
_ANY_HALF = compile_bounded(r"\b(?:six months|half[- ]year|26 weeks)\b", re.IGNORECASE)
_FIRST_FUTURE_YEAR = 2050
"""Year from which two digits in a date stand for one of the past century."""


class DateMention(NamedTuple):
    """A date in a text, as far as it is written."""

    text: str
    start: int
    end: int
    year: int | None
    month: int | None
    day: int | None
    is_ambiguous: bool = False
    """Whether day and month may be the other way round."""
    other_year: int | None = None
    """The year that it has if its last two digits are one, as in `15 Jul 19`."""


class YearMention(NamedTuple):
    """A year that is not written with its four digits alone: `FY22`, `'63` or the second of `2018-19`."""

    text: str
    start: int
    end: int
    years: tuple[int, ...]
    """What it may be."""


class QuarterMention(NamedTuple):
    """A quarter or half of a year, as `Q3`."""

    text: str
    start: int
    name: str
    """`Q1` to `Q4`, `H1` or `H2`."""


def iter_dates(text: str) -> Iterator[DateMention]:
    """Yield the dates: those with the name of a month first, then those of numbers."""
    for match in _DATE_WORDS.finditer(text):
        if (date := _read_date(match, text)) is not None:
            yield date
    for match in _DATE_NUMBERS.finditer(text):
        if (date := _read_numeric_date(match)) is not None:
            yield date


def _read_date(match: re.Match[str], text: str) -> DateMention | None:
    day, year = match["day"] or match["after"], match["year"]
    if not day and not year and not match["short"]:
        name = match["month"]
        if not name[0].isupper() or not _is_month_alone(name, text[: match.start()]):
            return None
    if day and not 1 <= int(day) <= 31:
        return None
    short = match["after"] if match["day"] and not year else match["short"]
    other_year = next((one for one in _read_short_year(short) if one < _FIRST_FUTURE_YEAR), None) if short else None
    return DateMention(
        match[0].strip(" .,"),
        match.start(),
        match.end(),
        int(year) if year else other_year if match["short"] else None,
        MONTHS[match["month"].casefold()],
        int(day) if day else None,
        other_year=other_year,
    )


_MONTH_BEFORE = compile_bounded(
    r"\b(?:in|of|since|until|by|early|late|mid|from|to|last|next|im|Ende|Anfang|Mitte|en|through|during|and|for)[ -]\Z",
    re.IGNORECASE,
)


def _is_month_alone(name: str, before: str) -> bool:
    """Return whether a name of a month without a day and a year is one: `May` and `March` begin sentences too."""
    return len(name) > 3 - (name == "May") and _MONTH_BEFORE.search(before[-12:]) is not None


def _read_numeric_date(match: re.Match[str]) -> DateMention | None:
    if match[9]:
        year, month, day = int(match[9]), int(match[10]), int(match[11]) if match[11] else None
        return DateMention(match[0], match.start(), match.end(), year, month, day) if 1 <= month <= 12 else None
    if match[1]:
        year, month, day = int(match[1]), int(match[3]), int(match[4])
        ambiguous = False
    else:
        day, month, year = int(match[5]), int(match[7]), int(match[8])
        year += 2000 if len(match[8]) == 2 else 0
        # Two digits of a year between dots may be a version.
        if len(match[8]) == 2 and match[6] == ".":
            return None
        if month > 12 >= day:
            day, month = month, day
            ambiguous = False
        else:
            ambiguous = day <= 12
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    return DateMention(match[0], match.start(), match.end(), year, month, day, ambiguous)


def iter_times(text: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the times of day, in minutes, each with its place."""
    if ":" in text or "m" in text:
        for match in _TIME.finditer(text):
            if (minutes := _read_time(match)) is not None:
                yield minutes, match.span()


def _read_time(match: re.Match[str]) -> int | None:
    hour, minute, half = int(match[1]), int(match[2]), (match[3] or "").lower()
    if minute > 59 or hour > 23 or (":" not in match[0] and not half):
        return None
    return (hour % 12 + (12 if half == "p" else 0)) * 60 + minute if half else hour * 60 + minute


def iter_short_years(text: str) -> Iterator[YearMention]:
    """Yield the years that are not written with four digits alone."""
    for match in _SHORT_YEAR.finditer(text):
        if match["first"]:
            first, second = int(match["first"]), int(match["second"])
            # `2011-05` is a month, `2011-12` may be one.
            if second > first % 100 or second == (first + 1) % 100:
                year = first - first % 100 + second + (100 if second < first % 100 else 0)
                yield YearMention(match["second"], match.start("second"), match.end(), (year,))
        else:
            written = match["fiscal"] or match["late"]
            yield YearMention(match[0], match.start(), match.end(), _read_short_year(written))


def _read_short_year(written: str) -> tuple[int, ...]:
    year = int(written)
    return (year,) if len(written) == len("2026") else (2000 + year, 1900 + year)


def find_years_in_words(text: str) -> frozenset[int]:
    """Return the years in a text, also those within words such as `FY2020`."""
    return frozenset(int(match[0]) for match in _YEAR_IN_WORD.finditer(text))


def iter_quarters(text: str) -> Iterator[QuarterMention]:
    """Yield the quarters and halves of years that are written as `Q3`, `3Q` or `H1`."""
    for match in _QUARTER.finditer(text):
        yield QuarterMention(match[0], match.start(), match[1] or match[2][::-1])


def has_quarter(text: str, name: str) -> bool:
    """Return whether a text says something of the quarter or half `name`.

    Which quarter `the three months ended June 30` are depends on the fiscal year: they may be any.
    """
    if (_ANY_HALF if name.startswith("H") else _ANY_QUARTER).search(text):
        return True
    return any(one.name == name for one in iter_quarters(text)) or any(
        f"{match[2][0].upper()}{_QUARTER_NUMBERS[match[1].casefold()]}" == name
        for match in _QUARTER_WORDS.finditer(text)
    )


def matches_date(date: DateMention, other: DateMention) -> bool:
    """Return whether another date may be the date, which may say less."""
    orders = [(date.month, date.day)]
    if date.is_ambiguous or other.is_ambiguous:
        orders.append((date.day, date.month))
    if other.year is not None and date.year is not None and other.year != date.year:
        return False
    return any((month is None or other.month == month) and (day is None or other.day == day) for month, day in orders)
