"""Secrets, phones and cards in a column of a table, under a heading that names them. For the whole text: a table may be
long.

Tables are lines of cells with a mark between them, as CSV, Markdown and databases print them, also with rules between
the lines, cells in quotes that hold marks and ends of lines, or blanks in the place of marks.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from waystation.adapters.presidio.assignments import (
    ACCESS,
    CARD,
    KEY,
    PASSWORD,
    PHONE,
    UNLIKE_A_WORD,
    is_stand_in,
    lower,
)
from waystation.adapters.presidio.formats import Hit
from waystation.patterns import literals, proven

_NAME = rf"[\w .-]{{0,40}}?(?:(?P<password>{PASSWORD})|(?P<key>{ACCESS}|{KEY}))"
_HEADING = proven(
    rf"\A(?:{_NAME}|(?P<short>pass|pw|pass[ _-]word)|(?P<code>pin|cv[vc]2?)"
    rf"|[\w .-]{{0,20}}?(?:(?P<phone>{PHONE})|(?P<card>{CARD}))(?:[ -](?:numbers?|no\.?))?)\Z"
)
_ANY_NAME = proven(
    rf"{PASSWORD}|\b(?:pass|pw|pin|cv[vc]2?|pass[ _-]word)\b|{ACCESS}|{KEY}"
    r"|phone|fax|mobil|telef|\btel\b|handy|card|kart"
)
_AROUND_A_HEADING = "\"'*_` \t\r\n"
_SEPARATORS = "|│┃\t;,"
_BLANKS = "  "
"""The separator of tables whose cells are parted by two blanks or more."""
_GAP = proven(r" {2,}+|\t++")
_QUOTABLE = "\t;,"
"""Between these, cells in quotes may hold them, and ends of lines."""
_END_OF_DUMP = "\\."
_LONGEST_ROW = 4_000
"""Characters: as far is the end of a cell in quotes looked for."""
_FIELD_NAME = proven(
    r"\A(?:\s*(?:[A-Za-z_][\w.-]*|\"[\w .-]+\"|'[\w .-]+')\s*"
    r"|[A-Za-z_][\w.-]* [\w.-]+\s*|[A-Z][\w.-]*(?: [\w.-]++){2,3}\s*)\Z"
)
"""Two words, and more with a capital, count where no blank is before them, as there is behind a comma of a sentence."""
_RULE = proven(r"\A[ \t|│┃:+]*+[-=─━═┼╪├╞][\s|│┃:+=─━═┼╪├┤╞╡-]*+\Z")
_CODE = proven(r"\A\d{3,8}\Z")
_LEAST_KEY = proven(
    rf"\A(?:(?=[^\s]*\d)(?=[^\s]*[a-z])\S{{6,}}|{UNLIKE_A_WORD}|(?-i:(?=\S*[a-z][A-Z])[\w+/=-]{{24,}}))\Z",
    re.IGNORECASE,
)
_PHONE = proven(r"\A(?=(?:\D*\d){7,15}\D*\Z)(?![1-9]\d{0,8}\Z|\d+\.\d+\Z|\d{4}-\d\d-\d\d\Z)[+(]?\d[\d ()./-]*\d\Z")
"""A few digits without a sign may be a count, of calls from mobiles, say."""
_CARD = proven(r"\A\d(?:[ -]?\d){12,18}\Z")
_ANYTHING = proven(r"\A(?=..)\S++(?: \S++){0,5}\Z")
_TELLING = proven(r"\A(?=\S*[\d!#$%^&*?~+@])\S{4,}\Z")


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


_MARKS = MappingProxyType({mark: literals([mark, '"']) for mark in _SEPARATORS})


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
        separator = next((mark for mark in (*_SEPARATORS, _BLANKS) if mark in line.strip()), "")
        cells = [line[slice(*cell)] for cell in _parted(line, separator)] if separator else []
        columns = _columns(cells, separator) if cells else []
        if columns and not _goes_on(text, start, separator):
            read = yield from _cells_below(text, end + 1, _Form(separator, len(cells)), columns)
    yield from _copied(text, lowered)
    yield from _in_pairs(text, lowered)


class _Form(NamedTuple):
    separator: str
    parts: int
    """Cells of a row."""


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end


def _columns(names: Sequence[str], separator: str) -> list[_Column]:
    if separator in {",", ";", _BLANKS} and not all(_FIELD_NAME.match(name) for name in names):
        return []
    found = ((number, _meaning(name)) for number, name in enumerate(names))
    columns = [_Column(number, *_FITS[name.lastgroup or ""]) for number, name in found if name]
    if separator != _BLANKS:
        return columns
    # Help of programs is laid out so, too: its words are none.
    return [one._replace(fits=_TELLING) if one.fits is _ANYTHING else one for one in columns]


def _meaning(name: str) -> re.Match[str] | None:
    return _HEADING.match(lower(name).strip(_AROUND_A_HEADING).replace("_", " "))


def _goes_on(text: str, start: int, separator: str) -> bool:
    """Whether the line is a row of a table that began before it."""
    before = text[text.rfind("\n", 0, max(0, start - 1)) + 1 : max(0, start - 1)]
    if separator == _BLANKS:
        return False
    return start > 0 and before.count(separator) == text[start : _end_of_line(text, start)].count(separator)


def _parted(row: str, separator: str) -> list[tuple[int, int]]:
    """Where its cells begin and end."""
    if separator == _BLANKS:
        begin = len(row) - len(row.lstrip())
        gaps = [(0, begin), *[gap.span() for gap in _GAP.finditer(row.rstrip(), begin)], (len(row.rstrip()), len(row))]
        return [(before[1], gap[0]) for before, gap in pairwise(gaps)]
    cells: list[tuple[int, int]] = []
    begin, quoted = 0, False
    for mark in _MARKS[separator].finditer(row):
        if mark[0] == '"':
            quoted = not quoted and (separator in _QUOTABLE)
        elif not quoted:
            cells.append((begin, mark.start()))
            begin = mark.end()
    return [*cells, (begin, len(row))]


def _row_end(text: str, position: int, separator: str) -> int:
    """Of the row that begins there: behind the end of a cell in quotes, if that is near."""
    end = _end_of_line(text, position)
    if separator not in _QUOTABLE or text.count('"', position, end) % 2 == 0:
        return end
    last = min(len(text), position + _LONGEST_ROW)
    quotes, longer = 1, end
    while quotes % 2 and longer < last:
        begin, longer = longer + 1, _end_of_line(text, longer + 1)
        quotes += text.count('"', begin, longer)
    return longer if quotes % 2 == 0 and longer <= last else end


def _cells_below(text: str, position: int, form: _Form, columns: Sequence[_Column]) -> Generator[Hit, None, int]:
    """Ends with the place behind the table."""
    while position < len(text):
        end = _row_end(text, position, form.separator)
        row = text[position:end]
        if row == _END_OF_DUMP:
            break
        if not _RULE.match(row):
            cells = _parted(row, form.separator)
            if len(cells) != form.parts:
                break
            yield from _cells(row, cells, columns, position)
        position = end + 1
    return position


def _cells(row: str, cells: Sequence[tuple[int, int]], columns: Sequence[_Column], position: int) -> Iterator[Hit]:
    for number, type_, fits in columns:
        value = row[slice(*cells[number])].strip().strip("\"'`")
        if fits.match(value) and not is_stand_in(value):
            start = position + row.index(value, cells[number][0])
            yield Hit(type_, start, start + len(value), 0.9)


_COPY = proven(
    r"\bcopy\s++[^\s(]{1,200}+\s*+\((?P<columns>[^()]{1,2000}+)\)\s*+from\s++stdin[^\n]{0,200}+\n", re.IGNORECASE
)


def _copied(text: str, lowered: str) -> Iterator[Hit]:
    """Rows of PostgreSQL's dumps, whose columns the statement before them names."""
    copy = _COPY.search(text) if "stdin" in lowered else None
    while copy:
        names = copy["columns"].split(",")
        columns = _columns(names, "\t")
        position = yield from _cells_below(text, copy.end(), _Form("\t", len(names)), columns)
        # What was read as rows is read once: another statement among them begins no table.
        copy = _COPY.search(text, position)


