"""Checks a sentence of a report against the passages that it cites, by code.

Figures, dates and names must stand in the passages: that is a rule. The rest is an estimate: a logistic regression over
a few features of the words (`support_features.py`), with the weights of `support_model.py`.
"""

import math
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waystation.documents.contradictions import Contradiction, find_contradictions
from waystation.documents.figure_faults import FigureFault, find_figure_faults
from waystation.documents.figures import extract_figures, normalize_text
from waystation.documents.name_mentions import NameFault, NameIndex, find_name_faults
from waystation.documents.search_terms import split_words
from waystation.documents.support_features import SupportFeatures, WordingMatch, compare_wording
from waystation.documents.support_model import SUPPORT_MODEL, SupportModel
from waystation.documents.support_verdicts import MissingDetail, SupportCheck, SupportVerdict
from waystation.kernel.patterns import compile_bounded
from waystation.privacy.policy import PLACEHOLDER_PATTERN

MAX_READ_CHARACTERS = 200_000
"""Characters of the passages that are read. Beyond them, a figure or name counts only if it is spelled the same."""
MAX_SENTENCE_CHARACTERS = 4_000
MIN_DECIDED_WORDS = 3
"""Content words from which a sentence is not supported by its words alone."""
MIN_ORDERED_WORDS = 5
"""Content words from which their order counts."""
MAX_NAMED_WORDS = 3
"""Maximum words of a sentence that are named as missing."""
SAME_SHARE = 0.75
"""Share of the words in one sentence of the passages from which a word that turns the meaning around decides."""
ALIGNED_SHARE = 0.5
"""The same, from which such a word makes the verdict uncertain."""
_RULED = frozenset({"figure", "date", "name"})
_MARKER = compile_bounded(r"\[\d{1,3}\]|</?s>")
"""Numbers of references, such as `[8]`."""
_LIST_NUMBER = compile_bounded(r"\A(?:[\s*_#>]|-(?![-\d.,$€£%])){0,8}(?:\d{1,3}[.)]\s+)?")
"""Marks and number of a list's item. A dash before a figure is its sign."""
_LANGUAGES = """
en: the of and to is was that for with are from by it this be as which has have were not
de: der die das und ist nicht ein eine mit von für auf dem den des wurde werden sich auch zu
fr: le les des et est une dans pour que qui du par sur avec au ont été sont plus ne
es: el los las del y es una por con para que se al su más fue como son no lo
it: il gli di e è una per con che del della nel sono non si alla dei da ha le
pt: o os as do da e é uma por com para que se ao em não dos foi mais no
nl: de het een van en is niet met voor op dat zijn door aan werd te bij ook naar uit
"""
_FUNCTION_WORDS = {
    line.partition(": ")[0]: frozenset(line.partition(": ")[2].split()) for line in _LANGUAGES.strip().splitlines()
}
_LANGUAGE_WORDS = 400
"""Words of the passages by which their language is recognised."""


def check_support(sentence: str, passages: Sequence[str], *, question: str = "") -> SupportCheck:
    """Check whether the passages, together, support the sentence.

    A figure, date or name that the passages do not contain makes the sentence not supported, whatever its score. That
    includes figures that the writer computed from figures in the passages: a sum cannot be told from an invention.
    Names that stand in the question are exempt, since a passage often calls its subject `it` or `the company`.

    The check compares words; it does not understand them. A sentence in another language than its passages gets
    `CANNOT_TELL` at best.

    Args:
        sentence: One sentence of a report, without its citations.
        passages: The cited lines, one text for each citation. Headings above them and the document's name may precede
            the lines: names and years in them count.
        question: The question that the report answers: names in it need not stand in the passages.
    """
    text = _clean(sentence)
    evidence = "\n".join(passages)
    read, unread = normalize_text(evidence[:MAX_READ_CHARACTERS]), evidence[MAX_READ_CHARACTERS:]
    reading = _read(text, read, question)
    if unread:
        reading = reading.without_texts_in(unread)
    return reading.decide(SUPPORT_MODEL)


def _clean(sentence: str) -> str:
    text = PLACEHOLDER_PATTERN.sub(" ", sentence)[:MAX_SENTENCE_CHARACTERS]
    return normalize_text(_LIST_NUMBER.sub("", _MARKER.sub(" ", text), count=1))


def measure_support(sentence: str, passages: Sequence[str], *, question: str = "") -> SupportFeatures:
    """Return the features of a sentence, by which weights are fitted. The arguments are those of `check_support`."""
    read = normalize_text("\n".join(passages)[:MAX_READ_CHARACTERS])
    return _read(_clean(sentence), read, question).features


