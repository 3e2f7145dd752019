"""Ports to the web: pages are fetched, and searches made. Each may be there without the other."""

from typing import Protocol

from waystation.domain.web import Searched, WebPage


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
