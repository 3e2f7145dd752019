"""Hooks and notices: programs and addresses of the team's that are told.

Posts JSON to an address of the team's, and keeps that to itself: who knows its path may post, too.

A hook that is an address: told by a POST, it answers by its status alone.

Posts notices to a webhook: what it takes, and what is worth another attempt.

Messages to people by e-mail, chat or push, through Apprise: one for all that comes together.

A hook that is a program: told on its standard input, it answers by its exit code alone.
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
from waystation.runtime.apprise_sender import AppriseMessage, build_apprise_service
from waystation.security.confined_process import CHILD_WORKING_DIRECTORY, build_child_environment, build_module_command
from waystation.security.confinement import ResourceLimits
from waystation.tasks import notifications
from waystation.tasks.notifications import TaskNotification


class SecretUrlClient:
    """An http or https URL. Redirects are not followed, and what is posted is posted once."""

    def __init__(self, address: SecretStr, patience_s: float) -> None:
        """`patience_s`: from the first packet to the status of the answer."""
        self._url = httpx2.URL(address.get_secret_value())
        self._patience_s = patience_s
        self._client = httpx2.AsyncClient(timeout=None, follow_redirects=False)
        logging.getLogger("httpx2").addFilter(self._keeps_the_secret)

    @property
    def host(self) -> str:
        """For messages."""
        return self._url.host

    @asynccontextmanager
    async def post(self, body: str) -> AsyncGenerator[httpx2.Response]:
        """Post one JSON value, and have its answer's status and headers; the rest of it is not read.

        Raises TimeoutError, httpx2.HTTPError.
        """
        headers = {"Content-Type": "application/json"}
        async with (
            asyncio.timeout(self._patience_s),
            self._client.stream("POST", self._url, content=body, headers=headers) as response,
        ):
            yield response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        logging.getLogger("httpx2").removeFilter(self._keeps_the_secret)

    def _keeps_the_secret(self, record: logging.LogRecord) -> bool:
        """At level INFO the HTTP client logs the whole URL of every request."""
        return str(self._url) not in record.getMessage()


HOOK_PATIENCE_S = 30.0


class HttpCompactionHook:
    """A `CompactionHook`. It is told once: nothing of an answer but a success is one."""

    def __init__(self, setting: str, address: SecretStr, patience_s: float = HOOK_PATIENCE_S) -> None:
        """`setting`: its name, for messages; `address`: an http or https URL."""
        self._address = SecretUrlClient(address, patience_s)
        self._patience_s = patience_s
        self._name = f"{setting} ({self._address.host})"

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        try:
            async with self._address.post(event.json_line) as response:
                if not response.is_success:
                    why = ", a redirect, which is not followed" if response.is_redirect else ""
                    raise HookFailed(f"{self._name} answered {response.status_code}{why}")
        except TimeoutError:
            raise HookFailed(f"{self._name} did not answer within {self._patience_s:g} s") from None
        except httpx2.HTTPError as error:
            raise HookFailed(f"the connection to {self._name} failed: {describe_connection_error(error)}") from None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._address.aclose()


PATIENCE_S = 10.0
"""Until the status of the answer."""
LONGEST_WAIT = timedelta(hours=12)
"""A server that names a later time is asked again by then."""
_PASSING = frozenset({408, 429})
"""What the server itself says may go otherwise next time, beside 5xx."""


class WebhookNotifier:
    """A `Notifier` behind one address. An answer's body is never read: its status says everything."""

    def __init__(self, address: SecretStr, patience_s: float = PATIENCE_S) -> None:
        """`address`: an http or https URL."""
        self._address = SecretUrlClient(address, patience_s)
        self._patience_s = patience_s

    @property
    def name(self) -> str:
        """For messages: without the secret."""
        return f"the webhook at {self._address.host}"

    async def send(self, notice: TaskNotification, link: str | None) -> None:
        """Post once; see `Notifier`."""
        try:
            async with self._address.post(json.dumps(_body(notice, link))) as response:
                self._check(response)
        except TimeoutError:
            raise WebhookUnavailable(f"{self.name} did not answer within {self._patience_s:g} s") from None
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
        cause = "a redirect, which is not followed" if response.is_redirect else "which is final"
        raise WebhookRejectedError(f"{self.name} answered {status}, {cause}: check WAYSTATION_WEBHOOK")


