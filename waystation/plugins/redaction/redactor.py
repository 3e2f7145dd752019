"""The redactor: private text is detected off the event loop, and replaced by placeholders here. Results are cached,
since agents send the same results and messages again and again.

The search returns only positions in the text; the key of the placeholders never leaves this process.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial

from waystation.kernel.errors import RedactionFailed, TextRedactionError
from waystation.plugins.redaction.detections import Detection, find_repeated_secrets, mask_detections, resolve_overlaps
from waystation.plugins.redaction.rules import DetectionConfig
from waystation.plugins.redaction.search_processes import LocalSearch, SearchProcessPool
from waystation.plugins.redaction.search_protocol import (
    ChunkSearchRequest,
    ChunkSearchResult,
    SearchBackend,
    SerialThreadRunner,
    TimeLimit,
)
from waystation.privacy.policy import (
    RedactionLevel,
    RedactionResult,
    Span,
    TextDestination,
    get_redaction_level,
    with_placeholders,
)
from waystation.security.placeholders import build_placeholder

_Key = tuple[bytes, RedactionLevel, str]


class RedactionCache:
    """The most recently used results, up to a total number of characters."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._characters = 0
        self._results: OrderedDict[_Key, RedactionResult] = OrderedDict()

    def get(self, text: str, level: RedactionLevel, tenant: str) -> RedactionResult | None:
        """Return the cached result for this text."""
        key = _key(text, level, tenant)
        if key in self._results:
            self._results.move_to_end(key)
        return self._results.get(key)

    def put(self, text: str, level: RedactionLevel, tenant: str, result: RedactionResult) -> None:
        """Store the result, and that redacting it again changes nothing: a placeholder can make a recogniser see a name
        next to it that it did not see before.
        """
        self._keep(_key(text, level, tenant), result)
        if result.spans:
            self._keep(_key(result.text, level, tenant), RedactionResult(text=result.text))

    def _keep(self, key: _Key, result: RedactionResult) -> None:
        if key in self._results:
            return
        self._results[key] = result
        self._characters += len(result.text)
        while self._characters > self._capacity:
            _, oldest = self._results.popitem(last=False)
            self._characters -= len(oldest.text)


def _key(text: str, level: RedactionLevel, tenant: str) -> _Key:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest(), level, tenant


REDACTION_SECONDS = 60.0
MAX_TEXT_VIEWS = 3
"""Maximum number of ways to read a text."""
_CACHED_CHARACTERS = 20_000_000


