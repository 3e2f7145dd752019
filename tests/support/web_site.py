"""A programmable web site on loopback that records its visits, and a resolver that leads to it."""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_network

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from waystation.documents.readers.reader import SubprocessWebTextExtractor
from waystation.documents.web import DirectWebPageFetcher, WebFetchConfig

SiteHandler = Callable[[web.Request], Awaitable[web.StreamResponse]]
NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
ALLOWED_ADDRESS, FORBIDDEN_ADDRESS = "127.0.0.1", "127.0.0.2"
"""Loopback addresses: tests may reach the first, and must not reach the second."""


@dataclass
class FakeSite:
    """Requests to the site."""

    port: int
    visits: list[str] = field(default_factory=list[str])
    """Host and path of each request, in order."""
    agents: set[str] = field(default_factory=set[str])
    now: int = 0
    most_at_once: int = 0

    def url(self, path: str, host: str = ALLOWED_ADDRESS) -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def pages(self) -> list[str]:
        """Requested paths, without robots.txt."""
        return [path for visit in self.visits if (path := visit.partition(" ")[2]) != "/robots.txt"]


def respond_with(body: str | bytes, content_type: str = "text/plain", status: int = 200, **headers: str) -> SiteHandler:
    """Always return the same answer; underscores in header names become hyphens."""

    async def answer(_: web.Request) -> web.Response:
        content = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=content, status=status, headers={"Content-Type": content_type, **named})

    return answer


def redirect_to(target: str) -> SiteHandler:
    """Return a redirect."""
    return respond_with("", status=302, Location=target)


@asynccontextmanager
async def run_site(
    pages: Mapping[str, SiteHandler], host: str = ALLOWED_ADDRESS, port: int = 0
) -> AsyncGenerator[FakeSite]:
    """Serve these paths until the block ends.

    A site without `/robots.txt` answers 404 for it, as for all other paths.
    """
    site = FakeSite(port)

    async def answer(request: web.Request) -> web.StreamResponse:
        site.visits.append(f"{request.host.rpartition(':')[0]} {request.path_qs}")
        site.agents.add(request.headers["User-Agent"])
        site.now += 1
        site.most_at_once = max(site.most_at_once, site.now)
        try:
            return await pages.get(request.path, respond_with("nothing here", status=404))(request)
        finally:
            site.now -= 1

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    site.port = int(runner.addresses[0][1])
    try:
        yield site
    finally:
        await runner.cleanup()


class FakeResolver(AbstractResolver):
    """Resolves these names: to each address in turn, and from then on to the last."""

    def __init__(self, **addresses: list[str]) -> None:
        self.addresses = addresses
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """See `AbstractResolver`."""
        self.asked.append(host)
        known = self.addresses[host.replace(".", "_")]
        address = known.pop(0) if len(known) > 1 else known[0]
        return [ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)]

    async def close(self) -> None:
        """Do nothing."""


class RecordedSleep:
    """Records how long it should have slept, without sleeping."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


@asynccontextmanager
async def open_fetcher(
    reader: SubprocessWebTextExtractor,
    names: FakeResolver | None = None,
    wait: RecordedSleep | None = None,
    /,
    **terms: object,
) -> AsyncGenerator[DirectWebPageFetcher]:
    """Open a fetcher that may reach 127.0.0.1, and nothing else of this machine."""
    named = {
        "user_agent": "Waystation/1.0 (tests)",
        "reachable_networks": (ip_network(f"{ALLOWED_ADDRESS}/32"),),
        "pause_s": 0,
        **terms,
    }
    fetch = DirectWebPageFetcher(
        reader, lambda: NOON, WebFetchConfig.model_validate(named), names, wait or RecordedSleep()
    )
    try:
        yield fetch
    finally:
        await fetch.aclose()
