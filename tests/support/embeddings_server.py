"""A fake server of embeddings on loopback, with Voyage's and OpenAI's API over a bag of words, and programmable
failures.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice

from aiohttp import web
from pydantic import JsonValue, TypeAdapter

KEY = "pa-only-we-may-embed"
DIMENSION = 64
BODY: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])
TEXTS: TypeAdapter[list[str]] = TypeAdapter(list[str])


@dataclass(frozen=True)
class Fault:
    """The failure of one request. Status 0: no answer; 200: an answer with this body."""

    status: int
    retry_after: str | None = None
    body: str = "a text that must not be repeated"


@dataclass
class EmbeddingsServer:
    """The server's behaviour, and its requests."""

    url: str = ""
    dimension: int = DIMENSION
    faults: list[Fault] = field(default_factory=list[Fault])
    """Failures of the next requests; then it works."""
    silent_after: int | None = None
    """Number of requests after which none is answered."""
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    bodies: list[dict[str, JsonValue]] = field(default_factory=list[dict[str, JsonValue]])
    keys: set[str | None] = field(default_factory=set[str | None])

    @property
    def texts(self) -> list[list[str]]:
        """Texts of each request."""
        return [TEXTS.validate_python(body["input"]) for body in self.bodies]

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request, with the vectors in another order than the texts."""
        body = BODY.validate_json(await request.read())
        self.bodies.append(body)
        self.keys.add(request.headers.get("Authorization"))
        if self.silent_after is not None and len(self.bodies) > self.silent_after:
            await self.closing.wait()
        if self.faults:
            fault = self.faults.pop(0)
            if fault.status == 0 and request.transport is not None:
                request.transport.close()
            headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
            return web.Response(status=fault.status or 200, headers=headers, text=fault.body)
        rows = [
            {"object": "embedding", "index": place, "embedding": embed_words(text, self.dimension)}
            for place, text in enumerate(self.texts[-1])
        ]
        return web.json_response({"object": "list", "data": rows[::-1], "model": body["model"]})


def embed_words(text: str, dimension: int) -> list[float]:
    """Return the sum of a direction for each word; its length exceeds 1."""
    directions = [_direction(word, dimension) for word in text.lower().split()]
    return [sum(numbers) for numbers in zip(*directions, strict=True)]


def _direction(word: str, dimension: int) -> Sequence[float]:
    return [byte / 127.5 - 1 for byte in islice(cycle(hashlib.sha512(word.encode()).digest()), dimension)]


@asynccontextmanager
async def run_embeddings_server() -> AsyncGenerator[EmbeddingsServer]:
    """Serve on a free port until the block ends."""
    server = EmbeddingsServer()
    application = web.Application()
    application.router.add_post("/v1/embeddings", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield server
    finally:
        server.closing.set()
        await runner.cleanup()
