"""A redactor that does not fail for ever at the same text: after enough attempts nothing of it goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from waystation.domain.errors import RedactionFailed, TextGivenUp, TextHeldBack, TextNotRedacted
from waystation.domain.privacy import Place
from waystation.domain.redaction import UNREDACTED, AfterFailures, Redacted, unredacted
from waystation.ports import Redactor

PAID = frozenset({Place.MODEL_OUTPUT, Place.TOOL_ARGUMENT, Place.SUMMARY})
"""What a model was paid for. Another attempt at the work would ask it anew, so redaction is tried again here."""
NEEDED = frozenset({Place.USER_INPUT, Place.CONTRACT})
"""Without these an agent does not know what it is to do."""
LONGEST_PAUSE_S = 60


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

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`. Raises TextGivenUp and TextHeldBack, too."""
        if place in PAID:
            return tuple([await self._paid(text, place, tenant) for text in texts])
        if self.attempt() < self.attempts:
            return await self.redactor.redact(texts, place, tenant)
        return tuple([await self._last_attempt(text, place, tenant) for text in texts])

    async def _last_attempt(self, text: str, place: Place, tenant: str) -> Redacted:
        try:
            return await self._once(text, place, tenant)
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
        (redacted,) = await self.redactor.redact([text], place, tenant)
        return redacted

    def _placeholder(self, text: str, tenant: str) -> Redacted:
        return unredacted(text, self.fingerprint(tenant, UNREDACTED, text))

    def _stop(self, failed: TextNotRedacted) -> NoReturn:
        kind = TextHeldBack if self.then == "pause" else TextGivenUp
        raise kind(f"after {self.attempts} attempts a text could still not be redacted: {failed}") from failed
