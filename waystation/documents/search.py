"""Search in a task's documents by words (BM25), meaning (vectors) and names, indexed once for each version of them.

The index is built from originals, so that no one waits for redaction, and never leaves the process: BM25 and vectors
are computed on this machine. Once something was found in a document it is searched in its redacted form, so that no
match reveals what is not shown.
"""

import asyncio
import math
from collections import Counter, OrderedDict
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

import bm25s
import numpy as np
from numpy.typing import NDArray

from waystation.documents.documents import Document, DocumentMatch, DocumentPassage, ShownDocument, parse_place_marker
from waystation.documents.ports import DocumentStore
from waystation.documents.search_terms import (
    TermExtractor,
    extract_name_terms,
    extract_query_name_terms,
    split_words,
)
from waystation.documents.search_vectors import PassageEmbedder, PassageText, PassageVectorIndex, WordEmbedder
from waystation.kernel.errors import MemoryUnavailable
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
"""Maximum characters of documents whose terms and vectors stay in memory: of a folder searched before, only changes are
read again.
"""
NAME_WEIGHT = 0.5
"""Weight of a word of the query that one document alone has in its name or title. The best passage by words has 1, and
so has the best by meaning.
"""
MIN_SIMILARITY = 0.2
"""Minimum cosine of a passage that has no word of the query: unrelated texts are near 0, related ones above 0.3."""
PAGE_HEADING_LINES = 6
PAGE_HEADING_CHARACTERS = 240
"""Beginning of a page that serves as the heading of its other passages, if the document has no headings above them."""
_SCORE_DIGITS = 6
"""Digits of a score that count: what differs in others is equal, on every machine."""
_Scores = NDArray[np.float64]


class HybridDocumentSearch:
    """`DocumentSearch` in memory. If documents of a task change, only those are read again."""

    def __init__(self, store: DocumentStore, embedder: WordEmbedder | None = None) -> None:
        """Initialise. Without an embedder, passages are found by words and names alone."""
        self._store = store
        self._embedder = None if embedder is None else PassageEmbedder(embedder)
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._read: OrderedDict[_Version, _SearchableDocument] = OrderedDict()
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
        among: Container[int] | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        """See `DocumentSearch`. Equal scores are ordered by name and line.

        A passage matches that has a word of the query, is in a document with one in its name or title, or means
        something similar. Headings count as part of the passages under them.
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
                searched = [_NOTHING if one.removed else await self._searched(one, task) for one in documents]
                index = await asyncio.to_thread(_Index, documents, searched, self._embedder)
                self._indexes[task.task_id] = index
                while len(self._indexes) > MAX_CACHED_INDEXES:
                    self._indexes.popitem(last=False)
            return index

    async def _searched(self, document: Document, reader: TaskScope) -> "_SearchableDocument":
        """Return its passages as they are searched; read again only for another name or content."""
        version = _Version(document.name, document.blob, document.characters)
        if version not in self._read:
            text = await self._store.get_text(document.blob, reader)
            self._read[version] = await asyncio.to_thread(
                _read_document, document.name, text, document.name, self._embedder
            )
            self._characters += document.characters
            while self._characters > MAX_CACHED_CHARACTERS and len(self._read) > 1:
                self._characters -= self._read.popitem(last=False)[0].characters
        self._read.move_to_end(version)
        return self._read[version]


class _Version(NamedTuple):
    name: str
    blob: str
    characters: int


class _SearchableDocument(NamedTuple):
    passages: Sequence[DocumentPassage] = ()
    """Passages with at least one term, or of which the document's name is all that can be found."""
    terms: Sequence[list[str]] = ()
    """For each passage, its terms and those of its heading."""
    name_terms: frozenset[str] = frozenset()
    vectors: PassageVectorIndex | None = None


_NOTHING = _SearchableDocument()
"""Of a document that was removed."""


def _read_document(name: str, text: str, called: str, embedder: PassageEmbedder | None) -> _SearchableDocument:
    """Split a text into passages, with terms and vectors. `called`: the name to find them by."""
    extractor = TermExtractor()
    name_terms = extract_name_terms(f"{PurePosixPath(called).with_suffix('')} {_find_title(text)}")
    passages: list[DocumentPassage] = []
    texts: list[PassageText] = []
    terms: list[list[str]] = []
    for passage, heading in _with_headings(split_into_passages(name, text)):
        one = PassageText(split_words(heading), split_words(passage.text))
        found = extractor.extract([*one.heading, *one.words])
        if found or name_terms:
            passages.append(passage)
            texts.append(one)
            terms.append(found)
    try:
        vectors = embedder.embed_passages(texts) if embedder is not None else None
    except MemoryUnavailable:  # the model cannot be loaded; words and names still find most
        vectors = None
    return _SearchableDocument(passages, terms, name_terms, vectors)


