"""A redactor that does not fail for ever at the same text: after enough attempts nothing of it goes on.

A text that takes too long holds up others each time, so it has two attempts, one after the other and whatever it is
for, and is put aside; it is not looked at again by this process.
"""

import asyncio
import hashlib
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from waystation.domain.errors import RedactionFailed, TextGivenUp, TextHeldBack, TextNotRedacted, TextTookTooLong
from waystation.domain.privacy import Place
from waystation.domain.redaction import UNREDACTED, AfterFailures, Redacted, unredacted
from waystation.ports import Redactor

PAID = frozenset({Place.MODEL_OUTPUT, Place.TOOL_ARGUMENT, Place.SUMMARY})
"""What a model was paid for. Another attempt at the work would ask it anew, so redaction is tried again here."""
NEEDED = frozenset({Place.USER_INPUT, Place.CONTRACT})
"""Without these an agent does not know what it is to do."""
LONGEST_PAUSE_S = 60
ATTEMPTS_IN_TIME = 2
MOST_PUT_ASIDE = 10_000
"""That a process remembers."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnduringRedactor:
    """Until then it raises what the redactor raises, so that the activity waits and is tried again.

    A redactor that is down altogether is waited for without end.
    """

    redactor: Redactor
    fingerprint: Callable[[str, str, str], str]
    """Tenant, type and text become 64 hexadecimal digits that cannot be guessed back."""
    attempt: Callable[[], int]
    """Which attempt at the work in hand this is. Temporal counts them, so that no crash forgets one."""
    attempts: int
    then: AfterFailures
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits so many seconds."""

    _took_too_long: OrderedDict[str, int] = field(default_factory=OrderedDict[str, int], init=False)
    """By a hash of tenant and text how often."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`. Raises TextGivenUp and TextHeldBack, too."""
        if place in PAID:
            return tuple([await self._paid(text, place, tenant) for text in texts])
        if self.attempt() < self.attempts:
            return await self._all(texts, place, tenant)
        return tuple([await self._last_attempt(text, place, tenant) for text in texts])

    async def _all(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        if len(texts) > 1:
            try:
                return await self.redactor.redact(texts, place, tenant)
            except TextTookTooLong:
                # Which one it was, only one by one tells. What was done is done at once.
                pass
        return tuple([await self._once(text, place, tenant) for text in texts])

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
        key = hashlib.sha256(f"{tenant}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
        while self._took_too_long.get(key, 0) < ATTEMPTS_IN_TIME:
            try:
                (redacted,) = await self.redactor.redact([text], place, tenant)
            except TextTookTooLong:
                self._note(key)
            else:
                return redacted
        return self._put_aside(key, text, place, tenant)

    def _note(self, key: str) -> None:
        self._took_too_long[key] = self._took_too_long.pop(key, 0) + 1
        if len(self._took_too_long) > MOST_PUT_ASIDE:
            self._took_too_long.popitem(last=False)

    def _put_aside(self, key: str, text: str, place: Place, tenant: str) -> Redacted:
        if place not in PAID and (self.then == "pause" or place in NEEDED):
            # A person may have seen to it when it comes again.
            self._took_too_long.pop(key, None)
            kind = TextHeldBack if self.then == "pause" else TextGivenUp
            raise kind(
                f"a text ({place}) could not be redacted in time, twice: give less at once, or more time (the setting "
                "redaction_seconds)"
            )
        placeholder = unredacted(text, self.fingerprint(tenant, UNREDACTED, text), put_aside=True)
        if self._took_too_long.get(key) == ATTEMPTS_IN_TIME:
            self._note(key)  # once more, so that it is said once
            _log.warning("a text (%s) could not be redacted in time, twice: %s stands for it", place, placeholder.text)
        return placeholder

    def _placeholder(self, text: str, tenant: str) -> Redacted:
        return unredacted(text, self.fingerprint(tenant, UNREDACTED, text))

    def _stop(self, failed: TextNotRedacted) -> NoReturn:
        kind = TextHeldBack if self.then == "pause" else TextGivenUp
        raise kind(f"after {self.attempts} attempts a text could still not be redacted: {failed}") from failed
