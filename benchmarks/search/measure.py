"""Document search over texts in memory, with its times."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from waystation.documents.documents import Document, DocumentMatch, DocumentPassage
from waystation.documents.search import HybridDocumentSearch
from waystation.documents.search_vectors import WordEmbedder
from waystation.kernel.scopes import ReadScope, TaskScope

Texts = Mapping[str, str]
"""Documents by name."""
Hit = DocumentPassage | DocumentMatch
SCOPE = TaskScope(tenant="tenant", session="session", task_id="task")
_T = TypeVar("_T")


class Search(Protocol):
    """What is compared."""

    async def search(self, query: str, limit: int, document: str = "") -> Sequence[Hit]:
        """Return the best passages, of one document only if it is named."""
        ...


class Shelf:
    """Documents in memory."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts

    async def put_text(self, text: str, owner: TaskScope) -> str:
        """Never called."""
        raise NotImplementedError

    async def get_text(self, blob: str, reader: ReadScope) -> str:  # noqa: ARG002
        """Return a text; its name is its hash here."""
        return self._texts[blob]

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:  # noqa: ARG002
        """Return all documents."""
        return tuple(
            Document(name=name, blob=name, lines=len(text.splitlines()), characters=len(text))
            for name, text in self._texts.items()
        )


class ProductSearch:
    """The product's search, as workers wire it."""

    def __init__(self, texts: Texts, embedder: WordEmbedder | None) -> None:
        self._search = HybridDocumentSearch(Shelf(texts), embedder)
        self._numbers = {name: number for number, name in enumerate(texts, 1)}

    async def search(self, query: str, limit: int, document: str = "") -> Sequence[Hit]:
        """Return the best passages; the first search builds the index."""
        among = [self._numbers[document]] if document else None
        return await self._search.search(SCOPE, query, limit, among)


class Stopwatch:
    """Mean processor time of searches: other work on the machine changes it little."""

    def __init__(self) -> None:
        self._seconds: list[float] = []

    async def time(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """Run a search and note the processor time of all its threads."""
        start = time.process_time()
        found = await call()
        self._seconds.append(time.process_time() - start)
        return found

    @property
    def mean_ms(self) -> float:
        """Mean of all calls, in milliseconds of processor time."""
        return 1_000 * sum(self._seconds) / max(1, len(self._seconds))


class OpenedSearch:
    """A search with its index built, and the processor time of that."""

    def __init__(self, search: Search, seconds: float, texts: Texts) -> None:
        self.search = search
        self.seconds_a_megabyte = seconds * 1_000_000 / max(1, sum(map(len, texts.values())))


async def open_search(build: Callable[[Texts], Search], texts: Texts) -> OpenedSearch:
    """Build a search and its index."""
    start = time.process_time()
    search = build(texts)
    await search.search("index", 1)
    return OpenedSearch(search, time.process_time() - start, texts)
