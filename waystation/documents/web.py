"""Fetches web pages directly, within the limits of robots.txt (RFC 9309), politeness and public addresses.

The address is checked when a connection is made, so that neither a redirect nor a name that resolves differently each
time leads elsewhere.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from errno import EACCES
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import AddressFamily, SocketKind, socket
from typing import NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver
from protego import Protego
from pydantic import Field
from yarl import URL

from waystation.documents.ports import WebTextExtractor
from waystation.documents.web_pages import WebPage, build_web_page
from waystation.kernel.clock import Clock
from waystation.kernel.errors import WebPageUnreadableError, WebUnavailable
from waystation.kernel.network import describe_connection_error
from waystation.kernel.value import Value
from waystation.security.web_addresses import DomainPolicy, WebAddress, is_host_or_subdomain, parse_web_address

RULES_CACHE_SECONDS = 3_600.0
"""Seconds for which the rules of a site are cached; the RFC permits a day."""
MAX_SITES = 500
MAX_ROBOTS_BYTES = 512_000
"""Maximum bytes of a robots.txt. The rest of a longer one is ignored."""


class RobotsFile(NamedTuple):
    """Response of a server to the request for robots.txt."""

    status: int
    content: bytes


class _Known(NamedTuple):
    rules: Protego
    until: float


class RobotsPolicy:
    """The rules of the sites that were visited last."""

    def __init__(self, user_agent: str, get: Callable[[WebAddress], Awaitable[RobotsFile]]) -> None:
        """`user_agent`: its product token identifies us in the rules.

        `get` fetches a robots.txt, following redirects to hosts whose pages may be read; it raises
        WebPageUnreadableError for others.
        """
        self._token = user_agent.partition("/")[0]
        self._get = get
        self._sites: dict[str, _Known] = {}

    async def allow(self, address: WebAddress) -> bool:
        """Whether the site permits us to read the address.

        Raises:
            WebUnavailable: its rules cannot be read at the moment.
            WebPageUnreadableError: its rules are at a place that we do not visit.
        """
        known = self._sites.get(address.origin)
        now = asyncio.get_running_loop().time()
        if known is None or known.until < now:
            known = _Known(await self._rules(address), now + RULES_CACHE_SECONDS)
            self._sites.pop(address.origin, None)
            self._sites[address.origin] = known
            if len(self._sites) > MAX_SITES:
                del self._sites[next(iter(self._sites))]
        return known.rules.can_fetch(address.url, self._token)

    async def _rules(self, address: WebAddress) -> Protego:
        try:
            answer = await self._get(parse_web_address(f"{address.origin}/robots.txt"))
        except WebPageUnreadableError as refused:
            raise WebPageUnreadableError(
                f"The robots.txt of {address.host} could not be read: {refused.cause}", "Use another source."
            ) from refused
        if answer.status >= 500:
            raise WebUnavailable(
                f"{address.host} answered {answer.status} for its robots.txt, so no page of that site is read "
                "until robots.txt can be read"
            )
        rules = answer.content if answer.status < 300 else b""
        return Protego.parse(rules.decode("utf-8", "replace"))


_Target = tuple[AddressFamily | int, SocketKind | int, int, str, tuple[object, ...]]
"""A resolved name, as `getaddrinfo` returns it."""
_Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_UNICAST = ip_network("2000::/3")
"""All public IPv6 addresses; others are translated or reserved."""
_TRANSLATED = IPv6Network("64:ff9b::/96")
"""NAT64: the last four bytes are the IPv4 address that is meant."""
_NEVER = (
    ip_network("168.63.129.16/32"),  # Azure's metadata and agent, at an address that looks public
    ip_network("192.0.0.0/24"),  # protocol assignments, including Oracle's metadata; older Pythons call it global
    ip_network("192.88.99.0/24"),  # 6to4 relays
    ip_network("3fff::/20"),  # documentation
)


class NonPublicAddressError(OSError):
    """The connection was not made, because the address is not public. The message does not name it."""

    def __init__(self) -> None:
        super().__init__(EACCES, "not a public address")


class PublicSocketFactory:
    """A socket factory that rejects loopback, private, link-local, multicast and other special addresses."""

    def __init__(self, reachable: Sequence[Network] = ()) -> None:
        """`reachable`: networks that may be connected to although they are not public."""
        self._reachable = reachable

    def __call__(self, target: _Target) -> socket:
        """Create a socket for a connection to the target. Raises NonPublicAddressError."""
        family, kind, protocol, _, where = target
        address = _meant(ip_address(str(where[0]).partition("%")[0]))
        if not is_public(address) and not any(address in network for network in self._reachable):
            raise NonPublicAddressError
        return socket(family, kind, protocol)


def is_public(address: _Address) -> bool:
    """Whether the address belongs to a host on the internet."""
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return False
    special = address.is_multicast or address.is_reserved or any(address in network for network in _NEVER)
    return address.is_global and not special


def _meant(address: _Address) -> _Address:
    """Return the IPv4 address that an IPv6 address stands for."""
    if isinstance(address, IPv4Address):
        return address
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


MAX_HOSTS = 500
"""When more hosts are known, those that no one waits for are forgotten."""


@dataclass
class _Turns:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0
    """Time on the event loop's clock."""
    waiting: int = 0


