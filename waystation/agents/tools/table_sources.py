"""Which lines of a document are a table: all of them, one sheet of a workbook, or those that are asked for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from waystation.agents.tools.read_document import find
from waystation.agents.tools.tool import ToolRefused
from waystation.domain.documents import Document, marked_place, named, place_of
from waystation.patterns import proven
from waystation.ports import DocumentStore, TableText

MOST_CHARACTERS = 20_000_000
"""Of all tables of a query."""
PARTS_NAMED = 20

_WITH_LINES = proven(r"\A(?P<document>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", re.DOTALL)


class TableSource(NamedTuple):
    """A table and where it stands."""

    text: TableText
    document: str
    last_line: int

    @property
    def citation(self) -> str:
        """Of all its lines."""
        return f"[{self.document}:{self.text.first_line}-{self.last_line}]"


class _Part(NamedTuple):
    """Lines of one place in a document, both ends included."""

    place: str
    first: int
    last: int


class TableSources:
    """The tables in a task's documents."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    async def read(self, task_id: str, tables: Mapping[str, str], headless: Sequence[str]) -> tuple[TableSource, ...]:
        """`tables` maps each name to a document, or to lines of it: `q3.csv`, `book.xlsx:3-40`.

        Raises:
            ToolRefused: there is no such document, lines are missing in it or are not of one place, or all of it is too
                large.
        """
        documents = await self._documents.documents(task_id)
        found: list[TableSource] = []
        room = MOST_CHARACTERS
        for name, source in tables.items():
            found.append(await self._one(documents, source, name, heading=name not in headless))
            room -= len(found[-1].text.text)
            if room < 0:
                raise ToolRefused(
                    f"These tables have more than {MOST_CHARACTERS:,} characters. Query fewer lines at once, such as "
                    f"{found[-1].document}:{found[-1].text.first_line}-10000."
                )
        return tuple(found)

    async def _one(self, documents: tuple[Document, ...], source: str, name: str, *, heading: bool) -> TableSource:
        asked = None if named(source, documents) else _WITH_LINES.fullmatch(source)
        document = find(asked["document"] if asked else source, documents)
        lines = (await self._documents.get_text(document.blob)).splitlines() or [""]
        part = (
            _part(document.name, lines, int(asked["first"]), int(asked["last"]))
            if asked
            else _only_part(document.name, lines)
        )
        text = TableText(
            name=name,
            text="\n".join(lines[part.first - 1 : part.last]),
            first_line=part.first,
            heading=heading,
            sheet=part.place.startswith("sheet "),
        )
        return TableSource(text=text, document=document.name, last_line=part.last)


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