_NAMES_AND_VALUES = proven(
    r"^[ \t|│\"']{0,40}+(?:key|name|variable|setting|parameter|property|field)[\"']?"
    r"(?:[ \t]{0,80}+(?P<mark>[|│,;])[ \t]{0,80}+|[ \t]{1,80}+)[\"']?value[\"']?[ \t|│\r]{0,80}+$",
    re.MULTILINE,
)
_NAME_AND_VALUE = proven(r"\A[ \t]*+(?P<name>\S++)[ \t]++(?P<value>\S++)[ \t\r]*+\Z")


def _in_pairs(text: str, lowered: str) -> Iterator[Hit]:
    """Values beside names of secrets, under a heading that says *name* and *value*."""
    read = 0
    for heading in _NAMES_AND_VALUES.finditer(lowered):
        if heading.start() < read:
            continue
        position = heading.end() + 1
        while position < len(text) and (row := text[position : (end := _end_of_line(text, position))]).strip():
            if not _RULE.match(row):
                yield from _pair(row, heading["mark"], position)
            position = end + 1
        read = position


def _pair(row: str, mark: str | None, position: int) -> Iterator[Hit]:
    if mark is None:
        found = _NAME_AND_VALUE.match(row)
        cells = [found.span("name"), found.span("value")] if found else []
    else:
        cells = [cell for cell in _parted(row, mark) if row[slice(*cell)].strip()]
    name = _meaning(row[slice(*cells[0])]) if len(cells) > 1 else None
    if name is not None:
        column = _Column(1, *_FITS[name.lastgroup or ""])
        yield from _cells(row, cells, [column], position)
