"""`/v1`: tasks, reports, requests and sessions over HTTP, in the shapes of `--json`."""

import asyncio
import secrets
from collections.abc import AsyncGenerator
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from markdown_it import MarkdownIt
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from waystation.client import Client
from waystation.client.context import AgentAudits
from waystation.client.task_json import CancelJson, ReportJson, SessionJson, TaskJson, ViewJson, task_json
from waystation.domain.amount import Amount, Limit, read_limit
from waystation.domain.budget import Mode
from waystation.domain.compaction.audit import ShownTranscript, shown
from waystation.domain.compaction.history import view
from waystation.domain.documents import Document
from waystation.domain.errors import BadInput, WaystationError
from waystation.domain.foreign import plain
from waystation.domain.progress import Bill
from waystation.domain.signals import Answer
from waystation.domain.task import SourceDocument, TaskRequest, own_session
from waystation.domain.value import Input
from waystation.markdown import inert
from waystation.serve.access import Problem, event
from waystation.task_view import PendingApproval, Submitted, TaskView

MOST_DOCUMENTS = 1_000
MOST_ON_A_PAGE = 100


def client_of(request: Request) -> Client:
    """The client that the server was started with."""
    client = request.app.state.client
    if not isinstance(client, Client):
        raise TypeError("the application has no client")
    return client


Asking = Annotated[Client, Depends(client_of)]
TaskPath = Annotated[str, Path(pattern="^(task-)?[0-9a-f]{4,16}$", description="Id of the task, or its beginning.")]
AgentPath = Annotated[str, Path(pattern="^[a-z0-9.-]{1,60}$", description="Id of the agent's step, like research-1.")]


class NewTask(Input):
    """A task to hand in. Amounts are written as in commands: `600k`, `$2.00`, `600k+$2.00`."""

    question: str = Field(min_length=1, max_length=20_000)
    instructions: str = Field(default="", max_length=100_000)
    accept: tuple[str, ...] = ()
    session: str | None = Field(default=None, min_length=1, max_length=200)
    budget: str | None = Field(default=None, max_length=60)
    mode: Mode | None = None
    documents: tuple[SourceDocument, ...] = Field(default=(), max_length=MOST_DOCUMENTS)
    """Names and texts; without any, those of the session's newest task."""


class Grant(Input):
    """An answer that approves. Without an amount, what was asked for."""

    request_id: str = Field(min_length=1, max_length=200)
    add: str | None = Field(default=None, max_length=60)
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=2_000)


class Denial(Input):
    """An answer that denies."""

    request_id: str = Field(min_length=1, max_length=200)
    finish: Literal["partial", "cancel"] = "partial"
    by: str = Field(default="", max_length=200)
    note: str = Field(default="", max_length=2_000)


class NewWords(Input):
    """What agents are told."""

    message: str = Field(min_length=1, max_length=20_000)
    by: str = Field(default="", max_length=200)


class SessionLimit(Input):
    """What all tasks of a session may spend; null: without a limit."""

    budget: str | None = Field(max_length=60)


def written_limit(text: str | None) -> Limit | None:
    """As it was written. Raises BadInput."""
    if not text:
        return None
    try:
        return read_limit(text)
    except ValueError as error:
        raise BadInput(str(error)) from error


async def take_in(client: Client, tenant: str, new: NewTask, request_id: str) -> Submitted:
    """Submit it. Raises BadInput where there is nothing to work on, and as `Client.submit` does."""
    session = own_session(request_id) if new.session is None else new.session
    documents = new.documents or await client.documents_of_session(session)
    if not documents:
        raise BadInput("give the documents to work on, or the session of an earlier task to go on with those of it")
    told = new.model_dump(include={"question", "instructions", "accept", "mode"})
    request = TaskRequest.model_validate(
        {**told, "tenant": tenant, "session": session, "request_id": request_id, "budget": written_limit(new.budget)}
    )
    return await client.submit(request, documents)


async def stop(client: Client, task: str) -> CancelJson:
    """Ask a task to stop; one that is over stays as it is."""
    task_id = await client.resolve(task)
    phase = (await client.progress(task_id)).progress.phase
    if not phase.over:
        await client.cancel(task_id)
    return CancelJson(task_id=task_id, phase=phase.value, asked=not phase.over)


async def grant(client: Client, task: str, given: Grant) -> Answer:
    """Approve one request, by its id."""
    limit = written_limit(given.add)
    amount: Amount | None = limit.amount if limit is not None else None
    task_id = await client.resolve(task)
    return await client.approve(task_id, request_id=given.request_id, amount=amount, by=given.by, note=given.note)


async def refuse(client: Client, task: str, given: Denial) -> Answer:
    """Deny one request, by its id."""
    return await client.deny(await client.resolve(task), **given.model_dump())


def unless_refused(answer: Answer) -> Answer:
    """The answer, unless it was refused: somebody else was first, or nothing waits for it. Raises HTTPException."""
    if answer.outcome == "refused":
        raise HTTPException(409, answer.reason)
    return answer


