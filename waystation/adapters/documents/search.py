"""Full-text search in a task's documents: BM25 over passages, indexed once for each task."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence

import bm25s

from waystation.adapters.documents.passages import DocumentPassage, passages_of
from waystation.adapters.documents.terms import terms
from waystation.domain.documents import DocumentHit
from waystation.ports import DocumentStore

KEPT_INDEXES = 16
"""Tasks whose index stays in memory; 230k tokens of documents take about 10 MB."""

# The library sets its own logger to DEBUG, which would pass any level that the program asks for.
logging.getLogger("bm25s").setLevel(logging.WARNING)


class Bm25DocumentSearch:
    """`DocumentSearch` by BM25 in memory. A task's documents never change, so its index never has to."""

    def __init__(self, store: DocumentStore) -> None:
        self._store = store
        self._indexes: OrderedDict[str, _Index] = OrderedDict()
        self._building = asyncio.Lock()

    async def search(self, task_id: str, query: str, limit: int) -> tuple[DocumentHit, ...]:
        """Best passages first, equal scores by name and line; empty where nothing matches.

        Names and headings count as part of the passages under them.
        """
        index = self._indexes.get(task_id) or await self._built(task_id)
        self._indexes.move_to_end(task_id)
        return await asyncio.to_thread(index.search, query, limit)

    async def _built(self, task_id: str) -> "_Index":
        async with self._building:
            # Agents of one task start together: the second finds what the first has built.
            if task_id not in self._indexes:
                documents = await self._store.documents(task_id)
                texts = [(document.name, await self._store.get_text(document.blob)) for document in documents]
                self._indexes[task_id] = await asyncio.to_thread(_Index, texts)
                while len(self._indexes) > KEPT_INDEXES:
                    self._indexes.popitem(last=False)
            return self._indexes[task_id]


class _Index:
    def __init__(self, texts: Sequence[tuple[str, str]]) -> None:
        passages = (passage for name, text in texts for passage in passages_of(name, text))
        indexed = [(passage, found) for passage in passages if (found := terms(_searchable(passage)))]
        self._passages = [passage for passage, _ in indexed]
        self._bm25 = bm25s.BM25()
        if indexed:
            corpus = [found for _, found in indexed]
            self._bm25.index(corpus, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library

    def search(self, query: str, limit: int) -> tuple[DocumentHit, ...]:
        wanted = list(dict.fromkeys(terms(query)))
        if not self._passages or not wanted:
            return ()
        scores: list[float] = self._bm25.get_scores(wanted).tolist()  # pyright: ignore[reportUnknownMemberType]
        hits = [(score, passage) for score, passage in zip(scores, self._passages, strict=True) if score > 0]
        hits.sort(key=lambda hit: (-hit[0], hit[1].name, hit[1].first_line))
        return tuple(_hit(passage, score) for score, passage in hits[: max(0, limit)])


def _searchable(passage: DocumentPassage) -> str:
    return f"{passage.name}\n{passage.heading}\n{passage.text}"


def _hit(passage: DocumentPassage, score: float) -> DocumentHit:
    return DocumentHit(
        name=passage.name,
        first_line=passage.first_line,
        last_line=passage.last_line,
        text=passage.text,
        score=score,
    )
