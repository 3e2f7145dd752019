"""The base of our recognisers, which match formats only, without merely likely words around them; and the index of
spans that redaction leaves unchanged.
"""

import re
from abc import abstractmethod
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import ClassVar, NamedTuple

from presidio_analyzer import LocalRecognizer, RecognizerResult
from presidio_analyzer.nlp_engine import NlpArtifacts

from waystation.kernel.patterns import compile_bounded, compile_dynamic
from waystation.plugins.redaction.detections import Detection
from waystation.privacy.policy import NAME_TYPES, PLACEHOLDER_PATTERN
from waystation.security.placeholders import SECRET

LABEL_REACH = 60
"""Characters before an id that are searched for its label."""


class RecognizerMatch(NamedTuple):
    """A match, in characters of the text that the recogniser was given."""

    type: str
    start: int
    end: int
    score: float


class PrefilteredPattern(NamedTuple):
    """A pattern, with strings (in lower case) of which a text must have one for the pattern to be worth running."""

    hints: tuple[str, ...]
    pattern: re.Pattern[str]

    def matches(self, text: str, lowered: str) -> Iterator[re.Match[str]]:
        """Yield every match in the text."""
        return self.pattern.finditer(text) if any(hint in lowered for hint in self.hints) else iter(())


def compile_label_pattern(words: Sequence[str]) -> re.Pattern[str]:
    """Compile a pattern that matches if one of these words ends the searched text, with no other number in between."""
    alternatives = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    gap = rf"(?:(?!\d{{4}})[^\n;]){{0,{LABEL_REACH}}}+"
    return compile_dynamic(rf"(?<!\w)(?:{alternatives})(?!\w){gap}\Z", re.IGNORECASE)


class FormatRecognizer(LocalRecognizer):
    """A recogniser that looks at the characters only.

    Presidio would raise the score of weak matches by words nearby, but compares them as substrings: "lic" of a driver's
    licence is in "public", "us" of a passport in "used". Here a label is part of the format.
    """

    TYPES: ClassVar[tuple[str, ...]]

    def __init__(self, types: tuple[str, ...] | None = None) -> None:
        super().__init__(supported_entities=list(types or self.TYPES), supported_language="en")

    def load(self) -> None:
        """Do nothing."""

    @abstractmethod
    def find_matches(self, text: str) -> Iterator[RecognizerMatch]:
        """Yield every match in the text."""

    def analyze(
        self,
        text: str,
        entities: list[str],
        nlp_artifacts: NlpArtifacts | None = None,  # noqa: ARG002 - Presidio passes it by this name
    ) -> list[RecognizerResult]:
        """Return matches of the requested types, as Presidio expects them."""
        return [
            RecognizerResult(entity_type=hit.type, start=hit.start, end=hit.end, score=hit.score)
            for hit in self.find_matches(text)
            if hit.type in entities
        ]


_REFERENCES = compile_bounded(
    r"""
      (?P<citation>\[(?:(?<=\w\[)|(?![0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{0,80}:))  # not [2001:db8::1]
      [^\[\]\n@]{1,200}:)\d{1,7}(?:-\d{1,7})?\]             # a citation, [name.md:12-18]
    | \b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b                                # a UUID
    | \b(?=\d*[a-f])[0-9a-f]{12,128}\b                                               # a hash
    | (?P<id>\b(?:task|session|summary|turn|plan|run|step|call|toolu|msg|req|note)[-_]
      (?!\d{3}[-_]\d{2,3}[-_]\d{4}(?![A-Za-z0-9/])|\d[\d_-]{11,40}(?![A-Za-z0-9/]))[\w/-]{1,100})
    | \b(?:19|20)\d\d-[01]\d-[0-3]\d(?:[T ][0-2]\d:[0-5]\d(?::[0-5]\d(?:[.,]\d{1,9})?)?(?:Z|[+-][0-2]\d:?[0-5]\d)?)?
    """,
    re.VERBOSE,
)
_ADDRESSES = compile_bounded(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"']{1,500}")
_CODE = compile_bounded(
    r"""
      `[^`\n]{1,200}`
    | \b[a-z][a-z0-9+.-]{1,20}://[^\s<>"']{1,500}
    | (?<![\w<])(?:~|\.{1,2})?(?:/[\w.@+-]{1,200}){1,40}/?
    | (?<![\w-])-*+\b[\w-]{1,100}(?:[./][\w-]{1,100}){0,20}\.[a-z][a-z0-9]{0,5}\b
    """,
    re.VERBOSE,
)


class ProtectedSpanIndex:
    """Spans of one text that stay unchanged: placeholders always; references except for secrets, addresses and IBANs in
    them; code and paths only against names.
    """

    def __init__(self, text: str) -> None:
        self._placeholders = _Stretches(match.span() for match in PLACEHOLDER_PATTERN.finditer(text))
        references = list(_REFERENCES.finditer(text))
        self._references = _Stretches(match.span() for match in references)
        others = [match for match in references if match["id"] is None]
        self._numbers = _Stretches((max(match.start(), match.end("citation")), match.end()) for match in others)
        self._ids = _Stretches(match.span() for match in references if match["id"] is not None)
        self._text = text

    @cached_property
    def _code(self) -> "_Stretches":
        return _Stretches(match.span() for match in _CODE.finditer(self._text))

    def iter_gaps_as_secrets(self, start: int, end: int) -> Iterator[Detection]:
        """Yield the parts of this span outside of placeholders, as secrets."""
        for first, last in (*self._placeholders.within(start, end), (end, end)):
            if start < first:
                yield Detection(SECRET, start, first, 1.0)
            start = max(start, last)

    def should_keep(self, find: Detection, *, though_a_reference: bool = False) -> bool:
        """Return whether the detected text must be left unchanged.

        `though_a_reference`: only placeholders protect it.
        """
        if self._placeholders.touch(find):
            return True
        if though_a_reference or find.type in {SECRET, "EMAIL", "IBAN"}:
            return False
        if find.type in NAME_TYPES:
            return self._references.touch(find) or self._code.touch(find, from_its_beginning=True)
        return self._numbers.touch(find) or self._ids.hold(find)

    def should_keep_joined_name(self, find: Detection, *, in_file_name: bool) -> bool:
        """Return the same for a name of joined words: in a file name, code and paths do not protect it."""
        if not in_file_name and self._code.touch(find):
            return True
        return any(stretches.touch(find) for stretches in (self._placeholders, self._references, self._addresses))

    @cached_property
    def _addresses(self) -> "_Stretches":
        return _Stretches(match.span() for match in _ADDRESSES.finditer(self._text))


class _Stretches:
    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = list(spans)
        self._starts = [start for start, _ in self._spans]

    def within(self, start: int, end: int) -> Sequence[tuple[int, int]]:
        """Return the spans that begin or end there."""
        first = max(0, bisect_right(self._starts, start) - 1)
        return [span for span in self._spans[first : bisect_right(self._starts, end - 1)] if span[1] > start]

    def hold(self, find: Detection) -> bool:
        """Return whether one of them contains the whole detection."""
        last = bisect_right(self._starts, find.start) - 1
        return last >= 0 and self._spans[last][1] >= find.end

    def touch(self, find: Detection, *, from_its_beginning: bool = False) -> bool:
        """Return whether one of them overlaps the detection; `from_its_beginning`: and does not begin after it.

        A file name with blanks begins before the part that looks like one: `Ada Lovelace.md`.
        """
        last = bisect_right(self._starts, find.start if from_its_beginning else find.end - 1) - 1
        return last >= 0 and self._spans[last][1] > find.start