def as_html(markdown: str) -> str:
    """A report as HTML: no HTML of its own, no images, and links only where the address is what is read.

    It takes a second for 20,000 characters of nothing but brackets: not on the loop that answers others.
    """
    return MarkdownIt("commonmark", {"html": False}).enable("table").disable("image").render(inert(markdown))


v1 = APIRouter(prefix="/v1", tags=["v1"])


@v1.get("/tasks")
async def get_tasks(
    client: Asking,
    session: Annotated[str | None, Query(max_length=200)] = None,
    first: Annotated[int, Query(ge=0, le=10_000)] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_ON_A_PAGE)] = MOST_ON_A_PAGE,
) -> tuple[TaskJson, ...]:
    """The newest tasks."""
    return tuple(task_json(one, None) for one in (await client.tasks(session))[first : first + count])


@v1.post("/tasks", status_code=201)
async def post_submit(
    request: Request,
    client: Asking,
    new: NewTask,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> Submitted:
    """Hand in a task. The same `Idempotency-Key` finds the same task."""
    return await take_in(client, str(request.app.state.tenant), new, idempotency_key or secrets.token_hex(8))


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
async def post_tell(client: Asking, task: TaskPath, words: NewWords) -> Answer:
    """Tell the agents of a running task something."""
    return unless_refused(await client.tell(await client.resolve(task), words.message, words.by))


@v1.post("/tasks/{task}/approve")
async def post_approve(client: Asking, task: TaskPath, given: Grant) -> Answer:
    """Grant a request, or let its agent call a tool, once. 409 where it has been answered."""
    return unless_refused(await grant(client, task, given))


@v1.post("/tasks/{task}/deny")
async def post_deny(client: Asking, task: TaskPath, given: Denial) -> Answer:
    """Refuse a request. 409 where it has been answered."""
    return unless_refused(await refuse(client, task, given))


@v1.get("/tasks/{task}/report", response_model=ReportJson)
async def get_report(
    client: Asking, task: TaskPath, form: Annotated[Literal["json", "markdown", "html"], Query()] = "json"
) -> Response | ReportJson:
    """The report that was delivered last."""
    task_id = await client.resolve(task)
    text, progress = await client.report(task_id), await client.reported(task_id)
    match form:
        case "json":
            version = progress.readable.number if progress.readable else None
            return ReportJson(task_id=task_id, phase=progress.phase, version=version, report=text)
        case "markdown":
            return Response(text, media_type="text/markdown")
        case "html":
            return Response(await asyncio.to_thread(as_html, text), media_type="text/html")


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
async def get_transcript(client: Asking, task: TaskPath, agent: AgentPath) -> ShownTranscript:
    """Everything that one agent said and was told, with what hides and masks it now."""
    return shown(await client.transcript(await client.resolve(task), agent))


@v1.get("/tasks/{task}/agents/{agent}/view")
async def get_agent_view(client: Asking, task: TaskPath, agent: AgentPath) -> ViewJson:
    """What the model sees of it now."""
    found = await client.transcript(await client.resolve(task), agent)
    return ViewJson(run_id=found.run_id, messages=view(found))


@v1.get("/tasks/{task}/events", response_class=StreamingResponse)
async def get_events(
    client: Asking, task: TaskPath, last_event_id: Annotated[str | None, Header(max_length=80)] = None
) -> Response:
    """The task whenever it has changed, until it is over, as server-sent events `task`.

    Each is the whole state, and its id a digest of it: who comes back with `Last-Event-ID` is not told the same again,
    and by 204 that nothing more will come.
    """
    task_id = await client.resolve(task)
    now = await client.progress(task_id)
    if now.progress.phase.over and _numbered(now)[0] == last_event_id:
        return Response(status_code=204)
    return StreamingResponse(_states(client, task_id, last_event_id), media_type="text/event-stream")


async def _states(client: Client, task_id: str, last: str | None) -> AsyncGenerator[bytes]:
    try:
        async for seen in client.watch(task_id):
            number, state = _numbered(seen)
            if number != last:
                yield event("task", state, number)
            last = number
    except WaystationError as error:
        # The answer has begun: what went wrong can only be said in it.
        problem = Problem(title="No more events", status=503, detail=plain(" ".join(str(error).split())))
        yield event("problem", problem.model_dump_json())


def _numbered(seen: TaskView) -> tuple[str, str]:
    state = task_json(seen, None).model_dump_json()
    return sha256(state.encode()).hexdigest()[:32], state


@v1.get("/approvals")
async def get_approvals(client: Asking) -> tuple[PendingApproval, ...]:
    """What waits for an answer, the most urgent first."""
    return await client.approvals()


@v1.put("/sessions/{session}/limit")
async def put_limit_session(
    client: Asking, session: Annotated[str, Path(min_length=1, max_length=200)], wanted: SessionLimit
) -> SessionJson:
    """Set what all tasks of a session may spend together."""
    limit = written_limit(wanted.budget) or Limit()
    await client.set_session_limit(session, limit)
    return SessionJson(session=session, limit_tokens=limit.tokens, limit_usd=limit.usd)
