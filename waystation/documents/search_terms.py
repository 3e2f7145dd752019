"""Text to the terms that are searched for: English stems, plain words of other languages, pairs of CJK characters."""

import logging
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import bm25s
import Stemmer
from bm25s.stopwords import STOPWORDS_EN

from waystation.context.transcript import is_question
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.text import SAYS

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = compile_bounded(rf"[{_CJK}]+|[^\W_{_CJK}]+")
_FIRST_CJK = compile_bounded(rf"[{_CJK}]")
_STOPWORDS = frozenset(STOPWORDS_EN)

# The library sets its own logger to DEBUG, which would pass any level that the program asks for.
logging.getLogger("bm25s").setLevel(logging.WARNING)


class _Stemmer(Protocol):
    def stemWords(self, words: list[str], /) -> list[str]: ...


def extract_terms(text: str) -> list[str]:
    """The terms of a text in order, stop words left out.

    CJK writing has no spaces: each run of it gives its overlapping pairs of characters, as Lucene's CJKBigramFilter.
    """
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _FIRST_CJK.match(word):
            words += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        elif word not in _STOPWORDS:
            words.append(word)
    # A stemmer keeps a cache and is not safe to share between threads; a new one costs microseconds.
    stemmer = cast("_Stemmer", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType] untyped C
    return stemmer.stemWords(words)


RARE_SHARE = 0.02
"""Of the texts at most say a word that is looked for in their headings."""
HEADING = 2.0
"""What a heading that alone says the whole query counts beside a text that is the most alike, which counts 1."""


SPEAKER = 0.375
"""What it counts beside that where the query names who says a text, or the field that it is the value of."""
ASKING = 0.125
"""What a text that asks counts less: whoever looks for something looks for the answer."""


class TextScorer:
    """A query beside texts, by their terms, which are found once."""

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self._wanted = list(dict.fromkeys(extract_terms(query)))
        self._texts = [extract_terms(text) for text in texts]
        self._bearing = [
            named - (ASKING if is_question(text) else 0.0)
            for named, text in zip(self._speakers(texts), texts, strict=True)
        ]

    def _speakers(self, texts: Sequence[str]) -> Iterator[float]:
        """Of each text what it counts that the query names who says it."""
        speakers = [says[0] if (says := SAYS.match(text)) else "" for text in texts]
        called = {one for one in {*speakers} if not {*self._wanted}.isdisjoint(extract_terms(one))}
        return (SPEAKER if one in called else 0.0 for one in speakers)

    def compute_scores(self) -> list[float]:
        """By BM25 among these texts, each from 0 to 1: the best of them has 1, unless none has a term of the query."""
        if not self._wanted or not any(self._texts):
            return [0.0] * len(self._texts)
        bm25 = bm25s.BM25()
        bm25.index(self._texts, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library
        found: list[float] = bm25.get_scores(self._wanted).tolist()  # pyright: ignore[reportUnknownMemberType]
        return normalize_scores(found)

    def compute_heading_scores(self, headings: Sequence[str]) -> list[float]:
        """Of each text, the share of the query that its heading says and next to no text does, from 0 to 1.

        Words are weighted by how rare they are among the texts. A word that many of them say tells them apart by
        themselves; to look for it in their headings as well would raise every line below.
        """
        said = Counter(term for text in self._texts for term in set(text))
        count = len(self._texts)
        wanted = {term: math.log(1 + (count - said[term] + 0.5) / (said[term] + 0.5)) for term in sorted(self._wanted)}
        whole = sum(wanted.values()) or 1.0
        rare = {term: weight / whole for term, weight in wanted.items() if said[term] <= RARE_SHARE * count}
        shares = {heading: sum(rare.get(term, 0.0) for term in {*extract_terms(heading)}) for heading in {*headings}}
        return [shares[heading] for heading in headings]

    def compute_similarity(self, own: Sequence[float], above: Sequence[str]) -> tuple[float, ...]:
        """Of each text, how alike it is by itself, by who says it and how, and by what stands above it; `above` may be
        empty.
        """
        shares = self.compute_heading_scores(above) if above else [0.0] * len(own)
        together = zip(own, self._bearing, shares, strict=True)
        return tuple(mine + bearing + HEADING * share for mine, bearing, share in together)


def normalize_scores(found: Sequence[float]) -> list[float]:
    """Each as a share of the greatest; 0 for all where none is greater than 0."""
    best = max(found, default=0.0)
    return [one / best if best > 0 else 0.0 for one in found]


def find_term_spans(query: str, text: str) -> Iterator[tuple[int, int]]:
    """Where words of the text, or runs of CJK characters, have a term of the query: begin and end in characters."""
    wanted = frozenset(extract_terms(query))
    return (word.span() for word in _WORD.finditer(text) if not wanted.isdisjoint(extract_terms(word[0])))
