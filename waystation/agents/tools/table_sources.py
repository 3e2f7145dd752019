"""Which lines of a document are a table: all of them, one sheet of a workbook, or those that are asked for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import NamedTuple

from waystation.agents.columns import RedactedTable
from waystation.agents.tables import Tables
from waystation.agents.tools.read_document import find
from waystation.agents.tools.tool import ToolRefused
from waystation.domain.documents import marked_place, named, place_of
from waystation.domain.errors import QueryRefused
from waystation.domain.leg import RunRef
from waystation.patterns import proven
from waystation.ports import DocumentStore, Table, TableText

MOST_CHARACTERS = 20_000_000
"""Of all tables of a query."""
PARTS_NAMED = 20
SUFFIXES = frozenset({".csv", ".tsv", ".xlsx", ".xlsm", ".xls", ".ods"})

_WITH_LINES = proven(r"\A(?P<document>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", re.DOTALL)


def is_table(document: str) -> bool:
    """Whether a document of this name is a table, or has some."""
    return PurePath(document).suffix.lower() in SUFFIXES


class TableSource(NamedTuple):
    """A table without private cells, and where it stands."""

    table: Table
    document: str
    first_line: int
    last_line: int
    notes: tuple[str, ...]

    @property
    def citation(self) -> str:
        """Of all its lines."""
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class _Part(NamedTuple):
    """Lines of one place in a document, both ends included."""

    place: str
    first: int
    last: int


class TableSources:
    """The tables in a task's documents."""

    def __init__(self, documents: DocumentStore, tables: Tables) -> None:
        self._documents, self._tables = documents, tables

    async def read(self, run: RunRef, wanted: Mapping[str, str], headless: Sequence[str]) -> tuple[TableSource, ...]:
        """`wanted` maps each name to a document, or to lines of it: `q3.csv`, `book.xlsx:3-40`.

        Raises:
            ToolRefused: there is no such document, lines are missing in it or are not of one place, or all of it is too
                large.
            QueryRefused: it is no table.
            RedactionFailed: nobody may query it.
        """
        documents = await self._documents.documents(run.task_id, run.reader)
        found: list[TableSource] = []
        room = MOST_CHARACTERS
        for name, source in wanted.items():
            asked = None if named(source, documents) else _WITH_LINES.fullmatch(source)
            document = find(asked["document"] if asked else source, documents)
            lines = (await self._documents.get_text(document.blob, run.reader)).splitlines() or [""]
            part = (
                _part(document.name, lines, int(asked["first"]), int(asked["last"]))
                if asked
                else _only_part(document.name, lines)
            )
            room -= sum(map(len, lines[part.first - 1 : part.last]))
            if room < 0:
                raise ToolRefused(
                    f"These tables have more than {MOST_CHARACTERS:,} characters. Query fewer lines at once, such as "
                    f"{document.name}:{part.first}-10000."
                )
            whole = _whole(document.name, lines, part) if asked else part
            redacted = await self._read(name, lines, part, whole, run, heading=name not in headless)
            table = redacted.table.within(part.first, part.last)
            found.append(TableSource(table, document.name, part.first, part.last, redacted.notes))
        return tuple(found)

    async def _read(
        self, name: str, lines: Sequence[str], part: _Part, whole: _Part, run: RunRef, *, heading: bool
    ) -> RedactedTable:
        """With as much of the table around the part as can be read: what lines hold is seen from those around them."""
        texts = [_text(name, lines, whole, heading=heading)]
        if whole != part:
            above = _Part(whole.place, whole.first, whole.first)
            texts += [_text(name, lines, part, heading=heading, above=above), _text(name, lines, part, heading=heading)]
        for text in texts[:-1]:
            if len(text.text) <= MOST_CHARACTERS:
                with suppress(QueryRefused):
                    return await self._tables.read(text, run)
        return await self._tables.read(texts[-1], run)


def _text(name: str, lines: Sequence[str], part: _Part, *, heading: bool, above: _Part | None = None) -> TableText:
    own = lines[part.first - 1 : part.last]
    if above is not None and above.first < part.first:
        own = [lines[above.first - 1], *own]
    return TableText(
        name=name,
        text="\n".join(own),
        first_line=part.first - (len(own) > part.last - part.first + 1),
        heading=heading,
        sheet=part.place.startswith("sheet "),
    )


def _whole(document: str, lines: Sequence[str], part: _Part) -> _Part:
    """The table around these lines: all of their place in a file of tables, else the lines up to blank ones."""

    def ends(line: str) -> bool:
        return marked_place(line) is not None or not (is_table(document) or line.strip())

    first, last = part.first, part.last
    while first > 1 and not ends(lines[first - 2]):
        first -= 1
    while last < len(lines) and not ends(lines[last]):
        last += 1
    return _Part(part.place, first, last)


def _only_part(document: str, lines: Sequence[str]) -> _Part:
    parts = list(_parts(lines, 1))
    if len(parts) > 1:
        raise ToolRefused(_in_parts(document, parts))
    return parts[0]


def _part(document: str, lines: Sequence[str], first: int, last: int) -> _Part:
    if not 1 <= first <= last <= len(lines):
        raise ToolRefused(f"Lines {first}-{last} are not in {document}, which has {len(lines)} lines.")
    parts = list(_parts(lines[:last], first))
    if len(parts) > 1:
        raise ToolRefused(_in_parts(document, parts))
    return parts[0]


def _parts(lines: Sequence[str], first: int) -> Iterator[_Part]:
    """Stretches from a line on that lie in one place each, without the lines that mark the places."""
    place, begins = place_of(lines, first) or "", first
    for number, line in enumerate(lines[first - 1 :], first):
        if marked := marked_place(line):
            if begins < number:
                yield _Part(place, begins, _end(lines, number - 1))
            place, begins = marked, number + 1
    yield _Part(place, min(begins, len(lines)), len(lines))


def _end(lines: Sequence[str], last: int) -> int:
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    return last


def _in_parts(document: str, parts: Sequence[_Part]) -> str:
    told = ", ".join(f"{part.place or 'its beginning'} ({part.first}-{part.last})" for part in parts[:PARTS_NAMED])
    more = f" and {len(parts) - PARTS_NAMED} more" if len(parts) > PARTS_NAMED else ""
    return (
        f"{document} has several parts here: {told}{more}. Give the lines of one table, such as "
        f"{document}:{parts[0].first}-{parts[0].last}."
    )
