"""Embedders of the package fastembed, on this machine: its models are loaded from the disk and never downloaded."""

import asyncio
import threading
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from waystation.adapters.embeddings.length import Vector, of_length_1
from waystation.domain.errors import BadInput, MemoryUnavailable
from waystation.ports.knowledge import Use

MODEL = "BAAI/bge-small-en-v1.5"
_BATCH_TEXTS = 16
"""Texts that are padded to one length together: bounds the memory that a batch takes."""


class _Model(Protocol):
    def embed(self, documents: list[str], *, batch_size: int) -> Iterable[object]: ...
    def query_embed(self, query: list[str]) -> Iterable[object]: ...


class FastEmbedder:
    """Implements the port `Embedder`. The model is loaded with the first texts."""

    def __init__(self, model: str, dimension: int, folder: Path | None) -> None:
        self.name = f"fastembed/{model}"
        self.dimension: int | None = dimension
        self._model_name = model
        self._folder = folder
        self._model: _Model | None = None
        self._one_at_a_time = threading.Lock()

    @classmethod
    def of(cls, model: str | None, folder: Path | None) -> "FastEmbedder":
        """`folder`: of the model's files; None: they are in the cache of fastembed. Raises BadInput."""
        if find_spec("fastembed") is None:
            raise BadInput("the embedder fastembed needs its package: `pip install 'waystation[fastembed]'`")
        from fastembed import TextEmbedding  # noqa: PLC0415 - an optional package, and it takes a second

        name = model or MODEL
        try:
            return cls(name, TextEmbedding.get_embedding_size(name), folder)
        except ValueError:
            raise BadInput(
                f"fastembed has no model {name}: WAYSTATION_EMBEDDER_MODEL takes a name of its list, like {MODEL}"
            ) from None

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[Vector | None, ...]:
        """One vector of length 1 for each text, of as much of it as the model reads; None where there is no word.

        Raises MemoryUnavailable.
        """
        said = {place: text for place, text in enumerate(texts) if text.strip()}
        if not said:
            return (None,) * len(texts)
        vectors = dict(zip(said, await asyncio.to_thread(self._vectors, [*said.values()], use), strict=True))
        return tuple(vectors.get(place) for place in range(len(texts)))

    def _vectors(self, texts: list[str], use: Use) -> list[Vector | None]:
        with self._one_at_a_time:
            model = self._model = self._model or _load(self._model_name, self._folder)
            try:
                rows = model.query_embed(texts) if use == "query" else model.embed(texts, batch_size=_BATCH_TEXTS)
                return [of_length_1(np.asarray(row, dtype=np.float64).tolist()) for row in rows]
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                failed = type(error).__name__
        raise MemoryUnavailable(f"the embedder {self.name} failed with {failed}")


def _load(name: str, folder: Path | None) -> _Model:
    """From the disk alone. Raises MemoryUnavailable, with the command that fetches it."""
    from fastembed import TextEmbedding  # noqa: PLC0415 - see above
    from loguru import logger  # noqa: PLC0415 - its log, which goes to stderr although we say what is wrong

    logger.disable("fastembed")
    try:
        return TextEmbedding(name, local_files_only=True, specific_model_path=None if folder is None else str(folder))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        failed = type(error).__name__
    if folder is not None:
        raise MemoryUnavailable(f"{folder} does not hold the model {name} as fastembed needs it ({failed})")
    raise MemoryUnavailable(
        f"the model {name} is not in the cache of fastembed, and nothing is downloaded unasked: fetch it with "
        f"`python -c \"from fastembed import TextEmbedding; TextEmbedding('{name}')\"`, with FASTEMBED_CACHE_PATH set "
        "as for the workers, or set WAYSTATION_EMBEDDER_FOLDER to a folder with its files"
    )
