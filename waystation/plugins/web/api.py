"""`/v1`: tasks, reports, requests and sessions over HTTP, in the shapes of `--json`."""

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
from waystation.client.context import MemoryMatchJson, MemorySearchRequest
from waystation.client.exports import load_report
from waystation.client.remote import CALLS, VERSION_HEADER
from waystation.client.task_json import CancelJson, ReportJson, SessionJson, TaskJson, ViewJson, task_json
from waystation.context.audit import TranscriptView, build_transcript_view
from waystation.context.history import build_model_view
from waystation.documents.documents import Document
from waystation.kernel.clock import utc_now
from waystation.kernel.permissions import Permit
from waystation.kernel.value import UtcMoment, Value
from waystation.memory.memory import Excerpt
from waystation.plugins.web.access import PROBLEM, ProblemDetails, Who
from waystation.plugins.web.bodies import (
    Asking,
    Denial,
    Grant,
    NewEdit,
    NewFork,
    NewMessage,
    NewTask,
    RequestKey,
    SessionLimit,
    TaskPath,
    TenantProvider,
    call_for,
    deny_task_request,
    edit_agent_context,
    fork_off,
    grant,
    limit_session,
    raise_if_refused,
    stop,
    submit_new_task,
)
from waystation.plugins.web.exports import FILES, Making, ReportForm
from waystation.plugins.web.listeners import EVENT_STREAM, Feed
from waystation.plugins.web.principals import Principal
from waystation.security.untrusted import plain
from waystation.tasks.progress import Bill, Days, KnownSession, Spending
from waystation.tasks.signals import Answer
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import AgentAudits, PendingApproval, Submitted, TaskFilter

MOST_ON_A_PAGE = 100
LAST_NUMBER = 10**15 - 1


async def get_tenant_feed(request: Request, who: Who) -> Feed:
    """Where all listeners of the tenant hear of the same."""
    tenants: TenantProvider = request.app.state.tenants
    return await tenants.feed(who.tenant)


def first_number(
    after: Annotated[int | None, Query(ge=0, le=LAST_NUMBER, description="Events behind this number.")] = None,
    last_event_id: Annotated[str | None, Header(pattern="^[0-9]{1,15}$")] = None,
) -> int | None:
    """Behind which number a listener begins: what it had last, or what it asks for."""
    return after if last_event_id is None else int(last_event_id)


Heartbeat = Annotated[
    int | None,
    Query(
        ge=1,
        le=15,
        description="After so many seconds without an event, an event `alive`: scripts of pages do not see comments.",
    ),
]
Feeding = Annotated[Feed, Depends(get_tenant_feed)]
From = Annotated[int | None, Depends(first_number)]
AgentPath = Annotated[str, Path(pattern="^[a-z0-9.-]{1,60}$", description="Id of the agent's step, like research-1.")]


async def recall_for_tenant(
    request: Request, client: Client, who: Principal, wish: MemorySearchRequest
) -> tuple[Excerpt, ...]:
    """What agents of that tenant would recall. Raises BadInput, UnknownTask, MemoryUnavailable, Unreachable."""
    tenants: TenantProvider = request.app.state.tenants
    return await tenants.recall(await wish.meant(who.tenant, client.resolve), wish.tokens)


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
    """Which tasks are asked for, and which of those are answered: `count` of them from the `first` on."""

    session: Annotated[str | None, Field(max_length=200)] = None
    phase: Annotated[tuple[TaskPhase, ...], Field(description="Only tasks in this phase; repeatable.")] = ()
    since: Annotated[UtcMoment | None, Field(description="Submitted then or later; UTC where no zone is given.")] = None
    text: Annotated[str, Field(max_length=200, description="Stands in their titles, in whatever case.")] = ""
    first: Annotated[int, Field(ge=0, le=10_000)] = 0
    count: Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE)] = MOST_ON_A_PAGE

    @property
    def wanted(self) -> TaskFilter:
        """The same for the client."""
        return TaskFilter(session=self.session, phases=frozenset(self.phase), since=self.since, text=self.text)


@v1.get("/tasks")
async def get_tasks(client: Asking, query: Annotated[TaskQuery, Query()]) -> tuple[TaskJson, ...]:
    """The newest tasks; or all that are in a phase, submitted since a moment, or have a text in their title."""
    found = await client.tasks(query.wanted)
    return tuple(task_json(one, None) for one in found[query.first : query.first + query.count])


