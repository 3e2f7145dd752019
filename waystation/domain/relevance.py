"""How relevant a passage is to what it was found for, from 0 to 1 for every embedder whose cosines were measured.

Cosines of two embedders mean different things: of one that puts everything at 0.7, 0.3 is never reached from above. So
each has its scale: 0 is where unrelated texts are on average, 1 where related ones are.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from waystation.domain.memory import MemoryQuery, Passage
from waystation.patterns import proven

LEAST_RELEVANCE = 0.3
"""What is less is not shown to an agent that did not ask for it."""
_CODE = proven(r"(?<![\w-])-*+(?:m\d++\b)?+(?=[\w-]*\d)([\w-]{3,})\b")
"""With a digit in it, and no message's id."""


class Scale(NamedTuple):
    """Mean cosines of an embedder."""

    unrelated: float
    related: float

    def relevance(self, cosine: float) -> float:
        """From 0 to 1."""
        return min(1.0, max(0.0, (cosine - self.unrelated) / (self.related - self.unrelated)))


CALIBRATED: Mapping[str, Scale] = {
    "wordllama-l2-supercat-256": Scale(unrelated=0.044, related=0.348),
}
"""By name of the embedder. Measured by `python -m benchmarks.memory relevance`: 512 questions with passages that answer
them, mean 0.348, and 77,280 pairs of passages and questions on other subjects, mean 0.044. At 0.3 of this scale 84 % of
the first are shown, and 10 % of the second. An embedder that is not here is not filtered.
"""


def is_relevant(embedder: str, query: MemoryQuery, passage: Passage, vector: Sequence[float] | None) -> bool:
    """Whether a passage with this vector is worth showing unasked. Vectors have length 1.

    What has a figure or a code of the query in it is, whatever it is about: vectors know little of those. So is
    everything that cannot be told.
    """
    scale = CALIBRATED.get(embedder)
    if scale is None or query.dense is None or vector is None or _codes(query.text) & _codes(passage.text):
        return True
    cosine = sum(mine * its for mine, its in zip(query.dense, vector, strict=True))
    return scale.relevance(cosine) >= LEAST_RELEVANCE


def _codes(text: str) -> frozenset[str]:
    return frozenset(_CODE.findall(text.casefold()))
