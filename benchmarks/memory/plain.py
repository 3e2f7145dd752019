"""The plain baseline, which shares only the token estimator and the static vectors with the product: windows of three
turns, one or two turns apart, ranked by BM25 and by cosine, with both ranks fused.

A turn is a line: of a conversation, a log or a document.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from waystation.context.tokens import estimate_text
from waystation.memory.ports import Embedder

TURNS = 3
SATURATION, BY_LENGTH = 1.2, 0.75
"""`k1` and `b` of BM25."""
RANK_OFFSET = 60
"""Of reciprocal rank fusion."""
FIRST_IDEOGRAPH = "\u2e80"


def split_words(text: str) -> list[str]:
    """In small letters; each character of Chinese is one."""
    spaced = [
        character if character < FIRST_IDEOGRAPH and character.isalnum() else f" {character} "
        for character in text.casefold()
    ]
    return [word for word in "".join(spaced).split() if word.isalnum()]


class Bm25:
    """Of a few texts."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._counts = [Counter(split_words(text)) for text in texts]
        lengths = np.array([count.total() for count in self._counts])
        self._norms = SATURATION * (1 - BY_LENGTH + BY_LENGTH * lengths / max(1.0, float(lengths.mean())))
        self._with = Counter(word for count in self._counts for word in count)

    def score(self, question: str) -> list[float]:
        """One a text."""
        every = len(self._counts)
        weights = {
            word: math.log(1 + (every - self._with[word] + 0.5) / (self._with[word] + 0.5))
            for word in split_words(question)
        }
        return [
            sum(
                weight * count[word] * (SATURATION + 1) / (count[word] + float(norm))
                for word, weight in weights.items()
            )
            for count, norm in zip(self._counts, self._norms, strict=True)
        ]


@dataclass(frozen=True)
class PlainMemory:
    """The turns of one conversation."""

    turns: Sequence[str]
    embedder: Embedder
    bm25: Bm25
    vectors: Sequence[tuple[float, ...] | None]
    starts: Sequence[int]
    """The first turn of each window."""

    @classmethod
    async def from_texts(cls, texts: Sequence[str], embedder: Embedder, step: int = 1) -> "PlainMemory":
        """Of redacted messages; a window begins so many turns behind the one before. Raises MemoryUnavailable."""
        turns = [line for text in texts for line in text.split("\n") if line.strip()]
        starts = range(0, max(1, len(turns) - TURNS + step), step)
        windows = ["\n".join(turns[place : place + TURNS]) for place in starts]
        return cls(turns, embedder, Bm25(windows), await embedder.embed(windows), starts)

    async def search(self, question: str, tokens: int) -> list[str]:
        """The turns of the best windows that together have at most so many tokens. No turn counts twice."""
        chosen = set[int]()
        for window in [self.starts[place] for place in await self._ranked(question)]:
            more = {*range(window, min(window + TURNS, len(self.turns)))} - chosen
            cost = sum(estimate_text(self.turns[turn]) for turn in more)
            if cost <= tokens:
                tokens -= cost
                chosen |= more
        return [self.turns[turn] for turn in sorted(chosen)]

    async def _ranked(self, question: str) -> list[int]:
        """Numbers of the windows, best first."""
        (asked,) = await self.embedder.embed([question])
        by_meaning = {
            place: float(np.dot(asked, vector))
            for place, vector in enumerate(self.vectors)
            if asked is not None and vector is not None
        }
        by_words = {place: score for place, score in enumerate(self.bm25.score(question)) if score > 0}
        fused = [0.0] * len(self.vectors)
        for scores in (by_words, by_meaning):  # what has no such score has no such rank either
            for rank, place in enumerate(sorted(scores, key=scores.__getitem__, reverse=True)):
                fused[place] += 1 / (RANK_OFFSET + rank)
        return sorted(range(len(fused)), key=fused.__getitem__, reverse=True)
