"""Access control before any route: exact hosts and origins, tokens, keys, CSRF tokens, rate limits and body limits.

A page of another site can neither read nor send anything here: its `Host` differs (DNS rebinding), its `Origin` differs
(cross-origin form), and it does not know the token in our forms.
"""

import asyncio
import hmac
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import sha256
from secrets import token_hex
from time import monotonic
from typing import Annotated, Literal, NamedTuple
from urllib.parse import parse_qs

from fastapi import Depends, Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waystation.client.remote import CALL_PATH_PREFIX
from waystation.kernel.client_permissions import CLIENT_PERMISSIONS, ClientPermission
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.plugins.web.principals import Authenticator, Principal

COOKIE = "waystation"
ASSISTANTS = "/mcp"
"""Path of the MCP server."""
SAFE_METHODS = frozenset({"GET", "HEAD"})
MAX_BODY_BYTES, MAX_CALL_BYTES = 32_000_000, 1_000_000
REQUESTS_AT_ONCE, REQUESTS_A_SECOND = 1_200, 20.0
"""Rate limit of one tenant: requests in a burst, and per second after that."""
SIGN_IN = "/sign-in"
"""Target of the sign-in form for a key. /sign-out makes the browser forget it."""
TRIES_AT_ONCE, TRIES_A_SECOND = 60, 1.0
"""Rate limit of wrong keys from one address, so that guessing does not keep the server busy.

A right key signs in however many there were: otherwise anyone could lock out all others.
"""
MAX_SIGNED_OUT = 10_000
"""Maximum number of signed-out browsers of one key that are remembered."""
MAX_TRACKED_ADDRESSES = 10_000
"""Number of addresses whose wrong keys are counted."""
BODY_SECONDS = 120.0
"""Seconds within which the whole body of a request must arrive: 32 MB at 270 kB/s."""
MAX_SIGN_IN_BYTES = 4_000
SIGN_IN_BYTES = 16
"""Random bytes that tell one sign-in from another."""
OPEN_TO_ALL = ("/static/", "/shared/")
"""Static files of the pages, which have no data and which the sign-in page needs; and reports by a link whose secret
is in the path.
"""
APPROVING_SUFFIXES = ("/approve", "/deny", "/deliver", "/limit", "/forget")
"""Paths that change what may be spent, or delete what tasks have; all others that change something need the submit
permission.
"""
MAX_QUERY_PARTS = 5
"""Maximum query parameters of the printed address."""
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
"""Headers of every answer: no inline code, nothing from elsewhere, no framing."""


class ProblemDetails(Value):
    """An error in the format of RFC 9457."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    """The cause and the next step, as commands say them."""


def build_problem_response(status: int, title: str, detail: str) -> Response:
    """Return the problem as a response."""
    problem = ProblemDetails(title=title, status=status, detail=detail)
    return Response(problem.model_dump_json(), status, media_type=PROBLEM)


class RejectionInfo(NamedTuple):
    """Why a request is rejected."""

    status: int
    reason: str


def _no_address(path: str) -> RejectionInfo | None:
    """Reject a path with control characters.

    A route's pattern ends with `$`, which also matches before a newline: a route would match a path that the comparison
    of roles does not know.
    """
    if any(sign < " " for sign in path):
        return RejectionInfo(404, "the address has control characters: leave them out")
    return None


def _without_slash(scope: Scope) -> Scope:
    """Remove a trailing slash from the MCP server's path, which some clients add; their key is valid for this path
    only.
    """
    path = str(scope["path"])
    if path == ASSISTANTS or path.rstrip("/") != ASSISTANTS:
        return scope
    return {**scope, "path": ASSISTANTS, "raw_path": ASSISTANTS.encode()}


_PERMITS: Mapping[str, ClientPermission] = {role: role for role in CLIENT_PERMISSIONS}


def get_required_role(method: str, path: str) -> ClientPermission:
    """Return the permission that a request needs."""
    if method in SAFE_METHODS:
        return "read"
    if path.startswith(CALL_PATH_PREFIX):
        # The caller names the role of a call; the route only accepts methods of that role.
        said = path.removeprefix(CALL_PATH_PREFIX).partition("/")[0]
        return _PERMITS.get(said, "approve")
    return "approve" if path.endswith(APPROVING_SUFFIXES) else "submit"


class RateLimiter:
    """Limits requests by tenant."""

    def __init__(self, at_once: int = REQUESTS_AT_ONCE, a_second: float = REQUESTS_A_SECOND) -> None:
        self._left: dict[str, tuple[float, float]] = {}
        self._at_once, self._a_second = float(at_once), a_second

    def try_acquire(self, tenant: str, now: float) -> bool:
        """Take one request at this time in seconds; False if none is left."""
        left, since = self._left.get(tenant, (self._at_once, now))
        left = min(self._at_once, left + (now - since) * self._a_second)
        self._left[tenant] = (left - 1 if left >= 1 else left, now)
        while len(self._left) > MAX_TRACKED_ADDRESSES:
            del self._left[next(iter(self._left))]
        return left >= 1


_NO_PAGE_NAMED = RejectionInfo(403, "to change something, a request from a browser needs the header `Origin`")


class BrowserSession(NamedTuple):
    """A browser that is signed in: until it signs out, or the server ends."""

    key_id: str
    """Id of the API key; empty for the token of this run."""
    number: str
    """Random, for this sign-in alone: signing out ends no other browser's."""


