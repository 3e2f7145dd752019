"""Translates HTTP failures of model endpoints (silence, broken connections, rejections, delays) into our errors.

One table for every protocol. Messages keep the status, the kind and the request id. A vendor's own words are left out,
since they can quote the request.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Literal, NamedTuple

import httpx2
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from waystation.kernel.errors import (
    BrokenEndpointError,
    ContentFilterError,
    InvalidReplyError,
    ModelAuthenticationError,
    ModelError,
    ModelNotFoundError,
    ModelRejected,
    ModelUnavailable,
    SpendingLimitReached,
)
from waystation.kernel.network import describe_connection_error
from waystation.kernel.patterns import compile_bounded

CONNECT_SECONDS = 10.0
COUNT_SECONDS = 60.0
"""Maximum duration of a token count: it involves no thinking."""
MAX_RETRY_DELAY_SECONDS = 86_400.0
"""Longest delay before the next attempt, in seconds, that an endpoint may request."""
MAX_REPLY_BYTES = 32_000_000
"""Maximum size of one response: the longest reply in the smallest events has about half of it."""
MAX_REPORTED_TOKENS = 1_000_000_000
"""Maximum tokens of one call that an endpoint may report. A larger number is not a count, does not fit into the store,
and is treated as not reported.
"""
_AS_IT_IS = "identity"
"""Uncompressed bodies only: the expanded size of a compressed one is unknown until it has filled the memory."""
_BEGAN = "waystation_began"


def sanitize_token_count(tokens: object) -> int:
    """Return a token count as reported by an endpoint; 0 if it is not a valid count."""
    return tokens if isinstance(tokens, int) and 0 < tokens <= MAX_REPORTED_TOKENS else 0


class ModelTimeouts(NamedTuple):
    """Maximum silence in seconds before a call is given up."""

    first_byte: float = 180.0
    """Before the first byte of a reply."""
    thinking: float = 600.0
    """Before the first byte of a reply if the model is asked to think first."""
    stream: float = 90.0
    """Between two pieces of a reply, including pings."""

    def get_first_byte_timeout(self, *, thinks: bool) -> float:
        """Return the maximum time until the first byte of a reply, in seconds."""
        return self.thinking if thinks else self.first_byte


DEFAULT_TIMEOUTS = ModelTimeouts()

_Verdict = Literal["final", "no money", "not billed", "unclear"]
"""Not retryable; only after someone has paid; certainly not billed and retryable; retryable but possibly billed."""


class _Row(NamedTuple):
    """Meaning of a status.

    `kind` is the Messages protocol's name for it, which is all that an error in a stream has.
    """

    kind: str
    verdict: _Verdict
    meaning: str


STATUS_TABLE: Mapping[int, _Row] = {
    400: _Row("invalid_request_error", "final", "the request was refused"),
    401: _Row("authentication_error", "final", "the API key was not accepted"),
    402: _Row(
        "billing_error",
        "no money",
        "the account's spending limit at the provider is reached, or the account has no credit",
    ),
    403: _Row("permission_error", "final", "the API key lacks permission for this request"),
    404: _Row("not_found_error", "final", "there is no such model or endpoint"),
    408: _Row("timeout_error", "unclear", "the provider timed out"),
    409: _Row("conflict_error", "not billed", "the provider reports a conflict"),
    413: _Row("request_too_large", "final", "the request is too large"),
    424: _Row("model_error", "unclear", "the provider reports that the model failed"),
    429: _Row("rate_limit_error", "not billed", "the provider's rate limit is reached"),
    500: _Row("api_error", "unclear", "the provider failed"),
    529: _Row("overloaded_error", "not billed", "the provider is overloaded"),
}

_STATUS_OF_KIND = {
    **{row.kind: status for status, row in STATUS_TABLE.items()},
    "throttlingException": 429,
    "serviceUnavailableException": 529,
    "modelTimeoutException": 408,
    "modelStreamErrorException": 424,
}

NO_CREDIT = "the provider's account has no credit"
SPENT = STATUS_TABLE[402].meaning
BLOCKED = "the provider's content filter blocked the reply"
OVER_WINDOW = "the request is longer than the model's window"
_GONE = "there is no such model at this endpoint, or not in this region"
_NO_ACCESS = "the account has no access to this model: request access in the vendor's console"
_BY_PROFILE = "this model needs an inference profile: put the region before the name, as in us.NAME"
_RETIRED = "the vendor has retired this model"
_COMPLEX_SCHEMAS = "the schemas of the strict tools are too complex together: set strict_tools = false for this model"
_NO_CREDENTIALS = "the credentials were not accepted, or have expired"
_CAUSES = {
    "prompt is too long": OVER_WINDOW,
    "context length": OVER_WINDOW,
    "context_length": OVER_WINDOW,
    "context window": OVER_WINDOW,
    "context size": OVER_WINDOW,
    "context limit": OVER_WINDOW,
    "maximum context": OVER_WINDOW,
    "input is too long": OVER_WINDOW,
    "maximum number of tokens allowed": OVER_WINDOW,
    "`inputs` tokens + `max_new_tokens` must be": OVER_WINDOW,
    "`inputs` must have less than": OVER_WINDOW,
    "credit balance is too low": NO_CREDIT,
    "specified api usage limits": SPENT,
    "insufficient_quota": NO_CREDIT,
    "exceeded your current quota": NO_CREDIT,
    "content filtering policy": BLOCKED,
    "content management policy": BLOCKED,
    "content_filter": BLOCKED,
    "access to the model": _NO_ACCESS,
    "model identifier is invalid": _GONE,
    "model_not_found": _GONE,
    "reached the end of its life": _RETIRED,
    "on-demand throughput": _BY_PROFILE,
    "security token": _NO_CREDENTIALS,
    "compiled grammar is too large": _COMPLEX_SCHEMAS,
    "schema is too complex": _COMPLEX_SCHEMAS,
    "tool_choice": "the model does not accept this choice of tools",
    "thinking": "the model does not accept the thinking blocks or thinking settings of the request",
    "effort": "the model does not accept this effort level",
}
"""Causes that a person must be able to distinguish, by vendors' words and codes, which we never repeat. Looked for in
statuses from 400 on that do not say more themselves.
"""
_SAYS_LITTLE = frozenset({400, 403, 404, 422, 429})
_REQUEST_STATUSES = frozenset({400, 422})
"""Statuses whose words may be about the request rather than the account."""
_LONG_REQUEST_STATUSES = frozenset({413, 500})
"""Further statuses that some servers use for a request over the window."""
_ACCOUNT_MEANINGS = frozenset({NO_CREDIT, SPENT, _GONE, _NO_ACCESS, _RETIRED, _NO_CREDENTIALS})

_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

LONGER = "WAYSTATION_MODEL_PATIENCE and WAYSTATION_MODEL_PATIENCE_THINKING set how long to wait"
CUT_OFF = "the model's reply ended before it was complete"
NO_STREAM = "the endpoint answered with something other than an event stream; check the endpoint's URL"
PAGE_INSTEAD = "the endpoint answered with a web page, perhaps from a proxy or a sign-in; check the endpoint's URL"


def build_no_stream_error(content_type: str) -> ModelError:
    """Build our error for a response that is no stream: a web page was certainly not billed, anything else perhaps."""
    return BrokenEndpointError(PAGE_INSTEAD) if content_type.startswith("text/html") else InvalidReplyError(NO_STREAM)


_REGAINED = compile_bounded(r"regain access on (\d{4}-\d{2}-\d{2}) at (\d{2}:\d{2}) UTC")
"""The day and the time at which an account's monthly limit begins again, in the provider's words."""
_SAFE = compile_bounded(r"[A-Za-z0-9_.:-]{1,80}")


class _Error(BaseModel):
    message: str = ""
    type: str | None = None
    code: str | int | None = None


class VendorErrorBody(BaseModel):
    """Body of a server's error response, in one of the usual shapes: nested or not."""

    error: _Error | str | None = None
    message: str = ""
    type: str | None = None
    code: str | int | None = None
    detail: JsonValue = None

    @property
    def description(self) -> str:
        """The server's own words."""
        said = self.error.message if isinstance(self.error, _Error) else self.error
        return said or self.message or (self.detail if isinstance(self.detail, str) else "")

    @property
    def error_kind(self) -> str:
        """The server's name for the error; a number is only the status again."""
        named = self.error if isinstance(self.error, _Error) else self
        return named.code if isinstance(named.code, str) and not named.code.isdigit() else named.type or ""