class _Reading(NamedTuple):
    """What was found in one sentence and its passages."""

    figures: Sequence[FigureFault]
    names: Sequence[NameFault]
    contradictions: Sequence[Contradiction]
    wording: WordingMatch
    is_translated: bool
    """Whether the sentence is in another language than its passages."""

    @property
    def features(self) -> SupportFeatures:
        return self.wording.features._replace(
            missing_figures=min(2.0, sum(fault.is_absent for fault in self.figures)),
            missing_names=min(2.0, sum(not fault.lines_say for fault in self.names)),
        )

    def without_texts_in(self, unread: str) -> "_Reading":
        return self._replace(
            figures=[fault for fault in self.figures if fault.text not in unread],
            names=[fault for fault in self.names if fault.text not in unread],
        )

    def decide(self, model: SupportModel) -> SupportCheck:
        score = model.estimate(self.features) if self.wording.has_words else 1.0
        if self.is_translated:
            missing = tuple(self._list_figures())
            verdict = _NO if missing else SupportVerdict.CANNOT_TELL
            return SupportCheck(verdict=verdict, missing=missing, score=0.5)
        missing = (*self._list_figures(), *self._list_names(), *self._list_contradictions())
        has_enough_words = self.wording.features.content_words >= math.log(MIN_DECIDED_WORDS)
        if self._is_refuted() or (has_enough_words and score < model.not_supported_below):
            verdict = _NO
        elif missing or (score < model.supported_from and not self._is_short_and_whole()):
            verdict = SupportVerdict.CANNOT_TELL
        else:
            verdict = SupportVerdict.SUPPORTED
        if verdict is not SupportVerdict.SUPPORTED and not any(detail.kind in _RULED for detail in missing):
            named = {word.casefold() for detail in missing for word in detail.text.split()}
            words = [word for word in self.wording.missing if word not in named][:MAX_NAMED_WORDS]
            missing += tuple(MissingDetail(kind="wording", text=word) for word in words)
        return SupportCheck(verdict=verdict, missing=missing, score=round(score, 4))

    def _is_short_and_whole(self) -> bool:
        """Return whether all words of a short sentence stand together in the passages."""
        features = self.wording.features
        return features.window_share == 1 and features.content_words < math.log(MIN_ORDERED_WORDS)

    def _is_refuted(self) -> bool:
        """Return whether a rule decides: a figure or name is absent, or a word turns the meaning around."""
        if any(not fault.lines_say for fault in self.names) or any(
            fault.is_absent or fault.is_opposite for fault in self.figures
        ):
            return True
        return self.wording.aligned_share >= SAME_SHARE and any(one.is_opposite for one in self.contradictions)

    def _list_figures(self) -> Iterator[MissingDetail]:
        for fault in self.figures:
            if fault.is_absent or not self.is_translated:
                yield MissingDetail(kind=fault.kind, text=fault.text, lines_say=fault.lines_say)

    def _list_names(self) -> Iterator[MissingDetail]:
        for fault in self.names:
            yield MissingDetail(kind="name", text=fault.text, lines_say=fault.lines_say)

    def _list_contradictions(self) -> Iterator[MissingDetail]:
        if self.wording.aligned_share >= ALIGNED_SHARE:
            for one in self.contradictions:
                yield MissingDetail(kind=one.kind, text=one.text, lines_say=one.lines_say)


_NO = SupportVerdict.NOT_SUPPORTED


def _read(text: str, passages: str, question: str) -> _Reading:
    own = extract_figures(text)
    needs_figures = own.figures or own.dates or own.times
    wording = compare_wording(own.blank_out(), passages)
    return _Reading(
        figures=find_figure_faults(own, extract_figures(passages)) if needs_figures else (),
        names=find_name_faults(text, NameIndex(passages), question),
        contradictions=find_contradictions(text, wording.aligned, wording.around) if wording.aligned else (),
        wording=wording,
        is_translated=_is_translated(text, passages),
    )


def _is_translated(sentence: str, passages: str) -> bool:
    own, theirs = _find_language(sentence), _find_language(passages)
    return bool(own and theirs and own != theirs)


def _find_language(text: str) -> str:
    """Return the language of a text, or its script; empty if it is not clear."""
    letters = [sign for sign in text[:1000] if sign.isalpha()]
    if letters and sum(sign > "\u0370" for sign in letters) * 2 > len(letters):
        return unicodedata.name(letters[len(letters) // 2], "").partition(" ")[0]
    words = split_words(text[: _LANGUAGE_WORDS * 8].casefold())[:_LANGUAGE_WORDS]
    counts = {language: sum(word in known for word in words) for language, known in _FUNCTION_WORDS.items()}
    first, second = sorted(counts.values(), reverse=True)[:2]
    return max(counts, key=lambda language: counts[language]) if first >= 2 and first >= 2 * second else ""
