"""The redactor: text to Presidio chunk by chunk in one thread, and what is private replaced by stable placeholders."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from waystation.adapters.presidio.cache import RedactionCache
from waystation.adapters.presidio.chunks import chunk_spans
from waystation.adapters.presidio.found import Found, without_overlaps
from waystation.adapters.presidio.placeholders import placeholder
from waystation.adapters.presidio.rules import Rules
from waystation.adapters.presidio.search import PresidioSearch, SearchedText
from waystation.adapters.presidio.secrets import private_keys
from waystation.domain.errors import RedactionFailed, TextNotRedacted
from waystation.domain.privacy import Place, Policy, Treatment, treatment
from waystation.domain.redaction import Redacted, Span, with_placeholders

_BATCH_CHUNKS = 20
_CACHED_CHARACTERS = 20_000_000
_T = TypeVar("_T")


class PresidioRedactor:
    """Implements the port `Redactor`. `key` (32 bytes) is what placeholders derive from."""

    def __init__(self, key: bytes, rules: Rules | None = None) -> None:
        self._key = key
        self._rules = rules or Rules()
        self._search = PresidioSearch(self._rules)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="redaction")
        self._cache = RedactionCache(_CACHED_CHARACTERS)

    async def warm_up(self) -> None:
        """Load the engines now (a few seconds) instead of with the first text. Raises RedactionFailed."""
        with_names = self._rules.policy is not Policy.SECRETS_ONLY
        await self._in_thread(lambda: self._search.load(with_names=with_names))

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """One result for each text, in order. What this returned before comes back unchanged.

        Raises:
            TextNotRedacted: one of the texts could not be; the message holds nothing of it.
            RedactionFailed: none can be now.
        """
        wanted = treatment(place, self._rules.policy)
        if wanted in {Treatment.ORIGINAL, Treatment.NO_TEXT}:
            raise RedactionFailed(f"no redacted text goes to this place: {place}")
        return tuple([await self._redact_one(text, wanted, tenant) for text in texts])

    def close(self) -> None:
        """End the thread when it has finished its batch."""
        self._thread.shutdown(cancel_futures=True)

    async def _redact_one(self, text: str, wanted: Treatment, tenant: str) -> Redacted:
        known = self._cache.get(text, wanted, tenant)
        if known:
            return known
        searched = await self._in_thread(lambda: SearchedText(text))
        finds = await self._in_thread(lambda: [Found(*hit) for hit in private_keys(text)])
        chunks = await self._in_thread(lambda: list(chunk_spans(text)))
        secrets_only, not_sought = wanted is Treatment.SECRETS, frozenset[str]()
        # In batches, so that a long text lets shorter ones in between.
        for first in range(0, len(chunks), _BATCH_CHUNKS):
            batch = chunks[first : first + _BATCH_CHUNKS]
            finds += await self._in_thread(
                lambda batch=batch: self._search.formats(searched, batch, secrets_only=secrets_only)
            )
            if wanted is Treatment.NAMES:
                names = await self._in_thread(lambda batch=batch: self._search.names(searched, batch))
                finds += names.finds
                not_sought |= names.not_sought
        result = await self._in_thread(lambda: self._replace(text, finds, tenant))
        result = result.model_copy(update={"languages_without_names": tuple(sorted(not_sought))})
        self._cache.put(text, wanted, tenant, result)
        return result

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        try:
            future = asyncio.get_running_loop().run_in_executor(self._thread, work)
        except RuntimeError as error:
            raise RedactionFailed("the redactor is closed") from error
        # Also when nobody waits any longer: asyncio would log an exception that nobody looked at, with its message.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({future})
        error = future.exception()
        if isinstance(error, RedactionFailed):
            raise error
        if error is not None:
            # Neither message nor chain of the original: both may quote the text.
            raise TextNotRedacted(f"redaction failed with {type(error).__name__}") from None
        return future.result()

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
