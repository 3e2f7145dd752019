"""Searching in this process: for commands that end soon, and tests."""

from functools import cached_property
from typing import TYPE_CHECKING

from waystation.adapters.presidio.computing import LOADING_SECONDS, Lane, TimeLimit
from waystation.adapters.presidio.rules import Rules
from waystation.adapters.presidio.stretches import NotHeld, Searched, Stretch

if TYPE_CHECKING:
    from waystation.adapters.presidio.text_search import TextSearch


class LocalSearch:
    """A `Searcher`. One thread computes; what hangs is left behind in it, since no thread can be ended."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lane = Lane()

    async def load(self) -> None:
        """See `Searcher`."""
        await self._lane.run(self._load, TimeLimit(LOADING_SECONDS))

    async def search(self, text: str, stretch: Stretch, limit: TimeLimit) -> Searched:
        """See `Searcher`."""
        searched = await self._lane.run(lambda: self._search.searched(stretch, text), limit)
        assert not isinstance(searched, NotHeld)
        return searched

    def close(self) -> None:
        """See `Searcher`."""
        self._lane.close()

    def _load(self) -> None:
        self._search.load()

    @cached_property
    def _search(self) -> "TextSearch":
        # Presidio and spaCy come with this import, which who searches in children need not pay for.
        from waystation.adapters.presidio.text_search import TextSearch  # noqa: PLC0415

        return TextSearch(self._rules)
