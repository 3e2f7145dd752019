"""One table from what a server of embeddings answers to what went wrong, without a word of request or answer."""

import math
from dataclasses import dataclass

import httpx2


@dataclass(frozen=True)
class Failure:
    """How a request failed."""

    words: str
    """What went wrong, said of the server."""
    passes: bool
    """Whether trying again may help."""
    wait_s: float = 0.0
    """So many seconds the server asks to wait for."""


SLOW = Failure("did not answer in time", passes=True)
UNREADABLE = Failure("gave an answer that cannot be used", passes=False)


def failure_of(response: httpx2.Response) -> Failure:
    """What is wrong, where the status is not 200."""
    status = response.status_code
    match status:
        case 401 | 403:
            return Failure(f"does not accept the key (HTTP {status})", passes=False)
        case 404:
            return Failure("does not have this model or address (HTTP 404)", passes=False)
        case 408 | 429:
            return Failure(f"takes no more requests for now (HTTP {status})", passes=True, wait_s=_delay(response))
        case _ if status >= 500:
            return Failure(f"failed (HTTP {status})", passes=True, wait_s=_delay(response))
        case _:
            return Failure(f"refused the request (HTTP {status})", passes=False)


def unreachable(error: httpx2.HTTPError) -> Failure:
    """No answer came: only the kind of error is said, its message may quote an address."""
    return Failure(f"does not answer ({type(error).__name__})", passes=True)


def _delay(response: httpx2.Response) -> float:
    """Both vendors give seconds. A date, or nothing, leaves the pause to us."""
    try:
        asked = float(response.headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return max(0.0, asked) if math.isfinite(asked) else 0.0
