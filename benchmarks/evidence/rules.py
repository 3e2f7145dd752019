"""The rules that are compared: a plain word overlap, the rule that evaluations used before, and the support check."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from benchmarks.evidence.examples import Example
from waystation.documents.claim_support import check_support
from waystation.documents.search_terms import extract_terms
from waystation.documents.support_verdicts import SupportCheck
from waystation.documents.word_normalization import normalize_words, split_figures
from waystation.reports.report import STEM_CHARACTERS, STOP_WORDS

FORMER_SHARE = 0.5
FORMER_LETTERS = 4


T = TypeVar("T")


class Timed(NamedTuple, Generic[T]):
    """The answers of a rule, and the processor time of each, in seconds."""

    answers: Sequence[T]
    seconds: Sequence[float]


def apply_rule(rule: Callable[[Example], T], examples: Sequence[Example]) -> Timed[T]:
    """Apply a rule to each example."""
    answers: list[T] = []
    seconds: list[float] = []
    for example in examples:
        begin = time.process_time()
        answers.append(rule(example))
        seconds.append(time.process_time() - begin)
    return Timed(answers, seconds)


def measure_overlap(example: Example) -> float:
    """Return the share of the claim's stems that stand in the references."""
    words = {*extract_terms(example.claim)}
    return len(words & {*extract_terms("\n".join(example.references))}) / len(words) if words else 1.0


def choose_threshold(scores: Sequence[float], labels: Sequence[bool]) -> float:
    """Return the score from which examples count as supported with the best macro-F1."""
    return max(
        sorted({*scores}), key=lambda threshold: compute_macro_f1([score >= threshold for score in scores], labels)
    )


def judge_formerly(example: Example) -> bool:
    """Return what the rule said that evaluations used: all figures, and half of the words by their beginnings."""
    said = normalize_words(example.claim)
    there = normalize_words("\n".join(example.references))
    digits = split_figures(example.claim)
    figures = {word for word in said if word[0].isdecimal() and (len(word) > len("12") or word in digits)}
    telling = _cut(said)
    return figures <= {*there} and len(telling & _cut(there)) >= FORMER_SHARE * len(telling)


def _cut(words: Iterable[str]) -> set[str]:
    return {word[:STEM_CHARACTERS] for word in words if len(word) >= FORMER_LETTERS and word not in STOP_WORDS}


def check_example(example: Example) -> SupportCheck:
    """Return the support check of an example, whose references are its passages."""
    return check_support(example.claim, example.references, question=example.question)


def compute_macro_f1(answers: Iterable[bool], labels: Iterable[bool]) -> float:
    """Return the mean of the F1 of supported and of unsupported examples."""
    counts = {(answer, label): 0 for answer in (True, False) for label in (True, False)}
    for pair in zip(answers, labels, strict=True):
        counts[pair] += 1
    wrong = counts[True, False] + counts[False, True]
    return sum(_divide(2 * counts[one, one], 2 * counts[one, one] + wrong) for one in (True, False)) / 2


def _divide(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
