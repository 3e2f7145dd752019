"""The one table from the provider's errors to ours.

Messages keep the status, the kind and the request id. The provider's own words stay out: they can quote the request.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Literal, NamedTuple

import httpx2
from anthropic import AnthropicError, APIConnectionError, APIStatusError

from waystation.domain.errors import ModelError, ModelRejected, ModelUnavailable, ReplyBlocked, SpendingLimitReached
from waystation.patterns import proven

_Verdict = Literal["final", "no money", "not billed", "unclear"]
"""Another attempt changes nothing; nothing before somebody paid; certainly refused, worth another attempt; worth one,
but perhaps billed already."""


class _Row(NamedTuple):
    """What a status means to us. `kind` is the protocol's name of it, which is all that an error in a stream has."""

    kind: str
    verdict: _Verdict
    meaning: str


TABLE: Mapping[int, _Row] = {
    400: _Row("invalid_request_error", "final", "the request was refused"),
    401: _Row("authentication_error", "final", "the API key was not accepted"),
    402: _Row("billing_error", "no money", "the provider's spending limit is reached, or its account has no credit"),
    403: _Row("permission_error", "final", "the API key may not do this"),
    404: _Row("not_found_error", "final", "there is no such model or endpoint"),
    408: _Row("timeout_error", "unclear", "the provider timed out"),
    409: _Row("conflict_error", "not billed", "the provider reports a conflict"),
    413: _Row("request_too_large", "final", "the request is too large"),
    429: _Row("rate_limit_error", "not billed", "the provider's rate limit is reached"),
    500: _Row("api_error", "unclear", "the provider failed"),
    529: _Row("overloaded_error", "not billed", "the provider is overloaded"),
}

_STATUS_OF_KIND = {row.kind: status for status, row in TABLE.items()}

NO_CREDIT = "the provider's account has no credit"
BLOCKED = "the provider's content filter blocked the reply"
_TOO_LONG = "the request is longer than the model's window"
_KNOWN_CAUSES = {
    "prompt is too long": _TOO_LONG,
    "context length": _TOO_LONG,
    "context window": _TOO_LONG,
    "context size": _TOO_LONG,
    "context limit": _TOO_LONG,
    "maximum context": _TOO_LONG,
    "input is too long": _TOO_LONG,
    "maximum number of tokens allowed": _TOO_LONG,
    "credit balance is too low": NO_CREDIT,
    "content filtering policy": BLOCKED,
    "tool_choice": "the model does not take this choice of tools",
    "thinking": "the model does not take these thinking blocks or settings",
    "effort": "the model does not take this effort",
}
"""Causes behind status 400 that a person must tell apart, by words of the provider's that we never repeat."""

_NOTHING_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)

_NO_SUCH_CALL = (404, 405, 501)
_UNSUPPORTED = ("not supported", "unsupported", "not implemented", "not available")

LONGER = "WAYSTATION_MODEL_PATIENCE and WAYSTATION_MODEL_PATIENCE_THINKING say how long it is waited for"

LONGEST_WAIT = 86_400.0
"""Seconds for which an endpoint may put the next attempt off."""

_SAFE = proven(r"[A-Za-z0-9_.:-]{1,80}")


class UnfitBody(httpx2.DecodingError):
    """A response that is not read any further, for its own reason."""


class Silence(httpx2.ReadTimeout):
    """A response whose next piece did not come in time."""

    def __init__(self, request: httpx2.Request, *, begun: bool) -> None:
        """`begun`: whether there was a piece before."""
        self.begun = begun
        super().__init__("silent for too long", request=request)


@contextmanager
def vendor_errors() -> Generator[None]:
    """Raise ours for every error of the SDK and of its HTTP client.

    Raises:
        ModelUnavailable: worth another attempt.
        SpendingLimitReached: the provider wants money first.
        ModelRejected: another attempt changes nothing.
        ReplyBlocked: nor does it here, but this one may have been billed.
    """
    try:
        yield
    except (AnthropicError, httpx2.HTTPError) as error:
        raise ours(error) from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # The SDK validates nothing that it receives: a malformed stream surfaces as whatever breaks first.
        raise ModelUnavailable(f"the model's reply could not be read ({type(error).__name__})") from None


