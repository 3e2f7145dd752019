"""The web application: routes, translation of errors into problem responses, MCP over HTTP and stdio, and the server on
this machine's loopback address.
"""

import asyncio
import fcntl
import json
import logging
import os
import sys
import traceback
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from socket import socket
from typing import Any, NamedTuple, TextIO

import uvicorn
from anyio import AsyncFile, BrokenResourceError, ClosedResourceError, wrap_file
from anyio.streams.memory import MemoryObjectSendStream
from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import JsonValue, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, from_json
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from waystation import __version__
from waystation.client import Client
from waystation.kernel.errors import (
    BadInput,
    Busy,
    MemoryUnavailable,
    RequestConflict,
    StoreUnavailable,
    TextNotFoundError,
    UnknownTask,
    Unreachable,
    WaystationError,
)
from waystation.memory.passages import MemoryExcerpt, MemoryQuery
from waystation.plugins.web.access import (
    ASSISTANTS,
    MAX_BODY_BYTES,
    AccessGuard,
    AccessPolicy,
    build_problem_response,
    describe_unknown_outcome,
)
from waystation.plugins.web.event_feed import EventFeed
from waystation.plugins.web.principals import AssistantPolicy, Authenticator, build_local_sign_in_url, generate_token
from waystation.plugins.web.report_exports import ReportExporter
from waystation.plugins.web.request_bodies import format_body_fault, format_faults
from waystation.plugins.web.request_timeouts import RequestTimeoutProtocol
from waystation.plugins.web.uploads import UploadReadingState
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.report_links import SharedReport
from waystation.workers.memory import MemoryReader

SECONDS_TO_END = 2
"""Seconds after which event listeners are disconnected at shutdown."""
CONNECTIONS_AT_ONCE = 900
"""Maximum connections, including event listeners.

Further clients are asked to retry: a process has some thousand file descriptors at most.
"""
ASSISTANTS_AT_ONCE, ASSISTANT_IDLE_SECONDS = 100, 600
"""Maximum sessions at /mcp, and seconds after which an idle one ends: its client then starts another."""
MIN_COMPRESSED_BYTES, PACKING_LEVEL = 2_000, 5
NO_GUARD = TransportSecuritySettings(enable_dns_rebinding_protection=False)


class SiteConfig(NamedTuple):
    """What is served: routes for programs and for people, static files, and the rendering of errors as pages."""

    api: APIRouter
    pages: APIRouter
    files: Path
    render_error: Callable[[Request, int, str, str], Response]
    assistants: MCPServer[Any] | None = None
    """MCP server at /mcp."""


