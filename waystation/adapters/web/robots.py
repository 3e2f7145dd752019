"""What sites say about visits of programs: robots.txt, as RFC 9309 has it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from protego import Protego

from waystation.domain.errors import WebRefused, WebUnavailable
from waystation.domain.web import WebAddress, web_address

KEPT_S = 3_600.0
"""For which the rules of a site are believed; the RFC allows a day."""
MOST_SITES = 500
MOST_BYTES = 512_000
"""Of a robots.txt. The rest of a longer one does not count."""


class RobotsFile(NamedTuple):
    """How a server answered the request for robots.txt."""

    status: int
    content: bytes


class _Known(NamedTuple):
    rules: Protego
    until: float


class Robots:
    """The rules of the sites that were visited last."""

    def __init__(self, user_agent: str, get: Callable[[WebAddress], Awaitable[RobotsFile]]) -> None:
        """`user_agent`: its product token names us in the rules. `get` fetches a robots.txt, following redirects to
        where pages may be read, too; it raises WebRefused for others.
        """
        self._token = user_agent.partition("/")[0]
        self._get = get
        self._sites: dict[str, _Known] = {}

    async def allow(self, address: WebAddress) -> bool:
        """Whether the site lets us read the address.

        Raises WebUnavailable: it cannot say at the moment; WebRefused: it says that where we do not go.
        """
        known = self._sites.get(address.origin)
        now = asyncio.get_running_loop().time()
        if known is None or known.until < now:
            known = _Known(await self._rules(address), now + KEPT_S)
            self._sites.pop(address.origin, None)
            self._sites[address.origin] = known
            if len(self._sites) > MOST_SITES:
                del self._sites[next(iter(self._sites))]
        return known.rules.can_fetch(address.url, self._token)

    async def _rules(self, address: WebAddress) -> Protego:
        try:
            answer = await self._get(web_address(f"{address.origin}/robots.txt"))
        except WebRefused as refused:
            raise WebRefused(
                f"What the robots.txt of {address.host} allows is not known: {refused.cause}", "Use another source."
            ) from refused
        if answer.status >= 500:
            raise WebUnavailable(
                f"{address.host} answered {answer.status} for its robots.txt, and until it says what is allowed, "
                "nothing of it is read"
            )
        rules = answer.content if answer.status < 300 else b""
        return Protego.parse(rules.decode("utf-8", "replace"))
