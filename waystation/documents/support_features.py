"""Measures how much of a sentence its passages say, in features for the support model."""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
import Stemmer
from numpy.typing import NDArray

from waystation.documents.search_terms import STOP_WORDS, split_words
from waystation.kernel.patterns import compile_bounded

MAX_COMPARED_CHARACTERS = 60_000
"""Characters of the passages whose words are compared; figures and names are looked for in more."""
MAX_SENTENCE_WORDS = 60
"""A longer sentence, such as a line of a table, is compared in parts."""
WINDOW_SENTENCES = 3
"""A sentence of a report is compared with as many consecutive sentences of its passages."""
COMPARED_WINDOWS = 4
"""Windows in which synonyms are looked for: those that have most of the words themselves."""
MIN_SYNONYM = 0.4
"""Cosine from which a word counts in part; at 1 it is the word itself."""
MISSING_SIMILARITY = 0.5
"""A word is missing if nothing in the passages is nearer."""
_MAX_WEIGHT = 2.5
_PLAIN_LETTERS = 8
"""Letters from which a word has the full weight if no embedder weights it."""
_CJK = compile_bounded(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_SENTENCE_END = compile_bounded(r"(?<=[.!?…])[\"')\]”’]{0,3}\s|\n|…|[。！？]")
_LITTLE_TEXT = """
also so may can could would should however therefore thus such many some most more these those them he she his her its
been being were had has have do does did than who whom whose while about into over under out very just which der die
das und ist ein eine mit von für auf im dem den des wird werden sich auch zu le la les des une est dans pour que qui
avec sur el los las del una por con para que
"""
_LITTLE = STOP_WORDS | frozenset(_LITTLE_TEXT.split())


class WordSimilarity(Protocol):
    """Compares words by their meaning on this machine. Threads may share it."""

    def compare_words(self, words: Sequence[str], others: Sequence[str]) -> NDArray[np.float32]:
        """Return the cosine of each word (row) with each of the others (column); 0 with a word that is unknown.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        ...

    def weight_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Return how much each word tells: small for words that stand everywhere, about 1 for ordinary nouns.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        ...


class SupportFeatures(NamedTuple):
    """What the support model knows of a sentence."""

    similar_share: float
    """Share of the content words in the best window of three sentences. Synonyms count in part, and words are weighted
    by how much they tell.
    """
    triples: float
    """Share of sequences of three words that stand in the passages word for word."""
    whole_share: float
    """Share of the content words that stand anywhere in the passages. It counts against the sentence: words that stand
    apart from one another say less than those of one window.
    """
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
    """Words of the sentence without anything like them in the passages, the most telling first."""
    aligned: str
    """The sentence of the passages that has most of the words."""
    around: str
    """It, with the sentences before and after it."""
    aligned_share: float
    """Share of the content words that stand in it, weighted by how much they tell."""
    has_words: bool
    """Whether there is anything to compare."""


def compare_wording(sentence: str, content: str, passages: str, similarity: WordSimilarity | None) -> WordingMatch:
    """Compare the words of a sentence with those of its passages.

    Args:
        sentence: The sentence.
        content: The sentence without its figures and dates, which may be spelled differently in the passages.
        passages: Their text.
        similarity: Finds synonyms and weights words.

    Raises:
        MemoryUnavailable: the model of `similarity` cannot be loaded.
    """
    stemmer = _Stems()
    words = _split(sentence)
    distinct = list(dict.fromkeys(word for word in _split(content) if _is_content(word)))
    texts = _split_sentences(passages[:MAX_COMPARED_CHARACTERS])
    tokens = [_split(text) for text in texts]
    if not distinct or not tokens:
        return WordingMatch(_EMPTY, distinct, "", "", 0, bool(distinct))
    columns: dict[str, list[int]] = {}
    for place, stem in enumerate(stemmer.stem(distinct)):
        columns.setdefault(stem, []).append(place)
    stems = [stemmer.stem(part) for part in tokens]
    there = np.zeros((len(tokens), len(distinct)), dtype=np.float32)
    for row, part in enumerate(stems):
        for stem in columns.keys() & part:
            there[row, columns[stem]] = 1
    weights = _weigh(distinct, similarity)
    by_sentence = there @ weights
    best = int(by_sentence.argmax())
    near = _compare_nearest(distinct, tokens, _join_windows(there), weights, similarity)
    alike = np.clip((near - MIN_SYNONYM) / (1 - MIN_SYNONYM), 0, 1)
    whole = there.max(axis=0)
    missing: list[str] = [
        distinct[place]
        for place in np.argsort(-weights, kind="stable").tolist()
        if max(near[place], whole[place]) < MISSING_SIMILARITY
    ]
    features = _EMPTY._replace(
        similar_share=float(weights @ alike / weights.sum()),
        triples=_share_triples(stemmer.stem(words), [stem for part in stems for stem in part]),
        whole_share=float(whole.mean()),
        content_words=math.log(len(distinct)),
    )
    around = " ".join(texts[max(0, best - 1) : best + 2])
    return WordingMatch(
        features, missing, texts[best], around, float(by_sentence[best] / weights.sum()), has_words=True
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


def _weigh(words: Sequence[str], similarity: WordSimilarity | None) -> NDArray[np.float32]:
    if similarity is None:
        return np.array([min(len(word), _PLAIN_LETTERS) / _PLAIN_LETTERS for word in words], dtype=np.float32)
    return np.clip(similarity.weight_words(words), 0.1, _MAX_WEIGHT)


def _join_windows(there: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return one row for each window: which words stand in any of its sentences."""
    if len(there) < WINDOW_SENTENCES:
        return there.max(axis=0, keepdims=True)
    count = len(there) - WINDOW_SENTENCES + 1
    joined = there[:count]
    for offset in range(1, WINDOW_SENTENCES):
        joined = np.maximum(joined, there[offset : offset + count])
    return joined


def _compare_nearest(
    words: Sequence[str],
    tokens: Sequence[Sequence[str]],
    windows: NDArray[np.float32],
    weights: NDArray[np.float32],
    similarity: WordSimilarity | None,
) -> NDArray[np.float32]:
    """Return for each word the cosine with the nearest word of a window: the one whose words are nearest in all."""
    tops = [int(place) for place in np.argsort(-(windows @ weights), kind="stable")[:COMPARED_WINDOWS]]
    if similarity is None:
        return windows[tops[0]]
    known: dict[str, int] = {}
    members: list[list[int]] = []
    for top in tops:
        inside = {word for part in tokens[top : top + WINDOW_SENTENCES] for word in part if _is_content(word)}
        members.append([known.setdefault(word, len(known)) for word in sorted(inside)])
    if not known:
        return windows[tops[0]]
    cosines = similarity.compare_words(words, [*known])
    nearest = [
        np.maximum(windows[top], np.clip(cosines[:, columns].max(axis=1), 0, 1)) if columns else windows[top]
        for top, columns in zip(tops, members, strict=True)
    ]
    return max(nearest, key=lambda one: float(one.sum()))


def _share_triples(words: Sequence[str], passages: Sequence[str]) -> float:
    wanted = frozenset(zip(words, words[1:], words[2:], strict=False))
    if not wanted:
        return float(frozenset(words) <= frozenset(passages))
    return len(wanted.intersection(zip(passages, passages[1:], passages[2:], strict=False))) / len(wanted)
