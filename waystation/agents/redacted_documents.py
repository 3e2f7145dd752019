"""Whole texts as agents may see them: redacted once, before anything of them is numbered, cut, searched or cited.

Recognisers read structures of several lines: a table's heading, a key and its value on the next line. A stretch of
lines with numbers before them has those no more, so what is shown of a text is a part of the whole redacted text.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from waystation.agents.document_names import told_name
from waystation.domain.errors import TextHeldBack
from waystation.domain.ownership import OfTenant
from waystation.domain.privacy import Place, treatment
from waystation.domain.redaction import (
    UNVERSIONED,
    Redacted,
    RedactionRules,
    ShownKey,
    ShownText,
    redaction_notes,
    shown_text,
    with_line_feeds,
)
from waystation.ports import Redactor, ShownTexts

MOST_WITHHELD = 10_000
"""Texts that could not be redacted and are not tried again by this process."""


@dataclass(frozen=True)
class RedactedDocuments:
    """Documents, pages and stored results, by the content hashes of their originals.

    Each is redacted when it is first shown, line for line, and kept with its original for its tenant and these rules.
    A text that could not be redacted, as often as it was to be tried, is not tried again while the process lives.
    """

    texts: ShownTexts
    redactor: Redactor
    rules: RedactionRules = UNVERSIONED
    keeps: bool = True
    """False where what is replaced goes into no vault: nobody could restore what is kept."""
    _withheld: dict[ShownKey, ShownText] = field(default_factory=dict[ShownKey, ShownText], init=False)
    _turns: WeakValueDictionary[ShownKey, asyncio.Lock] = field(
        default_factory=WeakValueDictionary[ShownKey, asyncio.Lock], init=False
    )
    """Agents of one task ask for the same document at once: the second finds what the first has kept."""

    async def text(self, blob: str, reader: OfTenant, place: Place = Place.TOOL_RESULT) -> ShownText:
        """The whole text as it may be shown at this place, with as many lines as the original.

        Raises TextMissing where no task that the reader may see has it, StoreError; RedactionFailed where it is to be
        tried again.
        """
        key = ShownKey(
            blob=blob, tenant=reader.tenant, treatment=treatment(place, self.rules.policy), version=self.rules.version
        )
        async with self._turns.setdefault(key, asyncio.Lock()):
            return await self.texts.shown(key, reader) or await self._redacted(key, reader, place)

    async def notes(self, shown: ShownText | Sequence[Redacted], called: str, tenant: str) -> tuple[str, ...]:
        """What a person should know of the redaction of a whole text, or of parts of it.

        `called`: how the text is known where agents work. Raises RedactionFailed.
        """
        parts = shown.results if isinstance(shown, ShownText) else shown
        named = any(part.put_aside for part in parts)
        return redaction_notes(*parts, of=await told_name(called, self.redactor, tenant) if named else "")

    async def lines(self, blob: str, reader: OfTenant) -> list[str]:
        """Its lines for who compares with them and asks nobody: none of a text that a person is to see to first.

        Raises as `text` does.
        """
        try:
            return (await self.text(blob, reader)).lines
        except TextHeldBack:
            return [""]

    async def _redacted(self, key: ShownKey, reader: OfTenant, place: Place) -> ShownText:
        original = with_line_feeds(await self.texts.get_text(key.blob, reader))
        if (withheld := self._withheld.get(key)) is not None:
            return withheld
        (redacted,) = await self.redactor.redact([original], place, key.tenant)
        shown = shown_text(original, redacted)
        if shown.withheld:
            self._withheld[key] = shown
            if len(self._withheld) > MOST_WITHHELD:
                self._withheld.pop(next(iter(self._withheld)))
        elif self.keeps:
            await self.texts.keep_shown(key, shown)
        return shown
