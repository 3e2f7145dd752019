"""`/v1`: tasks, reports, requests and sessions over HTTP, in the JSON of `--json`."""

import secrets
from datetime import date
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Body, Depends, File, Header, Path, Query, Request, Response, UploadFile
from pydantic import Field, JsonValue
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from waystation import __version__
from waystation.client import Client
from waystation.client.agent_contexts import MemoryMatchJson, MemorySearchRequest
from waystation.client.approvals import PlannedTask
from waystation.client.erasure import ForgetResult
from waystation.client.exports import load_report
from waystation.client.file_previews import FilePreviews
from waystation.client.passage_views import SourceView, load_source_view
from waystation.client.remote import MESSAGE_PATH, REMOTE_METHODS, VERSION_HEADER
from waystation.client.schedules import ScheduleJson, build_schedule_json
from waystation.context.audit import AnnotatedTranscript, build_transcript_view
from waystation.context.history import build_model_view
from waystation.documents.documents import Document
from waystation.kernel.client_permissions import ClientPermission
from waystation.kernel.clock import utc_now
from waystation.kernel.value import EagerValue, UtcMoment
from waystation.memory.passages import MemoryExcerpt
from waystation.plugins.web.access import PROBLEM, CurrentPrincipal, ProblemDetails
from waystation.plugins.web.event_feed import EVENT_STREAM, EventFeed
from waystation.plugins.web.principals import Principal
from waystation.plugins.web.report_exports import (
    FILES,
    PNG,
    Exporter,
    ReportForm,
    draw_uploaded_passage,
    load_numbered_source,
)
from waystation.plugins.web.request_bodies import (
    TASK_ID_PATTERN,
    Denial,
    ForgetSessionRequest,
    Grant,
    LinkPath,
    NewDelivery,
    NewEdit,
    NewFork,
    NewMessage,
    NewPlan,
    NewSchedule,
    NewTask,
    RequestKey,
    SentMessage,
    SessionLimit,
    TaskPath,
    TenantClient,
    TenantServiceProvider,
    add_schedule,
    apply_schedule_action,
    cancel_task,
    create_report_link,
    deliver_task,
    deny_task_request,
    edit_agent_context,
    forget_session,
    fork_task,
    grant_task_request,
    invoke_client_method,
    raise_if_refused,
    send_client_message,
    send_plan,
    set_session_limit,
    submit_new_task,
)
from waystation.plugins.web.upload_checks import FileCheckResult, check_uploads
from waystation.plugins.web.uploads import Redacted, UploadedFiles, Uploads
from waystation.security.untrusted import replace_control_characters
from waystation.store.events import EventKind
from waystation.tasks.activity import ActivityFilter, ActivityView
from waystation.tasks.progress import DayRange, SpendingGrouping, SpendingReport
from waystation.tasks.report_links import MadeReportLink, NewReportLink, ReportLink
from waystation.tasks.signals import SIGNALS, AnswerResult, UpdateResult
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import (
    AgentCompactionAudits,
    AgentMessagesView,
    CancelResult,
    CostView,
    PendingApproval,
    ReportView,
    SessionLimitView,
    SessionView,
    SpendingView,
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
    after: Annotated[int | None, Query(ge=0, le=LAST_NUMBER, description="Only events with a higher number.")] = None,
    last_event_id: Annotated[
        str | None, Header(pattern="^[0-9]{1,15}$", description="Number of the last event that you received.")
    ] = None,
) -> int | None:
    """Return the event number after which a listener starts: the last one it received, or the one it asks for."""
    return after if last_event_id is None else int(last_event_id)


Heartbeat = Annotated[
    int | None,
    Query(
        ge=1,
        le=15,
        description="After this many seconds without an event, an event `alive` is sent.",
    ),
]
WatchedReplies = Annotated[
    bool,
    Query(description="Also send what the agents are thinking and writing, as events `replies`."),
]
WatchedTask = Annotated[
    str | None,
    Query(
        pattern=TASK_ID_PATTERN,
        description="Id of a task: also send what its agents are thinking and writing, as events `replies`.",
    ),
]
TenantFeed = Annotated[EventFeed, Depends(get_tenant_feed)]
StartAfter = Annotated[int | None, Depends(resolve_start_after)]
AgentPath = Annotated[
    str,
    Path(
        pattern="^[a-z0-9.-]{1,60}$",
        description="Id of the agent, like research-1 (for a step) or research-1.2 (for a subagent).",
    ),
]