_ANY: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def parse_vendor_error(body: object) -> VendorErrorBody:
    """Parse an error body, given as JSON or as the value read from it, or as the only item of a list.

    Empty for a web page or an unknown shape.
    """
    try:
        read = _ANY.validate_json(body) if isinstance(body, str | bytes) else _ANY.validate_python(body)
        return VendorErrorBody.model_validate(read[0] if isinstance(read, list) and read else read, extra="ignore")
    except ValidationError:
        return VendorErrorBody()


class VendorErrorResponse(NamedTuple):
    """A vendor's error response instead of a reply."""

    status: int
    """HTTP status; below 300 if a stream had begun."""
    kind: str
    """The vendor's name for the error; empty if it has none."""
    message: str
    request: str
    """Id of the request; empty if there is none."""
    headers: Mapping[str, str]

    @property
    def row(self) -> _Row:
        """Meaning of the status; in a stream, of the kind alone."""
        status = self.status if self.status >= 400 else _STATUS_OF_KIND.get(self.kind, 500)
        return STATUS_TABLE.get(status, STATUS_TABLE[400] if status < 500 else STATUS_TABLE[500])

    @property
    def meaning(self) -> str:
        """Meaning for a person."""
        row, said = self.row, f"{self.kind} {self.message}".lower()
        status = self.status if self.status >= 400 else 400 if row is STATUS_TABLE[400] else 0
        found = next((cause for sign, cause in _CAUSES.items() if sign in said), "")
        fitting = status in _REQUEST_STATUSES or (status in _SAYS_LITTLE and found in _ACCOUNT_MEANINGS)
        fitting = fitting or (found == OVER_WINDOW and status in _LONG_REQUEST_STATUSES)
        return found if found and fitting else row.meaning

    @property
    def model_error(self) -> ModelError:
        """Our error for the response.

        In a stream only a filter's block is final: the stream had begun, so it may have been billed; any other final
        cause comes back as a status.
        """
        if 300 <= self.status < 400:
            # Following a redirect would send the conversation and the key to another address than was configured.
            where = "and redirects are not followed: set the endpoint's base URL to the target"
            return ModelRejected(f"the endpoint redirects (status {self.status}), {where}")
        row, message, delay = self.row, self._message, parse_retry_after(self.headers)
        if self.meaning == BLOCKED:
            return ContentFilterError(message)
        if self.status < 400:
            return ModelUnavailable(message, retry_after=delay)
        if row.verdict == "no money" or self.meaning in {NO_CREDIT, SPENT}:
            return SpendingLimitReached(message, resets_at=self._resets_at)
        if row.verdict == "final" or self.meaning == OVER_WINDOW:
            return self._final(message)
        return ModelUnavailable(message, retry_after=delay, possibly_billed=row.verdict == "unclear")

    @property
    def _resets_at(self) -> datetime | None:
        """When an exhausted account may be used again, by the vendor's words or headers; None if neither says so."""
        if (named := _REGAINED.search(self.message)) is not None:
            try:
                return datetime.fromisoformat(f"{named[1]}T{named[2]}:00+00:00")
            except ValueError:
                return None
        delay, now = parse_retry_after(self.headers), parse_http_date(self.headers.get("date"))
        return None if delay is None or now is None else now + timedelta(seconds=delay)

    def _final(self, message: str) -> ModelRejected:
        """Return our error if it is not retryable."""
        if self.row is STATUS_TABLE[404] or self.meaning in {_GONE, _RETIRED}:
            return ModelNotFoundError(message)
        keyless = {STATUS_TABLE[401].meaning, STATUS_TABLE[403].meaning, _NO_CREDENTIALS}
        return ModelAuthenticationError(message) if self.meaning in keyless else ModelRejected(message)

    @property
    def _message(self) -> str:
        kind = self.kind if _SAFE.fullmatch(self.kind) else self.row.kind
        request = self.request if _SAFE.fullmatch(self.request) else "unknown"
        return f"{self.meaning} (status {self.status}, {kind}, request {request})"


