"""A redactor that is more careful with titles: they go where everybody looks, and are too short for a language model.

A name that stands alone, in small letters or in capitals, is often not seen as one; spelled as names are, it may be.
What is replaced too much costs little there.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from waystation.domain.privacy import Place
from waystation.domain.redaction import PLACEHOLDER, Redacted, with_placeholders
from waystation.patterns import proven
from waystation.ports import Redactor

Titles = Literal["redacted", "none"]
"""Words of the question and of the plan, redacted; or none of them."""
NO_TITLE = "(no title)"
_PERSON = "PERSON"
_WORD = proven(rf"{PLACEHOLDER.pattern}|[^\W\d_]+")
_LONGEST_CODE = 3
"""Letters: words of capitals that are no longer stay as they are."""
_NO_NAMES = proven(
    "a|about|after|all|an|and|any|are|as|ask|at|be|between|by|call|can|could|did|do|does|draft|find|for|from"
    "|had|has|have|he|her|his|how|if|in|into|is|it|its|me|my|not|of|on|or|our|out|over|said|say|says|she"
    "|should|so|tell|than|that|the|their|them|then|they|this|to|told|up|us|was|we|were|what|when|where|which"
    "|who|whom|whose|why|will|with|would|write|you|your"
)
"""Between words like these a model sees a name best."""


@dataclass(frozen=True)
class TitlingRedactor:
    """Implements the port `Redactor` over another one."""

    redactor: Redactor
    titles: Titles = "redacted"

    async def redact(self, texts: Sequence[str], place: Place, tenant: str) -> tuple[Redacted, ...]:
        """See `Redactor`. Of titles only the text counts: spans are not those of the text that was given."""
        if place is not Place.TITLE:
            return await self.redactor.redact(texts, place, tenant)
        if self.titles == "none":
            return tuple([Redacted(text=NO_TITLE) for _ in texts])
        once = await self.redactor.redact(texts, place, tenant)
        spelled = await self.redactor.redact([_WORD.sub(_as_a_name, one.text) for one in once], place, tenant)
        return tuple(_without_names(one, again) for one, again in zip(once, spelled, strict=True))


def _as_a_name(word: re.Match[str]) -> str:
    written = word[0]
    if _NO_NAMES.fullmatch(written.lower()):
        return written
    spelled = written[0].upper() + written[1:].lower()
    other = written.islower() or (written.isupper() and len(written) > _LONGEST_CODE)
    return spelled if other and len(spelled) == len(written) else written


def _without_names(once: Redacted, again: Redacted) -> Redacted:
    # A single word that is spelled so is taken for a name too often.
    names = [span for span in again.spans if span.type == _PERSON and " " in once.text[span.start : span.end]]
    if once.unredacted or not names:
        return once
    return once.model_copy(update={"text": with_placeholders(once.text, names).text, "spans": ()})
