"""The client of a program that has a token of `waystation serve`, but neither its Temporal server nor its store.

The class lists the remote methods, each with the role that it needs: one row gives a method of `Client` to both sides.
Arguments and results travel as JSON, and both sides validate them by the annotations of that method.
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
from waystation.client.agent_contexts import MemoryMatchJson, MemorySearchRequest
from waystation.client.client import Client
from waystation.client.file_previews import FilePreviews
from waystation.client.schedules import ScheduleClient
from waystation.client.submission import DocumentUpdateAnswer, ForkRequest
from waystation.config.settings import Settings
from waystation.documents.document_loading import DocumentLoadResult
from waystation.kernel.client_permissions import ClientPermission
from waystation.kernel.errors import BadInput, RequestConflict, UnknownTask, Unreachable, WaystationError
from waystation.kernel.network import describe_connection_error
from waystation.kernel.text import format_count
from waystation.kernel.value import extract_validation_faults
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.activity import ActivityFilter, ActivityView
from waystation.tasks.approvals import AnswerAuthor
from waystation.tasks.signals import InputT, TaskSignalDefinition, UpdateResult
from waystation.tasks.view import ReportView

CALL_PATH_PREFIX = "/v1/client/"
"""Path prefix of the remote methods, which are at ROLE/METHOD."""
MESSAGE_PATH = "messages/"
"""Prefix of the names of messages to a task, which are at ROLE/messages/NAME."""
VERSION_HEADER = "waystation-version"
"""Header with the client's version: its values change with the version."""
ANSWER_TIMEOUT = 120.0
"""Seconds. A message to a task waits up to a minute for its effect."""
MAX_ANSWER_BYTES = 200_000_000
"""Maximum size of an answer in bytes: a longer one is not from our server, or too much for a program to hold at
once.
"""
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_LIKE = "like https://waystation.example.org, or the link that `waystation serve` printed"
_LAZY_TYPES: dict[str, Any] = {
    one.__name__: one
    for one in (ActivityFilter, ActivityView, DocumentLoadResult, DocumentUpdateAnswer, FilePreviews, ForkRequest)
}
"""Types in annotations of `Client` that its module does not load at run time."""
_PROBLEM = TypeAdapter(dict[str, JsonValue])
_FOUND = TypeAdapter(tuple[MemoryMatchJson, ...])
_RESULT = TypeAdapter(UpdateResult)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_Method = Callable[Concatenate[Client, _P], Coroutine[Any, Any, _R]]
_MethodT = TypeVar("_MethodT", bound=Callable[..., Coroutine[Any, Any, Any]])


class RemoteMethod(Generic[_P, _R]):
    """A method of `Client` that is called over HTTP."""

    def __init__(self, method: _Method[_P, _R], role: ClientPermission, here: tuple[str, ...] = ()) -> None:
        """Describe the method. Arguments named in `here` are meaningful on one machine only, and are not sent."""
        hints = get_type_hints(method, localns=_LAZY_TYPES, include_extras=True)
        self.name, self.method = method.__name__, method
        self.role: ClientPermission = role
        self._signature = inspect.signature(method)
        self.parameters = {
            name: TypeAdapter[object](hints[name]) for name in [*self._signature.parameters][1:] if name not in here
        }
        self.result = TypeAdapter[_R](hints["return"])
        self.signs = hints.get("by") == AnswerAuthor
        """Whether it takes the authenticated name of the caller."""
        self.__doc__ = method.__doc__

    def __get__(self, client: "RemoteClient", owner: type["RemoteClient"]) -> Callable[_P, Awaitable[_R]]:
        """See `Client`."""

        async def asked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            return client.parse_answer(
                self.result, await client.call_method(self.name, self.role, self._sent(args, kwargs))
            )

        return asked

    def _sent(self, args: tuple[object, ...], kwargs: Mapping[str, object]) -> dict[str, JsonValue]:
        given = self._signature.bind(None, *args, **kwargs).arguments
        return {name: self._as_json(name, one, given[name]) for name, one in self.parameters.items() if name in given}

    def _as_json(self, name: str, kind: TypeAdapter[object], value: object) -> JsonValue:
        """Serialise an argument. Raises BadInput if the value is not of that type."""
        try:
            return kind.dump_python(kind.validate_python(value), mode="json")
        except ValidationError as error:
            faults = "; ".join(dict.fromkeys(fault.words for fault in extract_validation_faults(error)))
            raise BadInput(f"{self.name}: argument {name} cannot be used: {faults}") from None

    def serialize_result(self, result: _R) -> bytes:
        """Serialise the result as it is sent to the caller."""
        return self.result.dump_json(result)

    def parse_arguments(self, sent: Mapping[str, JsonValue]) -> dict[str, object]:
        """Parse arguments for the method. Raises ValidationError; BadInput if one is missing or unknown."""
        if unknown := sorted(sent.keys() - self.parameters.keys()):
            raise BadInput(f"{self.name} has no parameter {', '.join(unknown)}; it has {', '.join(self.parameters)}")
        try:
            self._signature.bind(None, **sent)
        except TypeError as missing:
            raise BadInput(f"{self.name}: {missing}") from None
        return {name: self.parameters[name].validate_json(json.dumps(value)) for name, value in sent.items()}


