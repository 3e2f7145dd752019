"""Extracts search terms (English stems, plain words of other languages, CJK pairs, parts of identifiers), and scores
texts by them.
"""

import logging
import math
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
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
STOP_WORDS = frozenset(STOPWORDS_EN)
"""English words that carry no meaning of their own, in small letters."""

# The library sets its own logger to DEBUG, which would override any level that the program asks for.
logging.getLogger("bm25s").setLevel(logging.WARNING)


class _Stemmer(Protocol):
    def stemWords(self, words: list[str], /) -> list[str]: ...


def extract_terms(text: str) -> list[str]:
    """Return the terms of a text in order, without stop words.

    CJK writing has no spaces: each run of it gives its overlapping pairs of characters, like Lucene's CJKBigramFilter.
    """
    words: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if _FIRST_CJK.match(word):
            words += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        elif word not in STOP_WORDS:
            words.append(word)
    # A stemmer has a cache and is not safe to share between threads; a new one costs microseconds.
    stemmer = cast("_Stemmer", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType] untyped C
    return stemmer.stemWords(words)


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, spelled as they are: letters and digits; `_`, `-` and `.` end a word."""
    return _WORD.findall(unicodedata.normalize("NFKC", text))


MAX_IDENTIFIER_PARTS = 4


def split_identifier(word: str) -> list[str]:
    """Return the parts of a word that is an identifier, such as `fetchPage`, `FY2018` or `10K`; none for other words.

    A part ends between letters and digits, and before a capital letter that follows a small one. Single characters are
    no parts, and a word of many parts is a hash, as in placeholders, and has none.
    """
    if word.isdigit() or (word.isalpha() and (word.islower() or word.isupper())):
        return []
    starts = [
        place
        for place in range(1, len(word))
        if word[place - 1].isdigit() != word[place].isdigit() or (word[place - 1].islower() and word[place].isupper())
    ]
    if not 0 < len(starts) < MAX_IDENTIFIER_PARTS:
        return []
    return [word[start:end] for start, end in pairwise([0, *starts, len(word)]) if end - start > 1]


class TermExtractor:
    """Extracts terms of words, as `extract_terms` does of texts.

    Each distinct word is analysed once, so a long text costs little more than its look-ups. Not safe to share between
    threads.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, ...]] = {}

    def extract(self, words: Iterable[str]) -> list[str]:
        """Return the terms of words as `split_words` gives them, in order, without stop words."""
        found: list[str] = []
        for word in words:
            terms = self._known.get(word)
            if terms is None:
                terms = self._known[word] = tuple(extract_terms(word))
            found += terms
        return found


MAX_JOINED_WORDS = 3
"""Maximum words of a query that are also looked for as one word: names of files often have no spaces."""


def extract_name_terms(text: str) -> frozenset[str]:
    """Return the terms of a name or title, with the parts of identifiers."""
    words = split_words(text)
    return frozenset(extract_terms(" ".join([*words, *(part for word in words for part in split_identifier(word))])))


def extract_query_name_terms(query: str) -> frozenset[str]:
    """Return the terms by which a query may mean a name: those of its words, and of two or three words joined, since
    `American Express` may be called `AMERICANEXPRESS_2022_10K`.
    """
    words = split_words(query)
    joined = [
        "".join(words[start : start + count])
        for count in range(2, MAX_JOINED_WORDS + 1)
        for start in range(len(words) - count + 1)
    ]
    return extract_name_terms(query) | frozenset(extract_terms(" ".join(joined)))


RARE_SHARE = 0.02
"""Maximum share of texts with a word that is looked for in their headings."""
HEADING = 2.0
"""Weight of a heading that alone contains the whole query; the most similar text has 1."""


SPEAKER = 0.375
"""Weight of a query that names the speaker of a text, or the field whose value it is."""
ASKING = 0.125
"""Deduction for a text that asks a question: a search is for the answer."""


class TextScorer:
    """Scores texts against a query, by terms that are extracted once."""

    def __init__(self, query: str, texts: Sequence[str]) -> None:
        self._wanted = list(dict.fromkeys(extract_terms(query)))
        self._texts = [extract_terms(text) for text in texts]
        self._bearing = [
            named - (ASKING if is_question(text) else 0.0)
            for named, text in zip(self._speakers(texts), texts, strict=True)
        ]

    def _speakers(self, texts: Sequence[str]) -> Iterator[float]:
        """Yield for each text the weight of the query naming its speaker."""
        speakers = [says[0] if (says := SAYS.match(text)) else "" for text in texts]
        called = {one for one in {*speakers} if not {*self._wanted}.isdisjoint(extract_terms(one))}
        return (SPEAKER if one in called else 0.0 for one in speakers)

    def compute_scores(self) -> list[float]:
        """Return the BM25 scores of the texts, from 0 to 1: the best has 1, unless none has a term of the query."""
        if not self._wanted or not any(self._texts):
            return [0.0] * len(self._texts)
        bm25 = bm25s.BM25()
        bm25.index(self._texts, show_progress=False)  # pyright: ignore[reportUnknownMemberType] partly typed library
        found: list[float] = bm25.get_scores(self._wanted).tolist()  # pyright: ignore[reportUnknownMemberType]
        return normalize_scores(found)

    def compute_heading_scores(self, headings: Sequence[str]) -> list[float]:
        """Return for each text the share of the query that its heading contains and hardly any text does, from 0 to 1.

        Words are weighted by their rarity among the texts. A word that many texts contain distinguishes them already;
        looking for it in their headings as well would raise every line below.
        """
        said = Counter(term for text in self._texts for term in set(text))
        count = len(self._texts)
        wanted = {term: math.log(1 + (count - said[term] + 0.5) / (said[term] + 0.5)) for term in sorted(self._wanted)}
        whole = sum(wanted.values()) or 1.0
        rare = {term: weight / whole for term, weight in wanted.items() if said[term] <= RARE_SHARE * count}
        shares = {heading: sum(rare.get(term, 0.0) for term in {*extract_terms(heading)}) for heading in {*headings}}
        return [shares[heading] for heading in headings]

    def compute_similarity(self, own: Sequence[float], above: Sequence[str]) -> tuple[float, ...]:
        """Return each text's similarity by itself, by its speaker and form, and by what is above it; `above` may be
        empty.
        """
        shares = self.compute_heading_scores(above) if above else [0.0] * len(own)
        together = zip(own, self._bearing, shares, strict=True)
        return tuple(mine + bearing + HEADING * share for mine, bearing, share in together)


def normalize_scores(found: Sequence[float]) -> list[float]:
    """Return each score as a share of the greatest; 0 for all if none is greater than 0."""
    best = max(found, default=0.0)
    return [one / best if best > 0 else 0.0 for one in found]


def find_term_spans(query: str, text: str) -> Iterator[tuple[int, int]]:
    """Return the spans in characters of words in the text, or of CJK runs, that have a term of the query."""
    wanted = frozenset(extract_terms(query))
    return (word.span() for word in _WORD.finditer(text) if not wanted.isdisjoint(extract_terms(word[0])))