class SignOutRegistry:
    """Sessions of browsers that have signed out, so that a copy of their cookie is refused.

    They are in memory only, because no cookie outlives the run that made it.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, dict[str, None]] = {}
        """Numbers by key id, the newest last. If there are too many for a key, its oldest are dropped: only someone
        with that key can cause it.
        """

    def add(self, session: BrowserSession) -> None:
        """Refuse this session's cookie from now on."""
        numbers = self._numbers.setdefault(session.key_id, {})
        numbers[session.number] = None
        if len(numbers) > MAX_SIGNED_OUT:
            del numbers[next(iter(numbers))]

    def __contains__(self, session: BrowserSession) -> bool:
        return session.number in self._numbers.get(session.key_id, ())


class AccessPolicy(Value):
    """Who may use the server, for one run of it."""

    token: str
    port: int
    names: tuple[str, ...] = ()
    """Names under which it is reached from elsewhere, each with its port unless that is the default.

    With names, the token of this run admits no one.
    """
    tenant: str = "local"
    """Tenant of the token."""

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """Allowed values of `Host`."""
        return frozenset(self.names or [f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")])

    @property
    def assistants_token(self) -> str:
        """Token of assistants: it is valid for their path only, within what the settings allow."""
        return self._derived("assistants")

    @property
    def csrf_token(self) -> str:
        """Token in every form of ours, which no other page knows."""
        return self._derived("form")

    def _derived(self, purpose: str) -> str:
        return hmac.new(self.token.encode(), purpose.encode(), sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Return whether this is the token."""
        return not self.names and _same(given, self.token)

    def make_cookie(self, session: BrowserSession) -> str:
        """Return the cookie of a signed-in browser: its values, signed. It contains neither token nor key."""
        values = f"{session.key_id}.{session.number}"
        return f"{values}.{self._derived(f'cookie {values}')}"

    def parse_cookie(self, cookie: str) -> BrowserSession | None:
        """Return the session of a cookie; None if it is not one of ours."""
        key_id, _, rest = cookie.partition(".")
        session = BrowserSession(key_id, rest.partition(".")[0])
        return session if _same(cookie, self.make_cookie(session)) else None

    def is_csrf_token(self, given: str) -> bool:
        """Return whether a form is ours."""
        return _same(given, self.csrf_token)

    def check_host_and_origin(self, headers: Headers) -> RejectionInfo | None:
        """Reject a request that comes from another site, or is meant for another host."""
        hosts, origins = headers.getlist("host"), headers.getlist("origin")
        if len(hosts) != 1 or hosts[0] not in self.allowed_hosts:
            return RejectionInfo(421, f"this server answers only at {' or '.join(sorted(self.allowed_hosts))}")
        # Requests from elsewhere pass a proxy that terminates TLS.
        if any(origin.lower() not in {f"http://{hosts[0]}", *self._over_tls(hosts[0])} for origin in origins):
            return RejectionInfo(403, "pages of other sites may not send requests to this server")
        return None

    def is_assistant_request(self, path: str, given: str) -> bool:
        """Return whether this is the assistants' token, at their path."""
        return not self.names and path == ASSISTANTS and _same(given, self.assistants_token)

    def _over_tls(self, host: str) -> tuple[str, ...]:
        return (f"https://{host}",) if self.names else ()


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _bearer(headers: Headers) -> str:
    scheme, _, bearer = headers.get("authorization", "").partition(" ")
    return bearer.strip() if scheme.lower() == "bearer" else ""


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), wanted.encode())


def _cookie(headers: Headers) -> str:
    # Other programs of this machine set cookies here too: a malformed one must not hide ours.
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


_HOW_TO_SIGN_IN = "open the address that `waystation serve` printed, or send the address's token as a bearer token"
_HOW_TO_SIGN_IN_ELSEWHERE = (
    "send an API key (`waystation keys make`) or a token of your identity provider as a bearer token; in a browser, "
    "open any page and sign in with a key"
)
_HOW_ASSISTANTS_ASK = (
    "an assistant needs a key for assistants of this server's tenant (`waystation keys make NAME --role assistant`) "
    "or, on the server's machine, the token for assistants that `waystation serve` printed"
)
_FOR_ASSISTANTS_ALONE = (
    f"an assistant's key can only be used at {ASSISTANTS}: everything else needs a key with another role "
    "(`waystation keys make NAME --role submit`)"
)
_WRONG_KEY = (
    "this key or token is not valid here: it may be mistyped, be revoked (`waystation keys list` shows keys), belong "
    "to an assistant, or come from an earlier start of the server"
)
_TOO_MANY_TRIES = "too many wrong keys came from this address: try again in a minute"


def sanitize_redirect_path(given: str) -> str:
    """Return the path if it is one of our pages; else the home page."""
    ours = given.startswith("/") and not given.startswith("//") and "\\" not in given
    return given if ours and given.isascii() and given.isprintable() else "/"


def get_redirect_path(scope: Scope) -> str:
    """Return the path to continue at after signing in: the requested page, unless the request changes something."""
    query = bytes(scope["query_string"]).decode("latin-1")
    if scope["path"] == SIGN_IN:
        return sanitize_redirect_path(_fields(query).get("to", "/"))
    if scope["method"] not in SAFE_METHODS or "token=" in query:
        return "/"
    return sanitize_redirect_path(f"{scope['path']}{'?' if query else ''}{query}")


def _fields(text: str) -> dict[str, str]:
    """Parse a form or query; only fields that occur once. Empty if there are too many."""
    try:
        found = parse_qs(text, max_num_fields=MAX_QUERY_PARTS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in found.items() if len(values) == 1}


class AccessGuard:
    """ASGI middleware before the routes: rejects requests, signs in by the printed address or a form, limits bodies,
    sets headers.

    `told` renders the page that shows a rejection, with the sign-in form if no one is signed in.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: AccessPolicy,
        identities: Authenticator | None = None,
        told: Callable[[Request, int, str, str], Response] | None = None,
    ) -> None:
        self._app = app
        self._access = access
        self._identities = identities
        self._client = told
        self._signed_out = SignOutRegistry()
        self._rates, self._tries = RateLimiter(), RateLimiter(TRIES_AT_ONCE, TRIES_A_SECOND)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        scope = _without_slash(scope)
        receive = _bounded(receive, get_max_body_bytes(str(scope["path"])))
        answer = _no_address(str(scope["path"])) or await self._answer(scope, receive, Headers(scope=scope))
        if isinstance(answer, RejectionInfo):
            answer = self._refusal(scope, answer)
        if answer is None:
            await self._until_stopped(scope, receive, _with_headers(send))
        else:
            await answer(scope, receive, _with_headers(send))

    async def _until_stopped(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the routes. If the server stops before they have begun to answer, say what that leaves open: their task
        is cancelled then, and the server below would only answer 500.
        """
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except asyncio.CancelledError:
            if begun:
                raise
            left_open = (
                describe_unknown_outcome(Request(scope))
                or "repeat the request when the server runs again (`waystation up` or `waystation serve` starts it)"
            )
            await self._refusal(scope, RejectionInfo(503, f"the server is stopping; {left_open}"))(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, headers: Headers) -> Response | RejectionInfo | None:
        """Return the response that needs no route; None if the routes may handle the request, whose principal is then
        known.
        """
        method, path = str(scope["method"]), str(scope["path"])
        refusal = self._access.check_host_and_origin(headers)
        if refusal is not None:
            return refusal
        if method in SAFE_METHODS and path.startswith(OPEN_TO_ALL):
            return None
        try:
            signing = await self._signing(Request(scope, receive), method, path)
            if signing is not None:
                return signing
            found = await self._asking(method, path, headers)
        except BadInput as error:
            return RejectionInfo(503, str(error))
        if isinstance(found, RejectionInfo):
            return found
        still = partial(self._still, path, headers, found)
        scope.setdefault("state", {}).update(principal=found, still=still)
        length = headers.get("content-length", "0")
        most = get_max_body_bytes(path)
        if len(length) > len(str(most)) or not length.isdecimal() or int(length) > most:
            return RejectionInfo(413, build_body_too_large_message(most))
        return None

    def _refusal(self, scope: Scope, refusal: RejectionInfo) -> Response:
        """Render a rejection as a page for a browser that accepts one, else as a problem."""
        title = {401: "Sign in", 404: "Not found", 413: "Too large", 503: "Not reachable"}.get(
            refusal.status, "Refused"
        )
        wants_page = "text/html" in Headers(scope=scope).get("accept", "")
        if self._client is None or not wants_page or str(scope["path"]).startswith(("/v1/", ASSISTANTS)):
            return build_problem_response(refusal.status, "Refused" if title == "Sign in" else title, refusal.reason)
        return self._client(Request(scope), refusal.status, title, refusal.reason)

    async def _signing(self, request: Request, method: str, path: str) -> Response | RejectionInfo | None:
        """Handle signing in, by the printed address or the form, and out; None for other requests.

        An address only accepts the token of this run, which no other page knows: with an API key in it, anyone who
        follows a stranger's link would be signed in as that stranger.
        """
        match method, path:
            case "GET", "/" if request.scope["query_string"]:
                return self._signed_in(bytes(request.scope["query_string"]))
            case "POST", "/sign-in" | "/sign-out" if not request.headers.getlist("origin"):
                return _NO_PAGE_NAMED
            case "POST", "/sign-in":
                return await self._by_form(request)
            case "POST", "/sign-out":
                if (session := self._access.parse_cookie(_cookie(request.headers))) is not None:
                    self._signed_out.add(session)
                answer = RedirectResponse("/", 303)
                elsewhere = bool(self._access.names)
                answer.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict", secure=elsewhere)
                return answer
            case _:
                return None

    async def _by_form(self, request: Request) -> Response | RejectionInfo:
        """Sign in with the key from the form."""
        body = b""
        try:
            async for part in request.stream():
                body += part
                if len(body) > MAX_SIGN_IN_BYTES:
                    return RejectionInfo(413, f"the form is too long: a key has under {MAX_SIGN_IN_BYTES:,} bytes")
        except HTTPException as error:
            return RejectionInfo(error.status_code, error.detail)
        cookie = self._cookie_for(_fields(body.decode("latin-1")).get("key", "").strip(), _address(request))
        return self._with_cookie(cookie, get_redirect_path(request.scope)) if isinstance(cookie, str) else cookie

    async def _asking(self, method: str, path: str, headers: Headers) -> Principal | RejectionInfo:
        """Return the principal if the request is permitted now; also reject a change whose page the browser does not
        name.
        """
        known = await self._known(path, headers)
        if known is None:
            return RejectionInfo(401, _HOW_TO_SIGN_IN if not self._access.names else _HOW_TO_SIGN_IN_ELSEWHERE)
        if not _bearer(headers) and method not in SAFE_METHODS and not headers.getlist("origin"):
            return _NO_PAGE_NAMED
        wanted = get_required_role(method, path)
        if path == ASSISTANTS:
            if known.proof and (known.role != "assistant" or known.tenant != self._access.tenant):
                return RejectionInfo(403, _HOW_ASSISTANTS_ASK)
        elif known.role == "assistant":
            return RejectionInfo(403, _FOR_ASSISTANTS_ALONE)
        elif not known.has_permission(wanted):
            return RejectionInfo(403, f"this request needs the role {wanted!r}, but yours is {known.role!r}")
        if not self._rates.try_acquire(known.tenant, monotonic()):
            return RejectionInfo(
                429, f"the tenant sent too many requests: at most {REQUESTS_A_SECOND:.0f} a second are accepted"
            )
        return known

    async def _still(self, path: str, headers: Headers, before: Principal) -> bool:
        """Return whether the same principal may still make this request."""
        try:
            return await self._known(path, headers) == before
        except BadInput:
            return False

    async def _known(self, path: str, headers: Headers) -> Principal | None:
        """Authenticate the request, by header before cookie."""
        owner = Principal(name="", tenant=self._access.tenant)
        bearer, session = _bearer(headers), self._access.parse_cookie(_cookie(headers))
        if bearer:
            if self._access.is_token(bearer) or self._access.is_assistant_request(path, bearer):
                return owner
            return None if self._identities is None else await self._identities.find_principal(bearer)
        if session is None or session in self._signed_out:
            return None
        if not session.key_id:
            return None if self._access.names else owner
        key = None if self._identities is None else self._identities.keys.find_valid_key(session.key_id)
        return None if key is None else key.principal

    def _signed_in(self, query: bytes) -> Response | None:
        """Redirect to the pages with a cookie, if the address has the token of this run."""
        given = _fields(query.decode("latin-1")).get("token", "")
        # A signed-in user may come by an address of an earlier run.
        return self._with_cookie(self._new_cookie(), "/") if self._access.is_token(given) else None

    def _with_cookie(self, cookie: str, path: str) -> Response:
        answer = RedirectResponse(path, 303)
        elsewhere = bool(self._access.names)
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", path="/", secure=elsewhere)
        return answer

    def _cookie_for(self, given: str, address: str) -> str | RejectionInfo:
        if self._access.is_token(given):
            return self._new_cookie()
        holder = self._identities.keys.find_principal(given) if self._identities is not None else None
        if holder is None or not holder.has_permission("read"):
            few = self._tries.try_acquire(address, monotonic())
            return RejectionInfo(401, _WRONG_KEY) if few else RejectionInfo(429, _TOO_MANY_TRIES)
        return self._new_cookie(given.split("_")[1])

    def _new_cookie(self, key_id: str = "") -> str:
        return self._access.make_cookie(BrowserSession(key_id, token_hex(SIGN_IN_BYTES)))


READ_DOCUMENTS = ("/documents/read", "/documents/check")
"""Ends of paths that read files and change nothing."""
_HANDS_IN = ("/v1/tasks", "/fork", "/submit")
_AT_MOST_ONCE = ("/approve", "/deny", "/deliver", "/limit", "/cancel", "/forget")


def describe_unknown_outcome(request: Request) -> str:
    """Return what an aborted request that changes something leaves open, and how to continue; empty for one
    that reads.
    """
    path, keyed = request.url.path, "idempotency-key" in request.headers
    if request.method in SAFE_METHODS or path.endswith(READ_DOCUMENTS):
        return ""
    unknown = "it is unknown whether the request was carried out"
    if path.endswith(_HANDS_IN) and keyed:
        return f"{unknown}: repeat the request with the same Idempotency-Key, which finds the same task"
    if path.endswith(_AT_MOST_ONCE):
        return f"{unknown}: it is safe to repeat the request"
    return f"{unknown}: look at the tasks before you repeat the request, because it could be carried out twice"


def get_max_body_bytes(path: str) -> int:
    """Return the maximum body size in bytes: only submissions are large."""
    return (
        MAX_CALL_BYTES
        if path.startswith(CALL_PATH_PREFIX) and get_required_role("POST", path) != "submit"
        else MAX_BODY_BYTES
    )


def build_body_too_large_message(maximum: int) -> str:
    """Build the message for a body over the limit."""
    if maximum == MAX_CALL_BYTES:
        return f"this request may have at most {maximum:,} bytes"
    store = "submit larger documents with `waystation submit` on the server's machine"
    return f"a request may have at most {maximum:,} bytes: {store}"


def _bounded(receive: Receive, maximum: int) -> Receive:
    """Wrap `receive` to fail when a body is longer than allowed, whatever was announced, or takes too long."""
    taken = 0
    until: float | None = monotonic() + BODY_SECONDS

    async def bounded() -> Message:
        nonlocal taken, until
        try:
            async with asyncio.timeout(None if until is None else max(0.0, until - monotonic())):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the body did not arrive within {BODY_SECONDS:.0f} s") from None
        if not message.get("more_body", False):
            until = None  # the next message is the end of the connection, however late
        taken += len(message.get("body", b""))
        if taken > maximum:
            raise HTTPException(413, build_body_too_large_message(maximum))
        return message

    return bounded


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message).update(HEADERS)
        await send(message)

    return sending


def get_principal(request: Request) -> Principal:
    """Return the principal that the guard has authenticated."""
    found = request.state.principal
    if not isinstance(found, Principal):
        raise TypeError("the guard let nobody in")
    return found


CurrentPrincipal = Annotated[Principal, Depends(get_principal)]
