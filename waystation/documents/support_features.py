"""Measures how much of a sentence its passages say, in features for the support model."""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence, Set
from itertools import pairwise
from typing import NamedTuple, Protocol, cast

import Stemmer

from waystation.documents.search_terms import STOP_WORDS, split_words
from waystation.kernel.patterns import compile_bounded

MAX_COMPARED_CHARACTERS = 60_000
"""Characters of the passages whose words are compared; figures and names are looked for in more."""
MAX_SENTENCE_WORDS = 60
"""A longer sentence, such as a line of a table, is compared in parts."""
WINDOW_SENTENCES = 3
"""A sentence of a report is compared with as many consecutive sentences of its passages."""
NEAR_WORDS = 6
"""Two words are near each other if there are fewer content words than this between them."""
_CJK = compile_bounded(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SENTENCE_END = compile_bounded(r"(?<=[.!?…])[\"')\]”’]{0,3}\s|\n|…|[。！？]")
_LITTLE_TEXT = """
also so may can could would should however therefore thus such many some most more these those them he she his her its
been being were had has have do does did than who whom whose while about into over under out very just which der die
das und ist ein eine mit von für auf im dem den des wird werden sich auch zu le la les des une est dans pour que qui
avec sur el los las del una por con para que
"""
_LITTLE = STOP_WORDS | frozenset(_LITTLE_TEXT.split())


class SupportFeatures(NamedTuple):
    """What the support model knows of a sentence."""

    window_share: float
    """Share of the content words that stand in the best window of three sentences."""
    near_pairs: float
    """Share of the pairs of consecutive content words that stand near each other in the passages, in any order."""
    missing_figures: float
    """Number of figures and dates that the passages do not contain, at most 2."""
    missing_names: float
    """Number of names that they do not contain, at most 2."""
    content_words: float
    """Logarithm of the number of content words."""


class WordingMatch(NamedTuple):
    """How the words of a sentence compare with its passages."""

    features: SupportFeatures
    """Without figures and names, which are 0."""
    missing: Sequence[str]
    """Words of the sentence that the passages do not contain, the longest first."""
    aligned: str
    """The sentence of the passages that has most of the words."""
    around: str
    """It, with the sentences before and after it."""
    aligned_share: float
    """Share of the content words that stand in it."""
    has_words: bool
    """Whether there is anything to compare."""


def compare_wording(content: str, passages: str) -> WordingMatch:
    """Compare the words of a sentence with those of its passages, by their stems.

    Args:
        content: The sentence without its figures and dates, which may be spelled differently in the passages.
        passages: Their text.
    """
    stemmer = _Stems()
    words = [word for word in _split(content) if _is_content(word)]
    texts = _split_sentences(passages[:MAX_COMPARED_CHARACTERS])
    if not words or not texts:
        return WordingMatch(_EMPTY, [*dict.fromkeys(words)], "", "", 0, bool(words))
    sequence = stemmer.stem(words)
    wanted = frozenset(sequence)
    sentences = [stemmer.stem([word for word in _split(text) if _is_content(word)]) for text in texts]
    found = [wanted.intersection(sentence) for sentence in sentences]
    there = frozenset[str]().union(*found)
    best = max(range(len(found)), key=lambda place: len(found[place]))
    missing = {word: stem for word, stem in zip(words, sequence, strict=True) if stem not in there}
    features = _EMPTY._replace(
        window_share=max(map(len, _join_windows(found))) / len(wanted),
        near_pairs=_share_near_pairs(sequence, [stem for sentence in sentences for stem in sentence]),
        content_words=math.log(len(wanted)),
    )
    return WordingMatch(
        features,
        sorted(missing, key=len, reverse=True),
        texts[best],
        " ".join(texts[max(0, best - 1) : best + 2]),
        len(found[best]) / len(wanted),
        has_words=True,
    )


_EMPTY = SupportFeatures(*(0.0,) * len(SupportFeatures._fields))


class _UntypedStemmer(Protocol):
    def stemWords(self, words: list[str], /) -> list[str]: ...


class _Stems:
    """Stems words. A stemmer has a cache and is not safe to share between threads; a new one costs microseconds."""

    def __init__(self) -> None:
        self._stemmer = cast("_UntypedStemmer", Stemmer.Stemmer("english"))  # pyright: ignore[reportUnknownMemberType]

    def stem(self, words: Sequence[str]) -> list[str]:
        return self._stemmer.stemWords([*words])


def _split(text: str) -> list[str]:
    """Return the words in small letters; writing without spaces gives pairs of characters, as in search."""
    found: list[str] = []
    for word in split_words(text.casefold()):
        if _CJK.match(word):
            found += [word[place : place + 2] for place in range(max(1, len(word) - 1))]
        else:
            found.append(word)
    return found


def _is_content(word: str) -> bool:
    return word not in _LITTLE and (len(word) > 1 or word.isdigit())


def _split_sentences(text: str) -> list[str]:
    found: list[str] = []
    for part in _SENTENCE_END.split(text):
        words = part.split()
        found += [
            " ".join(words[start : start + MAX_SENTENCE_WORDS]) for start in range(0, len(words), MAX_SENTENCE_WORDS)
        ]
    return found


def _join_windows(found: Sequence[Set[str]]) -> list[Set[str]]:
    """Return which words stand in each window of consecutive sentences."""
    last = max(1, len(found) - WINDOW_SENTENCES + 1)
    return [frozenset[str]().union(*found[start : start + WINDOW_SENTENCES]) for start in range(last)]


def _share_near_pairs(words: Sequence[str], passages: Sequence[str]) -> float:
    """Return the share of the pairs of consecutive words that are near each other in the passages."""
    pairs = frozenset(pairwise(words))
    if not pairs:
        return float(frozenset(words) <= frozenset(passages))
    places: dict[str, list[int]] = {word: [] for word in words}
    for place, word in enumerate(passages):
        if word in places:
            places[word].append(place)
    return sum(_are_near(pair, places) for pair in pairs) / len(pairs)


def _are_near(pair: tuple[str, str], places: Mapping[str, Sequence[int]]) -> bool:
    one, other = sorted((places[word] for word in pair), key=len)
    for place in one:
        start = bisect_left(other, place - NEAR_WORDS)
        if any(near != place and near <= place + NEAR_WORDS for near in other[start : start + 2]):
            return True
    return False
