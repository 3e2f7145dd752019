"""Ports to document search, tables, and the web."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from waystation.documents.documents import Document, DocumentMatch, DocumentPassage, ShownDocument
from waystation.documents.tables import QueryResult, Table, TableText
from waystation.documents.web_pages import WebPage, WebSearchResponse
from waystation.kernel.scopes import TaskScope


class DocumentSearch(Protocol):
    """Full-text search in a task's documents."""

    async def search(
        self,
        task: TaskScope,
        query: str,
        limit: int,
        among: range | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        """Best stretches first; empty where nothing matches. `among`: only documents of these numbers, from 1.

        `documents`: the task's, where they were read before.
        """
        ...

    async def set_shown_documents(self, task_id: str, shown: Sequence[ShownDocument]) -> None:
        """Search these documents as they are shown from here on, and say so in hits: nothing else of them is found."""
        ...


class DocumentSplitter(Protocol):
    """Cuts documents into passages."""

    def __call__(self, name: str, text: str, /) -> Iterator[DocumentPassage]:
        """Stretches of whole lines, in the order of the document."""
        ...


class TableEngine(Protocol):
    """Reads texts as tables and runs SQL over tables. It reaches nothing else: no file, no network, no state from one
    call to the next.
    """

    async def read(self, text: TableText) -> Table:
        """The rows of a text, as they were written, and what of their cells is hidden.

        Raises:
            TableQueryError: the text is no table, or takes more time or memory than it may. The reason quotes no cell.
        """
        ...

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> QueryResult:
        """The result of one SELECT, which may be over no table; at most so many rows of it.

        Columns have the narrowest type that takes all their values exactly: whole numbers, decimals, dates, truth
        values, else text. Empty cells are NULL. Numbers with leading zeros are text.

        Raises:
            TableQueryError: the SQL is wrong or does more than select, a table has no rows, or the query takes more
            time
                or memory than it may. The reason may quote cells.
        """
        ...


class WebPageFetcher(Protocol):
    """Fetches pages of public servers."""

    async def fetch(self, url: str) -> WebPage:
        """Fetch a page once. Whoever calls has the right to read the address's host.

        Raises:
            WebFetchRejectedError: it cannot or must not be read; another attempt changes nothing.
            WebUnavailable: worth another attempt.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class WebSearch(Protocol):
    """Searches the web. Every search costs."""

    @property
    def model(self) -> str:
        """By whose prices a search is charged."""
        ...

    async def search(self, query: str, limit: int) -> WebSearchResponse:
        """Search once, for at most so many pages. No retries in here. Raises ModelError."""
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class PageReader(Protocol):
    """Takes the text out of what a server sent."""

    async def read(self, content: bytes, suffix: str, charset: str | None) -> str:
        """The text.

        `suffix` is that of a file of the kind that the server names, and empty where that says little; `charset` is
        the one that it names, which need not be true. Raises WebFetchRejectedError.
        """
        ...
