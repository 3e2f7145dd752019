"""Compaction hooks (programs and webhooks of the team) and notifiers (webhooks, and e-mail, chat or push through
Apprise).
"""

import asyncio
import json
import logging
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from importlib.util import find_spec
from pathlib import Path

import httpx2
from pydantic import JsonValue, SecretStr

from waystation.context.compaction import CompactionEvent
from waystation.kernel.errors import BadInput, HookFailed, WebhookRejectedError, WebhookUnavailable
from waystation.kernel.network import describe_connection_error
from waystation.kernel.text import format_extra_hint
from waystation.runtime.apprise_sender import AppriseMessage, build_apprise_service
from waystation.security.confined_process import CHILD_WORKING_DIRECTORY, build_child_environment, build_module_command
from waystation.security.confinement import ResourceLimits
from waystation.tasks import notifications
from waystation.tasks.notifications import Notification


class SecretUrlClient:
    """Posts JSON to a secret http or https URL: anyone who knows its path may post, so nothing reveals it.

    Redirects are not followed, and every value is posted once.
    """

    def __init__(self, address: SecretStr, patience_s: float) -> None:
        """Prepare the client. `patience_s`: seconds from the first packet to the status of the answer."""
        self._url = httpx2.URL(address.get_secret_value())
        self._timeout_s = patience_s
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        logging.getLogger("httpx2").addFilter(self._keeps_the_secret)

    @property
    def host(self) -> str:
        """Host, for messages."""
        return self._url.host

    @asynccontextmanager
    async def post(self, body: str) -> AsyncGenerator[httpx2.Response]:
        """Post one JSON value and yield its answer's status and headers; the body is not read.

        Raises TimeoutError, httpx2.HTTPError.
        """
        headers = {"Content-Type": "application/json"}
        async with (
            asyncio.timeout(self._timeout_s),
            self._client.stream("POST", self._url, content=body, headers=headers) as response,
        ):
            yield response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        logging.getLogger("httpx2").removeFilter(self._keeps_the_secret)

    def _keeps_the_secret(self, record: logging.LogRecord) -> bool:
        """Filter the HTTP client's log: at level INFO it has the whole URL of every request."""
        return str(self._url) not in record.getMessage()


HOOK_TIMEOUT_S = 30.0


