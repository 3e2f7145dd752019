"""Embedders behind HTTP: Voyage's API, and that of OpenAI, which many servers implement.

Texts are sent in bounded batches with a few retries, and answers are checked. Error messages contain no word of a
request or an answer.
"""

import asyncio
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

import httpx2
from pydantic import JsonValue, SecretStr, ValidationError

from waystation.kernel.errors import BadInput, MemoryUnavailable
from waystation.kernel.network import describe_connection_error
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.memory.embedders.local import LexicalSimilarityMixin, Vector, normalise_vector
from waystation.memory.ports import EmbeddingUse

EmbeddingVendor = Literal["voyage", "openai"]

_URLS: Mapping[EmbeddingVendor, str] = {"voyage": "https://api.voyageai.com/v1", "openai": "https://api.openai.com/v1"}
_MODELS: Mapping[EmbeddingVendor, str] = {"voyage": "voyage-4", "openai": "text-embedding-3-small"}
_DIMENSION_FIELDS: Mapping[EmbeddingVendor, str] = {"voyage": "output_dimension", "openai": "dimensions"}
_DIMENSIONS = {
    "voyage-4-large": 1024,
    "voyage-4": 1024,
    "voyage-4-lite": 1024,
    "voyage-3-large": 1024,
    "voyage-3.5": 1024,
    "voyage-3.5-lite": 1024,
    "voyage-code-3": 1024,
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
}
"""Default dimensions of these models, which can all be asked for another one (vendors' documentation, October 2026).
For other models the dimension must be set, and is not requested: not every server supports that.
"""


class EmbeddingEndpoint(Value):
    """A model on a server. Created by `resolve_embedding_endpoint`."""

    vendor: EmbeddingVendor
    url: str
    """Address without the path of the request."""
    model: str
    dimension: int
    key: SecretStr | None = None

    @property
    def name(self) -> str:
        """Name of the embedder: the same model on another server makes the same vectors."""
        return f"{self.vendor}/{self.model}"

    @property
    def host(self) -> str:
        """Host for messages."""
        return urlsplit(self.url).netloc

    @property
    def headers(self) -> dict[str, str]:
        """Headers with the key, if there is one."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key.get_secret_value()}"}

    def build_request_body(self, texts: Sequence[str], use: EmbeddingUse) -> dict[str, JsonValue]:
        """Build the request for the vectors of these texts."""
        body: dict[str, JsonValue] = {"model": self.model, "input": [*texts]}
        if self.vendor == "voyage":
            body["input_type"] = "document" if use == "passage" else "query"
        if _DIMENSIONS.get(self.model, self.dimension) != self.dimension:
            body[_DIMENSION_FIELDS[self.vendor]] = self.dimension
        return body


def resolve_embedding_endpoint(
    vendor: EmbeddingVendor, url: str | None, model: str | None, dimension: int | None, key: SecretStr | None
) -> EmbeddingEndpoint:
    """Return the endpoint of these settings; missing ones default to the vendor's own.

    Raises:
        BadInput: a setting is missing or cannot be used.
    """
    chosen = model or _MODELS[vendor]
    length = dimension or _DIMENSIONS.get(chosen)
    if length is None:
        raise BadInput(f"set WAYSTATION_EMBEDDER_DIMENSION to the dimension of the vectors of the model {chosen}")
    if key is None and url is None:
        variable = "VOYAGE_API_KEY" if vendor == "voyage" else "WAYSTATION_EMBEDDER_KEY"
        raise BadInput(f"the embedder {vendor} needs a key: set {variable}")
    address = _checked(url or _URLS[vendor])
    return EmbeddingEndpoint(vendor=vendor, url=address, model=chosen, dimension=length, key=key)


def _checked(url: str) -> str:
    """Check an address. The error does not show it if it may contain a secret: HTTP clients log addresses."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    else:
        usable = usable and not (parts.username or parts.password or parts.query or parts.fragment)
    if not usable:
        raise BadInput(
            "WAYSTATION_EMBEDDER_URL must look like https://embeddings.example.com/v1, without a password or "
            "parameters: put the key into WAYSTATION_EMBEDDER_KEY"
        )
    return url.rstrip("/")


@dataclass(frozen=True)
class _Failure:
    """How a request failed."""

    message: str
    """What went wrong, with the server as the subject."""
    retryable: bool
    """Whether trying again may help."""
    wait_s: float = 0.0
    """Seconds that the server asks to wait."""


TIMEOUT_FAILURE = _Failure("did not answer in time", retryable=True)
_UNREADABLE = _Failure("sent an unusable answer", retryable=False)


def _failure_of(response: httpx2.Response) -> _Failure:
    """Return the failure of a response whose status is not 200."""
    status = response.status_code
    match status:
        case 401 | 403:
            return _Failure(f"does not accept the key (HTTP {status})", retryable=False)
        case 404:
            return _Failure("does not have this model or address (HTTP 404)", retryable=False)
        case 408 | 429:
            return _Failure(
                f"accepts no more requests for now (HTTP {status})", retryable=True, wait_s=_delay(response)
            )
        case _ if status >= 500:
            return _Failure(f"failed (HTTP {status})", retryable=True, wait_s=_delay(response))
        case _:
            return _Failure(f"refused the request (HTTP {status})", retryable=False)


