"""Vectors of passages, made of the vectors of their words: a static embedding, computed on this machine."""

import threading
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from waystation.documents.search_terms import STOP_WORDS

WINDOW_WORDS = 60
"""Words of a window; the next one begins half a window later. A passage is as near to a query as its nearest window."""
LAST_WINDOW_WORDS = WINDOW_WORDS * 7 // 5
"""Maximum words of a passage that is one window."""
HEADING_WEIGHT = 0.5
"""Weight of a word of the heading in each window below it; a word of the window has 1."""
MAX_CACHED_WORDS = 30_000
"""Maximum words whose vectors stay in memory: 30 MB."""
_Rows = NDArray[np.float32]


class WordEmbedder(Protocol):
    """Gives words vectors on this machine: it sees the words of original documents."""

    def embed_words(self, words: Sequence[str]) -> _Rows:
        """Return one row for each word; zeros for a word that the model does not know. Threads may share it.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        ...


class PassageText(NamedTuple):
    """The words of a passage and of the heading above it, in order."""

    heading: Sequence[str]
    words: Sequence[str]


class PassageVectorIndex(NamedTuple):
    """The windows of a document's passages."""

    windows: NDArray[np.float16]
    """One row of length 1 for each window. Half precision halves the memory and changes no order that matters."""
    passages: NDArray[np.int32]
    """For each window, the index of its passage."""
    passage_count: int
    """Number of passages."""

    def compute_similarities(self, query: _Rows) -> _Rows:
        """Return for each passage the cosine of the query and its nearest window; 0 if it is negative."""
        nearest = np.zeros(self.passage_count, dtype=np.float32)
        np.maximum.at(nearest, self.passages, self.windows.astype(np.float32) @ query)
        return nearest


class PassageEmbedder:
    """Embeds passages and queries as the mean of their words without stop words.

    Each distinct word is embedded once, which is many times faster than embedding the windows as texts: most of that
    time is spent on splitting texts into tokens.
    """

    def __init__(self, embedder: WordEmbedder) -> None:
        self._embedder = embedder
        self._rows: dict[str, int] = {}
        self._vectors: _Rows = np.zeros((0, 0), dtype=np.float32)
        self._one_at_a_time = threading.Lock()

    def embed_query(self, words: Sequence[str]) -> _Rows:
        """Return the vector of a query, of length 1; zeros if the model knows none of its words.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        content = _without_stop_words(words)
        rows, vectors = self._look_up(content)
        return _normalise(vectors[[rows[word] for word in content]].sum(axis=0, keepdims=True))[0]

    def embed_passages(self, passages: Sequence[PassageText]) -> PassageVectorIndex:
        """Return the windows of the passages.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        content = [PassageText(_without_stop_words(one.heading), _without_stop_words(one.words)) for one in passages]
        rows, vectors = self._look_up([word for one in content for part in one for word in part])
        windows: list[_Rows] = []
        owners: list[int] = []
        for number, one in enumerate(content):
            above = HEADING_WEIGHT * vectors[[rows[word] for word in one.heading]].sum(axis=0)
            for part in _split(one.words):
                windows.append(vectors[[rows[word] for word in part]].sum(axis=0) + above)
                owners.append(number)
        stacked = np.stack(windows) if windows else np.zeros((0, vectors.shape[1]), dtype=np.float32)
        return PassageVectorIndex(
            _normalise(stacked).astype(np.float16), np.array(owners, dtype=np.int32), len(passages)
        )

    def _look_up(self, words: Sequence[str]) -> tuple[dict[str, int], _Rows]:
        """Return the row of each word and the rows. Both are replaced, never changed, so other threads may read on."""
        with self._one_at_a_time:
            missing = [word for word in dict.fromkeys(words) if word not in self._rows]
            if missing or not self._vectors.size:
                known = self._rows if len(self._rows) + len(missing) <= MAX_CACHED_WORDS else {}
                missing = missing if known else [*dict.fromkeys(words)]
                found = self._embedder.embed_words(missing)
                self._vectors = np.concatenate([self._vectors, found]) if known else found
                self._rows = {**known, **{word: len(known) + place for place, word in enumerate(missing)}}
            return self._rows, self._vectors


def _without_stop_words(words: Sequence[str]) -> list[str]:
    return [small for word in words if (small := word.casefold()) not in STOP_WORDS]


def _split(words: Sequence[str]) -> list[Sequence[str]]:
    if len(words) <= LAST_WINDOW_WORDS:
        return [words]
    step = WINDOW_WORDS // 2
    return [words[start : start + WINDOW_WORDS] for start in range(0, len(words) - step, step)]


def _normalise(rows: _Rows) -> _Rows:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo(np.float32).tiny)