async def search_memory_for_tenant(
    request: Request, client: Client, principal: Principal, search: MemorySearchRequest
) -> tuple[MemoryExcerpt, ...]:
    """Search memory as that tenant's agents do. Raises BadInput, UnknownTask, MemoryUnavailable, Unreachable."""
    tenants: TenantServiceProvider = request.app.state.tenants
    return await tenants.search_memory(await search.to_query(principal.tenant, client.resolve_task_id), search.tokens)


_REASONS = {
    400: "The request cannot be used; `detail` says what to send instead.",
    401: "The key or token is missing or not valid.",
    403: "Your role does not permit the request, or the request comes from a page of another site.",
    404: "Not found, or owned by another tenant.",
    409: "The action is not possible now (for example, the approval request was answered before), or the "
    "`Idempotency-Key` belongs to another request.",
    413: "The body is too large.",
    421: "`Host` is not a name of this server.",
    422: "The body or a parameter does not match its schema.",
    429: "The tenant sent too many requests.",
    503: "Temporal or the store cannot be reached.",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": why, "content": {PROBLEM: {"schema": ProblemDetails.model_json_schema()}}}
    for status, why in _REASONS.items()
}
v1 = APIRouter(prefix="/v1", tags=["v1"], responses=_RESPONSES)


ONE_SESSION = "Only tasks of this session."
FIRST_INDEX = "Index of the first item to return, from 0."
MAX_COUNT = "Maximum number of items to return."
REPORT_FORMAT = "Format of the report."
SOURCE_NUMBER = "Number of the source in the report."


class TaskQuery(EagerValue):
    """Query of tasks: a filter, and the page to return: `count` of them from index `first`."""

    session: Annotated[str | None, Field(max_length=200, description=ONE_SESSION)] = None
    phase: Annotated[tuple[TaskPhase, ...], Field(description="Only tasks in this phase; repeatable.")] = ()
    since: Annotated[
        UtcMoment | None, Field(description="Only tasks submitted at this time or later; UTC if the time has no zone.")
    ] = None
    text: Annotated[
        str,
        Field(max_length=200, description="Only tasks with this text in their title; upper and lower case are equal."),
    ] = ""
    first: Annotated[int, Field(ge=0, le=10_000, description=FIRST_INDEX)] = 0
    count: Annotated[int, Field(ge=1, le=MAX_PAGE_SIZE, description=MAX_COUNT)] = MAX_PAGE_SIZE

    @property
    def task_filter(self) -> TaskFilter:
        """The filter, for the client."""
        return TaskFilter(session=self.session, phases=frozenset(self.phase), since=self.since, text=self.text)


@v1.get("/tasks")
async def get_tasks(client: TenantClient, query: Annotated[TaskQuery, Query()]) -> tuple[TaskView, ...]:
    """List the newest 50 tasks, of a session if it is named; with phases, `since` or a text, all that match."""
    found = await client.list_tasks(query.task_filter)
    return found[query.first : query.first + query.count]


@v1.post("/tasks", status_code=201)
async def post_submit(
    client: TenantClient,
    principal: CurrentPrincipal,
    new: NewTask,
    idempotency_key: RequestKey = None,
) -> SubmittedTask:
    """Submit a task. A repeated request with the same `Idempotency-Key` returns the same task."""
    return await submit_new_task(client, principal.tenant, new, idempotency_key or secrets.token_hex(8))


@v1.get("/tasks/{task}")
async def get_show(client: TenantClient, task: TaskPath) -> TaskView:
    """Get the current state of a task."""
    return await client.get_task(await client.resolve_task_id(task), details=True)


@v1.post("/tasks/{task}/cancel")
async def post_cancel(client: TenantClient, task: TaskPath) -> CancelResult:
    """Stop a task."""
    return await cancel_task(client, task)


@v1.post("/tasks/{task}/message")
async def post_message(client: TenantClient, who: CurrentPrincipal, task: TaskPath, words: NewMessage) -> AnswerResult:
    """Send a message to the agents of a running task."""
    return raise_if_refused(
        await client.send_message(await client.resolve_task_id(task), words.message, who.name or words.by)
    )


