"""What a redaction gives back."""

import re
from collections.abc import Sequence
from typing import Literal

from waystation.domain.value import Value

FINGERPRINT_DIGITS = 12
PLACEHOLDER = re.compile(r"<[A-Z]+(?:_[A-Z]+)*_[0-9a-f]{12,64}>")
"""What stands for a private value: its type, and the first digits of its fingerprint."""
_TYPE = re.compile(r"<([A-Z]+(?:_[A-Z]+)*)_[0-9a-f]{12,64}>")


NAMED_CHARACTERS = 100
"""Of what a note says a text is."""
UNREDACTED = "UNREDACTED_TEXT"
"""The type of a placeholder that stands for a whole text which could not be redacted."""
AfterFailures = Literal["placeholder", "pause"]
"""What becomes of a text that could not be redacted in as many attempts as it is given."""


class Span(Value):
    """One replaced stretch, in characters of the original text."""

    type: str
    start: int
    end: int
    score: float
    placeholder: str


class Redacted(Value):
    """A text with its private parts replaced by stable placeholders such as `<PERSON_7f3a2c91d04e>`."""

    text: str
    spans: tuple[Span, ...] = ()
    languages_without_names: tuple[str, ...] = ()
    """Languages (ISO 639-1) of stretches in which names were not looked for, since there is no model for them."""

    put_aside: bool = False
    """Whether this is a placeholder for a text that took too long, twice."""

    @property
    def unredacted(self) -> bool:
        """Whether this is no more than a placeholder for a text that could not be redacted."""
        return any(span.type == UNREDACTED for span in self.spans)


def unredacted(text: str, fingerprint: str, *, put_aside: bool = False) -> Redacted:
    """What goes on in the place of a text that could not be redacted: nothing of it."""
    placeholder = f"<{UNREDACTED}_{fingerprint[:FINGERPRINT_DIGITS]}>"
    span = Span(type=UNREDACTED, start=0, end=len(text), score=1, placeholder=placeholder)
    return Redacted(text=placeholder, spans=(span,), put_aside=put_aside)


def cut(text: str, characters: int, mark: str = "") -> str:
    """A redacted text of at most so many characters: cut before a placeholder and never within, with `mark` behind."""
    if len(text) <= characters:
        return text
    end = characters - len(mark)
    broken = (found.start() for found in PLACEHOLDER.finditer(text) if found.start() < end < found.end())
    return text[: next(broken, end)].rstrip() + mark


def redaction_notes(*texts: Redacted, of: str = "") -> tuple[str, ...]:
    """What a person should know of these redactions: sentences that are the same for the same languages, and one for
    each text that was put aside. `of`: what the texts are, in redacted words.
    """
    notes: list[str] = []
    if languages := sorted({language for text in texts for language in text.languages_without_names}):
        notes.append(
            f"Names were not looked for in text whose language is {', '.join(languages)}: the setting `languages` has "
            "no model for it. Secrets and identifiers were looked for there too."
        )
    named = f" ({cut(of, NAMED_CHARACTERS, '…')})" if of else ""
    notes += [
        f"1 text could not be redacted in time and was replaced by {text.text}{named}."
        for text in texts
        if text.put_aside
    ]
    if any(text.unredacted and not text.put_aside for text in texts):
        notes.append("Text that could not be redacted was left out, and a placeholder stands where it was.")
    return tuple(notes)


class Original(Value):
    """What a placeholder stands for."""

    type: str
    placeholder: str
    fingerprint: str
    """64 hexadecimal digits: the keyed hash of the value in its normal form. The placeholder shows the first."""
    text: str
    """The value as it was written where it was met first."""


def meant(text: str) -> str:
    """The text with the type in the place of each placeholder, as an embedder understands it: *person*.

    A fingerprint is no word of any language: it becomes a dozen meaningless pieces, and drowns the words beside it.
    """
    return _TYPE.sub(lambda placeholder: placeholder[1].replace("_", " ").lower(), text)


def with_placeholders(text: str, spans: Sequence[Span]) -> Redacted:
    """The text with each span, given in order, replaced by its placeholder."""
    parts: list[str] = []
    position = 0
    for span in spans:
        parts += (text[position : span.start], span.placeholder)
        position = span.end
    return Redacted(text="".join((*parts, text[position:])), spans=tuple(spans))