class HttpCompactionHook:
    """A `CompactionHook` that posts to an address. It is called once; any status but a success is a failure."""

    def __init__(self, setting: str, address: SecretStr, patience_s: float = HOOK_TIMEOUT_S) -> None:
        """Prepare the hook.

        Args:
            setting: Name of its setting, for messages.
            address: An http or https URL.
            patience_s: Timeout in seconds.
        """
        self._address = SecretUrlClient(address, patience_s)
        self._timeout_s = patience_s
        self._name = f"{setting} ({self._address.host})"

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        try:
            async with self._address.post(event.json_line) as response:
                if not response.is_success:
                    why = ", a redirect, which is not followed" if response.is_redirect else ""
                    raise HookFailed(f"{self._name} answered {response.status_code}{why}")
        except TimeoutError:
            raise HookFailed(f"{self._name} did not answer within {self._timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise HookFailed(f"the connection to {self._name} failed: {describe_connection_error(error)}") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._address.aclose()


WEBHOOK_TIMEOUT_S = 10.0
"""Seconds until the status of the answer."""
MAX_WAIT = timedelta(hours=12)
"""Maximum wait if a server names a later time."""
_PASSING = frozenset({408, 429})
"""Status codes that the server itself declares temporary, besides 5xx."""


class WebhookNotifier:
    """A `Notifier` that posts to one webhook. The body of an answer is never read: its status is enough."""

    def __init__(self, address: SecretStr, patience_s: float = WEBHOOK_TIMEOUT_S) -> None:
        """Prepare the notifier. `address`: an http or https URL."""
        self._address = SecretUrlClient(address, patience_s)
        self._timeout_s = patience_s

    @property
    def name(self) -> str:
        """Name for messages, without the secret."""
        return f"the webhook at {self._address.host}"

    async def send(self, notice: Notification, link: str | None) -> None:
        """Post once; see `Notifier`."""
        try:
            async with self._address.post(json.dumps(_body(notice, link))) as response:
                self._check(response)
        except TimeoutError:
            raise WebhookUnavailable(f"{self.name} did not answer within {self._timeout_s:g} s") from None
        except httpx2.HTTPError as error:
            raise WebhookUnavailable(
                f"the connection to {self.name} failed: {describe_connection_error(error)}"
            ) from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._address.aclose()

    def _check(self, response: httpx2.Response) -> None:
        status = response.status_code
        if response.is_success:
            return
        if status in _PASSING or response.is_server_error:
            raise WebhookUnavailable(f"{self.name} answered {status}", retry_after=_retry_after(response.headers))
        cause = "a redirect, which is not followed" if response.is_redirect else "the notification is not sent again"
        raise WebhookRejectedError(f"{self.name} answered {status} ({cause}): check WAYSTATION_WEBHOOK")


def _body(notice: Notification, link: str | None) -> dict[str, JsonValue]:
    """Build the body. Slack may refuse a message with unknown fields; `metadata` may have any."""
    return {
        "text": notifications.render_mrkdwn(notice, link),
        "metadata": {
            "event_type": f"waystation_{notice.event}",
            "event_payload": notifications.build_webhook_fields(notice, link),
        },
    }


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Return seconds to wait, if the server names them or a date, which is compared with the answer's own date."""
    named = headers.get("retry-after", "")
    if named.isascii() and named.isdigit():
        return min(float(named), MAX_WAIT.total_seconds())
    until, now = _date(named), _date(headers.get("date", ""))
    if until is None or now is None:
        return None
    return max(timedelta(), min(until - now, MAX_WAIT)).total_seconds()


def _date(text: str) -> datetime | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


GATHER_S = 10.0
"""Seconds for which notifications are collected into one message after the first.

Together with the timeout, shorter than an attempt.
"""
MESSAGE_TIMEOUT_S = 60.0
"""Seconds until a service says whether it accepted a message. Mail servers inspect it first (RFC 5321, 4.5.3.2)."""
MAX_REMEMBERED_NOTIFICATIONS = 1_000
"""Maximum number of notifications with an unknown outcome that are remembered, so that none is sent twice by this
process.
"""
MESSAGE_ENDS_S = 600.0
"""Seconds after which a service that still answers is abandoned as not having accepted the message: ten steps of a slow
mail server.
"""
MESSAGE_BYTES = 512 * 1024 * 1024
"""Address space of the sending process, in bytes; it needs about 80 MB before the answer."""
MESSENGER_SEES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Environment variables of the sending process, besides those of every child process; the first four also in lower
case.
"""
LEAKY_LOGGERS = (
    "apprise",
    "urllib3.connectionpool",
    "requests_oauthlib.oauth1_auth",
    "requests_oauthlib.oauth2_session",
)
"""Loggers that log whole addresses, or quote answers."""


class _MessageBatch:
    """Notifications that are sent in one message."""

    def __init__(self) -> None:
        self.notices: dict[str, tuple[Notification, str | None]] = {}
        """Notifications by delivery id, each with the address of its task's page."""
        self.sending: asyncio.Task[bool] | None = None
        """The result says whether it was accepted."""


class AppriseNotifier:
    """A `Notifier` for one Apprise address, such as `mailto://…`, `slack://…`, `msteams://…` or `ntfy://…`.

    Redirects are not followed: a notification that is answered by one was not accepted. A message whose outcome is not
    known yet is not sent again; the next attempt of its notifications waits for it. Each message is sent by a process
    of its own (`waystation.runtime.apprise_sender`), which ends with the worker.
    """

    def __init__(
        self,
        address: SecretStr,
        number: int,
        inbox: str | None = None,
        gather_s: float = GATHER_S,
        patience_s: float = MESSAGE_TIMEOUT_S,
        ends_s: float = MESSAGE_ENDS_S,
        memory: int = MESSAGE_BYTES,
    ) -> None:
        """Prepare the notifier.

        Args:
            address: An Apprise URL.
            number: Position in the setting, from 1.
            inbox: Address where requests are answered.
            gather_s: Seconds for which notifications are collected.
            patience_s: Timeout of an attempt, and of each step of the service, in seconds.
            ends_s: Timeout of all steps, in seconds.
            memory: Address space of the sending process, in bytes.

        Raises:
            BadInput: Apprise is not installed, or does not know such an address.
        """
        if find_spec("apprise") is None:
            raise BadInput(f"WAYSTATION_NOTIFY needs the package apprise: {format_extra_hint('notices')}")
        for logger in LEAKY_LOGGERS:
            logging.getLogger(logger).addFilter(_say_nothing)
        written = address.get_secret_value()
        if build_apprise_service(written, patience_s) is None:
            raise BadInput(
                f"address {number} of WAYSTATION_NOTIFY is unknown to Apprise: see "
                "https://github.com/caronc/apprise/wiki. The address is not shown, because it may contain a "
                "secret"
            )
        self._address, self._ends_s, self._memory = address, ends_s, memory
        self.name = f"address {number} of WAYSTATION_NOTIFY ({written.partition('://')[0]})"
        """Name for messages, without the secret."""
        self._inbox, self._gather_s, self._patience_s = inbox, gather_s, patience_s
        self._together = _MessageBatch()
        self._batches: dict[str, _MessageBatch] = {}
        """Batch of each notification whose outcome no attempt has received yet."""

    async def send(self, notice: Notification, link: str | None) -> None:
        """Send the notification together with others that arrive meanwhile; see `Notifier`.

        The service does not say which failures are final.
        """
        try:
            async with asyncio.timeout(self._gather_s + self._patience_s):
                taken = await self._fate(notice.delivery_id)
                if not taken:
                    self._join(notice, link)
                    taken = await self._fate(notice.delivery_id)
        except TimeoutError:
            raise WebhookUnavailable(f"{self.name} did not answer within {self._patience_s:g} s") from None
        if not taken:
            raise WebhookUnavailable(f"{self.name} did not accept the notification")

    async def _fate(self, delivery_id: str) -> bool:
        """Wait for the outcome. A waiter may be cancelled; the message is not."""
        together = self._batches.get(delivery_id)
        if together is None or together.sending is None:
            return False
        taken = await asyncio.shield(together.sending)
        self._batches.pop(delivery_id, None)
        return taken

    def _join(self, notice: Notification, link: str | None) -> None:
        together = self._batches[notice.delivery_id] = self._together
        together.notices[notice.delivery_id] = notice, link
        if together.sending is None:
            together.sending = asyncio.create_task(self._tell(together))
        while len(self._batches) > MAX_REMEMBERED_NOTIFICATIONS:
            del self._batches[next(iter(self._batches))]

    async def _tell(self, together: _MessageBatch) -> bool:
        await asyncio.sleep(self._gather_s)
        self._together = _MessageBatch()
        title, body = notifications.render_digest(tuple(together.notices.values()), self._inbox)
        return await self._sent(AppriseMessage(self._address.get_secret_value(), title, body, self._patience_s))

    async def _sent(self, letter: AppriseMessage) -> bool:
        """Send the message. Returns whether the service accepted it in time."""
        bounds = json.dumps(asdict(ResourceLimits(os.getpid(), self._memory)))
        try:
            process = await asyncio.create_subprocess_exec(
                *build_module_command(_MESSENGER, bounds),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=DEVNULL,
                cwd=CHILD_WORKING_DIRECTORY,
                env=build_child_environment() | _seen_by_messenger(),
                start_new_session=True,
            )
        except OSError:
            return False
        try:
            async with asyncio.timeout(self._ends_s):
                await process.communicate(json.dumps(letter._asdict()).encode())
        except TimeoutError:
            return False
        finally:
            await _end(process)
        return process.returncode == 0

    async def aclose(self) -> None:
        """Cancel what still waits: the next attempt sends it, perhaps on another worker."""
        sending = {one.sending for one in (self._together, *self._batches.values()) if one.sending is not None}
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


_MESSENGER = "waystation.runtime.apprise_sender"


def _seen_by_messenger() -> dict[str, str]:
    names = {*MESSENGER_SEES, *(name.lower() for name in MESSENGER_SEES if name.endswith("_PROXY"))}
    return {name: os.environ[name] for name in names if name in os.environ}


def _say_nothing(_: logging.LogRecord) -> bool:
    return False


COMMAND_TIMEOUT_S = 30.0
"""Maximum run time in seconds; then the program is ended, with everything that it started."""
ENVIRONMENT = ("PATH", "HOME", "LANG")
"""All that the program sees of the worker's environment: the rest has keys."""


class CommandCompactionHook:
    """A `CompactionHook` that runs a program: it gets the event on its standard input and answers by its exit code.

    Its output is discarded: it may contain anything, and would be passed on.
    """

    def __init__(self, setting: str, arguments: Sequence[str], patience_s: float = COMMAND_TIMEOUT_S) -> None:
        """Prepare the hook.

        Args:
            setting: Name of its setting, for messages.
            arguments: The program and its arguments, passed unchanged.
            patience_s: Maximum run time in seconds.

        Raises:
            BadInput: There is no such program.
        """
        program = shutil.which(arguments[0])
        if program is None:
            raise BadInput(
                "its program does not exist or is not executable: give a program on the worker's PATH, or "
                "its full path. No shell reads the setting, so ~, $NAME, pipes and NAME=value have no effect"
            )
        self._arguments = (program, *arguments[1:])
        self._name = f"{setting} ({Path(program).name})"
        self._timeout_s = patience_s

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        process = await self._started()
        try:
            async with asyncio.timeout(self._timeout_s):
                await process.communicate(event.json_line.encode())
        except TimeoutError:
            raise HookFailed(f"{self._name} did not end within {self._timeout_s:g} s") from None
        finally:
            await _end(process)
        if process.returncode:
            code = process.returncode
            how = f"ended with exit code {code}" if code > 0 else f"was ended by signal {-code}"
            raise HookFailed(f"{self._name} {how}")

    async def _started(self) -> Process:
        seen = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        try:
            return await asyncio.create_subprocess_exec(
                *self._arguments, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, env=seen, start_new_session=True
            )
        except OSError as error:
            raise HookFailed(f"{self._name} could not be started ({type(error).__name__})") from None


async def _end(process: Process) -> None:
    """End the process with everything in its process group, unless it has ended by itself.

    It has ended when this returns or raises, even if the caller is cancelled meanwhile.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        ended = asyncio.ensure_future(process.wait())
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            await ended
            raise
