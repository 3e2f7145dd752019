"""The base of our own recognisers: finds by format, without words around them that are only likely."""

import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from presidio_analyzer import LocalRecognizer, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts

from waystation.patterns import transient

LABEL_REACH = 60
"""Characters before an id in which its label is looked for."""


class Hit(NamedTuple):
    """A find in characters of the text that the recogniser was given."""

    type: str
    start: int
    end: int
    score: float


class Hinted(NamedTuple):
    """A pattern, and of what (in lower case) a text must hold one for the pattern to be worth its time."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]

    def matches(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        """Every match in the text."""
        return self.pattern.finditer(text) if any(hint in lowered for hint in self.hints) else iter(())


def label_before(words: Sequence[str]) -> re.Pattern[str]:
    """Matches where one of these words stands before the end of what is searched, with no other number in between."""
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    gap = rf"(?:(?!\d{{4}})[^\n;]){{0,{LABEL_REACH}}}+"
    return transient(rf"(?<!\w)(?:{alternatives})(?!\w){gap}\Z", re.IGNORECASE)


class FormatRecognizer(LocalRecognizer):
    """A recogniser that looks at the characters alone.

    Presidio would raise the score of weak matches by words nearby, but compares them as substrings: "lic" of a
    driver's licence is in "public", "us" of a passport in "used". Here a label is part of the format.
    """

    TYPES: ClassVar[tuple[str, ...]]

    def __init__(self, types: tuple[str, ...] | None = None) -> None:
        super().__init__(supported_entities=list(types or self.TYPES), supported_language="en")

    def load(self) -> None:
        """Nothing to load."""

    @abstractmethod
    def hits(self, text: str) -> Iterator[Hit]:
        """Every find in the text."""

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,  # noqa: ARG002 - Presidio passes it by this name
    ) -> list[RecognizerResult]:
        """The finds of the wanted types, as Presidio takes them."""
        return [
            RecognizerResult(entity_type=hit.type, start=hit.start, end=hit.end, score=hit.score)
            for hit in self.hits(text)
            if hit.type in entities
        ]
