"""The static embedder whose weights come inside a package: 256 dimensions, numpy only, thousands of texts a second."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from waystation.domain.errors import MemoryUnavailable
from waystation.ports.knowledge import Use

_DIMENSION = 256
_READ_CHARACTERS = 8_000
_BATCH_TEXTS = 16
"""Texts that are padded to one length together: bounds the memory that a batch takes."""


class _Model(Protocol):
    def embed(self, texts: list[str], *, batch_size: int) -> object: ...


class WordLlamaEmbedder:
    """Implements the port `Embedder`. The model is loaded with the first texts, never from the network."""

    name: str = "wordllama-l2-supercat-256"
    dimension: int | None = _DIMENSION

    def __init__(self) -> None:
        self._model: _Model | None = None
        self._one_at_a_time = asyncio.Lock()

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[tuple[float, ...] | None, ...]:  # noqa: ARG002 - it makes no difference
        """One vector of length 1 for each text, made of its first 8,000 characters; None where there is no word.

        Raises MemoryUnavailable.
        """
        if not texts:
            return ()
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(self._vectors, [text.strip()[:_READ_CHARACTERS] for text in texts])
            except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
                raise MemoryUnavailable(f"the embedder {self.name} failed with {type(error).__name__}") from None

    def _vectors(self, texts: list[str]) -> tuple[tuple[float, ...] | None, ...]:
        self._model = self._model or _load()
        vectors = np.asarray(self._model.embed(texts, batch_size=_BATCH_TEXTS), dtype=np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        return tuple(
            tuple((vector / length).tolist()) if length > 0 else None
            for vector, length in zip(vectors, lengths, strict=True)
        )


def _load() -> _Model:
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # its import calls logging.basicConfig, which leaves a configured root alone
    try:
        import wordllama  # noqa: PLC0415 - see above, and not every platform has a wheel
    finally:
        root.removeHandler(silent)
    # Its loader takes the tokenizer in the package for a cached one only if the cache is the package itself.
    return wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
