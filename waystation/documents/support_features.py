"""Measures how much of a sentence its passages say, in features for the support model."""

import math
from collections.abc import Sequence
from itertools import pairwise
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
NEAR_WORDS = 4
"""Two words that follow one another are near each other in a passage within as many words."""
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
also may can could would should however therefore thus such many some most more these those them he she his her its
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
    """What the support model knows of a sentence. Shares are weighted by how much the words tell."""

    sentence_share: float
    """Share of the content words that stand in one sentence of the passages: the best one."""
    window_share: float
    """Share of them in the best window of three sentences."""
    new_share: float
    """The same, of the words that do not stand in the question."""
    similar_share: float
    """The same as `window_share`, in which synonyms count in part."""
    near_pairs: float
    """Share of pairs of consecutive content words that stand near each other."""
    triples: float
    """Share of sequences of three words that stand there word for word."""
    missing_weight: float
    """Weight of the words that have nothing like them in the passages."""
    missing_figures: float
    missing_names: float
    contradictions: float
    content_words: float
    """Logarithm of the number of content words."""


class WordingMatch(NamedTuple):
    """How the words of a sentence compare with its passages."""

    features: SupportFeatures
    """Without figures, names and contradictions, which are 0."""
    missing: Sequence[str]
    """Words of the sentence without anything like them in the passages, the most telling first."""
    aligned: str
    """The sentence of the passages that has most of the words."""
    around: str
    """It, with the sentences before and after it."""
    has_words: bool
    """Whether there is anything to compare."""


def compare_wording(sentence: str, passages: str, question: str, similarity: WordSimilarity | None) -> WordingMatch:
    """Compare the words of a sentence with those of its passages.

    Raises:
        MemoryUnavailable: the model of `similarity` cannot be loaded.
    """
    stemmer = _Stems()
    words = _split(sentence)
    content = [word for word in words if _is_content(word)]
    distinct = list(dict.fromkeys(content))
    texts = _split_sentences(passages[:MAX_COMPARED_CHARACTERS])
    tokens = [_split(text) for text in texts]
    if not distinct or not tokens:
        return WordingMatch(_EMPTY._replace(sentence_share=float(not distinct)), distinct, "", "", bool(distinct))
    columns: dict[str, list[int]] = {}
    for place, stem in enumerate(stemmer.stem(distinct)):
        columns.setdefault(stem, []).append(place)
    stems = [stemmer.stem(part) for part in tokens]
    there = np.zeros((len(tokens), len(distinct)), dtype=np.float32)
    for row, part in enumerate(stems):
        for stem in columns.keys() & part:
            there[row, columns[stem]] = 1
    weights = _weigh(distinct, similarity)
    total = float(weights.sum())
    by_sentence = there @ weights
    best = int(by_sentence.argmax())
    windows = _join_windows(there)
    by_window = windows @ weights
    asked = frozenset(stemmer.stem(_split(question)))
    is_new = np.array([stem not in asked for stem in stemmer.stem(distinct)], dtype=np.float32)
    new = weights * is_new
    near = _compare_nearest(distinct, tokens, windows, by_window, similarity)
    alike = np.clip((near - MIN_SYNONYM) / (1 - MIN_SYNONYM), 0, 1)
    missing = [int(place) for place in np.argsort(-weights, kind="stable") if near[place] < MISSING_SIMILARITY]
    flat = [stem for part in stems for stem in part]
    features = _EMPTY._replace(
        sentence_share=float(by_sentence[best]) / total,
        window_share=float(by_window.max()) / total,
        new_share=float((windows @ new).max() / new.sum()) if new.any() else float(by_window.max()) / total,
        similar_share=float(weights @ alike) / total,
        near_pairs=_share_near_pairs(stemmer.stem(content), tokens, stems),
        triples=_share_triples(stemmer.stem(words), flat),
        missing_weight=float(weights[missing].sum()),
        content_words=math.log(len(distinct)),
    )
    around = " ".join(texts[max(0, best - 1) : best + 2])
    return WordingMatch(features, [distinct[place] for place in missing], texts[best], around, has_words=True)


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
    by_window: NDArray[np.float32],
    similarity: WordSimilarity | None,
) -> NDArray[np.float32]:
    """Return for each word the cosine with the nearest word of a window: the one whose words are nearest in all."""
    tops = [int(place) for place in np.argsort(-by_window, kind="stable")[:COMPARED_WINDOWS]]
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


def _share_near_pairs(content: Sequence[str], tokens: Sequence[Sequence[str]], stems: Sequence[Sequence[str]]) -> float:
    pairs = list(pairwise(content))
    wanted = frozenset(content)
    places: dict[str, set[int]] = {stem: set() for stem in wanted}
    at = 0
    for words, part in zip(tokens, stems, strict=True):
        for word, stem in zip(words, part, strict=True):
            if _is_content(word):
                at += 1
                if stem in wanted:
                    places[stem].add(at)
        at += NEAR_WORDS
    if not pairs:
        return float(any(places.values()))
    return sum(_are_near(places[one], places[other]) for one, other in pairs) / len(pairs)


def _are_near(first: set[int], second: set[int]) -> bool:
    few, many = (first, second) if len(first) < len(second) else (second, first)
    return any(place + distance in many for place in few for distance in range(-NEAR_WORDS, NEAR_WORDS + 1) if distance)


def _share_triples(words: Sequence[str], passages: Sequence[str]) -> float:
    wanted = frozenset(zip(words, words[1:], words[2:], strict=False))
    if not wanted:
        return float(frozenset(words) <= frozenset(passages))
    return len(wanted.intersection(zip(passages, passages[1:], passages[2:], strict=False))) / len(wanted)