class HostRateLimiter:
    """Limits requests to one at a time for each host, with a pause after each."""

    def __init__(self, pause_s: float, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """`pause_s`: seconds between the end of a request and the next one to the same host."""
        self._pause_s = pause_s
        self._wait = wait
        self._hosts: dict[str, _Turns] = {}

    @asynccontextmanager
    async def acquire(self, host: str) -> AsyncGenerator[None]:
        """Hold the only request to the host, not too soon after the last one."""
        turns = self._of(host)
        turns.waiting += 1
        clock = asyncio.get_running_loop().time
        try:
            async with turns.lock:
                if (early := turns.free_at - clock()) > 0:
                    await self._wait(early)
                try:
                    yield
                finally:
                    turns.free_at = clock() + self._pause_s
        finally:
            turns.waiting -= 1

    def _of(self, host: str) -> _Turns:
        if len(self._hosts) >= MAX_HOSTS:
            now = asyncio.get_running_loop().time()
            self._hosts = {name: turns for name, turns in self._hosts.items() if turns.waiting or turns.free_at > now}
        return self._hosts.setdefault(host, _Turns())


_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".xhtml",
    "application/json": ".json",
    "application/xml": ".xml",
    "application/pdf": ".pdf",
    "message/rfc822": ".eml",
}
_TEXT = ("+json", "+xml")
_WITHOUT_TEXT = frozenset({"audio", "font", "image", "model", "multipart", "video"})


def infer_file_suffix(content_type: str, host: str) -> str:
    """Return the suffix of a file of this type; empty if the bytes have to tell, as for office files.

    Raises:
        WebPageUnreadableError: the type has no text.
    """
    if content_type.partition("/")[0] in _WITHOUT_TEXT:
        raise WebPageUnreadableError(f"{host} sent {content_type}, which has no text", "Use a page with text.")
    if known := _SUFFIXES.get(content_type):
        return known
    return ".txt" if content_type.startswith("text/") or content_type.endswith(_TEXT) else ""


MAX_REDIRECTS = 5
_CONNECT_S = 10.0
_PASSING = frozenset({408, 425, 429})
"""Statuses besides 5xx that are retryable according to the server."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*,application/json;q=0.9,*/*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
"""Only encodings that are unpacked piece by piece: the size limit applies to the output."""


class WebFetchConfig(Value):
    """How pages are fetched."""

    user_agent: str = Field(min_length=1)
    """Product token, version, and how to reach the operator. The token identifies us in robots.txt."""
    domains: DomainPolicy = DomainPolicy()
    max_bytes: int = 10_000_000
    """Maximum bytes of one page, unpacked."""
    timeout_s: float = 30.0
    """Time limit in seconds for robots.txt, redirects, waiting for the host and the page together."""
    pause_s: float = 1.0
    """Pause in seconds between two requests to one host."""
    reachable_networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks that may be connected to although they are not public, such as an intranet."""


class _Body(NamedTuple):
    address: WebAddress
    content: bytes
    suffix: str
    charset: str | None


