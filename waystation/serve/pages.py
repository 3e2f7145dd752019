"""The pages: tasks with what waits for a person, and one task with its plan, money, requests and report."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from http import HTTPStatus
from secrets import token_hex
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from pydantic import field_validator
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from waystation.adapters.clock import utc_now
from waystation.client import Client
from waystation.client.context import MOST_QUERY, MemoryWish, where
from waystation.client.lookups import NEWEST
from waystation.domain.amount import Amount
from waystation.domain.compaction.audit import shown
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.memory import Excerpt
from waystation.domain.progress import SpentBy
from waystation.domain.task import TaskPhase
from waystation.serve.access import SAFE, SIGN_IN, SignIn, Who, principal_of, wanted_page
from waystation.serve.api import (
    LAST_NUMBER,
    MOST_ON_A_PAGE,
    AgentPath,
    Feeding,
    First,
    SpendingQuery,
    TaskQuery,
    recalled_for,
)
from waystation.serve.bodies import (
    Asking,
    Denial,
    Grant,
    NewEdit,
    NewFork,
    NewTask,
    TaskPath,
    answer_chosen,
    change,
    fork_off,
    grant,
    grant_each,
    limit_session,
    refuse,
    refuse_each,
    stop,
    take_in,
    uploaded,
    usual_terms,
)
from waystation.serve.charts import spent_days
from waystation.serve.principals import UNKNOWN_PRINCIPAL
from waystation.serve.task_page import Links, cited_lines, exported_of, rendered, report_markup, run_file, shown_task
from waystation.task_view import TaskFilter, pending

AT_ONCE = 50
"""Requests that one confirmation answers."""
MOST_FILES, MOST_FIELDS = 200, AT_ONCE + 20
GOING_ON_SECONDS, GOING_ON_LOOK_SECONDS = 10.0, 0.2
"""Until a worker has taken up a task that was over."""

_NOT_TAKEN = "what you sent was not taken: sign in, then go back to where you wrote it and send it again"

pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _access(request: Request) -> SignIn:
    access = request.app.state.access
    if not isinstance(access, SignIn):
        raise TypeError("the application has no access")
    return access


def _page(request: Request, name: str, status: int = 200, **shown_there: object) -> HTMLResponse:
    who = principal_of(request)
    return HTMLResponse(rendered(name, mark=_access(request).mark, who=who, **shown_there), status)


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """What went wrong and what to do, with the way back; or the form for a key, where nobody is signed in.

    It is asked for before the routes, too, where no application and nobody is known.
    """
    who = request.scope.get("state", {}).get("principal", UNKNOWN_PRINCIPAL)
    if status != HTTPStatus.UNAUTHORIZED:
        return HTMLResponse(rendered("error.html", title=title, detail=detail, who=who), status)
    tried = request.url.path == SIGN_IN
    remark = detail if tried else "" if request.method in SAFE else _NOT_TAKEN
    return HTMLResponse(rendered("sign_in.html", remark=remark, who=who, to=wanted_page(request.scope)), status)


@asynccontextmanager
async def _form(request: Request) -> AsyncGenerator[FormData]:
    """What our own form sent, with its files until the end of the block. Raises HTTPException for any other."""
    async with request.form(max_files=MOST_FILES, max_fields=MOST_FIELDS) as form:
        if not _access(request).is_mark(_field(form, "mark")):
            raise HTTPException(403, "this form is of another run of the server: load its page again")
        yield form


def _field(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _answer_of(form: FormData) -> dict[str, str]:
    return {name: _field(form, name) for name in ("request_id", "by", "note")}


class TasksPageQuery(TaskQuery):
    """Which tasks the list has. A form that was left empty asks for nothing."""

    @field_validator("session", "phase", mode="before")
    @classmethod
    def _unless_empty(cls, given: object) -> object:
        return () if given == [""] else given or None


@pages.get("/")
async def front(request: Request, client: Asking, who: Who, query: Annotated[TasksPageQuery, Query()]) -> HTMLResponse:
    """What waits for a person, the newest tasks or those that are looked for, and the form for another."""
    views = await client.tasks(query.wanted)
    try:
        waiting, remark = await client.approvals(), ""
    except Unreachable as away:
        waiting, remark = (), str(away)
    behind = query.first + query.count
    return _page(
        request,
        "tasks.html",
        tasks=views[query.first : behind],
        behind=behind if len(views) > behind else None,
        query=query,
        phases=tuple(TaskPhase),
        newest=NEWEST,
        waiting=waiting,
        remark=remark,
        request_id=token_hex(8),
        now=utc_now(),
        terms=await usual_terms(client, who.tenant),
    )


@pages.get("/answers")
async def answers_page(
    request: Request,
    client: Asking,
    chosen: Annotated[tuple[str, ...], Query(alias="request", max_length=AT_ONCE)] = (),
) -> HTMLResponse:
    """The chosen requests once more, before one answer is given to all of them."""
    waiting = {f"{one.task_id}/{one.approval.request_id}": one for one in await client.approvals()}
    found = [waiting[one] for one in dict.fromkeys(chosen) if one in waiting]
    money = [one.approval.asked for one in found if one.approval.action is None and not one.approval.about_plan]
    together = sum(money, Amount())
    return _page(request, "answers.html", waiting=found, gone=len({*chosen} - waiting.keys()), together=together)


@pages.post("/answers/approve")
@pages.post("/answers/deny")
async def answer_by_form(request: Request, client: Asking, who: Who) -> HTMLResponse:
    """Grant or refuse all requests that the form names, each by itself, and say what became of each."""
    async with _form(request) as form:
        chosen = [one for one in form.getlist("request") if isinstance(one, str)]
        said = Grant(**_answer_of(form) | {"request_id": "each"})
    answer_each = grant_each if request.url.path.endswith("/approve") else refuse_each
    each = await answer_chosen(client, chosen, said, who, answer_each)
    return _page(request, "answered.html", each=each)


class SpendingPageQuery(SpendingQuery):
    """And how it is shown. A form that was left empty asks for nothing."""

    by: SpentBy = "model"

    @field_validator("since", "until", mode="before")
    @classmethod
    def _unless_empty(cls, given: object) -> object:
        return given or None


@pages.get("/spending")
async def spending_page(
    request: Request,
    client: Asking,
    query: Annotated[SpendingPageQuery, Query()],
) -> HTMLResponse:
    """What was spent on which days, drawn and in tables."""
    spending = await query.answer(client)
    days = spent_days(spending, query.by)
    return _page(request, "spending.html", spending=spending, days=days, by=query.by, session=query.session or "")


@pages.get("/sessions")
async def sessions_page(request: Request, client: Asking, first: First = 0) -> HTMLResponse:
    """Lines of work, those with the newest tasks before others."""
    found = await client.sessions(first, MOST_ON_A_PAGE + 1)
    behind = first + MOST_ON_A_PAGE if len(found) > MOST_ON_A_PAGE else None
    return _page(request, "sessions.html", sessions=found[:MOST_ON_A_PAGE], first=first, behind=behind)


SessionName = Annotated[str, Query(min_length=1, max_length=200)]


@pages.get("/session")
async def session_page(request: Request, client: Asking, name: SessionName) -> HTMLResponse:
    """One line of work: its newest tasks, what they spent, and the form for what all of them may spend."""
    tasks = await client.tasks(TaskFilter(session=name))
    return _page(request, "session.html", session=name, tasks=tasks, newest=NEWEST, now=utc_now(), limit_set=None)


@pages.post("/session/limit")
async def session_limit_by_form(request: Request, client: Asking) -> HTMLResponse:
    """Set what all tasks of a session may spend together; nothing given: without a limit."""
    async with _form(request) as form:
        name, budget = _field(form, "name"), _field(form, "budget")
    limit_set = await limit_session(client, name, budget.strip() or None)
    tasks = await client.tasks(TaskFilter(session=name))
    return _page(request, "session.html", session=name, tasks=tasks, newest=NEWEST, now=utc_now(), limit_set=limit_set)


class FoundStretch(NamedTuple):
    """What memory found, for people."""

    where: str
    created: datetime
    score: float
    task_id: str
    parts: tuple[tuple[str, bool], ...]
    """Its text in pieces, and whether each is a word that was looked for."""


@pages.get("/memory")
async def memory_page(
    request: Request,
    client: Asking,
    who: Who,
    query: Annotated[str, Query(max_length=MOST_QUERY)] = "",
    session: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """What agents would recall."""
    asked = query.strip()
    wish = MemoryWish(query=asked, session=session.strip() or None) if asked else None
    found = () if wish is None else await recalled_for(request, client, who, wish)
    hits = await run_in_threadpool(lambda: [with_matches(asked, one) for one in found])
    return _page(request, "memory.html", query=query, session=session, asked=bool(asked), hits=hits)


def with_matches(query: str, found: Excerpt) -> FoundStretch:
    """One stretch, with the words that match apart."""
    # The libraries that tell words apart take a while to load.
    from waystation.words import matches  # noqa: PLC0415

    parts: list[tuple[str, bool]] = []
    read = 0
    for start, end in matches(query, found.text):
        parts += [(found.text[read:start], False), (found.text[start:end], True)]
        read = end
    best = found.best.passage
    return FoundStretch(where(best), best.created, found.best.score, best.task_id, (*parts, (found.text[read:], False)))


@pages.get("/tasks/{task}")
async def task_page(
    request: Request,
    client: Asking,
    feed: Feeding,
    task: TaskPath,
    since: Annotated[int | None, Query(ge=0, le=LAST_NUMBER)] = None,
) -> HTMLResponse:
    """One task as it is now; where no server answers, as the store has it. It is followed while it works, and where it
    was over and has been made to go on `since` that event, until it is over again.
    """
    task_id = await client.resolve(task)
    seen = await client.newest_event()
    parts = await shown_task(client, task_id, await feed.known.of(task_id))
    progress = parts.view.progress
    follows = not progress.phase.over or (since is not None and parts.ended <= since)
    return _page(
        request,
        "task.html",
        **parts._asdict(),
        seen=min(seen, seen if since is None else since),
        follows=follows,
        request_id=token_hex(8),
        waiting=pending(progress),
    )


@pages.get("/tasks/{task}/run.html")
async def run_page(client: Asking, task: TaskPath) -> Response:
    """The whole run as one file, to keep or to send."""
    task_id = await client.resolve(task)
    named = {"content-disposition": f'attachment; filename="{task_id}.html"'}
    return HTMLResponse(await run_file(client, task_id), headers=named)


@pages.get("/tasks/{task}/report")
async def report_page_beside(
    request: Request, client: Asking, task: TaskPath, source: Annotated[int, Query(ge=0, le=100_000)] = 0
) -> HTMLResponse:
    """The report, and beside it what one of its citations leads to."""
    task_id = await client.resolve(task)
    exported = await exported_of(client, await client.last_known(task_id))
    if exported is None:
        raise BadInput(f"{task_id} has no report yet")
    cited = next((one for one in exported.sources if one.number == source), None)
    lines, remark = (), ""
    if cited is not None:
        try:
            lines = cited_lines(await client.document_text(task_id, cited.document), cited)
        except BadInput as gone:
            remark = str(gone)
    return _page(
        request,
        "report.html",
        task_id=task_id,
        title=exported.title,
        report=await report_markup(exported, task_id),
        source=cited,
        lines=lines,
        remark=remark,
    )


@pages.get("/tasks/{task}/agents/{agent}")
async def agent_page(request: Request, client: Asking, task: TaskPath, agent: AgentPath) -> HTMLResponse:
    """Everything that one agent said and was told."""
    task_id = await client.resolve(task)
    log = shown(await client.transcript(task_id, agent))
    over, links = await client.is_over(task_id), Links(task_id, "pages")
    return _page(request, "agent.html", task_id=task_id, agent=agent, log=log, over=over, links=links)


@pages.get("/tasks/{task}/agents/{agent}/compactions")
async def compactions_page(request: Request, client: Asking, task: TaskPath, agent: AgentPath) -> HTMLResponse:
    """What of that the compactions of the agent kept, and what they lost. To find it takes a while."""
    task_id = await client.resolve(task)
    audits = [one for found in await client.audits(task_id, agent) for one in found.compactions]
    links = Links(task_id, "pages")
    return _page(request, "compactions.html", task_id=task_id, agent=agent, audits=audits, links=links)


@pages.post("/tasks")
async def submit_by_form(request: Request, client: Asking, who: Who) -> RedirectResponse:
    """Hand in what the form has."""
    async with _form(request) as form:
        files = [one for one in form.getlist("documents") if isinstance(one, UploadFile) and one.filename]
        new = NewTask(
            question=_field(form, "question"),
            session=_field(form, "session") or None,
            budget=_field(form, "budget") or None,
            review_plan=True if _field(form, "review_plan") else None,
            documents=await uploaded(files),
        )
        request_id = _field(form, "request_id") or token_hex(8)
    submitted = await take_in(client, who.tenant, new, request_id)
    return RedirectResponse(f"/tasks/{submitted.task_id}", 303)


@pages.post("/tasks/{task}/approve")
async def approve_by_form(request: Request, client: Asking, who: Who, task: TaskPath) -> Response:
    """Grant the one request that the form names."""
    async with _form(request) as form:
        given = Grant(**_answer_of(form), add=_field(form, "add") or None)
    answer = await grant(client, task, given, who)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/deny")
async def deny_by_form(request: Request, client: Asking, who: Who, task: TaskPath) -> Response:
    """Refuse the one request that the form names."""
    async with _form(request) as form:
        given = Denial.model_validate(_answer_of(form))
    answer = await refuse(client, task, given, who)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/tell")
async def tell_by_form(request: Request, client: Asking, who: Who, task: TaskPath) -> Response:
    """Tell the task's agents something."""
    async with _form(request) as form:
        words, by = _field(form, "message"), _field(form, "by")
    answer = await client.tell(await client.resolve(task), words, who.name or by)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/agents/{agent}/edit")
