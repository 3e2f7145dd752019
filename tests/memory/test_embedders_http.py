"""How embedders over HTTP ask, how patient they are, and what they say of failures: never a key or a text."""

import logging
from collections.abc import AsyncIterator

import pytest
from pydantic import SecretStr

from tests.support.embeddings_server import DIMENSION, KEY, EmbeddingsServer, Fault, run_embeddings_server
from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.memory.embedders.http import (
    BATCH_TEXTS,
    REQUEST_BYTES,
    EmbeddingRetryPolicy,
    EmbeddingVendor,
    HttpEmbedder,
    resolve_embedding_endpoint,
)

QUICK = EmbeddingRetryPolicy(timeout_s=20, pauses_s=(0.01, 0.01), max_wait_s=0.5)
SENSITIVE = "sensitive words"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddingsServer]:
    async with run_embeddings_server() as server:
        yield server


def embedder_of(
    server: EmbeddingsServer,
    vendor: EmbeddingVendor = "openai",
    model: str = "small",
    dimension: int | None = DIMENSION,
) -> HttpEmbedder:
    return HttpEmbedder(resolve_embedding_endpoint(vendor, server.url, model, dimension, SecretStr(KEY)), QUICK)


async def failure(embedder: HttpEmbedder) -> str:
    with pytest.raises(MemoryUnavailable) as caught:
        await embedder.embed([SENSITIVE])
    await embedder.aclose()
    assert caught.value.__context__ is None
    for secret in (SENSITIVE, KEY, "must not be repeated"):
        assert secret not in f"{caught.value!r}"
    return str(caught.value)


async def test_voyage_is_told_what_a_text_is_for_and_both_get_the_key(server: EmbeddingsServer) -> None:
    embedder = embedder_of(server, "voyage")
    await embedder.embed(["a passage"])
    await embedder.embed(["a question"], "query")
    assert server.bodies == [
        {"model": "small", "input": ["a passage"], "input_type": "document"},
        {"model": "small", "input": ["a question"], "input_type": "query"},
    ]
    assert server.keys == {f"Bearer {KEY}"}
    await embedder.aclose()


@pytest.mark.parametrize(
    ("vendor", "model", "field"),
    [("voyage", "voyage-4", "output_dimension"), ("openai", "text-embedding-3-large", "dimensions")],
)
async def test_another_dimension_is_asked_for_where_the_model_can_give_it(
    server: EmbeddingsServer, vendor: EmbeddingVendor, model: str, field: str
) -> None:
    embedder = embedder_of(server, vendor, model)
    await embedder.embed(["text"])
    assert server.bodies[0][field] == DIMENSION
    await embedder.aclose()


async def test_requests_are_bounded_in_texts_and_in_bytes(server: EmbeddingsServer) -> None:
    embedder = embedder_of(server)
    await embedder.embed(["word"] * (BATCH_TEXTS + 1))
    await embedder.embed([f"{number} {'語' * 4_000}" for number in range(20)])
    assert [len(texts) for texts in server.texts] == [BATCH_TEXTS, 1, 8, 8, 4]
    assert all(sum(len(text.encode()) for text in texts) <= REQUEST_BYTES for texts in server.texts)
    await embedder.embed(["x" * 1_000_000])
    assert len(server.texts[-1][0]) == 8_000
    await embedder.aclose()


@pytest.mark.parametrize("status", [0, 408, 429, 500, 503])
async def test_what_passes_is_tried_again(server: EmbeddingsServer, status: int) -> None:
    embedder = embedder_of(server)
    server.faults = [Fault(status), Fault(status)]
    (vector,) = await embedder.embed(["text"])
    assert vector is not None
    assert len(server.bodies) == 3
    await embedder.aclose()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "does not answer"),
        (429, "accepts no more requests for now (HTTP 429)"),
        (503, "failed (HTTP 503)"),
    ],
)
async def test_a_server_that_stays_away_makes_memory_unavailable(
    server: EmbeddingsServer, status: int, words: str
) -> None:
    server.faults = [Fault(status)] * 3
    host = f"127.0.0.1:{server.url.split(':')[2][:-3]}"
    assert f"cannot embed 1 text with openai/small: the server {host} {words}" in await failure(embedder_of(server))
    assert server.faults == []


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "refused the request (HTTP 400)"),
        (401, "does not accept the key (HTTP 401)"),
        (403, "does not accept the key (HTTP 403)"),
        (404, "does not have this model or address (HTTP 404)"),
        (307, "refused the request (HTTP 307)"),
    ],
)
async def test_what_does_not_pass_is_not_tried_again(server: EmbeddingsServer, status: int, words: str) -> None:
    server.faults = [Fault(status)] * 3
    assert words in await failure(embedder_of(server))
    assert len(server.bodies) == 1