class DirectWebPageFetcher:
    """A `WebPageFetcher` without a provider. It belongs to the event loop in which it first fetches."""

    def __init__(
        self,
        reader: WebTextExtractor,
        clock: Clock,
        config: WebFetchConfig,
        resolver: AbstractResolver | None = None,
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`resolver`: by default the system's. Whatever it returns, only public addresses are connected to."""
        self._reader, self._clock, self._terms, self._resolver = reader, clock, config, resolver
        self._pace = HostRateLimiter(config.pause_s, wait)
        self._robots = RobotsPolicy(config.user_agent, self._robots_file)
        self._open: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> WebPage:
        """See `WebPageFetcher`.

        A redirect to a domain that is neither the requested one nor allowed is not followed.
        """
        asked = parse_web_address(url)
        try:
            async with asyncio.timeout(self._terms.timeout_s):
                body = await self._body(asked)
        except aiohttp.ClientError as error:
            raise _failure(asked.host, error) from None
        except TimeoutError:
            raise WebUnavailable(f"{asked.host} did not send the page within {self._terms.timeout_s:g} s") from None
        text = await self._reader.read(body.content, body.suffix, body.charset)
        return build_web_page(body.address.url, text, self._clock())

    async def aclose(self) -> None:
        """Close the connections."""
        if self._open is not None:
            await self._open.close()

    async def _body(self, asked: WebAddress) -> _Body:
        address = asked
        for _ in range(1 + MAX_REDIRECTS):
            self._check_domain(address, asked)
            found = await self._visit(address)
            if isinstance(found, _Body):
                return found
            address = found
        raise WebPageUnreadableError(f"{asked.host} redirects more than {MAX_REDIRECTS} times", "Use another page.")

    def _check_domain(self, address: WebAddress, asked: WebAddress) -> None:
        domains = self._terms.domains
        if domains.is_denied(address.host):
            raise WebPageUnreadableError(
                f"The settings do not let agents read pages of {address.host}", "Use another source."
            )
        if not is_host_or_subdomain(asked.host, address.host) and not domains.is_allowed(address.host):
            raise WebPageUnreadableError(
                f"{asked.host} redirects to another site", f"To follow the redirect, fetch {address.url} directly."
            )

    async def _visit(self, address: WebAddress) -> _Body | WebAddress:
        """Return the body, or the target of a redirect."""
        async with self._pace.acquire(address.host):
            if not await self._robots.allow(address):
                raise WebPageUnreadableError(
                    f"{address.host} does not let programs read this page", "Use another source."
                )
            async with self._session.get(URL(address.url), allow_redirects=False) as answer:
                if answer.status in _REDIRECTS:
                    return _target(address, answer)
                _check_status(address.host, answer.status)
                suffix = infer_file_suffix(answer.content_type, address.host)
                return _Body(address, await self._content(address.host, answer), suffix, answer.charset)

    async def _content(self, host: str, answer: aiohttp.ClientResponse) -> bytes:
        content = bytearray()
        too_large = (answer.content_length or 0) > self._terms.max_bytes
        while not too_large and (piece := await answer.content.readany()):
            content += piece
            too_large = len(content) > self._terms.max_bytes
        if too_large:
            most = self._terms.max_bytes / 1e6
            raise WebPageUnreadableError(f"The page of {host} is larger than {most:g} MB", "Use a smaller page.")
        return bytes(content)

    async def _robots_file(self, asked: WebAddress) -> RobotsFile:
        """Fetch a robots.txt. Redirects are restricted like those of pages."""
        address = asked
        for _ in range(1 + MAX_REDIRECTS):
            self._check_domain(address, asked)
            async with self._session.get(URL(address.url), allow_redirects=False) as answer:
                if answer.status not in _REDIRECTS:
                    return RobotsFile(answer.status, await _beginning(answer))
                address = _target(address, answer)
        raise WebPageUnreadableError(f"{asked.host} redirects more than {MAX_REDIRECTS} times", "Use another page.")

    @property
    def _session(self) -> aiohttp.ClientSession:
        if self._open is None:
            self._open = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    resolver=self._resolver,
                    use_dns_cache=False,
                    socket_factory=PublicSocketFactory(self._terms.reachable_networks),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={**_HEADERS, "User-Agent": self._terms.user_agent},
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                trust_env=False,
            )
        return self._open


async def _beginning(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    while len(content) < MAX_ROBOTS_BYTES and (piece := await answer.content.readany()):
        content += piece
    return bytes(content[:MAX_ROBOTS_BYTES])


def _target(address: WebAddress, answer: aiohttp.ClientResponse) -> WebAddress:
    try:
        return parse_web_address(str(URL(address.url).join(URL(answer.headers.get("Location", "")))))
    except ValueError:
        raise WebPageUnreadableError(f"{address.host} redirects to a malformed address", "Use another page.") from None


def _check_status(host: str, status: int) -> None:
    if status in _PASSING or status >= 500:
        raise WebUnavailable(f"{host} answered {status}")
    if not 200 <= status < 300:
        raise WebPageUnreadableError(f"{host} answered {status}", "Check the address, or use another source.")


def _failure(host: str, error: aiohttp.ClientError) -> WebPageUnreadableError | WebUnavailable:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return WebPageUnreadableError(f"The certificate of {host} is not valid", "Use another source.")
        case aiohttp.ClientConnectorError() if isinstance(error.os_error, NonPublicAddressError):
            return WebPageUnreadableError(
                f"{host} leads to an address that is not public", "Only public pages can be read."
            )
        case _:
            return WebUnavailable(f"the connection to {host} failed: {describe_connection_error(error)}")