@v1.post("/tasks/{task}/edit")
async def post_edit(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: NewEdit) -> AnswerResult:
    """Compact, pin, unpin, restore or rewind an agent's context. A rewind resumes a task that is over."""
    return raise_if_refused(await edit_agent_context(client, task, body, principal))


@v1.post("/tasks/{task}/fork", status_code=201)
async def post_fork(
    client: TenantClient, task: TaskPath, body: NewFork, idempotency_key: RequestKey = None
) -> SubmittedTask:
    """Submit a task that reuses the finished steps of a task that is over.

    A repeated request with the same `Idempotency-Key` returns the same task.
    """
    return await fork_task(client, task, body, idempotency_key or secrets.token_hex(8))


@v1.post("/tasks/{task}/approve")
async def post_approve(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: Grant) -> AnswerResult:
    """Approve a request for budget, for one tool call or for a plan. Returns 409 if it was answered before."""
    return raise_if_refused(await grant_task_request(client, task, body, principal))


@v1.post("/tasks/{task}/deny")
async def post_deny(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: Denial) -> AnswerResult:
    """Deny a request for budget, for one tool call or for a plan. Returns 409 if it was answered before."""
    return raise_if_refused(await deny_task_request(client, task, body, principal))


@v1.get("/tasks/{task}/plan")
async def get_plan(client: TenantClient, task: TaskPath) -> PlannedTask:
    """Get a task's plan with its goals, the budget of each step and what steps usually take."""
    return await client.get_planned_task(await client.resolve_task_id(task))


@v1.post("/tasks/{task}/plan/approve")
async def post_plan(client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: NewPlan) -> AnswerResult:
    """Replace a plan that waits for approval; the new plan is approved.

    Returns 409 if the approval request was answered before.
    """
    return raise_if_refused(await send_plan(client, task, body, principal))


@v1.post("/tasks/{task}/deliver")
async def post_deliver(
    client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: NewDelivery
) -> AnswerResult:
    """End a task with a report of what it has: deny its open requests, and ask its agents to submit their results.

    The report is marked partial. Returns 409 if the task has no plan yet, or its delivery was requested before.
    """
    return raise_if_refused(await deliver_task(client, task, body, principal))


@v1.get("/tasks/{task}/report", response_model=ReportView, responses=FILES)
async def get_report(
    client: TenantClient,
    making: Exporter,
    task: TaskPath,
    form: Annotated[ReportForm, Query(description=REPORT_FORMAT)] = "json",
    version: Annotated[int | None, Query(description="Version of the report; default: the last one delivered.")] = None,
) -> Response | ReportView:
    """Get a task's report."""
    found = await load_report(client, await client.resolve_task_id(task), version)
    return await making.build_response(found, form)


@v1.get("/tasks/{task}/report/source")
async def get_source(
    client: TenantClient,
    task: TaskPath,
    source: Annotated[int, Query(ge=1, le=100_000, description=SOURCE_NUMBER)],
) -> SourceView:
    """Get a source of the newest report and its passage as submitted, with the lines around it.

    For a sheet, the passage has rows with their cells and the heads of the columns; for an e-mail, its headers and
    part.
    """
    task_id = await client.resolve_task_id(task)
    return await load_source_view(client, task_id, await load_numbered_source(client, task_id, source))


@v1.post(
    "/tasks/{task}/report/picture",
    response_class=Response,
    responses={200: {"description": "The picture.", "content": {PNG: {}}}},
)
async def post_picture(
    client: TenantClient,
    task: TaskPath,
    source: Annotated[int, Query(ge=1, le=100_000, description=SOURCE_NUMBER)],
    document: Annotated[
        UploadFile, File(description="The PDF or picture that was submitted. The server does not store this upload.")
    ],
) -> Response:
    """Draw the page of a cited PDF or picture with the cited passage marked."""
    return await draw_uploaded_passage(client, await client.resolve_task_id(task), source, [document])


@v1.get("/tasks/{task}/shares")
async def get_shares(client: TenantClient, task: TaskPath) -> tuple[ReportLink, ...]:
    """List the links to a task's report, the newest first, with their last use."""
    return await client.list_report_links(await client.resolve_task_id(task))


@v1.post("/tasks/{task}/shares", status_code=201)
async def post_share(
    client: TenantClient, principal: CurrentPrincipal, task: TaskPath, body: NewReportLink
) -> MadeReportLink:
    """Make a read-only link to a task's report as it is now. Its address is in this answer only."""
    return await create_report_link(client, principal, task, body)