@v1.post("/tasks", status_code=201)
async def post_submit(
    client: Asking,
    who: Who,
    new: NewTask,
    idempotency_key: RequestKey = None,
) -> Submitted:
    """Hand in a task. The same `Idempotency-Key` finds the same task."""
    return await submit_new_task(client, who.tenant, new, idempotency_key or secrets.token_hex(8))


@v1.get("/tasks/{task}")
async def get_show(client: Asking, task: TaskPath) -> TaskJson:
    """A task as it is now."""
    found = await client.with_origins(await client.progress(await client.resolve(task)))
    return task_json(await client.with_stored(found), None)


@v1.post("/tasks/{task}/cancel")
async def post_cancel(client: Asking, task: TaskPath) -> CancelJson:
    """Stop a task."""
    return await stop(client, task)


@v1.post("/tasks/{task}/tell")
async def post_tell(client: Asking, who: Who, task: TaskPath, words: NewMessage) -> Answer:
    """Tell the agents of a running task something."""
    return raise_if_refused(await client.tell(await client.resolve(task), words.message, who.name or words.by))


@v1.post("/tasks/{task}/edit")
async def post_edit(client: Asking, who: Who, task: TaskPath, wanted: NewEdit) -> Answer:
    """Compact, pin, unpin, restore or rewind an agent's context; a rewind of a task that is over makes it go on."""
    return raise_if_refused(await edit_agent_context(client, task, wanted, who))


@v1.post("/tasks/{task}/fork", status_code=201)
async def post_fork(client: Asking, task: TaskPath, wanted: NewFork, idempotency_key: RequestKey = None) -> Submitted:
    """Hand in a task that begins with what one that is over has finished. The same key finds the same task."""
    return await fork_off(client, task, wanted, idempotency_key or secrets.token_hex(8))


@v1.post("/tasks/{task}/approve")
async def post_approve(client: Asking, who: Who, task: TaskPath, given: Grant) -> Answer:
    """Grant a request, or let its agent call a tool, once. 409 where it has been answered."""
    return raise_if_refused(await grant(client, task, given, who))


@v1.post("/tasks/{task}/deny")
async def post_deny(client: Asking, who: Who, task: TaskPath, given: Denial) -> Answer:
    """Refuse a request. 409 where it has been answered."""
    return raise_if_refused(await deny_task_request(client, task, given, who))


@v1.get("/tasks/{task}/report", response_model=ReportJson, responses=FILES)
async def get_report(
    client: Asking,
    making: Making,
    task: TaskPath,
    form: ReportForm = "json",
    version: Annotated[int | None, Query()] = None,
) -> Response | ReportJson:
    """The report that was delivered last, or another version of it."""
    found = await load_report(client, await client.resolve(task), version)
    return await making.answer(found, form)


@v1.get("/tasks/{task}/draft", response_model=ReportJson, responses=FILES)
async def get_draft(client: Asking, making: Making, task: TaskPath, form: ReportForm = "json") -> Response | ReportJson:
    """What a task that works would deliver if it ended now. It is redacted on the spot, which takes seconds."""
    return await making.answer(await making.draft(client, await client.resolve(task)), form)


@v1.get("/tasks/{task}/bill")
async def get_bill(client: Asking, task: TaskPath) -> Bill:
    """What a task has cost so far."""
    return await client.bill(await client.resolve(task))


@v1.get("/tasks/{task}/documents")
async def get_documents(client: Asking, task: TaskPath) -> tuple[Document, ...]:
    """A task's documents as they are now."""
    return await client.documents(await client.resolve(task))


@v1.get("/tasks/{task}/compactions")
async def get_compactions(client: Asking, task: TaskPath) -> tuple[AgentAudits, ...]:
    """What the compactions of its agents kept and lost."""
    return await client.audits(await client.resolve(task))


@v1.get("/tasks/{task}/agents/{agent}/transcript")
async def get_transcript(client: Asking, task: TaskPath, agent: AgentPath) -> TranscriptView:
    """Everything that one agent said and was told, with what hides and masks it now."""
    return build_transcript_view(await client.transcript(await client.resolve(task), agent))


@v1.get("/tasks/{task}/agents/{agent}/view")
async def get_agent_view(client: Asking, task: TaskPath, agent: AgentPath) -> ViewJson:
    """What the model sees of it now."""
    found = await client.transcript(await client.resolve(task), agent)
    return ViewJson(run_id=found.run_id, messages=build_model_view(found))