async def edit_by_form(request: Request, client: Asking, who: Who, task: TaskPath, agent: AgentPath) -> Response:
    """Compact, pin, or rewind an agent's context."""
    async with _form(request) as form:
        wanted = NewEdit.model_validate(
            {"agent": agent, "action": _field(form, "action"), "message": _field(form, "message") or None}
        )
    task_id, since = await client.resolve(task), await client.newest_event()
    over = await client.is_over(task_id)
    answer = await change(client, task_id, wanted, who)
    if answer.outcome == "refused" or not over:
        return _after(request, task, answer.outcome, answer.reason)
    await _going_on(client, task_id, since)
    return RedirectResponse(f"/tasks/{task_id}?since={since}", 303)


async def _going_on(client: Client, task_id: str, since: int) -> None:
    """Wait a moment until something has happened to it behind that event: its page then follows what comes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(GOING_ON_SECONDS):
            while not (await client.events(since, task_id, 1)).events:  # noqa: ASYNC110  the store gives none
                await asyncio.sleep(GOING_ON_LOOK_SECONDS)


@pages.post("/tasks/{task}/fork")
async def fork_by_form(request: Request, client: Asking, task: TaskPath) -> RedirectResponse:
    """A new task with what this one has finished, from a step on."""
    async with _form(request) as form:
        wanted = NewFork(step=_field(form, "step"), budget=_field(form, "budget") or None)
        request_id = _field(form, "request_id") or token_hex(8)
    submitted = await fork_off(client, task, wanted, request_id)
    return RedirectResponse(f"/tasks/{submitted.task_id}", 303)


@pages.post("/tasks/{task}/cancel")
async def cancel_by_form(request: Request, client: Asking, task: TaskPath) -> RedirectResponse:
    """Ask the task to stop."""
    async with _form(request):
        done = await stop(client, task)
    return RedirectResponse(f"/tasks/{done.task_id}", 303)


def _after(request: Request, task: str, outcome: str, reason: str) -> Response:
    if outcome == "refused":
        return error_page(request, 409, "Refused", reason)
    return RedirectResponse(f"/tasks/{task}", 303)