@v1.delete("/tasks/{task}/shares/{link}")
async def delete_share(client: TenantClient, task: TaskPath, link: LinkPath) -> ReportLink:
    """Revoke a link."""
    return await client.revoke_report_link(await client.resolve_task_id(task), link)


@v1.get("/tasks/{task}/draft", response_model=ReportView, responses=FILES)
async def get_draft(
    client: TenantClient,
    making: Exporter,
    task: TaskPath,
    form: Annotated[ReportForm, Query(description=REPORT_FORMAT)] = "json",
) -> Response | ReportView:
    """Get the report that a running task would deliver now. Each request redacts it again, which takes seconds."""
    return await making.build_response(await making.build_draft(client, await client.resolve_task_id(task)), form)


@v1.get("/tasks/{task}/cost")
async def get_cost(
    client: TenantClient,
    task: TaskPath,
    actions: Annotated[bool, Query(description="Also count the task's Temporal actions.")] = False,
) -> CostView:
    """Get what a task has cost so far."""
    task_id = await client.resolve_task_id(task)
    counted = await client.count_temporal_actions(task_id) if actions else None
    return CostView.from_breakdown(await client.get_bill(task_id), counted)


@v1.get("/tasks/{task}/documents")
async def get_documents(client: TenantClient, task: TaskPath) -> tuple[Document, ...]:
    """List the current documents of a task."""
    return await client.list_documents(await client.resolve_task_id(task))


@v1.post("/documents/read")
async def post_read_documents(
    client: TenantClient, reader: Uploads, documents: UploadedFiles, redacted: Redacted = False
) -> FilePreviews:
    """Get the text that agents would see of these files, and what is left out. Nothing is stored on disk.

    The files are sent as a form (`multipart/form-data`), all in the field `documents`.
    """
    return await reader.load_previews(client, documents, redacted=redacted)


@v1.post("/documents/check")
async def post_check_documents(reader: Uploads, documents: UploadedFiles) -> FileCheckResult:
    """Check whether each file can be used for a task, and estimate how many tokens its text has.

    The files are sent as for `/v1/documents/read`. Their texts are kept in memory for 15 minutes, and not stored.
    """
    return await check_uploads(reader, documents)


@v1.get("/tasks/{task}/compactions")
async def get_compactions(client: TenantClient, task: TaskPath) -> tuple[AgentCompactionAudits, ...]:
    """List what the compactions of a task's agents kept and lost."""
    return await client.audit_compactions(await client.resolve_task_id(task))


MAX_EVENT_PAGE = 1_000
AgentName = Annotated[str, Field(pattern="^[a-z0-9.-]{1,60}$")]


class ActivityQuery(EagerValue):
    """Query of a task's activity: a filter, and the events to return: `count` of them from index `first`."""

    agent: Annotated[
        tuple[AgentName, ...], Field(max_length=50, description="Only this agent, like research-1; repeatable.")
    ] = ()
    kind: Annotated[tuple[EventKind, ...], Field(description="Only events of this kind; repeatable.")] = ()
    since: Annotated[
        UtcMoment | None, Field(description="Only what happened at this time or later; UTC if the time has no zone.")
    ] = None
    until: Annotated[UtcMoment | None, Field(description="Only what happened at this time or earlier.")] = None
    first: Annotated[int, Field(ge=0, le=10_000_000, description=FIRST_INDEX)] = 0
    count: Annotated[int, Field(ge=1, le=MAX_EVENT_PAGE, description=MAX_COUNT)] = MAX_EVENT_PAGE

    @property
    def activity_filter(self) -> ActivityFilter:
        """The filter, for the client."""
        return ActivityFilter(
            agents=frozenset(self.agent), kinds=frozenset(self.kind), since=self.since, until=self.until
        )


@v1.get("/tasks/{task}/activity")
async def get_activity(
    client: TenantClient, feed: TenantFeed, task: TaskPath, query: Annotated[ActivityQuery, Query()]
) -> ActivityView:
    """Get what a task's agents did: its events, totals of tool calls, and what each compaction kept.

    `agent`, `since` and `until` filter all of it, and `kind` filters the events only.
    """
    task_id = await client.resolve_task_id(task)
    events = await feed.known.list_events(task_id)
    found = await client.get_activity(task_id, query.activity_filter, events)
    return found.replace(events=found.events[query.first : query.first + query.count])


