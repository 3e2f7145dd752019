"""A proxy in front of the dev server's UI, which answers whatever `Host` and `Origin` a request has: a page of another
site could otherwise read histories, answer requests and start workflows through it (DNS rebinding).
"""

import asyncio
import errno
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDict
from yarl import URL

BAD_GATEWAY, FORBIDDEN, MISDIRECTED = 502, 403, 421
_CHUNK_BYTES = 65_536
_CONNECT_SECONDS = 5
_CLOSE_SECONDS = 1.0
IDLE_SECONDS, IDLE_AT_ONCE = 10.0, 300
"""As in the web pages' server: seconds until a complete request head has arrived, and the number of simultaneous
connections without a request.
"""
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, which do not apply to the next; and `Host`, which the UI receives as its own."""


class UiAddress(NamedTuple):
    """An IP address and a TCP port."""

    host: str
    port: int


class PortInUseError(Exception):
    """Another process listens at the port."""


@asynccontextmanager
async def run_ui_proxy(listening: UiAddress, ui: UiAddress) -> AsyncGenerator[None]:
    """Forward requests to the UI until the block ends. Requests under any name but that of this address, and those of
    other sites' pages, are refused.

    Raises:
        PortInUseError: Another process listens there.
    """
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(
        connector=connector, cookie_jar=aiohttp.DummyCookieJar(), timeout=timeout, auto_decompress=False
    ) as session:
        idle = IdleConnectionReaper()
        app = web.Application(middlewares=[idle.middleware, create_same_origin_middleware(listening.port)])
        app.router.add_route("*", "/{path:.*}", _Forwarder(session, ui).answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_CLOSE_SECONDS)
        await runner.setup()
        accepting = None
        try:
            try:
                accepting = await asyncio.get_running_loop().create_server(partial(idle.accept, runner), *listening)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise PortInUseError from error
                raise
            yield
        finally:
            if accepting is not None:
                accepting.close()
            await runner.cleanup()


class IdleConnectionReaper:
    """Closes connections without a request after some seconds, and the longest-waiting ones earlier if there are too
    many. aiohttp closes one that is idle after an answer after an hour, and no other.
    """

    def __init__(self, seconds: float = IDLE_SECONDS, at_once: int = IDLE_AT_ONCE) -> None:
        self._seconds, self._at_once = seconds, at_once
        self._waiting: OrderedDict[web.RequestHandler, asyncio.TimerHandle] = OrderedDict()

    def accept(self, runner: web.AppRunner) -> web.RequestHandler:
        """Return the protocol that serves a new connection."""
        if runner.server is None:
            raise RuntimeError("the proxy has ended")
        connection = runner.server()
        self._wait(connection)
        return connection

    @property
    def middleware(self) -> Middleware:
        """A middleware that tracks which connections have a request in progress. An incomplete head is no request."""

        @web.middleware
        async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._wait_no_more(request.protocol)
            try:
                return await handler(request)
            finally:
                self._wait(request.protocol)

        return count

    def _wait(self, connection: web.RequestHandler) -> None:
        self._wait_no_more(connection)
        loop = asyncio.get_running_loop()
        self._waiting[connection] = loop.call_later(self._seconds, self._give_up, connection)
        while len(self._waiting) > self._at_once:
            self._give_up(next(iter(self._waiting)))

    def _wait_no_more(self, connection: web.RequestHandler) -> None:
        deadline = self._waiting.pop(connection, None)
        if deadline is not None:
            deadline.cancel()

    def _give_up(self, connection: web.RequestHandler) -> None:
        self._wait_no_more(connection)
        connection.force_close()


def create_same_origin_middleware(port: int) -> Middleware:
    """Create a middleware for a server on loopback: requests must name it as `127.0.0.1` or `localhost`, and must not
    come from another site.
    """
    hosts = frozenset(f"{name}:{port}" for name in ("127.0.0.1", "localhost"))

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        named = request.headers.getall("Host", [])
        if len(named) != 1 or named[0].lower() not in hosts:
            return _refusal(MISDIRECTED, f"this server answers only at {' or '.join(sorted(hosts))}")
        # A request target in absolute form may name another host than the header does.
        if not request.raw_path.startswith("/"):
            return _refusal(MISDIRECTED, "this server is not a general proxy")
        origins = request.headers.getall("Origin", [])
        if any(origin.lower() != f"http://{named[0].lower()}" for origin in origins):
            return _refusal(FORBIDDEN, "requests from pages of other sites are not allowed")
        return await handler(request)

    return check


def _refusal(status: int, reason: str) -> web.Response:
    return web.json_response({"message": reason}, status=status)


class _Forwarder(NamedTuple):
    session: aiohttp.ClientSession
    ui: UiAddress

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Stream the UI's answer."""
        # Unchanged: a path that is decoded and encoded again may become another one.
        url = URL(f"http://{self.ui.host}:{self.ui.port}{request.raw_path}", encoded=True)
        body = request.content.iter_chunked(_CHUNK_BYTES) if request.can_read_body else None
        try:
            async with self.session.request(
                request.method, url, headers=_end_to_end(request.headers), data=body, allow_redirects=False
            ) as found:
                answer = web.StreamResponse(status=found.status, headers=_end_to_end(found.headers))
                await answer.prepare(request)
                async for chunk in found.content.iter_any():
                    await answer.write(chunk)
                await answer.write_eof()
                return answer
        except aiohttp.ClientConnectorError:
            return _refusal(BAD_GATEWAY, "the UI does not answer")


def _end_to_end(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return the headers without those of one connection."""
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in _HOP_BY_HOP)
