"""Scores detections against the planted values: recall, precision and F1 by type, and wrong replacements."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.privacy.corpus import Label, Sentence
from benchmarks.privacy.finders import Find


@dataclass
class Score:
    """Counts by type of what was put in; `wrong` by type of what was found."""

    there: Counter[str] = field(default_factory=Counter[str])
    covered: Counter[str] = field(default_factory=Counter[str])
    """Every character of it was found, as whatever: it does not leak."""
    named: Counter[str] = field(default_factory=Counter[str])
    """And as what it is."""
    right: Counter[str] = field(default_factory=Counter[str])
    wrong: Counter[str] = field(default_factory=Counter[str])
    kept: Counter[str] = field(default_factory=Counter[str])
    touched: Counter[str] = field(default_factory=Counter[str])
    """By kind of value that must stay: how many there were, and how many were replaced in part or as a whole."""

    def add(self, sentence: Sentence, finds: Sequence[Find]) -> None:
        for label in sentence.labels:
            if label.private:
                self.there[label.type] += 1
                self.covered[label.type] += _covers(finds, label)
                self.named[label.type] += _covers([find for find in finds if find.type == label.type], label)
            else:
                self.kept[label.kind] += 1
                self.touched[label.kind] += any(_meet(find, label) for find in finds)
        for find in finds:
            fits = any(label.type == find.type and _meet(find, label) for label in sentence.labels)
            (self.right if fits else self.wrong)[find.type] += 1

    def recall(self, type_: str) -> float:
        return self.covered[type_] / self.there[type_]

    def precision(self, type_: str) -> float:
        found = self.right[type_] + self.wrong[type_]
        return self.right[type_] / found if found else 0.0

    def f1(self, type_: str) -> float:
        recall, precision = self.named[type_] / self.there[type_], self.precision(type_)
        return 2 * recall * precision / (recall + precision) if recall + precision else 0.0

    @property
    def wrongly_replaced(self) -> int:
        """Values that must stay and did not."""
        return self.touched.total()


def score_finder(corpus: Sequence[Sentence], finds: Sequence[Sequence[Find]]) -> Score:
    """The score of one finder over the corpus."""
    score = Score()
    for sentence, found in zip(corpus, finds, strict=True):
        score.add(sentence, found)
    return score


def _meet(find: Find, label: Label) -> bool:
    return find.start < label.end and label.start < find.end


def _covers(finds: Sequence[Find], label: Label) -> bool:
    position = label.start
    for find in sorted(finds, key=lambda find: find.start):
        if find.start <= position:
            position = max(position, find.end)
    return position >= label.end
