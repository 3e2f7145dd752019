"""Tools for numbers: calculate an expression, and query tables in the task's documents.

No number of a report needs to be a model's guess. A table is a whole document, a sheet of a workbook, or given lines.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import PurePath
from typing import Annotated, NamedTuple

from pydantic import Field, StringConstraints

from waystation.agents.tool_visibility import LAST, SOON, make_urgency
from waystation.agents.tools.documents import find_document
from waystation.agents.tools.tool import (
    ToolCallRejectedError,
    ToolContext,
    ToolInput,
    TypedTool,
    load_redacted_text,
    select_page_lines,
)
from waystation.documents.documents import Document, find_document_by_name, find_line_place, parse_place_marker
from waystation.documents.ports import DocumentStore, TableEngine
from waystation.documents.redacted_documents import RedactedDocumentStore, RedactedTableReader
from waystation.documents.table_redaction import RedactedTable
from waystation.documents.tables import QueryResult, Table, TableText
from waystation.kernel.errors import TableQueryError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.refs import RunRef
from waystation.kernel.text import format_count
from waystation.privacy.policy import ReplacedRange, select_replaced_ranges

_FLOATING = frozenset({"DOUBLE", "FLOAT"})
_SEVERAL = ("STRUCT(", "TUPLE(", "MAP(", "UNION(")
"""Prefixes of types whose values contain others; list types have brackets."""
_OVERFLOW = "Out of Range Error: Overflow"
_WIDER = (
    " Larger numbers are exact with a type: 99999999999::HUGEINT for whole numbers, 1.5::DECIMAL(38,2) for decimals; "
    "1.5::DOUBLE is approximate."
)


class CalculateInput(ToolInput):
    """Expression to calculate."""

    expression: str = Field(
        min_length=1,
        max_length=2_000,
        description="One SQL expression: (1250.40 - 1100) / 1100 * 100, "
        "date_diff('day', DATE '2024-01-31', DATE '2025-03-01'), DATE '2026-03-01' + INTERVAL 6 WEEK.",
    )


class CalculatorTool(TypedTool[CalculateInput]):
    """Calculates an expression."""

    name = "calculate"
    description = (
        "Calculates with numbers or dates. Use it for every figure that you derive. Returns the value, to 15 "
        "digits for / and ^, else exact. No thousands separators or percent signs; -2^2 is (-2)^2. Not for "
        "columns of a table: query_table."
    )
    permission = "compute"
    urgency = make_urgency(LAST)
    input_model = CalculateInput

    def __init__(self, engine: TableEngine) -> None:
        self._engine = engine

    async def run(self, arguments: CalculateInput, ctx: ToolContext) -> str:  # noqa: ARG002 - it is the same everywhere
        """Return the value after `=`, or after `≈` if it is not exact."""
        # The line break ends a comment at the end of the expression.
        try:
            result = await self._engine.query(f"SELECT ({arguments.expression}\n)", (), 2)
        except TableQueryError as refused:
            more = _WIDER if str(refused).startswith(_OVERFLOW) else ""
            raise ToolCallRejectedError(f"{refused}{more}") from refused
        if len(result.columns) != 1 or len(result.rows) != 1 or _holds_others(result.columns[0].type):
            raise ToolCallRejectedError(
                "The expression must have exactly one value. Write numbers without thousands separators."
            )
        value = result.rows[0][0]
        if value is None:
            raise ToolCallRejectedError("This expression has no value: a part of it is NULL.")
        if result.columns[0].type not in _FLOATING:
            return f"= {value}"
        if not any(map(str.isdigit, value)):
            raise ToolCallRejectedError(
                "This expression has no value: it divides by zero, or its result is too large or not a real number."
            )
        return f"≈ {value} (floating point: exact to about 15 digits)"


def _holds_others(type_name: str) -> bool:
    return type_name.startswith(_SEVERAL) or "]" in type_name


_MAX_CHARACTERS = 20_000_000
"""Total characters of all tables of a query."""
PARTS_NAMED = 20
SUFFIXES = frozenset({".csv", ".tsv", ".xlsx", ".xlsm", ".xls", ".ods"})

_WITH_LINES = compile_bounded(r"\A(?P<document>.+):(?P<first>\d{1,9})-(?P<last>\d{1,9})", re.DOTALL)


def is_table(document: str) -> bool:
    """Return whether a document of this name is or contains a table."""
    return PurePath(document).suffix.lower() in SUFFIXES


class LocatedTable(NamedTuple):
    """A table without private cells, and its source."""

    table: Table
    document: str
    first_line: int
    last_line: int
    notes: tuple[str, ...]

    @property
    def citation(self) -> str:
        """Citation of all its lines."""
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


class _Part(NamedTuple):
    """Lines of one place in a document, both ends included."""

    place: str
    first: int
    last: int


class TableSourceLoader:
    """Loads tables from a task's documents."""

    def __init__(self, store: DocumentStore, redacted: RedactedDocumentStore, tables: RedactedTableReader) -> None:
        self._store, self._redacted, self._tables = store, redacted, tables

    async def load_sources(
        self, ctx: ToolContext, wanted: Mapping[str, str], headless: Sequence[str]
    ) -> tuple[LocatedTable, ...]:
        """Load tables.

        Args:
            ctx: Context of the call.
            wanted: Maps each table name to a document, or to lines of one: `q3.csv`, `book.xlsx:3-40`.
            headless: Names of tables whose first row is not a heading.

        Raises:
            ToolCallRejectedError: There is no such document, nothing of it may be shown, the lines are missing or span
                several places, or everything together is too large.
            TableQueryError: It is not a table.
            RedactionFailed: It could not be redacted, so it may not be queried.
        """
        documents = await ctx.list_documents(self._store)
        found: list[LocatedTable] = []
        room = _MAX_CHARACTERS
        for name, source in wanted.items():
            asked = None if find_document_by_name(source, documents) else _WITH_LINES.fullmatch(source)
            document = find_document(asked["document"] if asked else source, documents)
            lines = (await self._store.get_text(document.blob, ctx.run.scope)).splitlines() or [""]
            ends = (int(asked["first"]), int(asked["last"])) if asked else (1, len(lines))
            part = await self._part(document, lines, ends, ctx)
            room -= sum(map(len, lines[part.first - 1 : part.last]))
            if room < 0:
                raise ToolCallRejectedError(
                    f"These tables have more than {_MAX_CHARACTERS:,} characters. Query fewer lines per call, such as "
                    f"{document.name}:{part.first}-10000."
                )
            shown = await load_redacted_text(self._redacted, document.blob, document.name, ctx)
            whole = await asyncio.to_thread(_whole, document.name, lines, part) if asked else part
            view = await asyncio.to_thread(_Lines, name, lines, shown.replaced)
            redacted = await self._read(view.texts(part, whole, heading=name not in headless), ctx.run)
            table = redacted.table.slice_lines(part.first, part.last)
            notes = (
                *redacted.notes,
                *await self._redacted.build_redaction_notes(redacted.timed_out, document.name, ctx.run.tenant),
            )
            found.append(LocatedTable(table, document.name, part.first, part.last, notes))
        return tuple(found)

    async def _part(self, document: Document, lines: Sequence[str], ends: tuple[int, int], ctx: ToolContext) -> _Part:
        """Return the place between these lines, both included."""
        first, last = ends
        if not 1 <= first <= last <= len(lines):
            raise ToolCallRejectedError(
                f"Lines {first}-{last} are not in {document.name}, which has {format_count(len(lines), 'line')}."
            )
        parts = await asyncio.to_thread(list, _parts(lines[:last], first))
        if len(parts) > 1:
            shown = await load_redacted_text(self._redacted, document.blob, document.name, ctx)
            raise ToolCallRejectedError(_in_parts(document.name, parts, shown.lines))
        return parts[0]

    async def _read(self, texts: Sequence[TableText], run: RunRef) -> RedactedTable:
        """Read the part with as much of the surrounding table as is readable.

        The context shows what the lines contain.
        """
        for text in texts[:-1]:
            if len(text.text) <= _MAX_CHARACTERS:
                with suppress(TableQueryError):
                    return await self._tables.read(text, run)
        return await self._tables.read(texts[-1], run)


