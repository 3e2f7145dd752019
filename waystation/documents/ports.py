"""Ports to texts and documents in the store, document search, tables, and pages of the web."""

from collections.abc import Container, Iterator, Sequence
from typing import Protocol

from waystation.documents.documents import (
    Document,
    DocumentMatch,
    DocumentPassage,
    DocumentSet,
    DocumentsUpdate,
    RecordedDocumentsUpdate,
    ShownDocument,
)
from waystation.documents.tables import QueryResult, Table, TableText
from waystation.documents.web_pages import WebPage
from waystation.kernel.scopes import ReadScope, TaskScope
from waystation.privacy.policy import RedactedText, RedactedTextKey


class TextReader(Protocol):
    """Stored texts by content hash."""

    async def get_text(self, blob: str, reader: ReadScope) -> str:
        """Return the text of a content hash.

        Raises:
            TextNotFoundError: no task that the reader may see has it.
        """
        ...


class TextStore(TextReader, Protocol):
    """Texts by content hash, each stored once for all tasks that have it: documents, offloaded results, reports."""

    async def put_text(self, text: str, owner: TaskScope) -> str:
        """Store a text of this task and return its content hash."""
        ...


class DocumentReader(Protocol):
    """Documents of tasks."""

    async def list_documents(self, task_id: str, reader: ReadScope) -> tuple[Document, ...]:
        """Return a task's documents in the order in which they were submitted."""
        ...


class DocumentStore(TextStore, DocumentReader, Protocol):
    """Documents of tasks, and their texts."""


class RedactedTextRepository(Protocol):
    """Whole redacted texts, stored with their originals and forgotten with them."""

    async def get_redacted_text(self, key: RedactedTextKey, reader: ReadScope) -> RedactedText | None:
        """Return the text stored under this key; None if there is none, or if no task of the reader has its original.

        Raises:
            WrongKey: no available key decrypts it.
            StoreError: the store could not be read.
        """
        ...

    async def save_redacted_text(self, key: RedactedTextKey, text: RedactedText) -> None:
        """Store the text with its original.

        The first one stays; nothing is stored if the original was forgotten meanwhile.
        """
        ...


class DocumentUpdateReader(Protocol):
    """Updates of a running task's documents."""

    async def list_document_updates(self, task_id: str, reader: ReadScope) -> tuple[RecordedDocumentsUpdate, ...]:
        """Return the document updates of the running task, in the order of their numbers."""
        ...


class DocumentUpdateRepository(DocumentUpdateReader, Protocol):
    """Updates of a running task's documents. An update and its audit entry are one transaction."""

    async def update_documents(
        self, task_id: str, update: DocumentsUpdate, document_set: DocumentSet
    ) -> RecordedDocumentsUpdate:
        """Replace the task's documents by these versions. The same number a second time changes nothing."""
        ...


class DocumentSearch(Protocol):
    """Search in a task's documents by words, meaning and names."""

    async def search(
        self,
        task: TaskScope,
        query: str,
        limit: int,
        among: Container[int] | None = None,
        documents: tuple[Document, ...] | None = None,
    ) -> tuple[DocumentMatch, ...]:
        """Return the best passages first; none if nothing matches.

        Args:
            task: the task whose documents are searched.
            query: key words or a question.
            limit: maximum number of passages.
            among: numbers of the documents to search, from 1; None: all.
            documents: the task's documents, if they were read before.
        """
        ...

    async def index_redacted_texts(self, task_id: str, documents: Sequence[ShownDocument]) -> None:
        """Search these documents in their redacted form from now on; such matches are marked, and no others found in
        them.
        """
        ...


class DocumentSplitter(Protocol):
    """Splits documents into passages."""

    def __call__(self, name: str, text: str, /) -> Iterator[DocumentPassage]:
        """Yield ranges of whole lines, in the order of the document."""
        ...


class TableEngine(Protocol):
    """Reads texts as tables and runs SQL over tables.

    It reaches nothing else: no files, no network, no state between calls.
    """

    async def read(self, text: TableText) -> Table:
        """Read the rows of a text as written, and which parts of their cells are hidden.

        Raises:
            TableQueryError: the text is not a table, or takes more time or memory than it may. The reason quotes no
                cell.
        """
        ...

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> QueryResult:
        """Run one SELECT, which may use no table, and return at most `most_rows` rows.

        Columns have the narrowest type that represents all their values exactly: whole numbers, decimals, dates,
        booleans, else text. Empty cells are NULL. Numbers with leading zeros are text.

        Raises:
            TableQueryError: the SQL is wrong or does more than select, a table has no rows, or the query takes more
                time or memory than it may. The reason may quote cells.
        """
        ...


class WebPageFetcher(Protocol):
    """Fetches pages of public servers."""

    async def fetch(self, url: str) -> WebPage:
        """Fetch a page once. The caller must be permitted to read the address's host.

        Raises:
            WebPageUnreadableError: it cannot or must not be read; not retryable.
            WebUnavailable: retryable.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...


class WebTextExtractor(Protocol):
    """Extracts the text from a server's response."""

    async def read(self, content: bytes, suffix: str, charset: str | None) -> str:
        """Return the text.

        Args:
            content: body of the response.
            suffix: file suffix of the content type that the server names; empty if that says little.
            charset: the charset that it names, which need not be true.

        Raises:
            WebPageUnreadableError: no text can be extracted.
        """
        ...
