"""`/v1`: tasks, reports, requests and sessions over HTTP, in the JSON of `--json`."""

import secrets
from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
from pydantic import Field, JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from waystation import __version__
from waystation.client import Client
from waystation.client.agent_contexts import MemoryMatchJson, MemorySearchRequest
from waystation.client.exports import load_report
from waystation.client.remote import MESSAGE_PATH, REMOTE_METHODS, VERSION_HEADER
from waystation.context.audit import AnnotatedTranscript, build_transcript_view
from waystation.context.history import build_model_view
from waystation.documents.documents import Document
from waystation.kernel.client_permissions import ClientPermission
from waystation.kernel.clock import utc_now
from waystation.kernel.value import UtcMoment, Value
from waystation.memory.passages import MemoryExcerpt
from waystation.plugins.web.access import PROBLEM, CurrentPrincipal, ProblemDetails
from waystation.plugins.web.event_feed import EVENT_STREAM, EventFeed
from waystation.plugins.web.principals import Principal
from waystation.plugins.web.report_exports import FILES, Exporter, ReportForm
from waystation.plugins.web.request_bodies import (
    Denial,
    Grant,
    NewEdit,
    NewFork,
    NewMessage,
    NewTask,
    RequestKey,
    SentMessage,
    SessionLimit,
    TaskPath,
    TenantClient,
    TenantServiceProvider,
    cancel_task,
    deny_task_request,
    edit_agent_context,
    fork_task,
    grant_task_request,
    invoke_client_method,
    raise_if_refused,
    send_client_message,
    set_session_limit,
    submit_new_task,
)
from waystation.security.untrusted import replace_control_characters
from waystation.tasks.progress import CostBreakdown, DayRange, SessionSummary, SpendingReport
from waystation.tasks.signals import SIGNALS, AnswerResult, UpdateResult
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import (
    AgentCompactionAudits,
    AgentMessagesView,
    CancelResult,
    PendingApproval,
    ReportView,
    SessionLimitView,
    SubmittedTask,
    TaskFilter,
    TaskView,
)

MAX_PAGE_SIZE = 100
LAST_NUMBER = 10**15 - 1


async def get_tenant_feed(request: Request, principal: CurrentPrincipal) -> EventFeed:
    """Return the event feed that all listeners of the tenant share."""
    tenants: TenantServiceProvider = request.app.state.tenants
    return await tenants.get_feed(principal.tenant)


def resolve_start_after(
    after: Annotated[int | None, Query(ge=0, le=LAST_NUMBER, description="Events behind this number.")] = None,
    last_event_id: Annotated[str | None, Header(pattern="^[0-9]{1,15}$")] = None,
) -> int | None:
    """Return the event number after which a listener starts: the last one it received, or the one it asks for."""
    return after if last_event_id is None else int(last_event_id)


Heartbeat = Annotated[
    int | None,
    Query(
        ge=1,
        le=15,
        description="After so many seconds without an event, an event `alive`: scripts of pages do not see comments.",
    ),
]
TenantFeed = Annotated[EventFeed, Depends(get_tenant_feed)]
StartAfter = Annotated[int | None, Depends(resolve_start_after)]
AgentPath = Annotated[str, Path(pattern="^[a-z0-9.-]{1,60}$", description="Id of the agent's step, like research-1.")]


async def search_memory_for_tenant(
    request: Request, client: Client, principal: Principal, search: MemorySearchRequest
) -> tuple[MemoryExcerpt, ...]:
    """Search memory as that tenant's agents do. Raises BadInput, UnknownTask, MemoryUnavailable, Unreachable."""
    tenants: TenantServiceProvider = request.app.state.tenants
    return await tenants.search_memory(await search.to_query(principal.tenant, client.resolve_task_id), search.tokens)


