"""Who may ask: exact hosts and origins, a token for this run, marks on forms. Decided before any route is looked at.

A page of another site cannot read or send anything here: its `Host` is another one (DNS rebinding), its `Origin` is
another one (a cross-origin form), and it does not know what our forms carry.
"""

import hmac
from collections.abc import Mapping
from hashlib import sha256
from typing import Literal, NamedTuple
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waystation.domain.value import Value

COOKIE = "waystation"
ASSISTANTS = "/mcp"
"""Where assistants ask."""
SAFE = frozenset({"GET", "HEAD"})
MOST_BODY_BYTES = 32_000_000
MOST_PARTS = 5
"""Of the printed address, after its `?`."""
PROBLEM = "application/problem+json"
HEADERS: Mapping[str, str] = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer. Nothing inline runs, nothing of elsewhere is loaded, nobody frames it."""


class Problem(Value):
    """An error as RFC 9457 has it."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    """The cause and the next step, as commands say them."""


def problem_response(status: int, title: str, detail: str) -> Response:
    """The problem as an answer."""
    problem = Problem(title=title, status=status, detail=detail)
    return Response(problem.model_dump_json(), status, media_type=PROBLEM)


class TurnedAway(NamedTuple):
    """Why somebody may not ask."""

    status: int
    reason: str


class SignIn(Value):
    """Who may ask, for one run of the server."""

    token: str
    port: int

    @property
    def hosts(self) -> frozenset[str]:
        """What `Host` may be."""
        return frozenset(f"{name}:{self.port}" for name in ("127.0.0.1", "localhost"))

    @property
    def cookie(self) -> str:
        """What a browser keeps: not the token itself."""
        return self._derived("cookie")

    @property
    def assistants_token(self) -> str:
        """What assistants send: it opens their address alone, where they may do what settings let them."""
        return self._derived("assistants")

    @property
    def mark(self) -> str:
        """What every form of ours carries, and no other page knows."""
        return self._derived("form")

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return _same(given, self.token)

    def is_mark(self, given: str) -> bool:
        """Whether a form is ours."""
        return _same(given, self.mark)

    def refused_from(self, headers: Headers) -> TurnedAway | None:
        """Where the request comes from another site, or for another."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return TurnedAway(421, f"this server is asked as {' or '.join(sorted(self.hosts))}, and by no other name")
        if any(origin != f"http://{hosts[0]}" for origin in origins):
            return TurnedAway(403, "pages of other sites may not ask here")
        return None

    def refused_to(self, method: str, path: str, headers: Headers) -> TurnedAway | None:
        """Where nobody signed in; or a browser does not say which page changes something."""
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._opens(path, bearer.strip()):
            return None
        if not _same(_cookie(headers), self.cookie):
            return TurnedAway(
                401, "open the address that `waystation serve` printed, or send its token as a bearer token"
            )
        if method not in SAFE and not headers.getlist("origin"):
            return TurnedAway(403, "a change that a browser asks for names its page in `Origin`")
        return None

    def _opens(self, path: str, bearer: str) -> bool:
        return self.is_token(bearer) or (path == ASSISTANTS and _same(bearer, self.assistants_token))


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _cookie(headers: Headers) -> str:
    # Other programs of this machine leave cookies here, too: one that is oddly written must not hide ours.
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


class Guard:
    """Stands before the routes: refuses, signs in by the address that was printed, bounds bodies, sets headers."""

    def __init__(self, app: ASGIApp, access: SignIn) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        answer = self._answer(scope, Headers(scope=scope))
        if answer is None:
            await self._app(scope, _bounded(receive), _with_headers(send))
        else:
            await answer(scope, receive, _with_headers(send))

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        """What is said without asking the routes; None where they may be asked."""
        method = str(scope["method"])
        refusal = self._access.refused_from(headers)
        if refusal is None and method == "GET" and scope["path"] == "/" and scope["query_string"]:
            signed_in = self._signed_in(bytes(scope["query_string"]))
            if signed_in is not None:
                return signed_in
        refusal = refusal or self._access.refused_to(method, str(scope["path"]), headers)
        if refusal is not None:
            return problem_response(refusal.status, "Refused", refusal.reason)
        length = headers.get("content-length", "0")
        if len(length) > len(str(MOST_BODY_BYTES)) or not length.isdecimal() or int(length) > MOST_BODY_BYTES:
            return problem_response(413, "Too large", too_large())
        return None

    def _signed_in(self, query: bytes) -> Response | None:
        """The way to the pages with a cookie, where the address has the token."""
        try:
            given = parse_qs(query.decode("latin-1"), max_num_fields=MOST_PARTS).get("token", [])
        except ValueError:
            return None
        if len(given) != 1 or not self._access.is_token(given[0]):
            return None
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, self._access.cookie, httponly=True, samesite="strict", path="/")
        return answer


def too_large() -> str:
    """What is said of a body beyond the bound."""
    return f"a request has at most {MOST_BODY_BYTES:,} bytes: hand larger documents in by `waystation submit --docs`"


def _bounded(receive: Receive) -> Receive:
    """The same, until a body is longer than it may be, whatever was announced."""
    taken = 0

    async def bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > MOST_BODY_BYTES:
            raise HTTPException(413, too_large())
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending
