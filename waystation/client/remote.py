"""The client of whoever has a token of `waystation serve`, and neither its Temporal server nor its store.

What may be asked so is what the class lists, each with the role that it takes: one row gives a method of `Client` to
both sides. Arguments and results go as JSON, and are checked on either side by the annotations of that method.
"""

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, get_type_hints
from urllib.parse import parse_qs, urlsplit

import httpx2
from pydantic import JsonValue, TypeAdapter, ValidationError

from waystation import __version__
from waystation.client.client import Client
from waystation.client.context import MemoryMatchJson, MemorySearchRequest
from waystation.client.schedules import ScheduleClient
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput, RequestConflict, UnknownTask, Unreachable, WaystationError
from waystation.kernel.network import describe_connection_error
from waystation.kernel.permissions import Permit
from waystation.kernel.value import extract_validation_faults
from waystation.security.untrusted import plain
from waystation.tasks.approvals import By
from waystation.tasks.view import Draft

CALLED = "/v1/client/"
"""Below it is what the class lists, at ROLE/METHOD."""
VERSION_HEADER = "waystation-version"
"""Header: values of the client change with its version."""
ANSWER_PATIENCE = 120.0
"""A message to a task waits a minute for its effect."""
MOST_ANSWERED_BYTES = 200_000_000
"""Of an answer: a longer one is no server's of ours, or nothing that a program should hold at once."""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_LIKE = "like https://waystation.example.org, or the one that `waystation serve` printed"
_PROBLEM = TypeAdapter(dict[str, JsonValue])
_FOUND = TypeAdapter(tuple[MemoryMatchJson, ...])
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate[Client, _P], Coroutine[Any, Any, _R]]
_MethodT = TypeVar("_MethodT", bound=Callable[..., Coroutine[Any, Any, Any]])


class ClientCall(Generic[_P, _R]):
    """A method of `Client` that is asked for over HTTP."""

    def __init__(self, method: _Method[_P, _R], role: Permit, here: tuple[str, ...] = ()) -> None:
        """Arguments that are named `here` have a meaning on one machine alone, and are not sent."""
        hints = get_type_hints(method, include_extras=True)
        self.name, self.method = method.__name__, method
        self.role: Permit = role
        self._signature = inspect.signature(method)
        self.parameters = {
            name: TypeAdapter[object](hints[name]) for name in [*self._signature.parameters][1:] if name not in here
        }
        self.result = TypeAdapter[_R](hints["return"])
        self.signs = hints.get("by") == By
        """Whether it takes a name that was proved."""
        self.__doc__ = method.__doc__

    def __get__(self, client: "RemoteClient", owner: type["RemoteClient"]) -> Callable[_P, Awaitable[_R]]:
        """See `Client`."""

        async def asked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return client.valid(self.result, await client.ask(self.name, self.role, self._sent(args, kwargs)))

        return asked

    def _sent(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, JsonValue]:
        given = self._signature.bind(None, *args, **kwargs).arguments
        return {name: self._as_json(name, one, given[name]) for name, one in self.parameters.items() if name in given}

    def _as_json(self, name: str, kind: TypeAdapter[object], value: object) -> JsonValue:
        """Raises BadInput for what is nothing of that kind."""
        try:
            return kind.dump_python(kind.validate_python(value), mode="json")
        except ValidationError as error:
            faults = "; ".join(dict.fromkeys(fault.words for fault in extract_validation_faults(error)))
            raise BadInput(f"{self.name}: {name} cannot be used: {faults}") from None

    def written(self, result: _R) -> bytes:
        """As it goes to whoever asked."""
        return self.result.dump_json(result)

    def arguments(self, sent: Mapping[str, JsonValue]) -> dict[str, object]:
        """As the method takes them. Raises ValidationError; BadInput where one is missing, or is none of its."""
        if unknown := sorted(sent.keys() - self.parameters.keys()):
            raise BadInput(f"{self.name} takes {', '.join(self.parameters)}, and no {', '.join(unknown)}")
        try:
            self._signature.bind(None, **sent)
        except TypeError as missing:
            raise BadInput(f"{self.name}: {missing}") from None
        return {name: self.parameters[name].validate_json(json.dumps(value)) for name, value in sent.items()}


