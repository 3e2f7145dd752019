"""Embedders behind HTTP: texts in bounded batches, a few patient tries, and answers that are checked."""

import asyncio
import random
from collections.abc import Iterator, Sequence

import httpx2
from pydantic import ValidationError

from waystation.adapters.embeddings.endpoint import Endpoint
from waystation.adapters.embeddings.failures import SLOW, UNREADABLE, Failure, failure_of, unreachable
from waystation.adapters.embeddings.length import Vector, of_length_1
from waystation.domain.errors import MemoryUnavailable
from waystation.domain.value import Value
from waystation.ports.knowledge import Use

BATCH_TEXTS = 128
BATCH_BYTES = 100_000
"""A token is a byte at least, and no model of the vendors takes fewer than 120,000 tokens at once."""
READ_CHARACTERS = 8_000
"""Of a text: passages are far shorter, and the smallest of the vendors' contexts takes it."""


class Patience(Value):
    """How long a request may take: a time limit for each try, and a few tries where waiting may help."""

    timeout_s: float = 15.0
    pauses_s: tuple[float, ...] = (0.5, 2.0)
    """Between tries, on average; one try more than pauses."""
    longest_wait_s: float = 20.0
    """A server that asks for more is given up: what could not be written waits in the outbox."""


PATIENCE = Patience()


class _Embedded(Value, allow_inf_nan=False):
    index: int
    embedding: tuple[float, ...]


class _Answer(Value):
    data: tuple[_Embedded, ...]


class HttpEmbedder:
    """Implements the port `Embedder`. No request is made before the first text."""

    def __init__(self, endpoint: Endpoint, patience: Patience = PATIENCE) -> None:
        self.name = endpoint.name
        self.dimension: int | None = endpoint.dimension
        self._endpoint = endpoint
        self._patience = patience
        # The time limit is one for the whole request; a redirect would take key and texts elsewhere.
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False, headers=endpoint.headers)

    async def embed(self, texts: Sequence[str], use: Use = "passage") -> tuple[Vector | None, ...]:
        """One vector of length 1 for each text, made of its first 8,000 characters; None where there is no word.

        Raises MemoryUnavailable.
        """
        said = {place: text[:READ_CHARACTERS] for place, text in enumerate(texts) if text.strip()}
        vectors: dict[int, Vector | None] = {}
        for places in batches(said):
            answer = await self._patiently([said[place] for place in places], use)
            vectors |= zip(places, answer, strict=True)
        return tuple(vectors.get(place) for place in range(len(texts)))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _patiently(self, texts: Sequence[str], use: Use) -> tuple[Vector | None, ...]:
        pauses = iter(self._patience.pauses_s)
        while True:
            answer = await self._ask(texts, use)
            if not isinstance(answer, Failure):
                return answer
            pause_s = next(pauses, None)
            if pause_s is None or not answer.passes or answer.wait_s > self._patience.longest_wait_s:
                raise MemoryUnavailable(
                    f"cannot embed {len(texts)} texts: {self.name} at {self._endpoint.host} {answer.words}"
                )
            await asyncio.sleep(max(answer.wait_s, pause_s * random.uniform(0.5, 1.5)))

    async def _ask(self, texts: Sequence[str], use: Use) -> tuple[Vector | None, ...] | Failure:
        body = self._endpoint.body(texts, use)
        try:
            async with asyncio.timeout(self._patience.timeout_s):
                response = await self._client.post(f"{self._endpoint.url}/embeddings", json=body)
        except TimeoutError:
            return SLOW
        except httpx2.HTTPError as error:
            return unreachable(error)
        return self._read(response, len(texts)) if response.status_code == 200 else failure_of(response)

    def _read(self, response: httpx2.Response, count: int) -> tuple[Vector | None, ...] | Failure:
        try:
            rows = sorted(_Answer.model_validate_json(response.content).data, key=lambda row: row.index)
        except ValidationError:
            return UNREADABLE
        if [row.index for row in rows] != [*range(count)]:
            return UNREADABLE
        lengths = {len(row.embedding) for row in rows}
        if lengths != {self.dimension}:
            given = " and ".join(str(length) for length in sorted(lengths))
            words = f"gives vectors of {given} dimensions, not of {self.dimension}: set WAYSTATION_EMBEDDER_DIMENSION"
            return Failure(words, passes=False)
        return tuple(of_length_1(row.embedding) for row in rows)


def batches(texts: dict[int, str]) -> Iterator[list[int]]:
    """The keys of the texts in order, in batches within BATCH_TEXTS and BATCH_BYTES; a larger one goes alone."""
    batch: list[int] = []
    room = BATCH_BYTES
    for key, text in texts.items():
        size = len(text.encode("utf-8", "surrogatepass"))
        if batch and (size > room or len(batch) == BATCH_TEXTS):
            yield batch
            batch, room = [], BATCH_BYTES
        batch.append(key)
        room -= size
    if batch:
        yield batch