class _Lines:
    """Lines of a document, and the ranges that agents are not shown."""

    def __init__(self, name: str, lines: Sequence[str], replaced: Sequence[ReplacedRange]) -> None:
        """Initialise. `name` is the table's name in queries."""
        self._name, self._lines, self._replaced = name, lines, replaced
        self._starts = list(accumulate((len(line) + 1 for line in lines), initial=0))

    def texts(self, part: _Part, whole: _Part, *, heading: bool) -> list[TableText]:
        """Return candidates, best first: the whole table, the part below the table's first line, the part alone."""
        if whole == part:
            return [self._text(part, heading=heading)]
        above = _Part(whole.place, whole.first, whole.first) if whole.first < part.first else None
        return [
            self._text(whole, heading=heading),
            self._text(part, above, heading=heading),
            self._text(part, heading=heading),
        ]

    def _text(self, part: _Part, above: _Part | None = None, *, heading: bool) -> TableText:
        """Build the text of a part as one table, below an optional heading line."""
        parts = [one for one in (above, part) if one is not None]
        own: list[str] = []
        hidden: list[ReplacedRange] = []
        begin = 0
        for one in parts:
            hidden += self._hidden(one, begin)
            own += self._lines[one.first - 1 : one.last]
            begin += self._starts[one.last] - self._starts[one.first - 1]
        return TableText(
            name=self._name,
            text="\n".join(own),
            first_line=part.first - (above is not None),
            heading=heading,
            sheet=part.place.startswith("sheet "),
            hidden=tuple(hidden),
        )

    def _hidden(self, part: _Part, at: int) -> Iterator[ReplacedRange]:
        """Yield hidden ranges of the part, relative to a text in which it starts at `at`.

        A range that continues beyond the part ends one character after it.
        """
        begin, end = self._starts[part.first - 1], self._starts[part.last] - 1
        for one in select_replaced_ranges(self._replaced, begin, end):
            yield one._replace(start=max(one.start, -1) + at, end=min(one.end, end - begin + 1) + at)