class PresidioRedactor:
    """Implements the port `Redactor`. `key` (32 bytes) is the key of the placeholders.

    `seconds`: time limit of a text, plus a second for every 2,000 characters. `processes`: number of child processes
    that search; with 0 this process does, and an engine that hangs cannot be ended.
    """

    def __init__(
        self,
        key: bytes,
        rules: DetectionConfig | None = None,
        *,
        seconds: float = REDACTION_SECONDS,
        processes: int = 0,
    ) -> None:
        self._key = key
        self._rules = rules or DetectionConfig()
        self._seconds = seconds
        self._searcher: SearchBackend = (
            SearchProcessPool(self._rules, processes) if processes else LocalSearch(self._rules)
        )
        self._at_once = max(1, processes)
        self._lane = SerialThreadRunner()
        self._cache = RedactionCache(_CACHED_CHARACTERS)

    @property
    def process_ids(self) -> frozenset[int]:
        """Ids of the running child processes."""
        return self._searcher.pids if isinstance(self._searcher, SearchProcessPool) else frozenset()

    async def warm_up(self) -> None:
        """Load the engines now (a few seconds) instead of with the first text. Raises RedactionFailed."""
        await self._searcher.load()

    async def redact(
        self, texts: Sequence[str], destination: TextDestination, tenant: str
    ) -> tuple[RedactionResult, ...]:
        """Return one result per text, in order. Text that this returned before comes back unchanged.

        Raises:
            TextRedactionError: One of the texts could not be redacted, or took too long; the message reveals nothing of
                it.
            RedactionFailed: No text can be redacted now.
        """
        wanted = get_redaction_level(destination, self._rules.policy)
        if wanted in {RedactionLevel.ORIGINAL, RedactionLevel.NO_TEXT}:
            raise RedactionFailed(f"unknown destination of redacted text: {destination}")
        waiting = iter(dict.fromkeys(texts))
        done: dict[str, RedactionResult] = {}

        async def in_turn() -> None:
            # A fixed number of tasks share the texts: there may be thousands, and a task for each would block the loop.
            for text in waiting:
                done[text] = await self._redact_one(text, wanted, tenant)

        await asyncio.gather(*(in_turn() for _ in range(self._at_once)))
        return tuple([done[text] for text in texts])

    def close(self) -> None:
        """Start no more work, and end the child processes."""
        self._lane.close()
        self._searcher.close()

    async def _redact_one(self, text: str, level: RedactionLevel, tenant: str) -> RedactionResult:
        known = self._cache.get(text, level, tenant)
        if known:
            return known
        limit = TimeLimit.for_text(text, self._seconds)
        found = await self._found(text, level, limit)
        finds = [find for one in found for find in one.detections]
        result = await self._lane.run(lambda: self._replace(text, finds, tenant), limit)
        languages = frozenset[str]().union(*(one.unsearched_languages for one in found))
        result = result.replace(languages_without_names=tuple(sorted(languages)))
        self._cache.put(text, level, tenant, result)
        return result

    async def _found(self, text: str, level: RedactionLevel, limit: TimeLimit) -> Sequence[ChunkSearchResult]:
        """Return everything to replace, in positions of the text, over all ways to read it."""
        found, rest = list[ChunkSearchResult](), text
        for _ in range(MAX_TEXT_VIEWS):
            fresh = await self._found_in_views(rest, level, limit)
            found += fresh
            finds = [find for one in fresh for find in one.detections]
            if fresh[0].views == 1 or not finds:
                return found
            # Text found in one view is masked in the other, which may see more then: redacting twice changes nothing.
            rest = await self._lane.run(partial(_masked, rest, finds), limit)
        raise TextRedactionError(
            f"even the last of {MAX_TEXT_VIEWS} passes found further private values, so the text seems designed to "
            "prevent redaction"
        )

    async def _found_in_views(self, text: str, level: RedactionLevel, limit: TimeLimit) -> Sequence[ChunkSearchResult]:
        """Return the detections in every way to read the text."""
        begin = ChunkSearchRequest.for_text(text, level)
        found = [one async for one in self._found_in(text, begin, limit)]
        for view in range(1, found[0].views):
            more = begin.replace(view=view)
            found += [one async for one in self._found_in(text, more, limit)]
        return found

    async def _found_in(
        self, text: str, begin: ChunkSearchRequest, limit: TimeLimit
    ) -> AsyncIterator[ChunkSearchResult]:
        """Yield results in batches, so that a long text lets shorter ones in between."""
        first = await self._searcher.search(text, begin, limit)
        yield first
        others = begin.remaining_requests(first.chunks)
        for start in range(0, len(others), self._at_once):
            batch = others[start : start + self._at_once]
            for one in await asyncio.gather(*(self._searcher.search(text, stretch, limit) for stretch in batch)):
                yield one

    def _replace(self, text: str, finds: Sequence[Detection], tenant: str) -> RedactionResult:
        spans = tuple(
            Span(
                type=find.type,
                start=find.start,
                end=find.end,
                score=find.score,
                placeholder=build_placeholder(self._key, tenant, find.type, text[find.start : find.end]),
            )
            for find in resolve_overlaps(text, (*finds, *find_repeated_secrets(text, finds)))
        )
        return with_placeholders(text, spans)


def _masked(text: str, finds: Iterable[Detection]) -> str:
    return mask_detections(text, resolve_overlaps(text, finds))
