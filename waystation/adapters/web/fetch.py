"""Fetches pages by ourselves: what a careful visitor does, and nothing that somebody could have us do."""

import asyncio
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Network, IPv6Network
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver
from pydantic import Field
from yarl import URL

from waystation.adapters.web.kinds import suffix_of
from waystation.adapters.web.pace import Pace
from waystation.adapters.web.public import NotPublic, PublicOnly
from waystation.adapters.web.robots import MOST_BYTES, Robots, RobotsFile
from waystation.domain.errors import WebRefused, WebUnavailable
from waystation.domain.value import Value
from waystation.domain.web import Domains, WebAddress, WebPage, same_site, web_address, web_page
from waystation.ports import Clock, PageReader

MOST_REDIRECTS = 5
CONNECT_S = 10.0
PASSING = frozenset({408, 425, 429})
"""What the server itself says may go otherwise next time, beside 5xx."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*,application/json;q=0.9,*/*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
"""Only what is unpacked piece by piece: the limit on bytes holds for what comes out."""


class FetchTerms(Value):
    """How pages are fetched."""

    user_agent: str = Field(min_length=1)
    """Product token, version, and how its operator is reached. The token is what robots.txt calls us by."""
    domains: Domains = Domains()
    most_bytes: int = 10_000_000
    """Of one page, unpacked."""
    seconds: float = 30.0
    """For robots.txt, redirects, waiting for the host and the page together."""
    pause_s: float = 1.0
    """Between two requests to one host."""
    reachable: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that may be connected to although they are not public, such as an intranet."""


class _Body(NamedTuple):
    address: WebAddress
    content: bytes
    suffix: str
    charset: str | None


class OwnFetch:
    """A `WebPages` without a provider. It belongs to the event loop in which it first fetches."""

    def __init__(
        self,
        reader: PageReader,
        clock: Clock,
        terms: FetchTerms,
        resolver: AbstractResolver | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`resolver`: by default the system's. Whatever it answers, only public addresses are connected to."""
        self._reader, self._clock, self._terms, self._resolver = reader, clock, terms, resolver
        self._pace = Pace(terms.pause_s, wait)
        self._robots = Robots(terms.user_agent, self._robots_file)
        self._open: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> WebPage:
        """See `WebPages`. A redirect to a domain that is neither the asked one nor allowed is not followed."""
        asked = web_address(url)
        try:
            async with asyncio.timeout(self._terms.seconds):
                body = await self._body(asked)
        except aiohttp.ClientError as error:
            raise _failure(asked.host, error) from None
        except TimeoutError:
            raise WebUnavailable(f"{asked.host} did not answer within {self._terms.seconds:g} s") from None
        text = await self._reader.read(body.content, body.suffix, body.charset)
        return web_page(body.address.url, text, self._clock())

    async def aclose(self) -> None:
        """Close the connections."""
        if self._open is not None:
            await self._open.close()

    async def _body(self, asked: WebAddress) -> _Body:
        address = asked
        for _ in range(1 + MOST_REDIRECTS):
            self._check_domain(address, asked)
            found = await self._visit(address)
            if isinstance(found, _Body):
                return found
            address = found
        raise WebRefused(f"{asked.host} redirects more than {MOST_REDIRECTS} times", "Use another page.")

    def _check_domain(self, address: WebAddress, asked: WebAddress) -> None:
        domains = self._terms.domains
        if domains.denies(address.host):
            raise WebRefused(f"Pages of {address.host} must not be read here", "Use another source.")
        if not same_site(asked.host, address.host) and not domains.admits(address.host):
            raise WebRefused(f"{asked.host} redirects to another site", f"If it is wanted, fetch {address.url} itself.")

    async def _visit(self, address: WebAddress) -> _Body | WebAddress:
        """What is there, or where it has gone."""
        async with self._pace.turn(address.host):
            if not await self._robots.allow(address):
                raise WebRefused(f"{address.host} does not let programs read this page", "Use another source.")
            async with self._session.get(URL(address.url), allow_redirects=False) as answer:
                if answer.status in _REDIRECTS:
                    return _target(address, answer)
                _check_status(address.host, answer.status)
                suffix = suffix_of(answer.content_type, address.host)
                return _Body(address, await self._content(address.host, answer), suffix, answer.charset)

    async def _content(self, host: str, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        too_large = (answer.content_length or 0) > self._terms.most_bytes
        while not too_large and (piece := await answer.content.readany()):
            content += piece
            too_large = len(content) > self._terms.most_bytes
        if too_large:
            most = self._terms.most_bytes / 1e6
            raise WebRefused(f"The page of {host} is larger than {most:g} MB", "Use a smaller page or a part of it.")
        return bytes(content)

    async def _robots_file(self, asked: WebAddress) -> RobotsFile:
        """Redirects are followed as those of pages are: what a page must not lead to, its rules must not either."""
        address = asked
        for _ in range(1 + MOST_REDIRECTS):
            self._check_domain(address, asked)
            async with self._session.get(URL(address.url), allow_redirects=False) as answer:
                if answer.status not in _REDIRECTS:
                    return RobotsFile(answer.status, await _beginning(answer))
                address = _target(address, answer)
        raise WebRefused(f"{asked.host} redirects more than {MOST_REDIRECTS} times", "Use another page.")

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            self._open = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=self._resolver,
                    use_dns_cache=False,
                    socket_factory=PublicOnly(self._terms.reachable),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={**_HEADERS, "User-Agent": self._terms.user_agent},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
                trust_env=False,
            )
        return self._open


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    while len(content) < MOST_BYTES and (piece := await answer.content.readany()):
        content += piece
    return bytes(content[:MOST_BYTES])


def _target(address: WebAddress, answer: aiohttp.ClientResponse) -> WebAddress:
    try:
        return web_address(str(URL(address.url).join(URL(answer.headers.get("Location", "")))))
    except ValueError:
        raise WebRefused(f"{address.host} redirects to no address that can be read", "Use another page.") from None


def _check_status(host: str, status: int) -> None:
    if status in PASSING or status >= 500:
        raise WebUnavailable(f"{host} answered {status}")
    if not 200 <= status < 300:
        raise WebRefused(f"{host} answered {status}", "Check the address, or use another source.")


def _failure(host: str, error: aiohttp.ClientError) -> WebRefused | WebUnavailable:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return WebRefused(f"The certificate of {host} is not valid", "Use another source.")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, NotPublic):
            return WebRefused(f"{host} leads to an address that is not public", "Only public pages can be read.")
        case _:
            return WebUnavailable(f"the connection to {host} failed ({type(error).__name__})")