def make_http_method(method: _MethodT, role: ClientPermission, here: tuple[str, ...] = ()) -> _MethodT:
    """Return the method as one that is called over HTTP."""
    return cast("_MethodT", RemoteMethod(method, role, here))


class RemoteClient(Client):
    """The tasks of one tenant, through its `waystation serve`.

    Every method raises Unreachable if the server does not answer, and BadInput if the token is invalid or lacks the
    permission.
    """

    watch_seconds = 2.0

    def __init__(self, address: str, token: str, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        """Prepare the client. Raises BadInput for an address to which no token may be sent."""
        self.address, its_own = _address(address)
        token = its_own or token
        if not token:
            raise BadInput(f"WAYSTATION_TOKEN is missing: set it to a token for {self.address}, such as an API key")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise BadInput(
                f"the token for {self.address} is not valid: a token has only printable ASCII characters, and no spaces"
            )
        self._http = httpx2.AsyncClient(
            base_url=self.address,
            headers={"authorization": f"Bearer {token}", VERSION_HEADER: __version__},
            timeout=ANSWER_TIMEOUT,
            transport=transport,
            # A proxy named in the environment would read the token on its way to this machine.
            trust_env=urlsplit(self.address).hostname not in _LOOPBACK,
        )

    @classmethod
    async def connect(cls, settings: Settings) -> Self:
        """Build the client from the settings. Sends no request yet. Raises BadInput."""
        return cls(settings.server or "", "" if settings.token is None else settings.token.get_secret_value())

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def call_method(self, name: str, role: ClientPermission, given: Mapping[str, JsonValue]) -> bytes:
        """Call a method and return the server's answer, as JSON."""
        return await self._answered(self._http.build_request("POST", f"{CALL_PATH_PREFIX}{role}/{name}", json=given))

    def parse_answer(self, kind: TypeAdapter[_R], answer: bytes) -> _R:
        """Parse an answer. Raises WaystationError if it is not of that type."""
        try:
            return kind.validate_json(answer, extra="ignore")
        except ValidationError as error:
            told = (
                f"{self.address} answers in a form that this version does not know: use the same version of "
                "Waystation on both sides"
            )
            raise WaystationError(told) from error

    async def _answered(self, request: httpx2.Request) -> bytes:
        try:
            answer = await self._http.send(request, stream=True)
            async with aclosing(answer):
                content = await _content(self.address, answer)
        except httpx2.HTTPError as error:
            raise Unreachable(
                f"{self.address} does not answer: {describe_connection_error(error)}. Check that it is the "
                "address of a running `waystation serve`"
            ) from error
        if answer.status_code != HTTPStatus.OK or not _is_json(answer):
            raise _failure(self.address, answer, content)
        return content

    async def build_draft(self, task_id: str) -> ReportView:
        """Not available: a draft is redacted on the spot, which takes hundreds of megabytes each time.

        Raises BadInput.
        """
        raise BadInput(
            f"a draft of {task_id} is not available through WAYSTATION_SERVER: unset WAYSTATION_SERVER and run the "
            f"command on the machine that has the store. `waystation show {task_id}` shows the progress"
        )

    async def redact_file_previews(self, found: FilePreviews) -> FilePreviews:
        """Not available: the server replaces private values of files that are sent to `/v1/documents/read`.

        Raises BadInput.
        """
        raise BadInput(
            f"private values of {format_count(len(found.documents), 'document')} cannot be replaced through "
            "WAYSTATION_SERVER: send "
            "the files to /v1/documents/read?redacted=true, or use `waystation read --redacted`"
        )

    async def get_schedule_client(self) -> ScheduleClient:
        """Not available: schedules name files on the workers' machine. Raises BadInput."""
        raise BadInput(
            "a schedule reads files on the workers' machine: run `waystation schedule` there, without WAYSTATION_SERVER"
        )

    async def send(self, task_id: str, signal: TaskSignalDefinition[InputT], message: InputT) -> UpdateResult:
        """See `Client`: every row with a permission can be sent. Raises BadInput for another one."""
        if signal.permission is None:
            raise BadInput(
                f"{signal.name} cannot be sent with `send`: use the client's own method for this message, which stores "
                "its text first"
            )
        given = {"task_id": task_id, "message": message.model_dump(mode="json", exclude_defaults=True)}
        content = await self.call_method(f"{MESSAGE_PATH}{signal.name}", signal.permission, given)
        return self.parse_answer(_RESULT, content)

    async def search_memory(self, search: MemorySearchRequest) -> tuple[MemoryMatchJson, ...]:
        """Search memory as agents do; best matches first."""
        asked = search.model_dump(mode="json", exclude_none=True)
        content = await self._answered(self._http.build_request("GET", "/v1/memory", params=asked))
        return self.parse_answer(_FOUND, content)

    list_unattended_queues = make_http_method(Client.list_unattended_queues, "read")
    resolve_task_id = make_http_method(Client.resolve_task_id, "read")
    get_task = make_http_method(Client.get_task, "read")
    get_last_known_task = make_http_method(Client.get_last_known_task, "read")
    list_tasks = make_http_method(Client.list_tasks, "read")
    list_events = make_http_method(Client.list_events, "read")
    get_newest_event_number = make_http_method(Client.get_newest_event_number, "read")
    is_over = make_http_method(Client.is_over, "read")
    get_report = make_http_method(Client.get_report, "read")
    load_report = make_http_method(Client.load_report, "read")
    get_bill = make_http_method(Client.get_bill, "read")
    count_temporal_actions = make_http_method(Client.count_temporal_actions, "read")
    get_payments = make_http_method(Client.get_payments, "read")
    get_spending = make_http_method(Client.get_spending, "read")
    list_sessions = make_http_method(Client.list_sessions, "read")
    get_transcript = make_http_method(Client.get_transcript, "read")
    audit_compactions = make_http_method(Client.audit_compactions, "read", here=("memory",))
    get_activity = make_http_method(Client.get_activity, "read", here=("events",))
    list_agent_contexts = make_http_method(Client.list_agent_contexts, "read")
    list_approvals = make_http_method(Client.list_approvals, "read")
    get_plan = make_http_method(Client.get_plan, "read")
    get_planned_task = make_http_method(Client.get_planned_task, "read")
    list_documents = make_http_method(Client.list_documents, "read")
    get_document_text = make_http_method(Client.get_document_text, "read")
    get_session_documents = make_http_method(Client.get_session_documents, "submit")
    prepare_task = make_http_method(Client.prepare_task, "submit")
    submit = make_http_method(Client.submit, "submit", here=("start_timeout",))
    fork = make_http_method(Client.fork, "submit")
    cancel = make_http_method(Client.cancel, "submit")
    send_message = make_http_method(Client.send_message, "submit")
    edit_context = make_http_method(Client.edit_context, "submit")
    apply_loaded_documents = make_http_method(Client.apply_loaded_documents, "submit")
    set_session_limit = make_http_method(Client.set_session_limit, "approve")
    review_plan = make_http_method(Client.review_plan, "approve")


REMOTE_METHODS: Mapping[str, RemoteMethod[Any, Any]] = {
    name: cast("RemoteMethod[Any, Any]", one)
    for name, one in vars(RemoteClient).items()
    if isinstance(one, RemoteMethod)
}
"""Remote methods by name."""


def _address(written: str) -> tuple[str, str]:
    """Split an address as `waystation serve` prints it into the server's address and the token. Raises BadInput."""
    try:
        parts = urlsplit(written.strip())
        port = parts.port
    except ValueError:
        raise BadInput(f"WAYSTATION_SERVER is not the address of a server: give one {_LIKE}") from None
    host = parts.hostname or ""
    odd = any(not label for label in host.split(".")) or any(sign.isspace() for sign in host) or port == 0
    if parts.scheme not in {"http", "https"} or odd or parts.username is not None or parts.path not in {"", "/"}:
        raise BadInput(f"WAYSTATION_SERVER is not the address of a server: give one {_LIKE}")
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise BadInput(f"WAYSTATION_SERVER would send the token to {host} in plain text: use https://{host}")
    name = f"[{host}]" if ":" in host else host
    token = parse_qs(parts.query).get("token", [""])[0]
    return f"{parts.scheme}://{name}{'' if port is None else f':{port}'}", token


async def _content(address: str, answer: httpx2.Response) -> bytes:
    """Read and decompress an answer. Raises WaystationError if it is larger than any answer of ours."""
    content = bytearray()
    async for part in answer.aiter_bytes():
        content += part
        if len(content) > MAX_ANSWER_BYTES:
            raise WaystationError(
                f"{address} answers with more than {MAX_ANSWER_BYTES // 1_000_000} MB, and the rest was not "
                "read. Ask for less, for example one agent's transcript, or check which server has that "
                "address"
            )
    return bytes(content)


def _is_json(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type", "").partition(";")[0] == "application/json"


def _failure(address: str, answer: httpx2.Response, content: bytes) -> WaystationError:
    """Translate an error answer into ours; an answer of a proxy in between is neither a refusal nor a failure of our
    server.
    """
    try:
        problem = _PROBLEM.validate_json(content, extra="ignore")
    except ValidationError:
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        return Unreachable(
            f"{address} answers, but not as `waystation serve` does ({status}): check which server has that address"
        )
    detail = replace_control_characters(
        str(problem.get("detail") or f"status {answer.status_code} without an explanation")
    )
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED:
            return BadInput(
                f"{address} rejects your token: it is mistyped, revoked, or from an earlier start of the server. Set "
                "WAYSTATION_TOKEN to a valid token, or WAYSTATION_SERVER to the link that the server printed last"
            )
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
