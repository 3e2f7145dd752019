"""Checks a sentence of a report against the passages that it cites, by code."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Literal, Protocol

from waystation.documents.search_terms import extract_terms
from waystation.documents.word_normalization import normalize_words, split_figures
from waystation.kernel.value import Value

MIN_SUPPORTED_SCORE = 0.6
MAX_UNSUPPORTED_SCORE = 0.4
MissingKind = Literal["figure", "date", "name", "negation", "modality", "wording"]


class SupportVerdict(StrEnum):
    """Whether the cited lines support a sentence, as far as code can see."""

    SUPPORTED = "supported"
    NOT_SUPPORTED = "not_supported"
    CANNOT_TELL = "cannot_tell"


class MissingDetail(Value):
    """Something that a sentence says and its cited lines do not."""

    kind: MissingKind
    text: str
    """As written in the sentence."""


class SupportCheck(Value):
    """The result for one sentence."""

    verdict: SupportVerdict
    missing: tuple[MissingDetail, ...] = ()
    score: float
    """Estimated probability, from 0 to 1, that the passages support the sentence."""


class WordSimilarity(Protocol):
    """Compares words by their meaning on this machine."""

    def find_nearest(self, words: Sequence[str], others: Sequence[str]) -> Sequence[float]:
        """Return for each word the cosine with the nearest of the others; 0 if it or all others are unknown.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        ...


def check_support(
    sentence: str, passages: Sequence[str], *, question: str = "", similarity: WordSimilarity | None = None
) -> SupportCheck:
    """Check whether the passages, together, support the sentence.

    A figure, date or name that the passages do not contain makes the sentence not supported, whatever its score. That
    includes figures that the writer computed from figures in the passages: a sum cannot be told from an invention.

    Args:
        sentence: One sentence of a report, without its citations.
        passages: The cited lines, one text for each citation.
        question: The question that the report answers. Words of the question tell less about a sentence.
        similarity: Finds synonyms. Without it, words are compared by their stems alone.

    Raises:
        MemoryUnavailable: the model of `similarity` cannot be loaded.
    """
    _ = question, similarity
    text = "\n".join(passages)
    there = set(normalize_words(text))
    figures = {word for word in normalize_words(sentence) if word[0].isdecimal()} & split_figures(sentence)
    missing = tuple(MissingDetail(kind="figure", text=figure) for figure in sorted(figures - there))
    words, known = {*extract_terms(sentence)}, {*extract_terms(text)}
    score = len(words & known) / len(words) if words else 1.0
    return SupportCheck(verdict=_decide(missing, score), missing=missing, score=score)


def _decide(missing: Sequence[MissingDetail], score: float) -> SupportVerdict:
    if any(detail.kind in {"figure", "date", "name"} for detail in missing) or score <= MAX_UNSUPPORTED_SCORE:
        return SupportVerdict.NOT_SUPPORTED
    return SupportVerdict.SUPPORTED if score >= MIN_SUPPORTED_SCORE else SupportVerdict.CANNOT_TELL


def render_missing(check: SupportCheck, lines: str) -> str:
    """Render what is missing, such as `"12 %" stands nowhere in lines 40-44`; empty if nothing is named.

    Args:
        check: The result of the sentence.
        lines: What the sentence cites, such as `lines 40-44`.
    """
    return "; ".join(_render_all(check.missing, lines))


def _render_all(missing: Iterable[MissingDetail], lines: str) -> Iterable[str]:
    for detail in missing:
        yield f'"{detail.text}" stands nowhere in {lines}'
