"""A redactor that puts what it replaces into the vault before the redacted text goes anywhere."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from waystation.domain.errors import RedactionFailed, StoreError
from waystation.domain.privacy import Place
from waystation.domain.redaction import FINGERPRINT_DIGITS, Original, Redacted, Span, with_placeholders
from waystation.ports import Clock, Redactor, Vault

NEVER_KEPT = frozenset({"SECRET"})
"""Types of credentials: nothing that is restored ever holds one."""
LENGTHENED_BY = 4
"""Hexadecimal digits (16 bits) that a placeholder gets more where a shorter one stands for another value."""
TRUSTED_FOR = timedelta(minutes=10)
"""What was forgotten meanwhile is kept anew when it comes again after this."""
MOST_REMEMBERED = 100_000

Fingerprint = Callable[[str, str, str], str]
"""Tenant, type and value become 64 hexadecimal digits; the redactor's placeholder shows the first of them."""


_Value = tuple[str, str, str]


def _no_session() -> str:
    return ""


class _Kept(NamedTuple):
    placeholder: str
    at: datetime


@dataclass(frozen=True)
class KeepingRedactor:
    """Where the vault cannot be written, nothing is redacted: no placeholder goes out that nobody could restore.

    A value that comes again costs a hash and no look into the vault.
    """

    redactor: Redactor
    vault: Vault
    fingerprint: Fingerprint
    clock: Clock
    session: Callable[[], str] = _no_session
    """Hash of the session that the text at hand belongs to: what is replaced in it, was met there."""
    _kept: dict[_Value, _Kept] = field(default_factory=dict[_Value, _Kept], init=False)
    """By tenant, session and fingerprint."""

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`."""
        results = await self.redactor.redact(texts, place, tenant)
        found = [
            [self._original(tenant, span, text) for span in result.spans]
            for text, result in zip(texts, results, strict=True)
        ]
        placeholders = await self._keep(tenant, {one.fingerprint: one for each in found for one in each})
        return tuple(
            _settled(text, result, [placeholders.get(one.fingerprint, one.placeholder) for one in originals])
            for text, result, originals in zip(texts, results, found, strict=True)
        )

    async def placeholders(self, type_: str, values: Sequence[str], tenant: str) -> Mapping[str, str]:
        """See `Placeholders`."""
        found = {value: self._made(tenant, type_, value) for value in values}
        settled = await self._keep(tenant, {one.fingerprint: one for one in found.values()})
        return {value: settled.get(one.fingerprint, one.placeholder) for value, one in found.items()}

    def _made(self, tenant: str, type_: str, value: str) -> Original:
        fingerprint = self.fingerprint(tenant, type_, value)
        placeholder = f"<{type_}_{fingerprint[:FINGERPRINT_DIGITS]}>"
        return Original(type=type_, placeholder=placeholder, fingerprint=fingerprint, text=value)

    def _original(self, tenant: str, span: Span, text: str) -> Original:
        value = text[span.start : span.end]
        fingerprint = self.fingerprint(tenant, span.type, value)
        return Original(type=span.type, placeholder=span.placeholder, fingerprint=fingerprint, text=value)

    async def _keep(self, tenant: str, originals: Mapping[str, Original]) -> Mapping[str, str]:
        """By fingerprint the placeholder under which the vault has each; credentials are not among them."""
        now, session = self.clock(), self.session()
        known = {one: self._remembered((tenant, session, one), now) for one in originals}
        settled = {one: kept.placeholder for one, kept in known.items() if kept}
        waiting = [one for one in originals.values() if one.fingerprint not in settled and one.type not in NEVER_KEPT]
        while waiting:
            try:
                taken = await self.vault.keep(tenant, waiting, session)
            except StoreError as error:
                raise RedactionFailed(f"what was replaced cannot be kept, so it goes nowhere: {error}") from error
            for one in waiting:
                if one.fingerprint not in taken:
                    settled[one.fingerprint] = one.placeholder
                    self._remember((tenant, session, one.fingerprint), _Kept(one.placeholder, now))
            waiting = [_lengthened(one) for one in waiting if one.fingerprint in taken]
        return settled

    def _remembered(self, value: _Value, now: datetime) -> _Kept | None:
        kept = self._kept.get(value)
        return kept if kept is not None and now - kept.at < TRUSTED_FOR else None

    def _remember(self, value: _Value, kept: _Kept) -> None:
        if len(self._kept) >= MOST_REMEMBERED:
            self._kept.clear()
        self._kept[value] = kept


def _settled(text: str, result: Redacted, placeholders: Sequence[str]) -> Redacted:
    if all(span.placeholder == settled for span, settled in zip(result.spans, placeholders, strict=True)):
        return result
    spans = [
        span.model_copy(update={"placeholder": settled})
        for span, settled in zip(result.spans, placeholders, strict=True)
    ]
    kept = {"languages_without_names": result.languages_without_names}
    return with_placeholders(text, spans).model_copy(update=kept)


def _lengthened(original: Original) -> Original:
    label, _, digits = original.placeholder.strip("<>").rpartition("_")
    longer = original.fingerprint[: len(digits) + LENGTHENED_BY]
    return original.model_copy(update={"placeholder": f"<{label}_{longer}>"})
