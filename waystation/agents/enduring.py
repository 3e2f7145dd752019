"""A redactor that does not fail for ever at the same text: after enough attempts nothing of it goes on.

A text that takes too long holds up others each time, so it has two attempts, one after the other and whatever it is
for, and is put aside: it is not looked at again under the same rules, by no worker and after no restart.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from waystation.domain.errors import (
    RedactionFailed,
    StoreError,
    TextGivenUp,
    TextHeldBack,
    TextNotRedacted,
    TextTookTooLong,
)
from waystation.domain.privacy import Place
from waystation.domain.redaction import UNREDACTED, AfterFailures, Redacted, unredacted
from waystation.ports import Redactor, SlowTexts

PAID = frozenset({Place.MODEL_OUTPUT, Place.TOOL_ARGUMENT, Place.SUMMARY})
"""What a model was paid for. Another attempt at the work would ask it anew, so redaction is tried again here."""
NEEDED = frozenset({Place.USER_INPUT, Place.CONTRACT})
"""Without these an agent does not know what it is to do."""
LONGEST_PAUSE_S = 60
ATTEMPTS_IN_TIME = 2

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnduringRedactor:
    """Until then it raises what the redactor raises, so that the activity waits and is tried again.

    A redactor that is down altogether is waited for without end.
    """

    redactor: Redactor
    fingerprint: Callable[[str, str, str], str]
    """Tenant, type and text become 64 hexadecimal digits that cannot be guessed back."""
    slow: SlowTexts
    """Which took too long, and how often: kept, so that no restart forgets one."""
    attempt: Callable[[], int]
    """Which attempt at the work in hand this is. Temporal counts them, so that no crash forgets one."""
    attempts: int
    then: AfterFailures
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds."""

    _times: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """What is kept of slow texts, as this process knows it: by fingerprint how often."""
    _read: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`. Raises TextGivenUp and TextHeldBack, too."""
        if place in PAID:
            return tuple([await self._paid(text, place, tenant) for text in texts])
        if self.attempt() < self.attempts:
            return await self._all(texts, place, tenant)
        return tuple([await self._last_attempt(text, place, tenant) for text in texts])

    async def _all(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        if len(texts) > 1 and not await self._any_aside(texts, tenant):
            try:
                return await self.redactor.redact(texts, place, tenant)
            except TextTookTooLong:
                # Which one it was, only one by one tells. What was done is done at once.
                pass
        return tuple([await self._once(text, place, tenant) for text in texts])

    async def _any_aside(self, texts: Sequence[str], tenant: str) -> bool:
        times = await self._known()
        return bool(times) and any(times.get(self._key(text, tenant), 0) >= ATTEMPTS_IN_TIME for text in texts)

    async def _last_attempt(self, text: str, place: Place, tenant: str) -> Redacted:
        try:
            return await self._once(text, place, tenant)
        except (TextGivenUp, TextHeldBack):
            raise
        except TextNotRedacted as failed:
            if self.then == "pause" or place in NEEDED:
                self._stop(failed)
            return self._placeholder(text, tenant)

    async def _paid(self, text: str, place: Place, tenant: str) -> Redacted:
        failures = pause = 0
        while True:
            try:
                return await self._once(text, place, tenant)
            except RedactionFailed as failed:
                failures += isinstance(failed, TextNotRedacted)
            if failures == self.attempts:
                return self._placeholder(text, tenant)
            pause = min(max(1, pause * 2), LONGEST_PAUSE_S)
            await self.pause(pause)

    async def _once(self, text: str, place: Place, tenant: str) -> Redacted:
        """Raises what the redactor does, but that it took too long only where that is a person's to see."""
        times, key, tried = await self._known(), self._key(text, tenant), False
        while times.get(key, 0) < ATTEMPTS_IN_TIME:
            try:
                (redacted,) = await self.redactor.redact([text], place, tenant)
            except TextTookTooLong:
                times[key], tried = await _kept(self.slow.took_too_long(tenant, key)), True
            else:
                return redacted
        if place not in PAID and (self.then == "pause" or place in NEEDED):
            # A person may have seen to it when it comes again.
            await _kept(self.slow.try_again(tenant, key))
            times.pop(key, None)
            kind = TextHeldBack if self.then == "pause" else TextGivenUp
            raise kind(
                f"a text ({place}) could not be redacted in time, twice: give less at once, or more time (the setting "
                "redaction_seconds)"
            )
        placeholder = unredacted(text, key, put_aside=True)
        if tried:
            _log.warning("a text (%s) could not be redacted in time, twice: %s stands for it", place, placeholder.text)
        return placeholder

    async def _known(self) -> dict[str, int]:
        """Read once: what another worker counts meanwhile comes with the first time that it is slow here."""
        if not self._read.is_set():
            self._times.update(await _kept(self.slow.slow_texts()))
            self._read.set()
        return self._times

    def _key(self, text: str, tenant: str) -> str:
        # Of the text to the letter: in a normal form, all texts of signs alone would be one.
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return self.fingerprint(tenant, UNREDACTED, digest)

    def _placeholder(self, text: str, tenant: str) -> Redacted:
        return unredacted(text, self._key(text, tenant))

    def _stop(self, failed: TextNotRedacted) -> NoReturn:
        kind = TextHeldBack if self.then == "pause" else TextGivenUp
        raise kind(f"after {self.attempts} attempts a text could still not be redacted: {failed}") from failed


async def _kept(answer: Awaitable[_T]) -> _T:
    """Raises RedactionFailed where the store does not answer, so that the work waits for it."""
    try:
        return await answer
    except StoreError as error:
        raise RedactionFailed(f"which texts take too long cannot be looked up: {error}") from error
