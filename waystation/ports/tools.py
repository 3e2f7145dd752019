"""Ports to what agents' tools reach: tables, tools of others, the web.

The port to what calculates and queries tables, in a sandbox.

The port to tools that others offer.

Ports to the web: pages are fetched, and searches made. Each may be there without the other.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from pydantic import JsonValue

from waystation.domain.foreign import ForeignResult, ForeignTools, ForeignToolSpec
from waystation.domain.tables import Rows, Table, TableText
from waystation.domain.web import Searched, WebPage


class TableEngine(Protocol):
    """Reads texts as tables and runs SQL over tables. It reaches nothing else: no file, no network, no state from one
    call to the next.
    """

    async def read(self, text: TableText) -> Table:
        """The rows of a text, as they were written, and what of their cells is hidden.

        Raises:
            QueryRefused: the text is no table, or takes more time or memory than it may. The reason quotes no cell.
        """
        ...

    async def query(self, sql: str, tables: Sequence[Table], most_rows: int) -> Rows:
        """The result of one SELECT, which may be over no table; at most so many rows of it.

        Columns have the narrowest type that takes all their values exactly: whole numbers, decimals, dates, truth
        values, else text. Empty cells are NULL. Numbers with leading zeros are text.

        Raises:
            QueryRefused: the SQL is wrong or does more than select, a table has no rows, or the query takes more time
                or memory than it may. The reason may quote cells.
        """
        ...


class ToolServers(Protocol):
    """Servers of tools that are not ours."""

    async def tools(self, taken: Collection[str] = (), servers: Sequence[str] | None = None) -> ForeignTools:
        """What these servers offer (`ServerNames`; None: the usual ones), under names that are not among `taken`.

        A server that does not answer is among what is hidden, with the reason; it is asked again some time later. What
        a server has offered once stays as it was for as long as this process lives.
        """
        ...

    async def call(self, spec: ForeignToolSpec, arguments: dict[str, JsonValue]) -> ForeignResult:
        """One call, made once.

        Raises:
            ToolServerFailed: the server could not be reached, ended, took too long or sent too much. Whether the call
                was carried out is not known. The message repeats nothing that the server said.
        """
        ...


class WebPages(Protocol):
    """Fetches pages of public servers."""

    async def fetch(self, url: str) -> WebPage:
        """Fetch a page once. Whoever calls has the right to read the address's host.

        Raises:
            WebRefused: it cannot or must not be read; another attempt changes nothing.
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

    async def search(self, query: str, limit: int) -> Searched:
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
        the one that it names, which need not be true. Raises WebRefused.
        """
        ...