def ours(error: AnthropicError | httpx2.HTTPError) -> ModelError:
    """Our error for one of the SDK's or of its HTTP client's."""
    match error:
        case APIStatusError() if 300 <= error.status_code < 400:
            # Whoever is redirected would hand the conversation and the key to another address than was configured.
            return ModelRejected(
                f"the endpoint redirects (status {error.status_code}), which is not followed: set ANTHROPIC_BASE_URL "
                "to where it leads"
            )
        case APIStatusError() if error.status_code < 400:
            return _stream_error(error)
        case APIStatusError():
            return _status_error(error)
        case APIConnectionError() | httpx2.HTTPError():
            return _connection_error(error)
        case _:
            return ModelRejected(f"the provider's client cannot make the call ({type(error).__name__})")


def is_missing(error: APIStatusError) -> bool:
    """Whether the endpoint does not have such a call: by its status, or by its words with one that says less."""
    words = _words(error)
    return error.status_code in _NO_SUCH_CALL or (
        error.status_code == 400 and any(sign in words for sign in _UNSUPPORTED)
    )


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait, a day at most, where the provider names them: in milliseconds, in seconds or as a date.

    A date is read against the response's own, so that no clock of ours is involved.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return min(milliseconds / 1000, LONGEST_WAIT)
    named = headers.get("retry-after")
    seconds = _number(named)
    if seconds is not None:
        return min(seconds, LONGEST_WAIT)
    until, now = _date(named), _date(headers.get("date"))
    return None if until is None or now is None else min(max(0.0, (until - now).total_seconds()), LONGEST_WAIT)


def _status_error(error: APIStatusError) -> ModelError:
    status = error.status_code
    row = TABLE.get(status, TABLE[400] if status < 500 else TABLE[500])
    message = _message(row, error)
    if row.verdict == "no money" or _meaning(row, error) == NO_CREDIT:
        return SpendingLimitReached(message)
    if _meaning(row, error) == BLOCKED:
        return ReplyBlocked(message)
    if row.verdict == "final":
        return ModelRejected(message)
    delay = retry_after(error.response.headers)
    return ModelUnavailable(message, retry_after=delay, possibly_billed=row.verdict == "unclear")


def _stream_error(error: APIStatusError) -> ModelError:
    """Final only where a filter blocked the reply: the stream had begun, so it may have been billed, and any other
    cause that is final comes back as a status.
    """
    row = TABLE[_STATUS_OF_KIND.get(str(error.type), 500)]
    if _meaning(row, error) == BLOCKED:
        return ReplyBlocked(_message(row, error))
    return ModelUnavailable(_message(row, error), retry_after=retry_after(error.response.headers))


def _connection_error(error: APIConnectionError | httpx2.HTTPError) -> ModelError:
    cause = error.__cause__ or error
    sent = not isinstance(cause, _NOTHING_SENT)
    if isinstance(cause, Silence) and cause.begun:
        return ModelUnavailable("the model's reply began, and then nothing came any more, not even a ping")
    if isinstance(cause, httpx2.ReadTimeout):
        return ModelUnavailable(f"the provider took the call and sent nothing{_seconds(cause)}: {LONGER}")
    if isinstance(cause, httpx2.TimeoutException):
        return ModelUnavailable("the provider did not answer in time", possibly_billed=sent)
    if isinstance(cause, UnfitBody):
        return ModelUnavailable(str(cause))
    named = f"the connection to the provider failed ({type(cause).__name__})"
    return ModelUnavailable(named, possibly_billed=sent)


def _seconds(error: httpx2.ReadTimeout) -> str:
    """How long it was waited for, where the request says so."""
    try:
        return f" for {error.request.extensions['timeout']['read']:,.0f} s"
    except (RuntimeError, LookupError, TypeError):  # it has no request, or not ours
        return ""


def _message(row: _Row, error: APIStatusError) -> str:
    return f"{_meaning(row, error)} (status {error.status_code}, {_labels(error, row)})"


def _meaning(row: _Row, error: APIStatusError) -> str:
    if row is not TABLE[400]:
        return row.meaning
    words = _words(error)
    return next((meaning for sign, meaning in _KNOWN_CAUSES.items() if sign in words), row.meaning)


def _words(error: APIStatusError) -> str:
    """What the provider says, whatever it is: nothing that comes from there was validated."""
    return str(error.api_message or "").lower()


def _labels(error: APIStatusError, row: _Row) -> str:
    kind = str(error.error_code or error.type or row.kind)
    request = error.request_id or "unknown"
    return (
        f"{kind if _SAFE.fullmatch(kind) else row.kind}, request {request if _SAFE.fullmatch(request) else 'unknown'}"
    )


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if isfinite(number) and number >= 0 else None


def _date(text: str | None) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