async def test_the_delay_that_a_server_asks_for_is_kept_or_it_is_given_up(server: EmbeddingsServer) -> None:
    server.faults = [Fault(429, "0.2"), Fault(429, "0"), Fault(200)]
    assert "unusable answer" in await failure(embedder_of(server))
    server.faults = [Fault(429, "60")]
    assert "HTTP 429" in await failure(embedder_of(server))
    server.faults = [Fault(429, "Wed, 21 Oct 2026 07:28:00 GMT"), Fault(503, "nan")]
    embedder = embedder_of(server)
    assert await embedder.embed(["text"]) != (None,)
    await embedder.aclose()


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "{}",
        '{"data": []}',
        '{"data": [{"index": 1, "embedding": [1.0]}]}',
        '{"data": [{"index": 0, "embedding": ["one"]}]}',
        '{"data": [{"index": 0, "embedding": [NaN]}]}',
    ],
)
async def test_an_answer_that_cannot_be_used_is_no_vector(server: EmbeddingsServer, body: str) -> None:
    server.faults = [Fault(200, body=body)]
    assert "sent an unusable answer" in await failure(embedder_of(server))


async def test_a_dimension_that_is_not_the_set_one_is_seen_with_the_first_vector(server: EmbeddingsServer) -> None:
    server.dimension = 8
    assert "returns vectors of 8 dimensions instead of 64; set WAYSTATION_EMBEDDER_DIMENSION" in await failure(
        embedder_of(server)
    )


async def test_vectors_of_several_dimensions_are_refused_without_naming_one_to_set(server: EmbeddingsServer) -> None:
    rows = '{"index": 0, "embedding": [1.0]}, {"index": 1, "embedding": [1.0, 2.0]}'
    server.faults = [Fault(200, body=f'{{"data": [{rows}]}}')]
    embedder = embedder_of(server)
    with pytest.raises(MemoryUnavailable, match=r"returns vectors of 1 and 2 dimensions instead of \d+$"):
        await embedder.embed(["one", "two"])
    await embedder.aclose()


async def test_a_server_that_is_silent_is_given_up(server: EmbeddingsServer) -> None:
    endpoint = resolve_embedding_endpoint("openai", server.url, "small", DIMENSION, SecretStr(KEY))
    assert "did not answer in time" in await failure(
        HttpEmbedder(endpoint, EmbeddingRetryPolicy(timeout_s=0.0, pauses_s=()))
    )


async def test_no_log_line_has_a_key_or_a_text(server: EmbeddingsServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    embedder = embedder_of(server)
    await embedder.embed([SENSITIVE])
    await embedder.aclose()
    assert SENSITIVE not in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(
    "url", ["example.com/v1", "ftp://example.com", "https://", "https://me:secret@example.com/v1", "https://a.b/?k=1"]
)
def test_an_address_that_cannot_be_used_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(BadInput, match="WAYSTATION_EMBEDDER_URL") as caught:
        resolve_embedding_endpoint("openai", url, "small", 8, None)
    assert "secret" not in str(caught.value)


def test_what_must_be_set_is_said() -> None:
    with pytest.raises(BadInput, match=r"set WAYSTATION_EMBEDDER_DIMENSION .* vectors of the model small"):
        resolve_embedding_endpoint("openai", None, "small", None, None)
    with pytest.raises(BadInput, match="set VOYAGE_API_KEY"):
        resolve_embedding_endpoint("voyage", None, None, None, None)
    with pytest.raises(BadInput, match="set WAYSTATION_EMBEDDER_KEY"):
        resolve_embedding_endpoint("openai", None, None, None, None)
    assert resolve_embedding_endpoint("voyage", None, None, None, SecretStr(KEY)).dimension == 1024
