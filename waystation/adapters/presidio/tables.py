"""Secrets, phones and cards in a column of a table, under a heading that names them. For the whole text: a table may be
long.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from waystation.adapters.presidio.formats import Hit
from waystation.adapters.presidio.labels import ACCESS, CARD, KEY, PASSWORD, PHONE, lower
from waystation.adapters.presidio.stand_ins import UNLIKE_A_WORD, is_stand_in
from waystation.patterns import proven

_NAME = rf"[\w .-]{{0,40}}?(?:(?P<password>{PASSWORD})|(?P<key>{ACCESS}|{KEY}))"
_HEADING = proven(
    rf"\A(?:{_NAME}|(?P<short>pass|pw|pass[ _-]word)|(?P<code>pin|cv[vc]2?)"
    rf"|[\w .-]{{0,20}}?(?:(?P<phone>{PHONE})|(?P<card>{CARD}))(?:[ -](?:numbers?|no\.?))?)\Z"
)
_ANY_NAME = proven(
    rf"{PASSWORD}|\b(?:pass|pw|pin|cv[vc]2?|pass[ _-]word)\b|{ACCESS}|{KEY}"
    r"|phone|fax|mobil|telef|\btel\b|handy|card|kart"
)
_AROUND_A_NAME = "\"'*_` \t\r\n"
_SEPARATORS = "|\t;,"
_FIELD_NAME = proven(
    r"\A(?:\s*(?:[A-Za-z_][\w.-]*|\"[\w .-]+\"|'[\w .-]+')\s*"
    r"|[A-Za-z_][\w.-]* [\w.-]+\s*|[A-Z][\w.-]*(?: [\w.-]++){2,3}\s*)\Z"
)
"""Two words, and more with a capital, count where no blank is before them, as there is behind a comma of a sentence."""
_RULE = proven(r"\A[\s|:+=-]+\Z")
_CODE = proven(r"\A\d{3,8}\Z")
_LEAST_KEY = proven(
    rf"\A(?:(?=[^\s]*\d)(?=[^\s]*[a-z])\S{{6,}}|{UNLIKE_A_WORD}|(?-i:(?=\S*[a-z][A-Z])[\w+/=-]{{24,}}))\Z",
    re.IGNORECASE,
)
_PHONE = proven(r"\A(?=(?:\D*\d){7,15}\D*\Z)(?![1-9]\d{0,8}\Z|\d+\.\d+\Z|\d{4}-\d\d-\d\d\Z)[+(]?\d[\d ()./-]*\d\Z")
"""A few digits without a sign may be a count, of calls from mobiles, say."""
_CARD = proven(r"\A\d(?:[ -]?\d){12,18}\Z")
_ANYTHING = proven(r"\A(?=..)\S++(?: \S++){0,5}\Z")


_FITS = MappingProxyType(
    {
        "password": ("SECRET", _ANYTHING),
        "short": ("SECRET", _ANYTHING),
        "key": ("SECRET", _LEAST_KEY),
        "code": ("SECRET", _CODE),
        "phone": ("PHONE", _PHONE),
        "card": ("CARD", _CARD),
    }
)
"""By the group of the heading: what the column holds, and the form of it."""


class _Column(NamedTuple):
    number: int
    type: str
    fits: re.Pattern[str]


def in_columns(text: str) -> Iterator[Hit]:
    """The cells under such a heading, down to the first line of another form."""
    lowered = lower(text)
    read = 0
    for name in _ANY_NAME.finditer(lowered):
        if name.start() < read:
            continue
        start, end = text.rfind("\n", 0, name.start()) + 1, _end_of_line(text, name.end())
        read = end
        line = text[start:end]
        separator = next((mark for mark in _SEPARATORS if mark in line), "")
        columns = _columns(line, separator) if separator else []
        if columns and not _goes_on(text, start, separator):
            read = yield from _cells_below(text, (start, end), separator, columns)


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _columns(heading: str, separator: str) -> list[_Column]:
    names = heading.split(separator)
    if separator in ",;" and not all(_FIELD_NAME.match(name) for name in names):
        return []
    found = (
        (number, _HEADING.match(lower(name).strip(_AROUND_A_NAME).replace("_", " ")))
        for number, name in enumerate(names)
    )
    return [_Column(number, *_FITS[name.lastgroup or ""]) for number, name in found if name]


def _goes_on(text: str, start: int, separator: str) -> bool:
    """Whether the line is a row of a table that began before it."""
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    return start > 0 and before.count(separator) == text[start : _end_of_line(text, start)].count(separator)


def _cells_below(
    text: str, heading: tuple[int, int], separator: str, columns: Sequence[_Column]
) -> Generator[Hit, None, int]:
    """Ends with the place behind the table."""
    parts = text[slice(*heading)].count(separator)
    position = heading[1] + 1
    while position < len(text):
        end = _end_of_line(text, position)
        line = text[position:end]
        if line.count(separator) != parts:
            break
        if not _RULE.match(line):
            yield from _cells(line.split(separator), columns, position)
        position = end + 1
    return position


def _cells(cells: Sequence[str], columns: Sequence[_Column], position: int) -> Iterator[Hit]:
    starts = list(accumulate((len(cell) + 1 for cell in cells), initial=position))
    for number, type_, fits in columns:
        value = cells[number].strip().strip("\"'`")
        if fits.match(value) and not is_stand_in(value):
            start = starts[number] + cells[number].index(value)
            yield Hit(type_, start, start + len(value), 0.9)