def _whole(document: str, lines: Sequence[str], part: _Part) -> _Part:
    """Find the table around these lines: the whole place in a file of tables, else up to blank lines."""

    def ends(line: str) -> bool:
        return parse_place_marker(line) is not None or not (is_table(document) or line.strip())

    first, last = part.first, part.last
    while first > 1 and not ends(lines[first - 2]):
        first -= 1
    while last < len(lines) and not ends(lines[last]):
        last += 1
    return _Part(part.place, first, last)


def _parts(lines: Sequence[str], first: int) -> Iterator[_Part]:
    """Yield the stretches from a line on that lie in one place each, without the marker lines of the places."""
    place, begins = find_line_place(lines, first) or "", first
    for number, line in enumerate(lines[first - 1 :], first):
        if marked := parse_place_marker(line):
            if begins < number:
                yield _Part(place, begins, _end(lines, number - 1))
            place, begins = marked, number + 1
    yield _Part(place, min(begins, len(lines)), len(lines))


def _end(lines: Sequence[str], last: int) -> int:
    while last > 1 and not lines[last - 1].strip():
        last -= 1
    return last


def _in_parts(document: str, parts: Sequence[_Part], shown: Sequence[str]) -> str:
    """Describe the parts. `shown`: the document's lines as agents see them."""
    told = ", ".join(
        f"{find_line_place(shown, part.first) or 'its beginning'} (lines {part.first}-{part.last})"
        for part in parts[:PARTS_NAMED]
    )
    more = f" and {len(parts) - PARTS_NAMED} more" if len(parts) > PARTS_NAMED else ""
    return (
        f"{document} has several parts: {told}{more}. Give the lines of one table, such as "
        f"{document}:{parts[0].first}-{parts[0].last}."
    )


MAX_TABLES = 8
ROWS_SHOWN = 100
SAMPLE_ROWS = 5
"""Rows shown of a table that is inspected before it is queried."""

TableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")]


