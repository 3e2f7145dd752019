"""Redacts tables: judges what a column holds by its name and all of its values, and replaces private cells.

A single cell shows too little: `(212) 5550147` is a phone number because its column is called *phone*, and a word is a
name because those around it are. So values are examined next to the name of their column, in a column under it, and
alone. If most values of a column are private, or its name makes them so, all of it is.

What is hidden in the whole document comes first: rows above a cell, other columns and words around the table may make
it private. Examining columns only adds to that. If such an examination does not finish, every value in it is private:
the document could be redacted, so no one has to wait for its tables.
"""

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import NamedTuple

from waystation.documents.tables import DictionaryColumn, Table
from waystation.kernel.errors import TextRedactionError
from waystation.kernel.patterns import compile_bounded
from waystation.privacy.policy import (
    FINGERPRINT_DIGITS,
    RedactionResult,
    ReplacedRange,
    TextDestination,
    build_redaction_notes,
    make_failed_redaction,
)
from waystation.privacy.ports import PlaceholderFactory, Redactor

BATCH_CHARACTERS = 20_000
"""Maximum characters of one text in which values are examined."""
_AT_ONCE = 2_000
"""Maximum placeholders that are made and stored at once."""
SAMPLE_SIZE = 200
"""Number of values that show what a column holds."""
_MAX_EXAMINED_VALUES = 2_000
"""Maximum values of a column that are examined in every way."""
PRIVATE_COLUMN_SHARE = 0.5
"""If more than this share of a column's values is private, all are."""
PRIVATE_BY_LABEL_SHARE = 0.2
"""The same for values that are private by their column's name alone."""
UNIFORM_SHARE = 0.98
"""From this share of the sample on, the other values are taken to be like the sample."""
PRIVATE_VALUE_SHARE = 0.6
"""From this private share of a value on, all of it is private."""
_LABEL_CHARACTERS = 100
MAX_HEADER_ROWS = 3
"""Maximum header rows of a table; the names of its columns are in one of them."""
MAX_LABELS = 200
"""Maximum different values of a column that may label the values to the right of them."""
LABEL_SAMPLE_SIZE = 5
DIGITS_OF_A_VALUE = 4
"""A column name has fewer digits than this."""

_FIGURE = compile_bounded(
    r"[+-]?[0-9]{0,11}(?:[.,][0-9]{1,6})?(?: ?%)?|[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[ T][0-9:.]{5,15})?"
)
"""Too short for a card or an account; a phone number of only digits is one by its column's name alone."""
_BREAKS = compile_bounded(r"[\t\r\n\v\f\x1c-\x1e\x85\u2028\u2029]")
"""Characters that end a cell or a line."""
_NOTHING = frozenset({"", "-", "?", "n/a", "na", "nil", "none", "null", "unknown", "yes", "no", "true", "false"})
_ANY_WORD, _SECRET = "swordfish", "SECRET"
"""Only private where every word is: under *password*."""
_NOBODY_KNOWS = "0" * FINGERPRINT_DIGITS


class RedactedTable(NamedTuple):
    """A table with placeholders for private values, and what a person should know about it."""

    table: Table
    notes: tuple[str, ...]
    timed_out: tuple[RedactionResult, ...] = ()
    """Parts whose redaction took too long, to be named by code that knows the document."""


_Finds = dict[str, list[ReplacedRange]]
"""Ranges of each value that has some, in order and without overlaps."""


@dataclass(frozen=True)
class TableRedactor:
    """Redacts tables. Equal values get equal placeholders, so they can still be joined, grouped and counted."""

    redactor: Redactor
    placeholders: PlaceholderFactory

    async def redact_table(self, table: Table, tenant: str) -> RedactedTable:
        """Return the table with placeholders for private values. Numbers, dates and other words stay unchanged.

        Raises RedactionFailed, but never TextRedactionError.
        """
        search = _PrivateValueSearch(self.redactor, tenant)
        first = await search.detect_without_label(
            "", list(dict.fromkeys([column.values[0] for column in table.columns]))
        )
        row, headless = _naming_row(table), bool(_private(first))
        columns: list[DictionaryColumn] = []
        for left, column in zip((None, *table.columns), table.columns, strict=False):
            label = " ".join(column.values[column.codes[row]].split())[:_LABEL_CHARACTERS]
            sought = await asyncio.to_thread(_sought, label, column)
            beside = await search.detect_after_left_cells(left, column, row) if left is not None else {}
            verdict = await search.verdict(sought)
            verdict = await verdict.merge(column.values[1:], sought.hidden, beside)
            own = await _ColumnVerdict(first).merge(column.values[:1], sought.named, beside)
            name = column.values[0]
            if _says_something(name) and (headless or _looks_like_a_value(name)):
                own = own._replace(type=verdict.type)
            renamed = await self._replaced([name], own, tenant)
            replaced = await self._replaced(sought.replaceable, verdict, tenant)
            columns.append(_replaced_in(column, renamed, replaced))
        aside = tuple([result for result in search.results if result.timed_out])
        notes = build_redaction_notes(*[result for result in search.results if not result.timed_out])
        return RedactedTable(table.replace(columns=tuple(columns)), notes, aside)

    async def _replaced(self, values: Sequence[str], verdict: "_ColumnVerdict", tenant: str) -> dict[str, str]:
        """Return the replacement of each value with something private in it."""
        finds, wanted = await asyncio.to_thread(_unnamed, values, verdict)
        made: dict[tuple[str, str], str] = {}
        for kind, own in wanted.items():
            texts = sorted(own)
            # In slices, to let other work run in between.
            for first in range(0, len(texts), _AT_ONCE):
                some = await self.placeholders.make_placeholders(kind, texts[first : first + _AT_ONCE], tenant)
                made |= {(kind, text): placeholder for text, placeholder in some.items()}
        return await asyncio.to_thread(
            lambda: {value: _with_placeholders(value, found, made) for value, found in finds.items()}
        )