def add_model_to_error(error: ModelError, model: str, variable: str, *, is_set: bool) -> ModelError:
    """Return the error with the model's full name in front and the next step for a person at the end.

    Args:
        error: the error of the call.
        model: full name of the model.
        variable: environment variable with the endpoint's key; empty if it has none.
        is_set: whether the worker has that variable.
    """
    step = ""
    if isinstance(error, ModelNotFoundError):
        step = f"; check the name and the endpoint with `waystation doctor --model {model}`"
    elif isinstance(error, ModelAuthenticationError) and variable:
        step = f"; the worker reads the key from {variable}{'' if is_set else ', which is not set'}"
    named = copy(error)
    named.args = (f"{model}: {error}{step}",)
    return named


class UnreadableBodyError(httpx2.DecodingError):
    """A response that is not read any further, for the reason in its message."""


class ResponseStalledError(httpx2.ReadTimeout):
    """A response whose next piece did not arrive in time."""

    def __init__(self, request: httpx2.Request, *, begun: bool) -> None:
        """`begun`: whether a piece had arrived before."""
        self.begun = begun
        super().__init__("silent for too long", request=request)


def convert_connection_error(cause: BaseException) -> ModelError:
    """Return our error for a failed connection."""
    sent = not isinstance(cause, _NOTHING_SENT)
    if isinstance(cause, ResponseStalledError) and cause.begun:
        return ModelUnavailable("the model's reply began and then stopped: not even a ping arrived after that")
    if isinstance(cause, httpx2.ReadTimeout):
        return ModelUnavailable(f"the provider accepted the call and sent nothing{_seconds(cause)}: {LONGER}")
    if isinstance(cause, UnreadableBodyError):
        return InvalidReplyError(str(cause))
    return ModelUnavailable(
        f"the connection to the provider failed: {describe_connection_error(cause)}", possibly_billed=sent
    )