class TenantRegistry:
    """Clients by tenant, opened on a tenant's first request, and their event feeds."""

    def __init__(self, client: Client, tenant: str, deps: "ServerDeps") -> None:
        self._clients = {tenant: client}
        self._feeds = {tenant: EventFeed(client)}
        self._opener = deps.opener
        self._memory = deps.memory
        self._own = tenant
        self._opening = asyncio.Lock()

    async def get_client(self, tenant: str) -> Client:
        """Return that tenant's client.

        Raises as opening a store does; BadInput if this server serves its own tenant only.
        """
        async with self._opening:
            if tenant not in self._clients:
                if self._opener is None:
                    raise BadInput(f"this server serves only the tenant {self._own!r}")
                self._clients[tenant] = client = await self._opener(tenant)
                self._feeds[tenant] = EventFeed(client)
            return self._clients[tenant]

    async def get_feed(self, tenant: str) -> EventFeed:
        """Return that tenant's event feed. Raises as `get_client` does."""
        await self.get_client(tenant)
        return self._feeds[tenant]

    async def open_report_link(self, address: str) -> SharedReport | None:
        """Return what the address of a link opens, of whatever tenant; None if it opens nothing."""
        return await self._clients[self._own].open_report_link(address)

    async def search_memory(self, query: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        """Search memory as agents do. Raises as `MemoryReader.search` does."""
        return () if self._memory is None else await self._memory.search(query, tokens)

    async def aclose(self) -> None:
        """Close the clients that were opened here."""
        for tenant, client in self._clients.items():
            if tenant != self._own:
                await client.aclose()


class ServerDeps(NamedTuple):
    """Whom the server admits, and how it reaches their data."""

    access: AccessPolicy
    identities: Authenticator | None = None
    opener: Callable[[str], Awaitable[Client]] | None = None
    memory: MemoryReader | None = None
    """None: there is no memory here."""
    folders: AssistantPolicy | None = None
    """Policy whose roots people with a key may name in schedules; None: no folder."""


def create_app(site: SiteConfig, client: Client, tenant: str, deps: ServerDeps) -> ASGIApp:
    """Create the whole application, behind its guard."""
    tenants = TenantRegistry(client, tenant, deps)

    @asynccontextmanager
    async def lasting(_: FastAPI) -> AsyncGenerator[None]:
        async with AsyncExitStack() as stack:
            stack.push_async_callback(tenants.aclose)
            if site.assistants is not None:
                await stack.enter_async_context(site.assistants.session_manager.run())
            yield

    signs_in = deps.access.replace(tenant=tenant)
    app = FastAPI(
        title="Waystation",
        version=__version__,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lasting,
    )
    app.state.tenants, app.state.access, app.state.reports = tenants, signs_in, ReportExporter()
    app.state.uploads, app.state.folders = UploadReadingState(), deps.folders
    app.include_router(site.api)
    app.include_router(site.pages)
    app.mount("/static", StaticFiles(directory=site.files))
    app.router.routes.extend(_for_assistants(site.assistants))

    # Event streams are not compressed.
    app.add_middleware(GZipMiddleware, minimum_size=MIN_COMPRESSED_BYTES, compresslevel=PACKING_LEVEL)
    _tell_errors(app, site)
    return AccessGuard(app, signs_in, deps.identities, site.render_error)


def _tell_errors(app: FastAPI, site: SiteConfig) -> None:
    async def told(request: Request, error: Exception) -> Response:
        """Return the error as a problem, or as a page if a page was requested."""
        problem = convert_exception_to_problem(error)
        if isinstance(error, Unreachable) and not isinstance(error, Busy):
            status, title, detail = problem
            left_open = "" if "unknown whether" in detail else describe_unknown_outcome(request)
            problem = status, title, "; ".join(filter(None, (detail, left_open)))
        if request.url.path.startswith("/v1/"):
            return build_problem_response(*problem)
        if problem[1] == NOT_FOUND and not isinstance(error, WaystationError):
            problem = problem[0], NOT_FOUND, NO_SUCH_PAGE
        return site.render_error(request, *problem)

    async def broken(request: Request, error: Exception) -> Response:
        """Return an unforeseen error the same way: the server closes the connection after it, so the response has to
        say so.
        """
        response = await told(request, error)
        response.headers["Connection"] = "close"
        return response

    app.add_exception_handler(WaystationError, told)
    app.add_exception_handler(RequestValidationError, told)
    app.add_exception_handler(ValidationError, told)
    app.add_exception_handler(HTTPException, told)
    app.add_exception_handler(Exception, broken)


def _for_assistants(assistants: MCPServer[Any] | None) -> list[BaseRoute]:
    """Mount the MCP server. Its own guard against other sites ignores ports; ours runs before it."""
    if assistants is None:
        return []
    routes = assistants.streamable_http_app(
        streamable_http_path=ASSISTANTS,
        max_request_body_size=MAX_BODY_BYTES,
        transport_security=NO_GUARD,
        session_idle_timeout=ASSISTANT_IDLE_SECONDS,
        max_sessions=ASSISTANTS_AT_ONCE,
    ).routes
    for route in routes:
        assert isinstance(route, Route)
        route.app = JsonRpcValidationMiddleware(route.app)
    return routes


class JsonRpcValidationMiddleware:
    """Middleware before the SDK's application: answers batches, and messages that the SDK would take for notifications
    although their sender waits for an answer.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an ASGI request. Raises as `receive` does."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        received: list[Message] = []
        while not received or received[-1].get("more_body", False):
            received.append(await receive())
        why = _refused_body(b"".join(part.get("body", b"") for part in received))
        if why:
            body = _invalid_request(why).model_dump_json(by_alias=True, exclude_unset=True)
            await Response(body, 400, media_type="application/json")(scope, receive, send)
            return
        left = iter(received)

        async def again() -> Message:
            part = next(left, None)
            return await receive() if part is None else part

        await self._app(scope, again, send)


UNUSABLE_ID = (
    "the id of a request must be a string or a whole number: correct it, or leave it out if you want no answer"
)
BATCH = "batches (arrays of messages) are not supported: send each message separately"


def _refused_body(body: bytes) -> str:
    """Return why the body is refused; empty if the SDK can handle it."""
    try:
        said = from_json(body)
    except ValueError:
        return ""
    if isinstance(said, list):
        return BATCH
    return UNUSABLE_ID if _has_unusable_id(said) else ""


def _has_unusable_id(said: JsonValue) -> bool:
    """Return whether it is a request with an id that the protocol does not allow: the SDK takes it for a
    notification.
    """
    match said:
        case {"method": _, "id": number}:
            return isinstance(number, bool) or not isinstance(number, int | str)
        case _:
            return False


def _invalid_request(why: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INVALID_REQUEST, message=why))


def convert_exception_to_problem(error: Exception) -> tuple[int, str, str]:
    """Return status, title and detail of the response for an error."""
    match error:
        case HTTPException():
            return _refusal(error.status_code, str(error.detail))
        case RequestValidationError() | ValidationError():
            return _faults(error)
        case UnknownTask() | TextNotFoundError():
            return 404, NOT_FOUND, _line(error)
        case RequestConflict():
            return 409, "Conflict", _line(error)
        case BadInput():
            return 400, "Cannot be used", _line(error)
        case Unreachable() | StoreUnavailable() | MemoryUnavailable():
            return 503, "Not reachable", _line(error)
        case WaystationError():
            return 500, "Failed", _line(error)
        case _:
            # Its message may quote documents, or whatever else it failed at.
            why = "an unexpected error occurred: the terminal of the server shows it"
            return 500, "Failed", why


NOT_FOUND = "Not found"
NO_SUCH_PAGE = "this site has no page at this address. The address may be incomplete, or the page no longer exists."
"""What a person reads at an address that leads nowhere."""
_UNPARSED = "There was an error parsing the body"
"""The framework's message for an unparsable body."""


def _refusal(status: int, why: str) -> tuple[int, str, str]:
    """Describe a refusal by a route, or a missing route, about which the framework says nothing else."""
    if why == _UNPARSED:
        return status, "Refused", "the body is not readable JSON: it is incomplete, not in UTF-8, or nested too deeply"
    if why != HTTPStatus(status).phrase:
        return status, "Refused", why
    missing = "no such method" if status == HTTPStatus.METHOD_NOT_ALLOWED else "nothing"
    return status, NOT_FOUND, f"there is {missing} at this address: /v1/openapi.json lists all addresses and methods"


def _faults(error: RequestValidationError | ValidationError) -> tuple[int, str, str]:
    """Describe validation errors by place, without the given values. An invalid task id is an unknown task."""
    faults = [
        (tuple(map(str, fault["loc"])), format_body_fault(str(fault["type"]), str(fault["msg"]), fault["loc"]))
        for fault in error.errors()
    ]
    if any(place[:1] == ("path",) for place, _ in faults):
        return 404, NOT_FOUND, "there is nothing at this address"
    return 422, "Cannot be used", format_faults(faults)


def _line(error: Exception) -> str:
    return replace_control_characters(" ".join(str(error).split()))


class RedactingFormatter(logging.Formatter):
    """Formats errors by their type and the code that raised them: a message may quote stored data."""

    def formatException(self, ei: Any) -> str:
        """See base class."""
        kind, _, trace = ei
        return f"{''.join(traceback.format_tb(trace))}{kind.__name__}"


LOGS = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"brief": {"()": RedactingFormatter, "format": "%(levelname)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "brief"}},
    "loggers": {"uvicorn": {"handlers": ["stderr"], "propagate": False}},
}
"""Logging configuration of the server."""


class _Terse(logging.Formatter):
    """Formats records with the type of an error only: messages and arguments may quote conversations."""

    def format(self, record: logging.LogRecord) -> str:
        """See base class."""
        kind = f" ({record.exc_info[0].__name__})" if record.exc_info and record.exc_info[0] else ""
        return f"waystation mcp: {record.msg}{kind}"


def configure_mcp_logging() -> None:
    """Send the MCP SDK's logs to the terminal without their contents; no other logging is set up for it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Terse())
    logs = logging.getLogger("mcp")
    logs.handlers, logs.propagate = [handler], False
    logs.setLevel(logging.WARNING)
    if not logging.root.handlers and logging.lastResort is not None:
        # Otherwise the SDK would configure all logging of this process.
        logging.root.addHandler(logging.lastResort)


@contextmanager
def open_exclusive_stdin() -> Generator[AsyncFile[str]]:
    """Open the standard input for MCP: nothing else in this process, and no child, reads from it meanwhile.

    As in the SDK's `stdio_server`, which however parses what it reads before anyone else could see it.
    """
    own, nothing = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, 3), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        # Never closed: a thread may still be waiting for a line when this process ends.
        lines: TextIO = os.fdopen(own, encoding="utf-8", errors="replace", closefd=False)
        yield wrap_file(lines)
    finally:
        os.dup2(own, 0)


async def parse_session_messages(lines: AsyncIterable[str]) -> AsyncGenerator[SessionMessage | Exception]:
    """Yield the message of each line, or why it is none: `ValidationError`, or `UnusableId`."""
    async for line in lines:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError as error:
            yield error
            continue
        if isinstance(message, JSONRPCNotification) and _has_unusable_id(from_json(line)):
            yield UnusableId()
        else:
            yield SessionMessage(message)


class UnusableId(ValueError):
    """A request has an id that no answer can have."""


Sends = Callable[[SessionMessage], Awaitable[None]]


async def forward_messages(
    lines: AsyncIterable[SessionMessage | Exception],
    heard: MemoryObjectSendStream[SessionMessage | Exception],
    to: Sends,
) -> None:
    """Forward messages from the standard input until it ends; a line that is no message is answered."""
    with suppress(BrokenResourceError, ClosedResourceError):
        async with heard:
            async for item in lines:
                match item:
                    case ValidationError():
                        refusal = build_invalid_line_response(item)
                    case UnusableId():
                        refusal = InvalidLineResponse(_invalid_request(UNUSABLE_ID), to_client=True)
                    case _:
                        refusal = None
                if refusal is None:
                    await heard.send(item)
                else:
                    await (to if refusal.to_client else heard.send)(SessionMessage(refusal.error))


class InvalidLineResponse(NamedTuple):
    """The response to a line that is no message."""

    error: JSONRPCError
    to_client: bool
    """False: it was an answer to us, so the caller that waits for it here learns that it cannot be read."""


def build_invalid_line_response(fault: ValidationError) -> InvalidLineResponse | None:
    """Build the error, with the line's id if it has one.

    None if no one waits: the line is blank, or asks for no answer.
    """
    faults = fault.errors(include_url=False, include_context=False)
    line = faults[0]["input"] if faults[0]["type"] == "json_invalid" else None
    if line is not None and not line.strip():
        return None
    said = _members(faults, line)
    if "method" in said and "id" not in said:
        return None
    why = "JSON-RPC 2.0 has no such message" if line is None else faults[0]["msg"]
    error = ErrorData(
        code=INVALID_REQUEST if line is None else PARSE_ERROR,
        message=f"this line is not a message ({why}): send each message as one line of JSON, without unpaired "
        "surrogates",
    )
    number = _sendable(said.get("id"))
    answers = number is not None and "method" not in said and not said.keys().isdisjoint({"result", "error"})
    return InvalidLineResponse(JSONRPCError(jsonrpc="2.0", id=number, error=error), to_client=not answers)


_OBJECT = TypeAdapter(dict[str, Any])
_OF_THE_WHOLE = 2
"""Length of a validation error's location within the message: the kind of message, and the name."""


def _members(faults: Sequence[ErrorDetails], line: str | None) -> Mapping[str, Any]:
    """Return the members of what was sent, if it is an object; for a line, with a parser that accepts more than the
    protocol's.
    """
    lacking = (one["input"] for one in faults if one["type"] == "missing" and len(one["loc"]) == _OF_THE_WHOLE)
    try:
        return _OBJECT.validate_python(next(lacking, None) if line is None else json.loads(line))
    except (ValueError, RecursionError):
        return {}


def _sendable(number: object) -> int | str | None:
    """Return the id of a message if an answer can have it."""
    if isinstance(number, str):
        return number if number == number.encode(errors="ignore").decode() else None
    return number if isinstance(number, int) and not isinstance(number, bool) else None


class SiteServer(uvicorn.Server):
    """A server without signal handlers of its own: it ends when its task is cancelled."""

    def __init__(self, app: ASGIApp, at_once: int = CONNECTIONS_AT_ONCE) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                # Addresses of this run contain its token.
                access_log=False,
                log_level="warning",
                log_config=LOGS,
                server_header=False,
                # There is no proxy in front, so no forwarded headers are trusted; and nothing here uses WebSocket.
                proxy_headers=False,
                ws="none",
                timeout_graceful_shutdown=SECONDS_TO_END,
                limit_concurrency=at_once,
                http=RequestTimeoutProtocol,
            )
        )

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Install none: the process has its own."""
        yield

    async def serve_until_cancelled(self, listener: socket) -> None:
        """Serve on this listener. At the end, requests in progress get a moment to finish."""
        serving = asyncio.create_task(self.serve(sockets=[listener]))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            self.should_exit = True
            await serving


def create_access_policy(port: int, names: tuple[str, ...] = ()) -> AccessPolicy:
    """Create the policy of one run of the server, with a new token."""
    return AccessPolicy(token=generate_token(), port=port, names=names)


def get_sign_in_url(access: AccessPolicy) -> str:
    """Return the address at which a person signs in."""
    if access.names:
        return f"https://{access.names[0]}/"
    return build_local_sign_in_url(access.port, access.token)


def format_assistant_endpoint(access: AccessPolicy) -> str:
    """Format the address and the header that an assistant needs."""
    return f"http://127.0.0.1:{access.port}{ASSISTANTS} Authorization: Bearer {access.assistants_token}"