def _find_title(text: str) -> str:
    """Return the heading that a text begins with; empty if it begins with something else."""
    first = next((line for line in text.splitlines() if line.strip() and parse_place_marker(line) is None), "")
    return first if _HEADING.match(first) else ""


def _with_headings(passages: Iterator[DocumentPassage]) -> Iterator[tuple[DocumentPassage, str]]:
    """Yield each passage with its heading, or with the beginning of its page, which often says what a table shows."""
    page = ""
    for passage in passages:
        lines = passage.text.split("\n")
        if parse_place_marker(lines[0]) is not None:
            page = " ".join(lines[1 : PAGE_HEADING_LINES + 1])[:PAGE_HEADING_CHARACTERS]
            yield passage, passage.heading
        else:
            yield passage, passage.heading or page


class _Index:
    def __init__(
        self,
        documents: Sequence[Document],
        searched: Sequence[_SearchableDocument],
        embedder: PassageEmbedder | None,
        shown: Mapping[str, _SearchableDocument] = MappingProxyType({}),
    ) -> None:
        """`shown`: by name, documents that are searched in their redacted form."""
        self.documents, self._originals, self._embedder, self._shown = documents, searched, embedder, shown
        self._searched = [shown.get(one.name, read) for one, read in zip(documents, searched, strict=True)]
        self._passages = [passage for one in self._searched for passage in one.passages]
        sizes = [len(one.passages) for one in self._searched]
        self._numbers = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        """For each passage, the number of its document."""
        self._names_with = Counter(term for one in self._searched for term in one.name_terms)
        self._bm25 = bm25s.BM25()
        corpus = [terms for one in self._searched for terms in one.terms]
        self._has_terms = any(corpus)
        if self._has_terms:
            self._bm25.index(corpus, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library

    def with_shown(self, documents: Sequence[ShownDocument]) -> "_Index":
        """Return the index with these documents in their redacted form; those of other versions change nothing."""
        versions = {document.name: document.blob for document in self.documents}
        there = [one for one in documents if versions.get(one.name) == one.blob]
        found = {one.name: _read_document(one.name, one.text, one.shown_name, self._embedder) for one in there}
        return _Index(self.documents, self._originals, self._embedder, {**self._shown, **found})

    def search(self, query: str, limit: int, among: Container[int] | None) -> tuple[DocumentMatch, ...]:
        words = split_words(query)
        wanted = list(dict.fromkeys(TermExtractor().extract(words)))
        if not self._passages or not wanted or limit <= 0:
            return ()
        admitted = np.array([among is None or number in among for number in range(1, len(self._searched) + 1)])
        there = admitted[self._numbers - 1]
        by_words, by_meaning = self._score_words(wanted) * there, self._score_meaning(words) * there
        by_name = self._score_names(query)[self._numbers - 1] * there
        matches = (by_words > 0) | (by_name > 0) | (by_meaning >= MIN_SIMILARITY)
        scores = np.round(_scale(by_words) + _scale(by_meaning) + NAME_WEIGHT * by_name, _SCORE_DIGITS)
        places = np.flatnonzero(matches)
        if len(places) > limit:  # a year in a query matches every passage of many documents
            lowest = np.partition(scores[places], -limit)[-limit]
            places = places[scores[places] >= lowest]
        found = [(float(scores[place]), self._passages[place]) for place in places.tolist()]
        found.sort(key=lambda hit: (-hit[0], hit[1].name, hit[1].first_line))
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
            for score, passage in found[:limit]
        )

    def _score_words(self, wanted: list[str]) -> _Scores:
        if not self._has_terms:
            return np.zeros(len(self._passages))
        scores = self._bm25.get_scores(wanted)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return np.asarray(scores, dtype=np.float64)

    def _score_meaning(self, words: Sequence[str]) -> _Scores:
        """Return the cosine of each passage; 0 for passages without vectors."""
        scores = np.zeros(len(self._passages))
        if self._embedder is None:
            return scores
        try:
            query = self._embedder.embed_query(words)
        except MemoryUnavailable:
            return scores
        start = 0
        for one in self._searched:
            if one.vectors is not None:
                scores[start : start + len(one.passages)] = one.vectors.compute_similarities(query)
            start += len(one.passages)
        return scores

    def _score_names(self, query: str) -> _Scores:
        """Return for each document how far the query names it: 1 for each term that no other name has, less for terms
        that several names have.
        """
        count = len(self._searched)
        rarest = _rarity(1, count)
        wanted = extract_query_name_terms(query)
        weights = {
            term: _rarity(self._names_with[term], count) / rarest for term in sorted(wanted & self._names_with.keys())
        }
        return np.array(
            [sum(weight for term, weight in weights.items() if term in one.name_terms) for one in self._searched]
        )


def _rarity(names: int, count: int) -> float:
    return math.log(1 + (count - names + 0.5) / (names + 0.5))


def _scale(scores: _Scores) -> _Scores:
    """Return the scores with 1 for the best one."""
    best = float(scores.max(initial=0.0))
    return scores / best if best > 0 else scores