def _seconds(error: httpx2.ReadTimeout) -> str:
    """Return how long it was waited for, if the request says so."""
    try:
        return f" for {error.request.extensions['timeout']['read']:,.0f} s"
    except (RuntimeError, LookupError, TypeError):  # it has no request, or not one of ours
        return ""


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the requested delay in seconds, at most a day; the header may have milliseconds, seconds or a date.

    A date is compared with the response's own, so that no clock of ours is involved.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, MAX_RETRY_DELAY_SECONDS)
    named = headers.get("retry-after")
    seconds = _number(named)
    if seconds is not None:
        return min(seconds, MAX_RETRY_DELAY_SECONDS)
    until, now = parse_http_date(named), parse_http_date(headers.get("date"))
    return (
        None if until is None or now is None else min(max(0.0, (until - now).total_seconds()), MAX_RETRY_DELAY_SECONDS)
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def parse_http_date(text: str | None) -> datetime | None:
    """Parse the date of a header; None if it is not one."""
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class _Watched(httpx2.AsyncByteStream):
    """A response body that must end, and of which every piece must arrive in time.

    Raises ResponseStalledError and UnreadableBodyError while it is read.
    """

    def __init__(self, request: httpx2.Request, body: httpx2.AsyncByteStream, first: float, later: float) -> None:
        """`first` and `later`: seconds left for the first piece, and seconds for each later one."""
        self._request, self._body, self._first, self._later = request, body, first, later
        self._closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive, until the body ends or is closed."""
        pieces, begun, taken = aiter(self._body), False, 0
        while not self._closed:
            try:
                async with asyncio.timeout(self._later if begun else self._first):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise ResponseStalledError(self._request, begun=begun) from None
            begun, taken = begun or bool(piece), taken + len(piece)
            if taken > MAX_REPLY_BYTES:
                raise UnreadableBodyError(
                    f"the model's reply is longer than {MAX_REPLY_BYTES:,} bytes", request=self._request
                )
            yield piece

    async def aclose(self) -> None:
        """Close the body."""
        self._closed = True
        await self._body.aclose()


def build_read_timeout(seconds: float) -> httpx2.Timeout:
    """Build a timeout with this much silence in seconds."""
    return httpx2.Timeout(seconds, connect=CONNECT_SECONDS)


ResponseListener = Callable[[int, Mapping[str, str]], None]
"""Receives the status and the headers of a response as soon as they arrive."""
_LISTENER: ContextVar[ResponseListener] = ContextVar("response listener")


@contextmanager
def watch_responses(listener: ResponseListener) -> Generator[None]:
    """Pass the status and the headers of every response to calls inside the block to the listener.

    A context variable carries it through the vendors' SDKs, which return a reply's headers late or not at all.
    """
    before = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def install_stream_watchdog(client: httpx2.AsyncClient, later: float) -> httpx2.AsyncClient:
    """Make the client watch what it receives: the SDK swallows pings, and its time-outs have only one length.

    The client follows no redirects, so that requests only go to the configured address.
    """

    async def began(request: httpx2.Request) -> None:
        request.extensions[_BEGAN] = asyncio.get_running_loop().time()

    async def watch(response: httpx2.Response) -> None:
        if (listener := _LISTENER.get(None)) is not None:
            listener(response.status_code, response.headers)
        extensions = response.request.extensions
        waited = asyncio.get_running_loop().time() - extensions[_BEGAN]
        if response.headers.get("content-encoding", _AS_IT_IS) != _AS_IT_IS:
            raise UnreadableBodyError(
                "the endpoint compresses its replies although it was asked not to", request=response.request
            )
        left = max(extensions["timeout"]["read"] - waited, 0.0)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Watched(response.request, response.stream, left, later)

    client.follow_redirects = False
    client.headers["accept-encoding"] = _AS_IT_IS
    hooks = client.event_hooks
    client.event_hooks = {
        "request": [*hooks.get("request", ()), began],
        "response": [*hooks.get("response", ()), watch],
    }
    return client
