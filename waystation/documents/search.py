"""Full-text search in a task's documents: BM25 over passages, indexed once for each version of them.

The index is built from originals, so that no one waits for redaction, and never leaves the process. Once something was
found in a document it is searched in its redacted form, so that no match reveals what is not shown.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import bm25s

from waystation.documents.documents import Document, DocumentMatch, DocumentPassage, ShownDocument, parse_place_marker
from waystation.documents.ports import DocumentStore
from waystation.documents.search_terms import extract_terms
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import TaskScope
from waystation.privacy.policy import find_cut_position

MAX_PASSAGE_LINES = 12
MAX_PASSAGE_CHARACTERS = 2_000
"""A longer line is split into several passages with the same line number."""
OVERLAP = 200
"""Characters of a long line that two passages share: a word or phrase at their border is complete in one of them."""

_HEADING = compile_bounded(r"#{1,6} \S")


class _Line(NamedTuple):
    number: int
    text: str
    first_character: int = 0
    """For a part of a long line, the position at which it begins, from 1; 0 for a whole line."""

    @property
    def is_heading(self) -> bool:
        return _HEADING.match(self.text) is not None

    @property
    def marks_place(self) -> bool:
        return parse_place_marker(self.text) is not None


def split_into_passages(name: str, text: str) -> Iterator[DocumentPassage]:
    """Split a text into passages.

    Paragraphs stay whole and are combined as long as they fit; a heading or a place marker (a page, a sheet) starts a
    new passage.
    """
    lines: list[_Line] = []
    heading = ""
    for paragraph in _paragraphs(text):
        in_line = paragraph[0].first_character or (lines and lines[-1].first_character)
        if lines and (in_line or _parts(lines, paragraph[0]) or not _fits(lines, paragraph)):
            yield _passage(name, heading, lines)
            heading = next((line.text for line in reversed(lines) if line.is_heading), heading)
            lines = []
        lines += paragraph
    if lines:
        yield _passage(name, heading, lines)


def _parts(lines: list[_Line], line: _Line) -> bool:
    """Whether a line starts a new passage: consecutive headings, or headings below a marker, belong together."""
    return line.marks_place or (line.is_heading and not all(above.is_heading or above.marks_place for above in lines))


def _fits(lines: list[_Line], more: list[_Line]) -> bool:
    height = more[-1].number - lines[0].number + 1
    return height <= MAX_PASSAGE_LINES and _size(lines) + _size(more) + height <= MAX_PASSAGE_CHARACTERS


def _size(lines: list[_Line]) -> int:
    return sum(len(line.text) for line in lines)


def _passage(name: str, heading: str, lines: list[_Line]) -> DocumentPassage:
    first, last = lines[0].number, lines[-1].number
    # Blank lines between paragraphs are restored, so that line numbers can be counted.
    texts = {line.number: line.text for line in lines}
    text = "\n".join(texts.get(number, "") for number in range(first, last + 1))
    return DocumentPassage(name, "" if lines[0].is_heading else heading, first, last, text, lines[0].first_character)


def _paragraphs(text: str) -> Iterator[list[_Line]]:
    """Yield runs of lines that belong together; a run that is too long for a passage is split.

    A part of a line stands alone.
    """
    run: list[_Line] = []
    for line in _lines(text):
        if line.first_character:
            if run:
                yield run
                run = []
            yield [line]
            continue
        if run and (not line.text or line.is_heading or line.marks_place or not _fits(run, [line])):
            yield run
            run = []
        if line.text:
            run.append(line)
    if run:
        yield run


def _lines(text: str) -> Iterator[_Line]:
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.rstrip()
        if len(stripped) <= MAX_PASSAGE_CHARACTERS:
            yield _Line(number, stripped)
        else:
            yield from _parts_of_line(number, stripped)


def _parts_of_line(number: int, line: str) -> Iterator[_Line]:
    """Yield overlapping parts; no placeholder is split."""
    start = 0
    while True:
        end = (
            find_cut_position(line, start + MAX_PASSAGE_CHARACTERS)
            if start + MAX_PASSAGE_CHARACTERS < len(line)
            else len(line)
        )
        yield _Line(number, line[start:end], start + 1)
        if end == len(line):
            return
        start = find_cut_position(line, end - OVERLAP)


MAX_CACHED_INDEXES = 16
"""Maximum tasks whose index stays in memory; 230k tokens of documents take about 10 MB."""
MAX_CACHED_CHARACTERS = 20_000_000
"""Maximum characters of documents whose terms stay in memory: of a folder searched before, only changes are read
again.
"""


class HybridDocumentSearch:
    """`DocumentSearch` by BM25 in memory. If documents of a task change, only those are read again."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._read: OrderedDict[_Version, Sequence[_Searched]] = OrderedDict()
        self._characters = 0
        self._building = asyncio.Lock()

    @property
    def indexed_task_ids(self) -> tuple[str, ...]:
        """Tasks whose index is in memory, the least recently used first."""
        return tuple(self._indexes)

    async def search(
        self,
        task: TaskScope,
        query: str,
        limit: int,
        among: range | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        """Return the best passages first, equal scores by name and line; none if nothing matches.

        Names and headings count as part of the passages under them.
        """
        if documents is None:
            documents = await self._store.list_documents(task.task_id, task)
        index = self._index(task.task_id, documents) or await self._built(task, documents)
        self._indexes.move_to_end(task.task_id)
        return await asyncio.to_thread(index.search, query, limit, among)

    async def index_redacted_texts(self, task_id: str, documents: Sequence[ShownDocument]) -> None:
        """See `DocumentSearch`. A rebuilt index is one of originals again."""
        async with self._building:
            if (index := self._indexes.get(task_id)) is not None:
                self._indexes[task_id] = await asyncio.to_thread(index.with_shown, documents)

    def _index(self, task_id: str, documents: Sequence[Document]) -> "_Index | None":
        """Return the index over these versions, if there is one."""
        index = self._indexes.get(task_id)
        return index if index is not None and index.documents == documents else None

    async def _built(self, task: TaskScope, documents: Sequence[Document]) -> "_Index":
        async with self._building:
            # Agents of one task start together: the second finds what the first has built.
            index = self._index(task.task_id, documents)
            if index is None:
                searched = [() if one.removed else await self._searched(one, task) for one in documents]
                index = self._indexes[task.task_id] = await asyncio.to_thread(_Index, documents, searched)
                while len(self._indexes) > MAX_CACHED_INDEXES:
                    self._indexes.popitem(last=False)
            return index

    async def _searched(self, document: Document, reader: TaskScope) -> Sequence["_Searched"]:
        """Return its passages with their terms; read again only for another name or content."""
        version = _Version(document.name, document.blob, document.characters)
        if version not in self._read:
            text = await self._store.get_text(document.blob, reader)
            self._read[version] = await asyncio.to_thread(_passages, document.name, text)
            self._characters += document.characters
            while self._characters > MAX_CACHED_CHARACTERS and len(self._read) > 1:
                self._characters -= self._read.popitem(last=False)[0].characters
        self._read.move_to_end(version)
        return self._read[version]


class _Version(NamedTuple):
    name: str
    blob: str
    characters: int


class _Searched(NamedTuple):
    passage: DocumentPassage
    terms: list[str]


def _passages(name: str, text: str, called: str | None = None) -> Sequence[_Searched]:
    """Return passages with their terms. `called`: the name to find them by, if it is another."""
    found = (
        _Searched(passage, extract_terms(_searchable(passage, called or name)))
        for passage in split_into_passages(name, text)
    )
    return [one for one in found if one.terms]


class _Index:
    def __init__(
        self,
        documents: Sequence[Document],
        searched: Sequence[Sequence[_Searched]],
        shown: Mapping[str, Sequence[_Searched]] = MappingProxyType({}),
    ) -> None:
        """`shown`: by name, passages of documents that are searched in their redacted form."""
        self.documents, self._originals, self._shown = documents, searched, shown
        searched = [shown.get(one.name, passages) for one, passages in zip(documents, searched, strict=True)]
        indexed = [(number, one) for number, document in enumerate(searched, 1) for one in document]
        self._passages = [(number, one.passage) for number, one in indexed]
        self._bm25 = bm25s.BM25()
        if indexed:
            corpus = [one.terms for _, one in indexed]
            self._bm25.index(corpus, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library

    def with_shown(self, documents: Sequence[ShownDocument]) -> "_Index":
        """Return the index with these documents in their redacted form; those of other versions change nothing."""
        versions = {document.name: document.blob for document in self.documents}
        there = [one for one in documents if versions.get(one.name) == one.blob]
        found = {one.name: _passages(one.name, one.text, one.shown_name) for one in there}
        return _Index(self.documents, self._originals, {**self._shown, **found})

    def search(self, query: str, limit: int, among: range | None) -> tuple[DocumentMatch, ...]:
        wanted = list(dict.fromkeys(extract_terms(query)))
        if not self._passages or not wanted:
            return ()
        scores: list[float] = self._bm25.get_scores(wanted).tolist()  # pyright: ignore[reportUnknownMemberType]
        hits = [
            (score, passage)
            for score, (number, passage) in zip(scores, self._passages, strict=True)
            if score > 0 and (among is None or number in among)
        ]
        hits.sort(key=lambda hit: (-hit[0], hit[1].name, hit[1].first_line))
        versions = {document.name: document.blob for document in self.documents}
        return tuple(
            DocumentMatch(
                name=passage.name,
                first_line=passage.first_line,
                last_line=passage.last_line,
                text=passage.text,
                score=score,
                blob=versions[passage.name],
                is_redacted=passage.name in self._shown,
                first_character=passage.first_character,
            )
            for score, passage in hits[: max(0, limit)]
        )


def _searchable(passage: DocumentPassage, called: str) -> str:
    return f"{called}\n{passage.heading}\n{passage.text}"