_REASONS = {
    400: "Cannot be used: the detail says what to give instead.",
    401: "Without the token.",
    403: "Of another page, or of a role that may not.",
    404: "Unknown here, or of another tenant.",
    409: "Answered or used before.",
    413: "Too large.",
    421: "Asked under another name.",
    422: "Not of the shape that this documents.",
    429: "The tenant has asked too often.",
    503: "The server, or the store, is away.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "content": {PROBLEM: {"schema": ProblemDetails.model_json_schema()}}}
    for status, why in _REASONS.items()
}
v1 = APIRouter(prefix="/v1", tags=["v1"], responses=_RESPONSES)


class TaskQuery(Value):
    """Query of tasks: a filter, and the page to return: `count` of them from index `first`."""

    session: Annotated[str | None, Field(max_length=200)] = None
    phase: Annotated[tuple[TaskPhase, ...], Field(description="Only tasks in this phase; repeatable.")] = ()
    since: Annotated[UtcMoment | None, Field(description="Submitted then or later; UTC where no zone is given.")] = None
    text: Annotated[str, Field(max_length=200, description="Stands in their titles, in whatever case.")] = ""
    first: Annotated[int, Field(ge=0, le=10_000)] = 0
    count: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE)] = MAX_PAGE_SIZE

    @property
    def task_filter(self) -> TaskFilter:
        """The filter, for the client."""
        return TaskFilter(session=self.session, phases=frozenset(self.phase), since=self.since, text=self.text)


@v1.get("/tasks")
async def get_tasks(client: TenantClient, query: Annotated[TaskQuery, Query()]) -> tuple[TaskView, ...]:
    """The newest tasks; or all that are in a phase, submitted since a moment, or have a text in their title."""
    found = await client.list_tasks(query.task_filter)
    return found[query.first : query.first + query.count]


@v1.post("/tasks", status_code=201)
async def post_submit(
    client: TenantClient,
    principal: CurrentPrincipal,
    new: NewTask,
    idempotency_key: RequestKey = None,
) -> SubmittedTask:
    """Submit a task. The same `Idempotency-Key` finds the same task."""
    return await submit_new_task(client, principal.tenant, new, idempotency_key or secrets.token_hex(8))


@v1.get("/tasks/{task}")
async def get_show(client: TenantClient, task: TaskPath) -> TaskView:
    """A task as it is now."""
    return await client.get_task(await client.resolve_task_id(task), details=True)


@v1.post("/tasks/{task}/cancel")
async def post_cancel(client: TenantClient, task: TaskPath) -> CancelResult:
    """Stop a task."""
    return await cancel_task(client, task)


@v1.post("/tasks/{task}/message")
async def post_message(client: TenantClient, who: CurrentPrincipal, task: TaskPath, words: NewMessage) -> AnswerResult:
    """Send the agents of a running task a message."""
    return raise_if_refused(
        await client.send_message(await client.resolve_task_id(task), words.message, who.name or words.by)
    )


@v1.post("/tasks/{task}/edit")
async def post_edit(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: NewEdit) -> AnswerResult:
    """Compact, pin, unpin, restore or rewind an agent's context; a rewind of a task that is over makes it go on."""
    return raise_if_refused(await edit_agent_context(client, task, body, principal))


@v1.post("/tasks/{task}/fork", status_code=201)
async def post_fork(
    client: TenantClient, task: TaskPath, body: NewFork, idempotency_key: RequestKey = None
) -> SubmittedTask:
    """Submit a task that reuses the finished steps of a task that is over. The same key finds the same task."""
    return await fork_task(client, task, body, idempotency_key or secrets.token_hex(8))


@v1.post("/tasks/{task}/approve")
async def post_approve(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: Grant) -> AnswerResult:
    """Grant a request, or let its agent call a tool, once. 409 where it has been answered."""
    return raise_if_refused(await grant_task_request(client, task, body, principal))


@v1.post("/tasks/{task}/deny")
async def post_deny(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: Denial) -> AnswerResult:
    """Refuse a request. 409 where it has been answered."""
    return raise_if_refused(await deny_task_request(client, task, body, principal))


