"""Passwords in rows that SQL inserts: the columns are named once, and the values come in their order."""

import re
from collections.abc import Iterator

from waystation.adapters.presidio.formats import Hit
from waystation.adapters.presidio.labels import PASSWORD
from waystation.adapters.presidio.stand_ins import is_stand_in
from waystation.patterns import proven

_INSERT = proven(
    r"\b(?:insert|replace)\s++(?:ignore\s++)?into\s++[^\s(]{1,200}+\s*+\((?P<columns>[^()]{1,2000}+)\)\s*+values(?=\s*+\()",
    re.IGNORECASE,
)
_PASSWORD = proven(rf"\A(?:(?:(?!{PASSWORD})[\w.-]){{0,200}}+(?:{PASSWORD})[\w.-]*+|pass|pw)\Z", re.IGNORECASE)
_AROUND_A_NAME = "\"'`[] \t\r\n"
_VALUE = (
    r"(?>\s*+'(?:[^'\\]++|''|\\.)*+'\s*+|\s*+\"(?:[^\"\\]++|\\.)*+\"\s*+"
    r"|[^,()'\"]*+(?:\([^()]*+\)\s*+)?)"
)
_ROW = proven(rf"(?<!\s)\s*+(?:,\s*+)?\({_VALUE}(?:,{_VALUE})*+\)")
_LONGEST_ROW = 40_000
"""Characters: else a row without an end would be read to the end of the text, once for each statement in it."""
_CELL = proven(rf"[(,]({_VALUE})")
_WRITTEN = proven(r"(?<!\s)\s*+N?(?P<quote>['\"])(?P<secret>.{2,400})(?P=quote)\s*+", re.DOTALL)


def inserted(text: str) -> Iterator[Hit]:
    """Every password among the values, where it is written out."""
    for insert in _INSERT.finditer(text):
        columns = [bool(_PASSWORD.match(name.strip(_AROUND_A_NAME))) for name in insert["columns"].split(",")]
        row = _row(text, insert.end()) if any(columns) else None
        while row:
            yield from _passwords(text, row, columns)
            row = _row(text, row.end())


def _row(text: str, start: int) -> re.Match[str] | None:
    return _ROW.match(text, start, start + _LONGEST_ROW)


def _passwords(text: str, row: re.Match[str], columns: list[bool]) -> Iterator[Hit]:
    begin = text.index("(", row.start())
    for is_password, cell in zip(columns, _CELL.finditer(text, begin, row.end()), strict=False):
        value = _WRITTEN.fullmatch(text, *cell.span(1)) if is_password else None
        if value and not is_stand_in(value["secret"]):
            yield Hit("SECRET", *value.span("secret"), 0.9)