def make_unreachable_failure(error: httpx2.HTTPError) -> _Failure:
    """Return the failure of a request without an answer. Its cause is in our words: the error may quote an address."""
    return _Failure(f"does not answer: {describe_connection_error(error)}", retryable=True)


def _delay(response: httpx2.Response) -> float:
    """Both vendors give seconds. For a date, or nothing, the pause is ours."""
    try:
        asked = float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return max(0.0, asked) if math.isfinite(asked) else 0.0


BATCH_TEXTS = 128
REQUEST_BYTES = 100_000
"""Maximum bytes of a request. A token is at least one byte, and every model of the vendors takes at least 120,000
tokens.
"""
_READ_CHARACTERS = 8_000
"""Maximum characters of a text: passages are far shorter, and it fits into the smallest context of the vendors."""


class EmbeddingRetryPolicy(Value):
    """Time limit for each attempt, and pauses between the few attempts if waiting may help."""

    timeout_s: float = 15.0
    pauses_s: tuple[float, ...] = (0.5, 2.0)
    """Mean pauses between attempts, in seconds; there is one attempt more than pauses."""
    max_wait_s: float = 20.0
    """Longest wait that a server may ask for; beyond that the request fails, and unwritten passages wait in the
    outbox.
    """


_RETRY_POLICY = EmbeddingRetryPolicy()


class _Embedded(Value, allow_inf_nan=False):
    index: int
    embedding: tuple[float, ...]


class _Answer(Value):
    data: tuple[_Embedded, ...]


class HttpEmbedder(LexicalSimilarityMixin):
    """Implements the port `Embedder`. No request is made before the first text."""

    def __init__(self, endpoint: EmbeddingEndpoint, patience: EmbeddingRetryPolicy = _RETRY_POLICY) -> None:
        self.name = endpoint.name
        self.dimension: int | None = endpoint.dimension
        self._endpoint = endpoint
        self._retry_policy = patience
        # One time limit applies to the whole request; a redirect would send key and texts elsewhere.
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False, headers=endpoint.headers)

    async def embed(self, texts: Sequence[str], use: EmbeddingUse = "passage") -> tuple[Vector | None, ...]:
        """Return a vector of length 1 for each text, from its first 8,000 characters; None for a text without words.

        Raises:
            MemoryUnavailable: the server did not answer as it should.
        """
        said = {place: text[:_READ_CHARACTERS] for place, text in enumerate(texts) if text.strip()}
        vectors: dict[int, Vector | None] = {}
        for places in _batches(said):
            answer = await self._patiently([said[place] for place in places], use)
            vectors |= zip(places, answer, strict=True)
        return tuple(vectors.get(place) for place in range(len(texts)))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _patiently(self, texts: Sequence[str], use: EmbeddingUse) -> tuple[Vector | None, ...]:
        pauses = iter(self._retry_policy.pauses_s)
        while True:
            answer = await self._ask(texts, use)
            if not isinstance(answer, _Failure):
                return answer
            pause_s = next(pauses, None)
            if pause_s is None or not answer.retryable or answer.wait_s > self._retry_policy.max_wait_s:
                raise MemoryUnavailable(
                    f"cannot embed {format_count(len(texts), 'text')} with {self.name}: the server "
                    f"{self._endpoint.host} {answer.message}"
                )
            await asyncio.sleep(max(answer.wait_s, pause_s * random.uniform(0.5, 1.5)))

    async def _ask(self, texts: Sequence[str], use: EmbeddingUse) -> tuple[Vector | None, ...] | _Failure:
        body = self._endpoint.build_request_body(texts, use)
        try:
            async with asyncio.timeout(self._retry_policy.timeout_s):
                response = await self._client.post(f"{self._endpoint.url}/embeddings", json=body)
        except TimeoutError:
            return TIMEOUT_FAILURE
        except httpx2.HTTPError as error:
            return make_unreachable_failure(error)
        return self._read(response, len(texts)) if response.status_code == 200 else _failure_of(response)

    def _read(self, response: httpx2.Response, count: int) -> tuple[Vector | None, ...] | _Failure:
        try:
            rows = sorted(_Answer.model_validate_json(response.content, extra="ignore").data, key=lambda row: row.index)
        except ValidationError:
            return _UNREADABLE
        if [row.index for row in rows] != [*range(count)]:
            return _UNREADABLE
        lengths = {len(row.embedding) for row in rows}
        if lengths != {self.dimension}:
            given = " and ".join(str(length) for length in sorted(lengths))
            step = f"; set WAYSTATION_EMBEDDER_DIMENSION to {given}" if len(lengths) == 1 else ""
            words = f"returns vectors of {given} dimensions instead of {self.dimension}{step}"
            return _Failure(words, retryable=False)
        return tuple(normalise_vector(row.embedding) for row in rows)


def _batches(texts: dict[int, str]) -> Iterator[list[int]]:
    """Yield the keys of the texts in order, in batches within BATCH_TEXTS and REQUEST_BYTES; a larger one goes
    alone.
    """
    batch: list[int] = []
    room = REQUEST_BYTES
    for key, text in texts.items():
        size = len(text.encode("utf-8", "surrogatepass"))
        if batch and (size > room or len(batch) == BATCH_TEXTS):
            yield batch
            batch, room = [], REQUEST_BYTES
        batch.append(key)
        room -= size
    if batch:
        yield batch