class _ColumnValues(NamedTuple):
    """A column's name, and its distinct meaningful values below the first row."""

    label: str
    values: Sequence[str]
    hidden: _Finds
    """Hidden ranges of values below the first row; for equal values, the union of them."""
    named: _Finds
    """Hidden ranges of the first row's value."""

    @property
    def replaceable(self) -> Sequence[str]:
        """Values that may get a placeholder."""
        return [*self.values, *(value for value in self.hidden if not _says_something(value))]

    @property
    def sample(self) -> Sequence[str]:
        """Sample from all over the column."""
        return self.values[:: max(1, -(-len(self.values) // SAMPLE_SIZE))]


class _ColumnVerdict(NamedTuple):
    """What is private in a column."""

    detections: _Finds
    type: str = ""
    """Type of the whole column; empty if some of its values may be seen."""

    async def merge(self, values: Sequence[str], hidden: _Finds, finds: _Finds) -> "_ColumnVerdict":
        """Add what was found in other ways; of two placeholders for one range, the document's stays."""
        merged = (
            await asyncio.to_thread(_merged, values, hidden, self.detections, finds)
            if hidden or finds
            else self.detections
        )
        return _ColumnVerdict(merged, self.type)

    def get_ranges(self, value: str) -> Sequence[ReplacedRange]:
        """Return what is to be replaced in a value."""
        found = self.detections.get(value, [])
        if not self.type or (len(found) == 1 and found[0][:2] == _ends(value)):
            return found
        return [ReplacedRange(*_ends(value), self.type, "")]


@dataclass(frozen=True)
class _PrivateValueSearch:
    """Detects private data in values, many of them in one text."""

    redactor: Redactor
    tenant: str
    results: list[RedactionResult] = field(default_factory=list[RedactionResult])
    """All redaction results so far."""

    async def verdict(self, column: _ColumnValues) -> _ColumnVerdict:
        """Judge a column."""
        sample = column.sample
        if not sample:
            return _ColumnVerdict({})
        alone = await self.detect_without_label("", sample)
        label = column.label
        beside, under = await self.detect_after_label(label, sample), await self.detect_below_label(label, sample)
        shown = await asyncio.to_thread(_merged, sample, beside, under, alone)
        known = await asyncio.to_thread(_merged, sample, column.hidden, shown)
        private = _private(known)
        whole = await self._is_wholly_private(label, sample, len(private), len(_private(shown) - _private(alone)))
        if whole and len(private) >= UNIFORM_SHARE * len(sample):
            return _ColumnVerdict(known, _type(known))
        if not whole and not shown and all(map(_FIGURE.fullmatch, column.values)):
            return _ColumnVerdict({})
        few = len(column.values) <= _MAX_EXAMINED_VALUES
        finds = await asyncio.to_thread(
            _merged,
            column.values,
            column.hidden,
            await self.detect_after_label(label, column.values),
            await self.detect_below_label(label, column.values) if few or under else {},
            await self.detect_without_label("", column.values) if few or alone else {},
        )
        whole = whole or len(_private(finds)) > PRIVATE_COLUMN_SHARE * len(column.values)
        return _ColumnVerdict(finds, _type(finds) if whole else "")

    async def _is_wholly_private(self, label: str, sample: Sequence[str], private: int, by_name: int) -> bool:
        """Whether this many private values of the sample, some by the column's name, make all of it private."""
        if private > PRIVATE_COLUMN_SHARE * len(sample) or by_name >= PRIVATE_BY_LABEL_SHARE * len(sample):
            return True
        return bool(await self.detect_after_label(label, [_ANY_WORD])) and not await self.detect_without_label(
            "", [_ANY_WORD]
        )

    async def detect_after_label(self, label: str, values: Sequence[str]) -> _Finds:
        """Examine each value after the name of its column: `phone: (212) 5550147`."""
        return await self._found("", [(f"{label}: ", value) for value in values], "\n") if label else {}

    async def detect_after_left_cells(self, left: DictionaryColumn, column: DictionaryColumn, named: int) -> _Finds:
        """Examine each value after the cell to its left, if that describes its kind: `phone | (212) 5550147`.

        `named`: the row that may name columns. It only counts if rows below it are such pairs.
        """
        if len(left.values) > MAX_LABELS:
            return {}
        pairs = await asyncio.to_thread(_pairs, left, column, named + 1)
        some = [(label, value) for label, values in pairs.items() for value in islice(values, LABEL_SAMPLE_SIZE)]
        shown = await self._found("", [(f"{label}: ", value) for label, value in some], "\n")
        telling = dict.fromkeys(label for label, value in some if value in shown)
        every = [(label, value) for label in telling for value in pairs[label]]
        if every:
            rows = range(named + 1)
            every += [(left.values[left.codes[row]], column.values[column.codes[row]]) for row in rows]
        return await self._found("", [(f"{label}: ", value) for label, value in every], "\n")

    async def detect_below_label(self, label: str, values: Sequence[str]) -> _Finds:
        """Examine the values in a column under its name."""
        plain = [value for value in values if not _BREAKS.search(value)]
        above = f"{_BREAKS.sub(' ', label)}\t#\n"
        return await self._found(above, [("", value) for value in plain], "\t#\n") if label else {}

    async def detect_without_label(self, _label: str, values: Sequence[str]) -> _Finds:
        """Examine each value on its own line."""
        return await self._found("", [("", value) for value in values], "\n")

    async def _found(self, above: str, behind: Sequence[tuple[str, str]], end: str) -> _Finds:
        return await asyncio.to_thread(_by_value, await self._results(above, behind, end))

    async def _results(
        self, above: str, behind: Sequence[tuple[str, str]], end: str
    ) -> Iterable[tuple["_Batch", RedactionResult]]:
        """Return texts of values, each after its prefix, with the redactor's results."""
        batches = await asyncio.to_thread(_batches, above, behind, end)
        results = await self._redacted([batch.text for batch in batches])
        self.results.extend(results)
        return zip(batches, results, strict=True)

    async def _redacted(self, texts: Sequence[str]) -> Sequence[RedactionResult]:
        """Redact texts; one that cannot be redacted becomes a placeholder."""
        try:
            return await self.redactor.redact(texts, TextDestination.TOOL_RESULT, self.tenant)
        except TextRedactionError:
            if len(texts) == 1:
                return [make_failed_redaction(text, _NOBODY_KNOWS) for text in texts]
        # Only one by one shows which it was. What was done before is repeated instantly.
        return [result for text in texts for result in await self._redacted([text])]


def _by_value(results: Iterable[tuple["_Batch", RedactionResult]]) -> _Finds:
    found: _Finds = {}
    for batch, result in results:
        for value, find in batch.finds(result):
            found.setdefault(value, []).append(find)
    return found


def _batches(above: str, behind: Sequence[tuple[str, str]], end: str) -> list["_Batch"]:
    batches: list[_Batch] = []
    for before, value in behind:
        if not batches or batches[-1].length > BATCH_CHARACTERS:
            batches.append(_Batch(above))
        batches[-1].add(before, value, end)
    return batches


class _Batch:
    """A text of values."""

    def __init__(self, above: str) -> None:
        self._parts, self.length = [above], len(above)
        self._values: list[str] = []
        self._starts: list[int] = []

    def add(self, before: str, value: str, end: str) -> None:
        """Add one value."""
        self._values.append(value)
        self._starts.append(self.length + len(before))
        self._parts += (before, value, end)
        self.length += len(before) + len(value) + len(end)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self._parts)

    def finds(self, result: RedactionResult) -> Iterator[tuple[str, ReplacedRange]]:
        """Yield the values with something to replace, and where: all of each if the text could not be redacted."""
        if result.redaction_failed:
            # A credential may be among them, of which nothing is stored.
            yield from ((value, ReplacedRange(*_ends(value), _SECRET, "")) for value in self._values if value.strip())
            return
        for span in result.spans:
            number = max(0, bisect_right(self._starts, span.start) - 1)
            while number < len(self._starts) and self._starts[number] < span.end:
                value, place = self._values[number], self._starts[number]
                start, end = max(0, span.start - place), min(len(value), span.end - place)
                if start < end:
                    own = (start, end) == (span.start - place, span.end - place)
                    yield value, ReplacedRange(start, end, span.type, span.placeholder if own else "")
                number += 1


def _sought(label: str, column: DictionaryColumn) -> _ColumnValues:
    below = column.values[1:]
    hidden: _Finds = {}
    named: _Finds = {}
    for place, found in column.hidden.items():
        value = column.values[place]
        (hidden if place else named)[value] = _trimmed(value, found)
    return _ColumnValues(label, list(filter(_says_something, below)), hidden, named)


def _pairs(left: DictionaryColumn, column: DictionaryColumn, first: int) -> dict[str, dict[str, None]]:
    """Return the values of a column by the cell to their left, from a row on."""
    pairs: dict[str, dict[str, None]] = {}
    for label, code in zip(left.codes[first:], column.codes[first:], strict=True):
        pairs.setdefault(left.values[label], {})[column.values[code]] = None
    return pairs


def _trimmed(value: str, found: Iterable[ReplacedRange]) -> list[ReplacedRange]:
    """Trim spaces around ranges that need their own placeholder: equal words get equal ones."""
    trimmed: list[ReplacedRange] = []
    for one in found:
        start, end = (0, 0) if one.placeholder else _ends(value[one.start : one.end])
        trimmed.append(one._replace(start=one.start + start, end=one.start + end) if start < end else one)
    return trimmed


def _replaced_in(column: DictionaryColumn, renamed: Mapping[str, str], replaced: Mapping[str, str]) -> DictionaryColumn:
    """Replace values. `renamed`: of the first value, `replaced`: of those below."""
    if not renamed and not replaced:
        return column
    name, *below = column.values
    values = (renamed.get(name, name), *[replaced.get(value, value) for value in below])
    return column.replace(values=values, hidden={})


def _merged(values: Iterable[str], *ways: _Finds) -> _Finds:
    """Merge the finds of all ways; if two overlap, the one that contains the other, or else both as one."""
    merged: _Finds = {}
    for value in values:
        if found := list(chain.from_iterable(way.get(value, ()) for way in ways)):
            merged[value] = _apart(found)
    return merged


def _apart(found: Sequence[ReplacedRange]) -> list[ReplacedRange]:
    """Make ranges disjoint, in order. Of equal ranges the first one given stays."""
    apart: list[ReplacedRange] = []
    longest = 0  # of the ranges that the last one was made of
    for find in sorted(found, key=lambda one: (one.start, -one.end)):
        length = find.end - find.start
        if not apart or apart[-1].end <= find.start:
            apart.append(find)
            longest = length
        elif apart[-1].end < find.end:
            kind = find.type if length > longest else apart[-1].type
            apart[-1] = ReplacedRange(apart[-1].start, find.end, kind, "")
            longest = max(longest, length)
    return apart


def _private(finds: _Finds) -> set[str]:
    """Return the values that are private as a whole, rather than just containing something private."""
    return {
        value
        for value, found in finds.items()
        if sum(find.end - find.start for find in found) >= PRIVATE_VALUE_SHARE * len(value)
    }


def _type(finds: _Finds) -> str:
    """Return the type of most private values."""
    counted = Counter(find.type for value in _private(finds) for find in finds[value])
    return max(counted, key=lambda kind: (counted[kind], kind), default=_SECRET)


def _ends(value: str) -> tuple[int, int]:
    """Return the span without surrounding white space."""
    return len(value) - len(value.lstrip()), len(value.rstrip())


def _naming_row(table: Table) -> int:
    """Return the first row that names columns: a title of one cell may be above it."""
    widest = max(table.widths[:MAX_HEADER_ROWS])
    return next(row for row, width in enumerate(table.widths) if width == widest)


def _says_something(value: str) -> bool:
    return value.strip().casefold() not in _NOTHING


def _looks_like_a_value(name: str) -> bool:
    return "@" in name or sum(map(str.isdigit, name)) >= DIGITS_OF_A_VALUE


def _unnamed(
    values: Iterable[str], verdict: _ColumnVerdict
) -> tuple[dict[str, Sequence[ReplacedRange]], dict[str, set[str]]]:
    """Return what is private in each value, and by type the texts that have no placeholder yet."""
    finds = {value: found for value in values if (found := verdict.get_ranges(value))}
    wanted: dict[str, set[str]] = {}
    for value, found in finds.items():
        for find in found:
            if not find.placeholder:
                wanted.setdefault(find.type, set()).add(value[find.start : find.end])
    return finds, wanted


def _with_placeholders(value: str, found: Sequence[ReplacedRange], made: Mapping[tuple[str, str], str]) -> str:
    parts: list[str] = []
    position = 0
    for find in found:
        own = find.placeholder or made[find.type, value[find.start : find.end]]
        parts += (value[position : find.start], own)
        position = find.end
    return "".join((*parts, value[position:]))