@v1.get("/tasks/{task}/report", response_model=ReportView, responses=FILES)
async def get_report(
    client: TenantClient,
    making: Exporter,
    task: TaskPath,
    form: ReportForm = "json",
    version: Annotated[int | None, Query()] = None,
) -> Response | ReportView:
    """The report that was delivered last, or another version of it."""
    found = await load_report(client, await client.resolve_task_id(task), version)
    return await making.build_response(found, form)


@v1.get("/tasks/{task}/draft", response_model=ReportView, responses=FILES)
async def get_draft(
    client: TenantClient, making: Exporter, task: TaskPath, form: ReportForm = "json"
) -> Response | ReportView:
    """What a task that works would deliver if it ended now. It is redacted on the spot, which takes seconds."""
    return await making.build_response(await making.build_draft(client, await client.resolve_task_id(task)), form)


@v1.get("/tasks/{task}/bill")
async def get_bill(client: TenantClient, task: TaskPath) -> CostBreakdown:
    """What a task has cost so far."""
    return await client.get_bill(await client.resolve_task_id(task))


@v1.get("/tasks/{task}/documents")
async def get_documents(client: TenantClient, task: TaskPath) -> tuple[Document, ...]:
    """A task's documents as they are now."""
    return await client.list_documents(await client.resolve_task_id(task))


@v1.get("/tasks/{task}/compactions")
async def get_compactions(client: TenantClient, task: TaskPath) -> tuple[AgentCompactionAudits, ...]:
    """What the compactions of its agents kept and lost."""
    return await client.audit_compactions(await client.resolve_task_id(task))


@v1.get("/tasks/{task}/agents/{agent}/transcript")
async def get_transcript(client: TenantClient, task: TaskPath, agent: AgentPath) -> AnnotatedTranscript:
    """Everything that one agent said and was told, with what hides and masks it now."""
    return build_transcript_view(await client.get_transcript(await client.resolve_task_id(task), agent))


@v1.get("/tasks/{task}/agents/{agent}/view")
async def get_agent_view(client: TenantClient, task: TaskPath, agent: AgentPath) -> AgentMessagesView:
    """What the model sees of it now."""
    found = await client.get_transcript(await client.resolve_task_id(task), agent)
    return AgentMessagesView(run_id=found.run_id, messages=build_model_view(found))


@v1.get(
    "/tasks/{task}/events",
    response_class=StreamingResponse,
    responses={204: {"description": "It is over, and every event of it was had."}},
)
async def get_task_events(
    request: Request,
    client: TenantClient,
    feed: TenantFeed,
    task: TaskPath,
    begin: StartAfter,
    heartbeat: Heartbeat = None,
) -> Response:
    """What happens to a task, as server-sent events, from its first event on; it ends with the task.

    The id of each is a number of the store: who comes back with `Last-Event-ID` has each event once, and by 204 that
    nothing more will come.
    """
    task_id = await client.resolve_task_id(task)
    after = await feed.resolve_start(begin, 0)
    if await client.is_over(task_id) and not (await client.list_events(after, task_id, 1)).events:
        return Response(status_code=204)
    return StreamingResponse(feed.stream(after, task_id, request.state.still, heartbeat), media_type=EVENT_STREAM)


@v1.get("/events", response_class=StreamingResponse)
async def get_events(
    request: Request, client: TenantClient, feed: TenantFeed, begin: StartAfter, heartbeat: Heartbeat = None
) -> Response:
    """What happens to all tasks, from now on unless `after` or `Last-Event-ID` says from where."""
    after = await feed.resolve_start(begin, await client.get_newest_event_number())
    return StreamingResponse(feed.stream(after, None, request.state.still, heartbeat), media_type=EVENT_STREAM)


@v1.get("/approvals")
async def get_approvals(client: TenantClient) -> tuple[PendingApproval, ...]:
    """What waits for an answer, the most urgent first."""
    return await client.list_approvals()


