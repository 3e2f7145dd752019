"""A programmable webhook on loopback that records what it accepted."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from aiohttp import web
from pydantic import JsonValue, TypeAdapter

SECRET = "T0000/B0000/only-we-may-post-here"
BODY: TypeAdapter[dict[str, JsonValue]] = TypeAdapter(dict[str, JsonValue])


class WebhookResponse(NamedTuple):
    """One answer. Status 0: none at all, for as long as the server runs."""

    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})


NO_RESPONSE = WebhookResponse(0)


@dataclass
class WebhookServer:
    """Gives its answers in order, then repeats the last one; without any, accepts everything."""

    answers: list[WebhookResponse]
    url: str = ""
    asked: list[tuple[int, dict[str, JsonValue]]] = field(default_factory=list[tuple[int, dict[str, JsonValue]]])
    """Status and body of every request."""
    paths: set[str] = field(default_factory=set[str])
    closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def accepted_bodies(self) -> list[dict[str, JsonValue]]:
        """Bodies that were answered with success."""
        return [body for status, body in self.asked if 200 <= status < 300]

    @property
    def delivery_ids(self) -> list[JsonValue]:
        """Their delivery ids, sorted."""
        return sorted((parse_event_payload(body)["delivery_id"] for body in self.accepted_bodies), key=str)

    async def answer(self, request: web.Request) -> web.Response:
        """Answer one request."""
        self.paths.add(request.path)
        answer = self.answers.pop(0) if len(self.answers) > 1 else next(iter(self.answers), WebhookResponse())
        self.asked.append((answer.status, BODY.validate_json(await request.read())))
        if answer.status == 0:
            await self.closing.wait()
        return web.Response(
            status=answer.status or 200, headers=answer.headers, text="a text that must not be repeated"
        )


def parse_event_payload(body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the fields for programs."""
    metadata = body["metadata"]
    assert isinstance(metadata, dict)
    return BODY.validate_python(metadata["event_payload"])


@asynccontextmanager
async def run_webhook_server(*answers: WebhookResponse, port: int = 0) -> AsyncGenerator[WebhookServer]:
    """Serve on loopback until the block ends; requests that hang are answered then, too late."""
    server = WebhookServer(list(answers))
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/services/{SECRET}"
    try:
        yield server
    finally:
        server.closing.set()
        await runner.cleanup()
