"""Posts notices to a webhook: what it takes, and what is worth another attempt."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx2
from pydantic import JsonValue, SecretStr

from waystation.adapters.webhook.address import PrivateAddress
from waystation.domain import notices
from waystation.domain.errors import WebhookRefused, WebhookUnavailable
from waystation.domain.notices import Notice

PATIENCE_S = 10.0
"""Until the status of the answer."""
LONGEST_WAIT = timedelta(hours=12)
"""A server that names a later time is asked again by then."""
PASSING = frozenset({408, 429})
"""What the server itself says may go otherwise next time, beside 5xx."""


class Webhook:
    """A `Notifier` behind one address. An answer's body is never read: its status says everything."""

    def __init__(self, address: SecretStr, patience_s: float = PATIENCE_S) -> None:
        """`address`: an http or https URL."""
        self._address = PrivateAddress(address, patience_s)
        self._patience_s = patience_s

    @property
    def name(self) -> str:
        """For messages: without the secret."""
        return f"the webhook at {self._address.host}"

    async def send(self, notice: Notice, link: str | None) -> None:
        """Post once; see `Notifier`."""
        try:
            async with self._address.post(json.dumps(_body(notice, link))) as response:
                self._check(response)
        except TimeoutError:
            raise WebhookUnavailable(f"{self.name} did not answer within {self._patience_s:g} s") from None
        except httpx2.HTTPError as error:
            raise WebhookUnavailable(f"the connection to {self.name} failed ({type(error).__name__})") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._address.aclose()

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if status in PASSING or response.is_server_error:
            raise WebhookUnavailable(f"{self.name} answered {status}", retry_after=_retry_after(response.headers))
        cause = "a redirect, which is not followed" if response.is_redirect else "which is final"
        raise WebhookRefused(f"{self.name} answered {status}, {cause}: check WAYSTATION_WEBHOOK")


def _body(notice: Notice, link: str | None) -> dict[str, JsonValue]:
    """Fields that Slack does not know could make it refuse a message; `metadata` is where it takes any."""
    return {
        "text": notices.text(notice, link),
        "metadata": {"event_type": f"waystation_{notice.event}", "event_payload": notices.fields(notice, link)},
    }


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds to wait, where the server names them or a date, which is read against the answer's own."""
    named = headers.get("retry-after", "")
    if named.isascii() and named.isdigit():
        return min(float(named), LONGEST_WAIT.total_seconds())
    until, now = _date(named), _date(headers.get("date", ""))
    if until is None or now is None:
        return None
    return max(timedelta(), min(until - now, LONGEST_WAIT)).total_seconds()


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
