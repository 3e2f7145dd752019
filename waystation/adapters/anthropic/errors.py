"""Errors of the SDK as `waystation.connections` knows them."""

from collections.abc import Generator
from contextlib import contextmanager

import httpx2
from anthropic import AnthropicError, APIConnectionError, APIStatusError

from waystation.connections import VendorRefusal, broken, fault_of
from waystation.domain.errors import KeyRefused, ModelError, ModelRejected, ReplyUnfit

_NO_SUCH_CALL = (404, 405, 501)
_UNSUPPORTED = ("not supported", "unsupported", "not implemented", "not available")


@contextmanager
def vendor_errors(no_credentials: tuple[type[Exception], ...] = ()) -> Generator[None]:
    """Raise ours for every error of the SDK, of its HTTP client, and of those who find credentials.

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
    except no_credentials as error:
        named = type(error).__name__
        raise KeyRefused(f"this worker has no credentials that the endpoint could take ({named})") from None
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        # The SDK validates nothing that it receives: a malformed stream surfaces as whatever breaks first.
        raise ReplyUnfit(f"the model's reply could not be read ({type(error).__name__})") from None


def ours(error: AnthropicError | httpx2.HTTPError) -> ModelError:
    """Our error for one of the SDK's or of its HTTP client's."""
    match error:
        case APIStatusError():
            return _refusal(error).error
        case APIConnectionError() | httpx2.HTTPError():
            return broken(error.__cause__ or error)
        case _:
            return ModelRejected(f"the provider's client cannot make the call ({type(error).__name__})")


def is_missing(error: APIStatusError) -> bool:
    """Whether the endpoint does not have such a call: by its status, or by its words with one that says less."""
    words = fault_of(error.body).words.lower()
    return error.status_code in _NO_SUCH_CALL or (
        error.status_code == 400 and any(sign in words for sign in _UNSUPPORTED)
    )


def _refusal(error: APIStatusError) -> VendorRefusal:
    """Nothing that comes from there was validated: kinds and words may be anything, and in any server's shape."""
    fault = fault_of(error.body)
    kind = error.type if error.status_code < 400 else error.error_code or fault.kind
    return VendorRefusal(
        error.status_code, str(kind or ""), fault.words, error.request_id or "", error.response.headers
    )