@v1.get("/tasks/{task}/agents/{agent}/transcript")
async def get_transcript(client: TenantClient, task: TaskPath, agent: AgentPath) -> AnnotatedTranscript:
    """Get the whole transcript of an agent, with the compactions that hide or mask its messages."""
    return build_transcript_view(await client.get_transcript(await client.resolve_task_id(task), agent))


@v1.get("/tasks/{task}/agents/{agent}/view")
async def get_agent_view(client: TenantClient, task: TaskPath, agent: AgentPath) -> AgentMessagesView:
    """Get the messages that an agent's model sees now."""
    found = await client.get_transcript(await client.resolve_task_id(task), agent)
    return AgentMessagesView(run_id=found.run_id, messages=build_model_view(found))


@v1.get(
    "/tasks/{task}/events",
    response_class=StreamingResponse,
    responses={204: {"description": "The task is over, and you have received all its events."}},
)
async def get_task_events(
    request: Request,
    client: TenantClient,
    feed: TenantFeed,
    task: TaskPath,
    begin: StartAfter,
    heartbeat: Heartbeat = None,
    replies: WatchedReplies = False,
) -> Response:
    """Stream the events of a task as server-sent events, from its first event until the task ends.

    A client that reconnects with `Last-Event-ID` receives each event once. Status 204 means that no more events will
    come. An event `replies` has no number: its data is a list with the `agent`, `kind` (`thinking` or `text`), `text`
    (the end of what it has written, redacted) and `calls_tool` of each agent whose reply is arriving.
    """
    task_id = await client.resolve_task_id(task)
    after = await feed.resolve_start(begin, 0)
    if await client.is_over(task_id) and not (await client.list_events(after, task_id, 1)).events:
        return Response(status_code=204)
    watched = task_id if replies else None
    events = feed.stream(after, task_id, request.state.still, heartbeat, watched)
    return StreamingResponse(events, media_type=EVENT_STREAM)


@v1.get("/events", response_class=StreamingResponse)
async def get_events(
    request: Request,
    client: TenantClient,
    feed: TenantFeed,
    begin: StartAfter,
    heartbeat: Heartbeat = None,
    replies: WatchedTask = None,
) -> Response:
    """Stream the events of all tasks as server-sent events.

    The stream has the events after number `after` or `Last-Event-ID`; without either, only new events. Events `replies`
    have the same data as in the stream of a task.
    """
    after = await feed.resolve_start(begin, await client.get_newest_event_number())
    watched = None if replies is None else await client.resolve_task_id(replies)
    events = feed.stream(after, None, request.state.still, heartbeat, watched)
    return StreamingResponse(events, media_type=EVENT_STREAM)


@v1.get("/approvals")
async def get_approvals(client: TenantClient) -> tuple[PendingApproval, ...]:
    """List the requests that wait for an answer, the most urgent first."""
    return await client.list_approvals()


class SpendingQuery(EagerValue):
    """Query of spending: days, both included, session, and groups."""

    since: Annotated[date | None, Field(description="First day in UTC; default: 29 days before the last day.")] = None
    until: Annotated[date | None, Field(description="Last day in UTC; default: today.")] = None
    session: Annotated[str | None, Field(max_length=200, description=ONE_SESSION)] = None
    by: Annotated[SpendingGrouping, Field(description="Field by which `groups` adds up the spending.")] = "model"

    async def load_spending(self, client: Client) -> SpendingReport:
        """Load the spending. Raises BadInput for invalid days, or more than can be shown."""
        return await client.get_spending(
            DayRange.resolve(self.since, self.until, utc_now().date()), self.session or None
        )


@v1.get("/spending")
async def get_spending(client: TenantClient, query: Annotated[SpendingQuery, Query()]) -> SpendingView:
    """Get what tasks have spent, by day, task, agent role and model, and the sums by one of them or by session."""
    return SpendingView.from_report(await query.load_spending(client), query.by)


@v1.get("/memory")
async def get_search_memory(
    request: Request, client: TenantClient, principal: CurrentPrincipal, wish: Annotated[MemorySearchRequest, Query()]
) -> tuple[MemoryMatchJson, ...]:
    """Search memory as agents do. Returns the best match first, and private values stay replaced.

    If `has_words` is false for every match, probably none of them answers the query.
    """
    found = await search_memory_for_tenant(request, client, principal, wish)
    return await run_in_threadpool(lambda: tuple(MemoryMatchJson.from_excerpt(one, wish.query) for one in found))


