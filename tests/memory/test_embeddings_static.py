import math
import subprocess
import sys

import pytest

from waystation.kernel.errors import MemoryUnavailable
from waystation.memory.embedders.local import NoEmbedder, WordLlamaEmbedder, create_default_embedder


def cosine(left: tuple[float, ...] | None, right: tuple[float, ...] | None) -> float:
    assert left is not None
    assert right is not None
    return sum(a * b for a, b in zip(left, right, strict=True))


async def test_texts_of_one_meaning_are_nearer_than_others() -> None:
    car, automobile, bread = await WordLlamaEmbedder().embed(["The car is fast", "A quick automobile", "Bread recipe"])
    assert cosine(car, automobile) > cosine(car, bread)


async def test_words_of_the_same_meaning_make_texts_alike_and_no_vectors_leave_only_the_same_words() -> None:
    texts = ("A quick automobile stood there.", "A recipe for bread.")
    car, bread = await WordLlamaEmbedder().compute_similarity("Which car is fast?", texts)
    assert car > bread
    assert await NoEmbedder().compute_similarity("Which car is fast?", texts) == (0.0, 0.0)


async def test_a_vector_has_the_promised_dimension_and_length_1() -> None:
    embedder = WordLlamaEmbedder()
    (vector,) = await embedder.embed(["something to say"])
    assert vector is not None
    assert len(vector) == embedder.dimension == 256
    assert math.isclose(cosine(vector, vector), 1.0, rel_tol=1e-6)


async def test_a_text_without_words_has_no_vector_and_its_neighbours_keep_theirs() -> None:
    alone = await WordLlamaEmbedder().embed(["hello"])
    together = await WordLlamaEmbedder().embed(["", "hello", "x" * 1_000_000])
    assert together[0] is None
    assert cosine(alone[0], together[1]) == pytest.approx(1.0, rel=1e-6)


async def test_no_texts_give_no_vectors() -> None:
    assert await WordLlamaEmbedder().embed([]) == ()


async def test_a_model_that_cannot_be_loaded_makes_memory_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wordllama", None)
    with pytest.raises(MemoryUnavailable, match="ModuleNotFoundError"):
        await WordLlamaEmbedder().embed(["text"])


async def test_loading_the_model_leaves_the_logging_of_the_process_alone() -> None:
    script = (
        "import asyncio, logging\n"
        "from waystation.memory.embedders.local import WordLlamaEmbedder\n"
        "asyncio.run(WordLlamaEmbedder().embed(['text']))\n"
        "assert not logging.getLogger().handlers and logging.getLogger().level == logging.WARNING\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


async def test_without_an_embedder_every_text_has_no_vector() -> None:
    assert await NoEmbedder().embed(["a", "b"]) == (None, None)
    assert NoEmbedder().dimension is None


def test_the_best_embedder_is_the_bundled_one_and_none_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(create_default_embedder(), WordLlamaEmbedder)

    def no_package(name: str) -> None:
        return None

    monkeypatch.setattr("waystation.memory.embedders.local.find_spec", no_package)
    assert isinstance(create_default_embedder(), NoEmbedder)
