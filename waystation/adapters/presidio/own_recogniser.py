"""The recogniser of what a person's own rules (`own`) describe."""

from collections.abc import Iterator, Sequence
from re import escape

from waystation.adapters.presidio import own
from waystation.adapters.presidio.formats import LABEL_REACH, FormatRecognizer, Hit, label_before
from waystation.adapters.presidio.own import CLEAR_SCORE, OwnKind, OwnRegex
from waystation.domain.errors import TextNotRedacted


class OwnRecognizer(FormatRecognizer):
    """Finds what one recogniser of the file describes."""

    TYPES = ()

    def __init__(self, kind: OwnKind) -> None:
        super().__init__(types=(kind.supported_entity,))
        self._kind = kind
        self._label = label_before(kind.context) if kind.context else None
        listed = [(_any_of(kind.deny_list), kind.deny_list_score)] if kind.deny_list else []
        written = [(pattern.regex, pattern.score) for pattern in kind.patterns]
        self._patterns = [(OwnRegex(pattern), score) for pattern, score in (*written, *listed)]

    def hits(self, text: str) -> Iterator[Hit]:
        """Every find in the text. Raises TextNotRedacted for a pattern that takes too long."""
        for pattern, score in self._patterns:
            for start, end in self._spans(pattern, text):
                if score >= CLEAR_SCORE or self._is_labelled(text, start):
                    yield Hit(self._kind.supported_entity, start, end, max(score, CLEAR_SCORE))

    def _spans(self, pattern: OwnRegex, text: str) -> list[tuple[int, int]]:
        try:
            return pattern.spans(text)
        except TimeoutError:
            raise TextNotRedacted(
                f"the recogniser {self._kind.name!r} of your own took over {own.SECONDS_PER_CHUNK:g} s for one stretch "
                "of text: simplify its pattern, where repetitions stand inside repetitions"
            ) from None

    def _is_labelled(self, text: str, start: int) -> bool:
        return self._label is not None and self._label.search(text, max(0, start - LABEL_REACH), start) is not None


def _any_of(words: Sequence[str]) -> str:
    alternatives = "|".join(escape(word) for word in sorted(words, key=len, reverse=True))
    return rf"(?<!\w)(?:{alternatives})(?!\w)"