class QueryTableInput(ToolInput):
    """Tables, and the query on them."""

    tables: dict[TableName, str] = Field(
        min_length=1,
        max_length=MAX_TABLES,
        description="Name of each table in sql, and its document or lines: "
        '{"sales": "q3.csv", "costs": "book.xlsx:3-40"}.',
    )
    sql: str | None = Field(
        default=None, max_length=10_000, description="One SELECT; leave it out to see columns first."
    )
    without_heading: tuple[str, ...] = Field(
        default=(), description="Names of tables without a heading row: their columns are column_1, column_2, …"
    )


class QueryTableTool(TypedTool[QueryTableInput]):
    """Runs a SELECT over documents."""

    name = "query_table"
    description = (
        "Runs one SQL SELECT (DuckDB) over tables in documents: CSV, TSV, sheets, rows with | between cells. Use it to "
        "filter, sum, rank or join rows. Returns a Markdown table and each source's citation; without sql, columns, "
        "types and first rows. Not for text: search_documents. Numbers like 1.234,56 or 12 % are text: convert them. "
        "_line is the row's line, for citations. Placeholders of private cells can be compared, joined and counted."
    )
    rereadable = True
    originals = frozenset({"tables"})
    permission = "compute"
    urgency = make_urgency(LAST)
    input_model = QueryTableInput

    def __init__(
        self,
        store: DocumentStore,
        redacted: RedactedDocumentStore,
        tables: RedactedTableReader,
        *,
        wanted: bool = False,
    ) -> None:
        """Initialise. `wanted`: whether the task has documents that are tables."""
        self._sources, self._engine = TableSourceLoader(store, redacted, tables), tables.engine
        if wanted:
            self.urgency = make_urgency(SOON)

    async def run(self, arguments: QueryTableInput, ctx: ToolContext) -> str:
        """Return the tables' sources, the number of rows, and a Markdown table."""
        try:
            sources = await self._sources.load_sources(ctx, arguments.tables, arguments.without_heading)
            ctx.notes.extend(dict.fromkeys(note for source in sources for note in source.notes))
            if arguments.sql is not None:
                lines = await self._queried(arguments.sql, sources, ctx.page_characters)
            else:
                room = ctx.page_characters // len(sources)
                lines = [line for source in sources for line in await self._looked_at(source, room)]
        except TableQueryError as refused:
            raise ToolCallRejectedError(str(refused)) from refused
        return "\n".join(lines)

    async def _queried(self, sql: str, sources: Sequence[LocatedTable], characters: int) -> list[str]:
        result = await self._engine.query(sql, [source.table for source in sources], ROWS_SHOWN)
        return [
            *(f"table {source.table.name} is {source.citation}" for source in sources),
            *result.cautions,
            *_shown(result, characters),
        ]

    async def _looked_at(self, source: LocatedTable, characters: int) -> list[str]:
        first = await self._engine.query(f'FROM "{source.table.name}"', [source.table], SAMPLE_ROWS)
        types = ", ".join(f'"{column.name}" {column.type}' for column in first.columns)
        (columns,), _ = select_page_lines([f"columns: {types}"], characters // 2)
        return [
            f"table {source.table.name} is {source.citation}",
            columns,
            *first.cautions,
            *_shown(first, characters // 2),
        ]


def _shown(result: QueryResult, characters: int) -> list[str]:
    """Return the number of rows, and those that fit as a Markdown table."""
    heading = [_row([column.name for column in result.columns]), _row(["---"] * len(result.columns))]
    lines, _ = select_page_lines([*heading, *map(_row, result.rows)], characters)
    shown = max(0, len(lines) - len(heading))
    count = "more rows than can be counted" if result.row_count is None else format_count(result.row_count, "row")
    rest = "" if result.row_count == shown else f", the first {shown} shown; filter, aggregate or use OFFSET for more"
    return [count + rest, *lines]


def _row(cells: Sequence[str | None]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: str | None) -> str:
    """Render a cell on one line, without unprintable characters."""
    if value is None:
        return "NULL"
    return "".join(sign if sign.isprintable() else " " for sign in value).replace("|", r"\|")