def make_http_method(method: _MethodT, role: Permit, here: tuple[str, ...] = ()) -> _MethodT:
    """The method as it is asked for over HTTP."""
    return cast("_MethodT", ClientCall(method, role, here))


class RemoteClient(Client):
    """One tenant's tasks, by the `waystation serve` that has them. Every method raises Unreachable where it does not
    answer, and BadInput where the token opens nothing, or not this.
    """

    watch_seconds = 2.0

    def __init__(self, address: str, token: str, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Raises BadInput for an address to which no token may be sent."""
        self.address, its_own = _address(address)
        token = its_own or token
        if not token:
            raise BadInput(f"WAYSTATION_TOKEN is missing: what opens {self.address}, an API key for example")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise BadInput("WAYSTATION_TOKEN is no token: those have letters, digits and a few signs, and no space")
        self._http = httpx2.AsyncClient(
            base_url=self.address,
            headers={"authorization": f"Bearer {token}", VERSION_HEADER: __version__},
            timeout=ANSWER_PATIENCE,
            transport=transport,
            # What the environment names as a proxy would read the token on its way to this very machine.
            trust_env=urlsplit(self.address).hostname not in _LOOPBACK,
        )

    @classmethod
    async def connect(cls, settings: Settings) -> Self:
        """By the settings. Nothing is asked yet. Raises BadInput."""
        return cls(settings.server or "", "" if settings.token is None else settings.token.get_secret_value())

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def ask(self, name: str, role: Permit, given: Mapping[str, JsonValue]) -> bytes:
        """What the server answers, as JSON."""
        return await self._answered(self._http.build_request("POST", f"{CALLED}{role}/{name}", json=given))

    def valid(self, kind: TypeAdapter[_R], answer: bytes) -> _R:
        """What was answered. Raises WaystationError where it is none of that."""
        try:
            return kind.validate_json(answer, extra="ignore")
        except ValidationError as error:
            told = f"{self.address} answers, but not as this version does: have the same on both sides"
            raise WaystationError(told) from error

    async def _answered(self, request: httpx2.Request) -> bytes:
        try:
            answer = await self._http.send(request, stream=True)
            async with aclosing(answer):
                content = await _content(self.address, answer)
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"{self.address} does not answer: {describe_connection_error(error)}. See that it is the address of "
                "a `waystation "
                "serve` that runs"
            ) from error
        if answer.status_code != HTTPStatus.OK or not _is_json(answer):
            raise _failure(self.address, answer, content)
        return content

    async def draft(self, task_id: str) -> Draft:
        """Refused: it is redacted on the spot, which takes hundreds of megabytes each time. Raises BadInput."""
        raise BadInput(
            f"a draft of {task_id} is made where its store is, without WAYSTATION_SERVER: `show` has its notes"
        )

    async def schedules(self) -> ScheduleClient:
        """Refused: schedules name files of the workers' machine. Raises BadInput."""
        raise BadInput(
            "schedules name files of the machine that the workers run on: `waystation schedule` is used there, without "
            "WAYSTATION_SERVER"
        )

    async def recall(self, wish: MemorySearchRequest) -> tuple[MemoryMatchJson, ...]:
        """What agents would recall, the best first."""
        asked = wish.model_dump(mode="json", exclude_none=True)
        content = await self._answered(self._http.build_request("GET", "/v1/memory", params=asked))
        return self.valid(_FOUND, content)

    unattended_queues = make_http_method(Client.unattended_queues, "read")
    resolve = make_http_method(Client.resolve, "read")
    progress = make_http_method(Client.progress, "read")
    last_known = make_http_method(Client.last_known, "read")
    tasks = make_http_method(Client.tasks, "read")
    events = make_http_method(Client.events, "read")
    newest_event = make_http_method(Client.newest_event, "read")
    is_over = make_http_method(Client.is_over, "read")
    report = make_http_method(Client.report, "read")
    reported = make_http_method(Client.reported, "read")
    report_text = make_http_method(Client.report_text, "read")
    with_origins = make_http_method(Client.with_origins, "read")
    with_stored = make_http_method(Client.with_stored, "read")
    bill = make_http_method(Client.bill, "read")
    payments = make_http_method(Client.payments, "read")
    spending = make_http_method(Client.spending, "read")
    sessions = make_http_method(Client.sessions, "read")
    transcript = make_http_method(Client.transcript, "read")
    audits = make_http_method(Client.audits, "read", here=("memory",))
    contexts = make_http_method(Client.contexts, "read")
    approvals = make_http_method(Client.approvals, "read")
    plan = make_http_method(Client.plan, "read")
    planned = make_http_method(Client.planned, "read")
    documents = make_http_method(Client.documents, "read")
    document_text = make_http_method(Client.document_text, "read")
    documents_of_session = make_http_method(Client.documents_of_session, "submit")
    prepare = make_http_method(Client.prepare, "submit")
    submit = make_http_method(Client.submit, "submit", here=("start_timeout",))
    fork = make_http_method(Client.fork, "submit")
    cancel = make_http_method(Client.cancel, "submit")
    tell = make_http_method(Client.tell, "submit")
    edit = make_http_method(Client.edit, "submit")
    give_documents = make_http_method(Client.give_documents, "submit")
    set_session_limit = make_http_method(Client.set_session_limit, "approve")
    review_plan = make_http_method(Client.review_plan, "approve")
    approve = make_http_method(Client.approve, "approve")
    deny = make_http_method(Client.deny, "approve")
    approve_together = make_http_method(Client.approve_together, "approve")
    deny_together = make_http_method(Client.deny_together, "approve")


CALLS: Mapping[str, ClientCall[Any, Any]] = {
    name: cast("ClientCall[Any, Any]", one) for name, one in vars(RemoteClient).items() if isinstance(one, ClientCall)
}
"""By the method's name."""


def _address(written: str) -> tuple[str, str]:
    """The server's, and the token that an address has which `waystation serve` printed. Raises BadInput."""
    try:
        parts = urlsplit(written.strip())
        port = parts.port
    except ValueError:
        raise BadInput(f"WAYSTATION_SERVER is no address: give one {_LIKE}") from None
    host = parts.hostname or ""
    odd = any(not label for label in host.split(".")) or any(sign.isspace() for sign in host) or port == 0
    if parts.scheme not in {"http", "https"} or odd or parts.username is not None or parts.path not in {"", "/"}:
        raise BadInput(f"WAYSTATION_SERVER is no address: give one {_LIKE}")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise BadInput(f"WAYSTATION_SERVER is http: to {host} the token would go in plain text; give https://{host}")
    name = f"[{host}]" if ":" in host else host
    token = parse_qs(parts.query).get("token", [""])[0]
    return f"{parts.scheme}://{name}{'' if port is None else f':{port}'}", token


async def _content(address: str, answer: httpx2.Response) -> bytes:
    """Unpacked. Raises WaystationError for more than any answer of ours has."""
    content = bytearray()
    async for part in answer.aiter_bytes():
        content += part
        if len(content) > MOST_ANSWERED_BYTES:
            raise WaystationError(
                f"{address} answers with more than {MOST_ANSWERED_BYTES // 1_000_000} MB, which was not read to its "
                "end: ask for less, one agent's transcript for example, or see what stands there"
            )
    return bytes(content)


def _is_json(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type", "").partition(";")[0] == "application/json"


def _failure(address: str, answer: httpx2.Response, content: bytes) -> WaystationError:
    """What was refused, or went wrong there; an answer of anybody in between is none of these."""
    try:
        problem = _PROBLEM.validate_json(content, extra="ignore")
    except ValidationError:
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        return Unreachable(f"{address} answers, but not as `waystation serve` does ({status}): see what stands there")
    detail = plain(str(problem.get("detail") or f"it says no more than {answer.status_code}"))
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED:
            return BadInput(f"{address} does not take WAYSTATION_TOKEN: it is mistyped, of another run, or revoked")
        case HTTPStatus.NOT_FOUND:
            return UnknownTask(detail)
        case HTTPStatus.CONFLICT:
            return RequestConflict(detail)
        case HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.TOO_MANY_REQUESTS:
            return Unreachable(f"{address}: {detail}")
        case status if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return BadInput(detail)
        case _:
            return WaystationError(f"{address}: {detail}")