@v1.get(
    "/tasks/{task}/events",
    response_class=StreamingResponse,
    responses={204: {"description": "It is over, and every event of it was had."}},
)
async def get_task_events(
    request: Request, client: Asking, feed: Feeding, task: TaskPath, begin: From, heartbeat: Heartbeat = None
) -> Response:
    """What happens to a task, as server-sent events, from its first event on; it ends with the task.

    The id of each is a number of the store: who comes back with `Last-Event-ID` has each event once, and by 204 that
    nothing more will come.
    """
    task_id = await client.resolve(task)
    after = await feed.begun(begin, 0)
    if await client.is_over(task_id) and not (await client.events(after, task_id, 1)).events:
        return Response(status_code=204)
    return StreamingResponse(feed.stream(after, task_id, request.state.still, heartbeat), media_type=EVENT_STREAM)


@v1.get("/events", response_class=StreamingResponse)
async def get_events(
    request: Request, client: Asking, feed: Feeding, begin: From, heartbeat: Heartbeat = None
) -> Response:
    """What happens to all tasks, from now on unless `after` or `Last-Event-ID` says from where."""
    after = await feed.begun(begin, await client.newest_event())
    return StreamingResponse(feed.stream(after, None, request.state.still, heartbeat), media_type=EVENT_STREAM)


@v1.get("/approvals")
async def get_approvals(client: Asking) -> tuple[PendingApproval, ...]:
    """What waits for an answer, the most urgent first."""
    return await client.approvals()


class SpendingQuery(Value):
    """Of which days, both included, and of which session."""

    since: Annotated[date | None, Field(description="By default 30 days up to the last.")] = None
    until: Annotated[date | None, Field(description="By default today; days are those of UTC.")] = None
    session: Annotated[str | None, Field(max_length=200, description="Of this session alone.")] = None

    async def answer(self, client: Client) -> Spending:
        """What was spent. Raises BadInput for days that are none, or more than can be shown."""
        return await client.spending(Days.of(self.since, self.until, utc_now().date()), self.session or None)


@v1.get("/spending")
async def get_spending(client: Asking, query: Annotated[SpendingQuery, Query()]) -> Spending:
    """What tasks have spent, by day, task, role of the agent and model."""
    return await query.answer(client)


@v1.get("/memory")
async def get_search_memory(
    request: Request, client: Asking, who: Who, wish: Annotated[MemorySearchRequest, Query()]
) -> tuple[MemoryMatchJson, ...]:
    """What agents would recall, the best first; names stay replaced. Where none `has_words` of the query, perhaps none
    of it fits.
    """
    found = await recall_for_tenant(request, client, who, wish)
    return await run_in_threadpool(lambda: tuple(MemoryMatchJson.of(one, wish.query) for one in found))


First = Annotated[int, Query(ge=0, le=10_000)]
Count = Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE)]


@v1.get("/sessions")
async def get_sessions(client: Asking, first: First = 0, count: Count = MOST_ON_A_PAGE) -> tuple[KnownSession, ...]:
    """Sessions with what their tasks have spent together, those with the newest tasks before others."""
    return await client.sessions(first, count)


@v1.put("/sessions/{session:path}/limit")
async def put_limit_session(
    client: Asking, session: Annotated[str, Path(min_length=1, max_length=200)], wanted: SessionLimit
) -> SessionJson:
    """Set what all tasks of a session may spend together."""
    limit = await limit_session(client, session, wanted.budget)
    return SessionJson(session=session, limit_tokens=limit.tokens, limit_usd=limit.usd)


@v1.post("/client/{role}/{name}", include_in_schema=False)
async def call_client(
    client: Asking,
    who: Who,
    role: Permit,
    name: str,
    given: Annotated[dict[str, JsonValue], Body()],
    version: Annotated[str, Header(alias=VERSION_HEADER, max_length=40)] = "",
) -> Response:
    """What our own client asks for, of the same version as this server: its values are no interface of others."""
    called = CALLS.get(name)
    if version != __version__:
        raise HTTPException(
            409,
            f"this server is Waystation {__version__}, and {plain(version) or 'none'} asks: both have to be the same",
        )
    if called is None or called.role != role:
        raise HTTPException(404, f"a client does not ask for {role} {plain(name)}")
    return Response(await call_for(client, who, called, given), media_type="application/json")