class SpendingQuery(Value):
    """Query of spending: days, both included, and session."""

    since: Annotated[date | None, Field(description="By default 30 days up to the last.")] = None
    until: Annotated[date | None, Field(description="By default today; days are those of UTC.")] = None
    session: Annotated[str | None, Field(max_length=200, description="Of this session alone.")] = None

    async def load_spending(self, client: Client) -> SpendingReport:
        """Load the spending. Raises BadInput for invalid days, or more than can be shown."""
        return await client.get_spending(
            DayRange.resolve(self.since, self.until, utc_now().date()), self.session or None
        )


@v1.get("/spending")
async def get_spending(client: TenantClient, query: Annotated[SpendingQuery, Query()]) -> SpendingReport:
    """What tasks have spent, by day, task, role of the agent and model."""
    return await query.load_spending(client)


@v1.get("/memory")
async def get_search_memory(
    request: Request, client: TenantClient, principal: CurrentPrincipal, wish: Annotated[MemorySearchRequest, Query()]
) -> tuple[MemoryMatchJson, ...]:
    """What agents would recall, the best first; names stay replaced. Where none `has_words` of the query, perhaps none
    of it fits.
    """
    found = await search_memory_for_tenant(request, client, principal, wish)
    return await run_in_threadpool(lambda: tuple(MemoryMatchJson.from_excerpt(one, wish.query) for one in found))


First = Annotated[int, Query(ge=0, le=10_000)]
Count = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE)]


@v1.get("/sessions")
async def get_sessions(
    client: TenantClient, first: First = 0, count: Count = MAX_PAGE_SIZE
) -> tuple[SessionSummary, ...]:
    """Sessions with what their tasks have spent together, those with the newest tasks before others."""
    return await client.list_sessions(first, count)


@v1.put("/sessions/{session:path}/limit")
async def put_limit_session(
    client: TenantClient, session: Annotated[str, Path(min_length=1, max_length=200)], body: SessionLimit
) -> SessionLimitView:
    """Set what all tasks of a session may spend together."""
    limit = await set_session_limit(client, session, body.budget)
    return SessionLimitView(session=session, limit=limit)


@v1.post("/client/{role}/{name}", include_in_schema=False)
async def call_client(
    client: TenantClient,
    principal: CurrentPrincipal,
    role: ClientPermission,
    name: str,
    given: Annotated[dict[str, JsonValue], Body()],
    version: Annotated[str, Header(alias=VERSION_HEADER, max_length=40)] = "",
) -> Response:
    """What our own client asks for, of the same version as this server: its values are no interface of others."""
    called = REMOTE_METHODS.get(name)
    _require_same_version(version)
    if called is None or called.role != role:
        raise HTTPException(404, f"a client does not ask for {role} {replace_control_characters(name)}")
    return Response(await invoke_client_method(client, principal, called, given), media_type="application/json")


@v1.post(f"/client/{{role}}/{MESSAGE_PATH}{{name}}", include_in_schema=False)
async def send_message_of_client(
    client: TenantClient,
    who: CurrentPrincipal,
    role: ClientPermission,
    name: str,
    sent: Annotated[dict[str, JsonValue], Body()],
    version: Annotated[str, Header(alias=VERSION_HEADER, max_length=40)] = "",
) -> UpdateResult:
    """Send a task the message that our own client has made."""
    signal = SIGNALS.get(name)
    _require_same_version(version)
    if signal is None or signal.permission != role:
        raise HTTPException(404, f"a client does not send {role} {replace_control_characters(name)}")
    return await send_client_message(client, who, signal, SentMessage.model_validate(sent))


def _require_same_version(version: str) -> None:
    if version != __version__:
        raise HTTPException(
            409,
            f"this server is Waystation {__version__}, and {replace_control_characters(version) or 'none'} asks: "
            "both have to be the same",
        )
