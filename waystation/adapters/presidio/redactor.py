"""The redactor: text to Presidio chunk by chunk off the event loop, and what is private replaced by placeholders."""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from waystation.adapters.presidio.cache import RedactionCache
from waystation.adapters.presidio.children import Children
from waystation.adapters.presidio.chunks import chunk_spans
from waystation.adapters.presidio.computing import LOADING_SECONDS, Lane, TimeLimit
from waystation.adapters.presidio.folding import views_of
from waystation.adapters.presidio.found import Found, without_overlaps
from waystation.adapters.presidio.placeholders import placeholder
from waystation.adapters.presidio.rules import Rules
from waystation.adapters.presidio.search import MOST_ROUNDS, Chunk, Finds, PresidioSearch, SearchedText, all_of, masked
from waystation.domain.errors import RedactionFailed, TextNotRedacted
from waystation.domain.privacy import Place, Policy, Treatment, treatment
from waystation.domain.redaction import Redacted, Span, with_placeholders

REDACTION_SECONDS = 60.0
_BATCH_CHUNKS = 20
_LONG_CHUNKS = 3
"""From so many on a text is sent to child processes."""
_CACHED_CHARACTERS = 20_000_000


class PresidioRedactor:
    """Implements the port `Redactor`. `key` (32 bytes) is what placeholders derive from.

    `seconds`: what a text may take, plus a second for every 2,000 characters. `processes`: with two or more, texts of
    several chunks are searched by so many child processes.
    """

    def __init__(
        self, key: bytes, rules: Rules | None = None, *, seconds: float = REDACTION_SECONDS, processes: int = 0
    ) -> None:
        self._key = key
        self._rules = rules or Rules()
        self._seconds = seconds
        self._search = PresidioSearch(self._rules)
        self._lane = Lane()
        self._children = Children(self._rules, processes) if processes > 1 else None
        self._at_once = max(1, processes)
        self._cache = RedactionCache(_CACHED_CHARACTERS)

    async def warm_up(self) -> None:
        """Load the engines now (a few seconds) instead of with the first text. Raises RedactionFailed."""
        with_names = self._rules.policy is not Policy.SECRETS_ONLY
        await self._lane.run(lambda: self._search.load(with_names=with_names), TimeLimit(LOADING_SECONDS))
        if self._children is not None:
            await self._children.load()

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """One result for each text, in order. What this returned before comes back unchanged.

        Raises:
            TextNotRedacted: one of the texts could not be, or took too long; the message holds nothing of it.
            RedactionFailed: none can be now.
        """
        wanted = treatment(place, self._rules.policy)
        if wanted in {Treatment.ORIGINAL, Treatment.NO_TEXT}:
            raise RedactionFailed(f"no redacted text goes to this place: {place}")
        if self._children is None:
            return tuple([await self._redact_one(text, wanted, tenant) for text in texts])
        turns = asyncio.Semaphore(self._at_once)

        async def in_turn(text: str) -> Redacted:
            async with turns:
                return await self._redact_one(text, wanted, tenant)

        return tuple(await asyncio.gather(*map(in_turn, texts)))

    def close(self) -> None:
        """Begin nothing more, and end the child processes."""
        self._lane.close()
        if self._children is not None:
            self._children.close()

    async def _redact_one(self, text: str, wanted: Treatment, tenant: str) -> Redacted:
        known = self._cache.get(text, wanted, tenant)
        if known:
            return known
        limit = TimeLimit.of(text, self._seconds)
        found = await self._found(text, wanted, limit)
        result = await self._lane.run(lambda: self._replace(text, found.finds, tenant), limit)
        result = result.model_copy(update={"languages_without_names": tuple(sorted(found.not_sought))})
        self._cache.put(text, wanted, tenant, result)
        return result

    async def _found(self, text: str, wanted: Treatment, limit: TimeLimit) -> Finds:
        """What is to be replaced, in places of the text, however it is read."""
        found, rest = Finds([], frozenset()), text
        for _ in range(MOST_ROUNDS):
            fresh, ways = await self._found_in_views(rest, wanted, limit)
            found = found.and_also(fresh)
            if ways == 1 or not fresh.finds:
                return found
            # What one way of reading found is gone for the other, which may see more now: so twice changes nothing.
            rest = await self._lane.run(partial(_masked, rest, fresh.finds), limit)
        raise TextNotRedacted(f"each of {MOST_ROUNDS} readings found more than the one before: it was made for that")

    async def _found_in_views(self, text: str, wanted: Treatment, limit: TimeLimit) -> tuple[Finds, int]:
        """What is found in every way to read the text, and how many there are."""
        views = await self._lane.run(lambda: list(views_of(text)), limit)
        found = Finds([], frozenset())
        for view in views:
            found = found.and_also((await self._found_in(view.text, wanted, limit)).seen_in(view))
        return found, len(views)

    async def _found_in(self, text: str, wanted: Treatment, limit: TimeLimit) -> Finds:
        whole, chunks = await self._lane.run(lambda: (self._search.whole(text, wanted), list(chunk_spans(text))), limit)
        if self._children is not None and len(chunks) >= _LONG_CHUNKS:
            return whole.and_also(await self._children.search(text, chunks, wanted, limit))
        return whole.and_also(await self._found_here(text, chunks, wanted, limit))

    async def _found_here(self, text: str, chunks: Sequence[Chunk], wanted: Treatment, limit: TimeLimit) -> Finds:
        """In batches, so that a long text lets shorter ones in between."""
        searched = await self._lane.run(lambda: SearchedText(text), limit)
        found = [
            await self._lane.run(
                partial(self._search.finds, searched, chunks[first : first + _BATCH_CHUNKS], wanted), limit
            )
            for first in range(0, len(chunks), _BATCH_CHUNKS)
        ]
        return all_of(found)

    def _replace(self, text: str, finds: Iterable[Found], tenant: str) -> Redacted:
        spans = tuple(
            Span(
                type=find.type,
                start=find.start,
                end=find.end,
                score=find.score,
                placeholder=placeholder(self._key, tenant, find.type, text[find.start : find.end]),
            )
            for find in without_overlaps(text, finds)
        )
        return with_placeholders(text, spans)


def _masked(text: str, finds: Iterable[Found]) -> str:
    return masked(text, without_overlaps(text, finds))