First = Annotated[int, Query(ge=0, le=10_000, description=FIRST_INDEX)]
Count = Annotated[int, Query(ge=1, le=MAX_PAGE_SIZE, description=MAX_COUNT)]


@v1.get("/sessions")
async def get_sessions(client: TenantClient, first: First = 0, count: Count = MAX_PAGE_SIZE) -> tuple[SessionView, ...]:
    """List sessions with what their tasks have spent together, the most recently used first."""
    return tuple(map(SessionView.from_summary, await client.list_sessions(first, count)))


ScheduleName = Annotated[str, Path(pattern="^[a-z0-9][a-z0-9-]{0,59}$", description="Name of the schedule.")]
ScheduleAction = Literal["run", "pause", "resume"]


@v1.get("/schedules")
async def get_schedules(client: TenantClient) -> tuple[ScheduleJson, ...]:
    """List schedules with their next run and the result of the last one."""
    return tuple(map(build_schedule_json, await (await client.get_schedule_client()).list()))


@v1.post("/schedules", status_code=201)
async def post_schedule(
    request: Request, client: TenantClient, principal: CurrentPrincipal, body: NewSchedule
) -> ScheduleJson:
    """Add a schedule. With an API key, the schedule's paths must be below the server's `WAYSTATION_MCP_ROOTS`."""
    return build_schedule_json(await add_schedule(client, principal, request.app.state.folders, body))


@v1.post("/schedules/{name}/{action}")
async def post_schedule_action(
    client: TenantClient, principal: CurrentPrincipal, name: ScheduleName, action: ScheduleAction
) -> ScheduleJson:
    """Run a schedule now, pause it, or resume it."""
    schedules = await client.get_schedule_client()
    await apply_schedule_action(schedules, name, action, principal)
    return build_schedule_json(await schedules.get(name))


@v1.delete("/schedules/{name}")
async def delete_schedule(client: TenantClient, principal: CurrentPrincipal, name: ScheduleName) -> ScheduleJson:
    """Remove a schedule. Its tasks and reports stay."""
    schedules = await client.get_schedule_client()
    found = build_schedule_json(await schedules.get(name))
    await apply_schedule_action(schedules, name, "remove", principal)
    return found


@v1.put("/sessions/{session:path}/limit")
async def put_limit_session(
    client: TenantClient, session: Annotated[str, Path(min_length=1, max_length=200)], body: SessionLimit
) -> SessionLimitView:
    """Set how much all tasks of a session may spend together."""
    limit = await set_session_limit(client, session, body.budget)
    return SessionLimitView(session=session, limit=limit)


@v1.post("/sessions/{session:path}/forget")
async def post_forget_session(
    client: TenantClient,
    session: Annotated[str, Path(min_length=1, max_length=200)],
    body: ForgetSessionRequest,
) -> ForgetResult:
    """Delete a session's tasks from memory, or everything that they have. All these tasks must be over.

    The deletion cannot be undone. The request needs the role `approve`.
    """
    return await forget_session(client, session, body)


@v1.post("/client/{role}/{name}", include_in_schema=False)
async def call_client(
    client: TenantClient,
    principal: CurrentPrincipal,
    role: ClientPermission,
    name: str,
    given: Annotated[dict[str, JsonValue], Body()],
    version: Annotated[str, Header(alias=VERSION_HEADER, max_length=40)] = "",
) -> Response:
    """Call a method for Waystation's own client, which must have the same version. Not an interface for others."""
    called = REMOTE_METHODS.get(name)
    _require_same_version(version)
    if called is None or called.role != role:
        raise HTTPException(404, f"there is no client method {replace_control_characters(name)} for the role {role}")
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
    """Send a task a message that Waystation's own client built."""
    signal = SIGNALS.get(name)
    _require_same_version(version)
    if signal is None or signal.permission != role:
        raise HTTPException(404, f"there is no client message {replace_control_characters(name)} for the role {role}")
    return await send_client_message(client, who, signal, SentMessage.model_validate(sent))


def _require_same_version(version: str) -> None:
    if version != __version__:
        raise HTTPException(
            409,
            f"this server has Waystation {__version__}, and the client has "
            f"{replace_control_characters(version) or 'none'}: install the same version on both sides",
        )