def _body(notice: TaskNotification, link: str | None) -> dict[str, JsonValue]:
    """Fields that Slack does not know could make it refuse a message; `metadata` is where it takes any."""
    return {
        "text": notifications.render_mrkdwn(notice, link),
        "metadata": {
            "event_type": f"waystation_{notice.event}",
            "event_payload": notifications.build_webhook_fields(notice, link),
        },
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
    except (ValueError, OverflowError):
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


GATHER_S = 10.0
"""What comes within this time of a first notice is told with it. With the patience it stays under an attempt's time."""
MESSAGE_PATIENCE_S = 60.0
"""Until a service says whether it took a message. Mail servers look at one before they say so (RFC 5321, 4.5.3.2)."""
REMEMBERED = 1_000
"""Notices whose fate is open: none is told twice by this process."""
MESSAGE_ENDS_S = 600.0
"""Then a service that still answers is left, and has taken nothing: ten steps of a mail server that takes its time."""
MESSAGE_BYTES = 512 * 1024 * 1024
"""Of address space, of the process that sends: some 80 MB before it is answered."""
MESSENGER_SEES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""Of the environment, beside what every child does; the first four also in small letters."""
TALKATIVE = ("apprise", "urllib3.connectionpool", "requests_oauthlib.oauth1_auth", "requests_oauthlib.oauth2_session")
"""Loggers that name whole addresses, or quote what was answered."""


class _MessageBatch:
    """Notices that are told in one message."""

    def __init__(self) -> None:
        self.notices: dict[str, tuple[TaskNotification, str | None]] = {}
        """By what they are deliveries of, each with the page of its task."""
        self.sending: asyncio.Task[bool] | None = None
        """Whether it was taken."""


class AppriseNotifier:
    """A `Notifier` behind one address of Apprise's, like `mailto://…`, `slack://…`, `msteams://…` or `ntfy://…`.

    Redirects are not followed: a notice that is answered by one was not taken. A message whose fate is not known yet is
    not sent again: the next attempt of its notices waits for it. Each is sent by a process of its own
    (`waystation.runtime.apprise_sender`), which ends with the worker.
    """

    def __init__(
        self,
        address: SecretStr,
        number: int,
        inbox: str | None = None,
        gather_s: float = GATHER_S,
        patience_s: float = MESSAGE_PATIENCE_S,
        ends_s: float = MESSAGE_ENDS_S,
        memory: int = MESSAGE_BYTES,
    ) -> None:
        """`number`: its place in the setting, from 1; `inbox`: where requests are answered; `patience_s`: for an
        attempt, and for each step of the service's; `ends_s`: for all of them; `memory`: bytes of address space of the
        process that sends.

        Raises BadInput: Apprise is not installed, or does not know such an address.
        """
        if find_spec("apprise") is None:
            raise BadInput("WAYSTATION_NOTIFY needs the package apprise: `pip install 'waystation[notices]'`")
        for logger in TALKATIVE:
            logging.getLogger(logger).addFilter(_say_nothing)
        written = address.get_secret_value()
        if build_apprise_service(written, patience_s) is None:
            raise BadInput(
                f"address {number} of WAYSTATION_NOTIFY is none that Apprise knows: see "
                "https://github.com/caronc/apprise/wiki; it is not shown, since it may hold a secret"
            )
        self._address, self._ends_s, self._memory = address, ends_s, memory
        self.name = f"address {number} of WAYSTATION_NOTIFY ({written.partition('://')[0]})"
        """For messages: without the secret."""
        self._inbox, self._gather_s, self._patience_s = inbox, gather_s, patience_s
        self._together = _MessageBatch()
        self._told: dict[str, _MessageBatch] = {}
        """Where each notice is that no attempt has heard the fate of."""

    async def send(self, notice: TaskNotification, link: str | None) -> None:
        """Tell it, with what else comes meanwhile; see `Notifier`. The service does not say what is final."""
        try:
            async with asyncio.timeout(self._gather_s + self._patience_s):
                taken = await self._fate(notice.delivery_id)
                if not taken:
                    self._join(notice, link)
                    taken = await self._fate(notice.delivery_id)
        except TimeoutError:
            raise WebhookUnavailable(f"{self.name} did not answer within {self._patience_s:g} s") from None
        if not taken:
            raise WebhookUnavailable(f"{self.name} did not take it")

    async def _fate(self, delivery_id: str) -> bool:
        """Whether it was taken, once that is known. Who waits may go: the message does not."""
        together = self._told.get(delivery_id)
        if together is None or together.sending is None:
            return False
        taken = await asyncio.shield(together.sending)
        self._told.pop(delivery_id, None)
        return taken

    def _join(self, notice: TaskNotification, link: str | None) -> None:
        together = self._told[notice.delivery_id] = self._together
        together.notices[notice.delivery_id] = notice, link
        if together.sending is None:
            together.sending = asyncio.create_task(self._tell(together))
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]

    async def _tell(self, together: _MessageBatch) -> bool:
        await asyncio.sleep(self._gather_s)
        self._together = _MessageBatch()
        title, body = notifications.render_digest(tuple(together.notices.values()), self._inbox)
        return await self._sent(AppriseMessage(self._address.get_secret_value(), title, body, self._patience_s))

    async def _sent(self, letter: AppriseMessage) -> bool:
        """Whether the service took it, as far as it has said so in time."""
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
        """What still waits is told by the attempt after this one, perhaps of another worker."""
        sending = {one.sending for one in (self._together, *self._told.values()) if one.sending is not None}
        for one in sending:
            one.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


_MESSENGER = "waystation.runtime.apprise_sender"


def _seen_by_messenger() -> dict[str, str]:
    names = {*MESSENGER_SEES, *(name.lower() for name in MESSENGER_SEES if name.endswith("_PROXY"))}
    return {name: os.environ[name] for name in names if name in os.environ}


def _say_nothing(_: logging.LogRecord) -> bool:
    return False


COMMAND_PATIENCE_S = 30.0
"""From its start to its end; then it is ended, and what it started with it."""
ENVIRONMENT = ("PATH", "HOME", "LANG")
"""All that a program sees of the worker's environment: the rest holds keys."""


class CommandCompactionHook:
    """A `CompactionHook`. What it prints goes nowhere: it may be anything, and would be told further."""

    def __init__(self, setting: str, arguments: Sequence[str], patience_s: float = COMMAND_PATIENCE_S) -> None:
        """`setting`: its name, for messages; `arguments`: the program and what it gets, as they are.

        Raises BadInput: there is no such program.
        """
        program = shutil.which(arguments[0])
        if program is None:
            raise BadInput(
                "its program is not there, or may not be run: give a program on the worker's PATH, or its full path. "
                "No shell reads the line, so that ~, $NAME, pipes and NAME=value mean nothing in it"
            )
        self._arguments = (program, *arguments[1:])
        self._name = f"{setting} ({Path(program).name})"
        self._patience_s = patience_s

    async def call(self, event: CompactionEvent) -> None:
        """See `CompactionHook`."""
        process = await self._started()
        try:
            async with asyncio.timeout(self._patience_s):
                await process.communicate(event.json_line.encode())
        except TimeoutError:
            raise HookFailed(f"{self._name} did not end within {self._patience_s:g} s") from None
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
    """With everything that it started in its process group, unless it has ended by itself."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
