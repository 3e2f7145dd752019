"""The web pages: tasks with their pending requests, and one task with its plan, spending, requests and report."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from secrets import token_hex
from time import monotonic
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathField
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, field_validator
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from waystation.agents.deliverables import ReportLength
from waystation.budgets.budget import BudgetMode
from waystation.client import Client
from waystation.client.agent_contexts import (
    MAX_QUERY_CHARACTERS,
    NOTHING_FITS,
    MemorySearchRequest,
    format_passage_origin,
)
from waystation.client.erasure import ForgetResult, TaskSelection, format_removed_counts, select_schedules
from waystation.client.file_previews import FilePreviews
from waystation.client.passage_views import load_redacted_source_view, load_source_view
from waystation.client.store_queries import DEFAULT_TASK_LIMIT
from waystation.context.audit import build_transcript_view
from waystation.documents.document_loading import DocumentLoadResult, sanitize_document_name
from waystation.documents.documents import SkippedItem, SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import (
    BadInput,
    InvalidFieldError,
    MemoryUnavailable,
    NothingToDraft,
    RedactionFailed,
    StartUnknownError,
    UnknownTask,
    Unreachable,
    WaystationError,
)
from waystation.kernel.roles import list_step_roles
from waystation.memory.passages import MemoryExcerpt
from waystation.planning.plan import MAX_STEPS
from waystation.plugins.web.access import (
    MAX_BODY_BYTES,
    SAFE_METHODS,
    SIGN_IN,
    AccessPolicy,
    CurrentPrincipal,
    RateLimiter,
    get_principal,
    get_redirect_path,
)
from waystation.plugins.web.activity_page import (
    EVENT_WORDS,
    SELECTABLE,
    ActivitySelection,
    build_activity_page_view,
    format_duration,
)
from waystation.plugins.web.amounts import describe_earlier_spending, format_written_limit
from waystation.plugins.web.api import (
    LAST_NUMBER,
    MAX_PAGE_SIZE,
    ActivityQuery,
    AgentPath,
    First,
    SpendingQuery,
    TaskQuery,
    TenantFeed,
    search_memory_for_tenant,
)
from waystation.plugins.web.app import convert_exception_to_problem
from waystation.plugins.web.charts import build_daily_spending_chart
from waystation.plugins.web.event_feed import EventFeed
from waystation.plugins.web.forms import (
    NO_REJECTED_FORM,
    WHOLE_FORM,
    FormErrorCollector,
    FormValidationError,
    RejectedForm,
    build_rejected_form,
    extract_form_texts,
)
from waystation.plugins.web.plan_forms import (
    MAX_PLAN_FIELDS,
    PlanFormStep,
    add_form_step,
    build_plan_of_form,
    list_form_steps,
    parse_form_steps,
    remove_form_step,
)
from waystation.plugins.web.principals import UNKNOWN_PRINCIPAL, AssistantPolicy, Principal
from waystation.plugins.web.report_exports import Exporter, draw_uploaded_passage
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
    TaskPath,
    TenantClient,
    TenantServiceProvider,
    add_schedule,
    answer_selected_requests,
    apply_schedule_action,
    build_task_request,
    cancel_task,
    create_report_link,
    deliver_task,
    deny_task_request,
    deny_task_requests,
    edit_agent_context,
    forget_session,
    fork_task,
    get_default_task_config,
    grant_task_request,
    grant_task_requests,
    parse_session_limit,
    parse_task_budget,
    send_plan,
    use_session_documents,
)
from waystation.plugins.web.schedule_forms import SCHEDULE_DAYS, build_cron, describe_cron
from waystation.plugins.web.task_page import (
    FORGOTTEN_TASK,
    MAX_DOCUMENT_LINES,
    LinkBuilder,
    build_exported_report,
    build_task_page_view,
    describe_closed_request,
    load_exported_report,
    mark_cited_lines,
    render_linked_markup,
    render_report_markup,
    render_run_file,
    render_template,
)
from waystation.plugins.web.uploads import MAX_FILES, UploadReader, Uploads
from waystation.security.untrusted import sanitize_line
from waystation.tasks.approvals import is_amount_rejection
from waystation.tasks.details import parse_grant
from waystation.tasks.report_links import DEFAULT_DAYS, MAX_DAYS, MadeReportLink, NewReportLink
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import Preset, TaskPhase, TaskRequest, make_own_session_name
from waystation.tasks.view import PendingApproval, TaskFilter, TaskView, list_pending_approvals

MAX_REASON_CHARACTERS = 300
"""Maximum characters of the reason why a page left a file out."""
SHARED_AT_ONCE, SHARED_A_SECOND = 60, 1.0
"""Rate limit of requests for shared reports from one address."""
AT_ONCE = 50
"""Maximum number of requests that one confirmation answers."""
MAX_FORM_FIELDS = MAX_PLAN_FIELDS + 20
"""The form of a plan has the most fields."""
MAX_PREVIEW_LINES = 2_000
"""Maximum lines of one document on the page that shows what agents would see."""

NOTHING_TO_DRAFT = (
    "No agent has noted, found or written anything yet. The page of the task shows what its agents do, and what waits "
    "for your answer."
)
START_UNKNOWN = (
    "The server did not answer in time, so the task may have started. You can press Start research again: the task "
    "starts only once."
)
_NOT_TAKEN = "what you sent was not accepted: sign in, then go back to the form and send it again"

REPORT_LENGTHS: tuple[ReportLength, ...] = get_args(ReportLength)
NEW_TASK, PLAN_FORM, NEW_SCHEDULE = "new-task", "plan", "new-schedule"
"""Ids of the forms that submit a task, edit a plan and add a schedule."""

pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _access(request: Request) -> AccessPolicy:
    access = request.app.state.access
    if not isinstance(access, AccessPolicy):
        raise TypeError("the application has no access")
    return access


def _page(
    request: Request, name: str, /, status: int = 200, back: RejectedForm = NO_REJECTED_FORM, **shown_there: object
) -> HTMLResponse:
    """Render a page. `back`: a form of it that was not accepted, which is shown as it was sent."""
    shown = {"mark": _access(request).csrf_token, "back": back, **_about_reader(get_principal(request), request)}
    return HTMLResponse(render_template(name, **shown, **shown_there), back.status or status)


def _about_reader(who: Principal, request: Request) -> Mapping[str, object]:
    """Return what every page shows: who reads it, and which page it is."""
    return {"who": who, "signed_in": who is not UNKNOWN_PRINCIPAL, "path": request.url.path}


def render_error_page(
    request: Request,
    status: int,
    title: str,
    detail: str,
    typed: Mapping[str, str] = MappingProxyType({}),
    task_id: str = "",
) -> Response:
    """Render an error with what to do and the way back; or the sign-in form, if no one is signed in.

    Also called before the routes, without an application or a known principal. `typed`: values of a form that no page
    has any more. `task_id`: task whose page is the way back; empty: the list of tasks.
    """
    who = request.scope.get("state", {}).get("principal", UNKNOWN_PRINCIPAL)
    if status != HTTPStatus.UNAUTHORIZED:
        shown = {"title": title, "detail": detail, "typed": typed, "task_id": task_id, **_about_reader(who, request)}
        return HTMLResponse(render_template("error.html", **shown), status)
    tried = request.url.path == SIGN_IN
    remark = detail if tried else "" if request.method in SAFE_METHODS else _NOT_TAKEN
    shown = {"remark": remark, "to": get_redirect_path(request.scope), **_about_reader(UNKNOWN_PRINCIPAL, request)}
    return HTMLResponse(render_template("sign_in.html", **shown), status)


Act = Callable[[FormData], Awaitable[Response]]
Again = Callable[[RejectedForm], Awaitable[Response]]
Named = Callable[[Mapping[str, str]], str]


async def _taken(request: Request, act: Act, again: Again | None = None, named: str | Named = "") -> Response:
    """Process one of our own forms; its files exist until that is done. If something in it is invalid, its page is
    rendered by `again` with the form as it was sent; without a page, the typed values are shown with the error.

    `named`: the form's id on that page, or how it follows from the fields.
    """
    async with request.form(max_files=MAX_FILES, max_fields=MAX_FORM_FIELDS) as form:
        typed = extract_form_texts(form)
        try:
            if not _access(request).is_csrf_token(_field(form, "mark")):
                raise HTTPException(
                    403, "the server has restarted since it showed this form: check the form, and send it again"
                )
            return await act(form)
        except (WaystationError, ValidationError, HTTPException) as error:
            status, title, reason = convert_exception_to_problem(error)
            name = named if isinstance(named, str) else named(typed)
            sent = build_rejected_form(name, typed, error, status, reason)
    if again is not None:
        try:
            return await again(sent)
        except (WaystationError, HTTPException) as error:
            if not isinstance(error, UnknownTask):
                reason = f"{reason}; the page of the form cannot be shown: {convert_exception_to_problem(error)[2]}"
    return render_error_page(request, status, title, reason, sent.labelled_values)


def _field(form: FormData, name: str) -> str:
    value = form.get(name, "")
    return value.strip() if isinstance(value, str) else ""


def _answer_of(form: FormData) -> dict[str, str]:
    return {name: _field(form, name) for name in ("request_id", "by", "note")}


class TasksPageQuery(TaskQuery):
    """Filter of the list of tasks. An empty form filters nothing, and fields that are unknown are ignored: mail clients
    add their own to links.
    """

    model_config = ConfigDict(extra="ignore")

    follow: str | None = Field(default=None, pattern=TASK_ID_PATTERN)
    """Task that a new one continues."""

    @field_validator("session", "phase", mode="before")
    @classmethod
    def _unless_empty(cls, given: object) -> object:
        return () if given == [""] else given or None


@pages.get("/")
async def render_home_page(
    request: Request,
    client: TenantClient,
    principal: CurrentPrincipal,
    query: Annotated[TasksPageQuery, Query()],
) -> Response:
    """Render the form for a new task, and the newest or matching tasks."""
    follows = (
        None if query.follow is None else await client.get_last_known_task(await client.resolve_task_id(query.follow))
    )
    if follows is not None and follows.forgotten:
        return _forgotten(request, follows.task_id)
    return await _home(request, client, principal, query, follows=follows)


async def _home(
    request: Request,
    client: Client,
    principal: Principal,
    query: TasksPageQuery,
    back: RejectedForm = NO_REJECTED_FORM,
    follows: TaskView | None = None,
) -> HTMLResponse:
    seen = await client.get_newest_event_number()
    views = await client.list_tasks(query.task_filter)
    waiting, remark = await _load_waiting(client)
    behind = query.first + query.count
    return _page(
        request,
        "home.html",
        back=back,
        seen=seen,
        tasks=views[query.first : behind],
        behind=behind if len(views) > behind else None,
        query=query,
        phases=tuple(TaskPhase),
        newest=DEFAULT_TASK_LIMIT,
        waiting=len(waiting),
        remark=remark,
        follows=follows,
        earlier=describe_earlier_spending(views),
        request_id=back.value(NEW_TASK, "request_id") or token_hex(8),
        lengths=REPORT_LENGTHS,
        modes=tuple(BudgetMode),
        presets=tuple(Preset),
        most_bytes=MAX_BODY_BYTES,
        most_files=MAX_FILES,
        now=utc_now(),
        terms=await get_default_task_config(client, principal.tenant),
    )


async def _load_waiting(client: Client) -> tuple[tuple[PendingApproval, ...], str]:
    """Return the requests that wait, and why they are not known, if they are not."""
    try:
        return await client.list_approvals(), ""
    except Unreachable as away:
        return (), str(away)


@pages.get("/inbox")
async def render_inbox_page(request: Request, client: TenantClient) -> HTMLResponse:
    """Render the requests that wait for a person."""
    seen = await client.get_newest_event_number()
    waiting, remark = await _load_waiting(client)
    return _page(request, "inbox.html", seen=seen, waiting=waiting, remark=remark)


@pages.get("/answers")
async def render_answers_page(
    request: Request,
    client: TenantClient,
    chosen: Annotated[tuple[str, ...], Query(alias="request", max_length=AT_ONCE)] = (),
) -> HTMLResponse:
    """Render the selected requests for confirmation, before one answer is given to all of them."""
    return await _answers(request, client, chosen)


async def _answers(
    request: Request, client: Client, chosen: Sequence[str], back: RejectedForm = NO_REJECTED_FORM
) -> HTMLResponse:
    waiting = {f"{one.task_id}/{one.approval.request_id}": one for one in await client.list_approvals()}
    found = [waiting[one] for one in dict.fromkeys(chosen) if one in waiting]
    money = [one.approval.requested for one in found if one.approval.action is None and not one.approval.about_plan]
    together, gone = sum(money, Amount()), len({*chosen} - waiting.keys())
    return _page(request, "answers.html", back=back, waiting=found, gone=gone, together=together)


@pages.post("/answers/approve")
@pages.post("/answers/deny")
async def answer_by_form(request: Request, client: TenantClient, principal: CurrentPrincipal) -> Response:
    """Approve or deny all requests that the form names, each by itself, and show the result of each."""
    chosen: list[str] = []

    async def act(form: FormData) -> Response:
        chosen.extend([one for one in form.getlist("request") if isinstance(one, str)])
        said = Grant(**_answer_of(form) | {"request_id": "each"})
        answer_each = grant_task_requests if request.url.path.endswith("/approve") else deny_task_requests
        return _page(
            request, "answered.html", each=await answer_selected_requests(client, chosen, said, principal, answer_each)
        )

    return await _taken(request, act, lambda sent: _answers(request, client, chosen, sent), "answers")


class SpendingPageQuery(SpendingQuery):
    """Query of spending. An empty form restricts nothing, and fields that are unknown are ignored."""

    model_config = ConfigDict(extra="ignore")

    @field_validator("since", "until", mode="before")
    @classmethod
    def _unless_empty(cls, given: object) -> object:
        return given or None


@pages.get("/spending")
async def render_spending_page(
    request: Request,
    client: TenantClient,
    query: Annotated[SpendingPageQuery, Query()],
) -> HTMLResponse:
    """Render spending by day, as a chart and tables. Invalid days are reported at the form."""
    asked, back = query, NO_REJECTED_FORM
    try:
        spending = await query.load_spending(client)
    except BadInput as error:
        typed = {"since": str(query.since or ""), "until": str(query.until or "")}
        back = RejectedForm("days", typed, {"since": str(error)}, status=400)
        asked = query.replace(since=None, until=None)
        spending = await asked.load_spending(client)
    days = build_daily_spending_chart(spending, query.by)
    session = query.session or ""
    return _page(request, "spending.html", back=back, spending=spending, days=days, by=query.by, session=session)


@pages.get("/sessions")
async def render_sessions_page(request: Request, client: TenantClient, first: First = 0) -> HTMLResponse:
    """Render sessions, those with the newest tasks first."""
    found = await client.list_sessions(first, MAX_PAGE_SIZE + 1)
    behind = first + MAX_PAGE_SIZE if len(found) > MAX_PAGE_SIZE else None
    return _page(request, "sessions.html", sessions=found[:MAX_PAGE_SIZE], first=first, behind=behind)


SessionName = Annotated[str, Query(min_length=1, max_length=200)]


@pages.get("/session")
async def render_session_page(request: Request, client: TenantClient, name: SessionName) -> Response:
    """Render one session: its newest tasks, its schedules, and the form for its limit."""
    return await _session(request, client, name, must_exist=True)


async def _session(
    request: Request,
    client: Client,
    name: str,
    limit_set: Limit | None = None,
    back: RejectedForm = NO_REJECTED_FORM,
    gone: ForgetResult | None = None,
    must_exist: bool = False,
) -> Response:
    tasks, now = await client.list_tasks(TaskFilter(session=name)), utc_now()
    schedules, tenant = (), get_principal(request).tenant
    with suppress(Unreachable):
        schedules = await select_schedules(client, tenant, TaskSelection(session=name), everything=True)
    if must_exist and not tasks and not schedules:
        return render_error_page(request, 404, "No such session", f"There is no session named {sanitize_line(name)}.")
    first_title = tasks[-1].title if 0 < len(tasks) < DEFAULT_TASK_LIMIT else ""
    return _page(
        request,
        "session.html",
        back=back,
        session=name,
        first_title=first_title,
        tasks=tasks,
        schedules=schedules,
        newest=DEFAULT_TASK_LIMIT,
        now=now,
        limit_set=limit_set,
        gone="" if gone is None else format_removed_counts(gone),
    )


@pages.get("/session/limit")
@pages.get("/session/forget")
async def return_to_session(name: Annotated[str, Query(max_length=200)] = "") -> Response:
    """Redirect to the session of a form: a browser without scripts shows the form's address after it was sent."""
    return RedirectResponse(f"/session?{urlencode({'name': name})}" if name else "/sessions", HTTPStatus.SEE_OTHER)


@pages.post("/session/limit")
async def session_limit_by_form(request: Request, client: TenantClient) -> Response:
    """Set the spending limit of a session; an empty one removes it."""

    async def act(form: FormData) -> Response:
        name, faults = _field(form, "name"), FormErrorCollector()
        limit = Limit()
        with faults.collecting_errors_of("budget"):
            limit = parse_session_limit(_field(form, "budget") or None)
        faults.raise_if_any()
        await client.set_session_limit(name, limit)
        return await _session(request, client, name, limit)

    return await _taken(
        request, act, lambda sent: _session(request, client, sent.typed.get("name", ""), back=sent), "limit"
    )


@pages.post("/session/forget")
async def forget_session_by_form(request: Request, client: TenantClient) -> Response:
    """Delete what the tasks of a session have, once its name was typed."""

    async def act(form: FormData) -> Response:
        name, faults = _field(form, "name"), FormErrorCollector()
        order = ForgetSessionRequest(confirm=_field(form, "confirm"), everything=bool(_field(form, "everything")))
        with faults.collecting_errors_of(WHOLE_FORM):
            try:
                return await _session(request, client, name, gone=await forget_session(client, name, order))
            except InvalidFieldError:
                raise
            except BadInput as refused:
                await _raise_if_not_over(client, name, refused)
                raise
        raise faults.error

    return await _taken(
        request, act, lambda sent: _session(request, client, sent.typed.get("name", ""), back=sent), "forget"
    )


async def _raise_if_not_over(client: Client, session: str, refused: BadInput) -> None:
    """Raise FormValidationError with what a person can do, if a task is the reason why its session is not forgotten."""
    running = [one for one in await client.list_tasks(TaskFilter(session=session)) if not one.over]
    if not running:
        return
    newest = await client.get_last_known_task(running[0].task_id)
    name = f"“{newest.title or newest.task_id}”"
    begins = f"The task {name}" if len(running) == 1 else f"{len(running)} tasks are not over. The newest, {name},"
    if newest.phase is TaskPhase.PAUSED:
        words = f"{begins} waits for you: answer its request or cancel the task, then forget the session."
    else:
        words = f"{begins} is running: wait until it has ended, or cancel it, then forget the session."
    raise FormValidationError({WHOLE_FORM: words}, task_id=newest.task_id) from refused


@pages.get("/schedules")
async def render_schedules_page(
    request: Request,
    client: TenantClient,
    task: Annotated[str | None, Query(pattern=TASK_ID_PATTERN)] = None,
    added: Annotated[str, Query(max_length=60)] = "",
) -> Response:
    """Render the schedules with their next run, and what their last run did.

    `task`: task that a new schedule repeats. `added`: schedule that was just added.
    """
    task_id = None if task is None else await client.resolve_task_id(task)
    if task_id is not None and (await client.get_last_known_task(task_id)).forgotten:
        return _forgotten(request, task_id)
    return await _schedules(request, client, task_id=task_id, added=added)


async def _schedules(
    request: Request,
    client: Client,
    back: RejectedForm = NO_REJECTED_FORM,
    task_id: str | None = None,
    added: str = "",
) -> HTMLResponse:
    found, tasks, remark, seen = (), {}, "", await client.get_newest_event_number()
    try:
        schedules = await client.get_schedule_client()
        found = await schedules.list()
        # The server lists a new one a moment later.
        if added and added not in {one.name for one in found}:
            with suppress(BadInput):
                found = (await schedules.get(added), *found)
        tasks = {one.name: await schedules.list_tasks(one.view) for one in found}
    except Unreachable as away:
        remark = str(away)
    if task_id and not back.form:
        back = RejectedForm(NEW_SCHEDULE, await load_schedule_fields(client, task_id))
    return _page(
        request,
        "schedules.html",
        back=back,
        seen=seen,
        request_id=back.value(NEW_SCHEDULE, "request_id") or token_hex(8),
        schedules=found,
        tasks=tasks,
        remark=remark,
        repeats=task_id,
        added=added,
        documents=await list_repeated_documents(client, task_id) if task_id else (),
        folders=list_schedule_folders(request),
        whens=SCHEDULE_DAYS,
        describe_cron=describe_cron,
        lengths=REPORT_LENGTHS,
        modes=tuple(BudgetMode),
        terms=await get_default_task_config(client, get_principal(request).tenant),
    )


def list_schedule_folders(request: Request) -> tuple[str, ...]:
    """Return the folders below which this reader may name documents; empty if they may name any, or none."""
    policy, who = request.app.state.folders, get_principal(request)
    return tuple(map(str, policy.roots)) if who.proof and isinstance(policy, AssistantPolicy) else ()


async def list_repeated_documents(client: Client, task_id: str) -> tuple[str, ...]:
    """Return the names of the documents that a schedule in the task's session uses now: its newest task's."""
    session = (await client.get_last_known_task(task_id)).session
    newest = await client.list_tasks(TaskFilter(session=session), 1)
    return tuple([one.name for row in newest for one in await client.list_documents(row.task_id) if not one.removed])


async def load_schedule_fields(client: Client, task_id: str) -> Mapping[str, str]:
    """Return the fields of a schedule that repeats a task, in its session: the first run reports what changed since."""
    asked = await client.get_task_request(task_id)
    return {
        "question": asked.question,
        "session": asked.session,
        "budget": format_written_limit(asked.budget) if asked.budget else "",
        "mode": asked.mode or "",
        "instructions": asked.instructions,
        "accept": "\n".join(asked.accept),
        "length": asked.length or "",
    }


@pages.post("/schedules")
async def add_schedule_by_form(request: Request, client: TenantClient, principal: CurrentPrincipal) -> Response:
    """Add a schedule."""

    async def act(form: FormData) -> Response:
        faults = FormErrorCollector()
        for name in ("budget", "monthly"):
            with faults.collecting_errors_of(name):
                parse_task_budget(_field(form, name))
        every, at, cron = (_field(form, name) for name in ("every", "at", "cron"))
        with faults.collecting_errors_of("at"):
            cron = cron or build_cron(every, at)
        optional = ("budget", "mode", "monthly", "session", "name", "length", "request_id")
        lines = {
            name: [line.strip() for line in _field(form, name).splitlines() if line.strip()]
            for name in ("paths", "accept")
        }
        if not lines["paths"] and not _field(form, "repeats"):
            with faults.collecting_errors_of("paths"):
                raise BadInput("name at least one file or folder")
        new = faults.build_or_raise(
            lambda: NewSchedule.model_validate(
                {
                    **lines,
                    **{name: _field(form, name) or None for name in optional},
                    "question": _field(form, "question"),
                    "instructions": _field(form, "instructions"),
                    "zone": _field(form, "zone") or "UTC",
                    "cron": cron or "?",
                }
            )
        )
        with faults.collecting_errors_of(WHOLE_FORM):
            made = await add_schedule(client, principal, request.app.state.folders, new)
            return RedirectResponse(f"/schedules?added={made.name}#{made.name}", 303)
        raise faults.error

    async def again(sent: RejectedForm) -> Response:
        repeated = sent.typed.get("repeats", "")
        with suppress(UnknownTask):
            return await _schedules(request, client, sent, await client.resolve_task_id(repeated) if repeated else None)
        return await _schedules(request, client, sent)

    return await _taken(request, act, again, NEW_SCHEDULE)


ScheduleName = Annotated[str, PathField(pattern="^[a-z0-9][a-z0-9-]{0,59}$")]
ScheduleAction = Literal["run", "pause", "resume", "remove"]


@pages.post("/schedules/{name}/{action}")
async def change_schedule_by_form(
    request: Request, client: TenantClient, principal: CurrentPrincipal, name: ScheduleName, action: ScheduleAction
) -> Response:
    """Run, pause, resume or remove a schedule."""

    async def act(form: FormData) -> Response:
        await apply_schedule_action(await client.get_schedule_client(), name, action, principal, _field(form, "by"))
        return RedirectResponse("/schedules", 303)

    return await _taken(request, act)


class MemoryMatchView(NamedTuple):
    """A search result for people."""

    where: str
    created: datetime
    score: float
    task_id: str
    parts: tuple[tuple[str, bool], ...]
    """Its text in pieces, and whether each matches a word of the query."""


@pages.get("/memory")
async def render_memory_page(
    request: Request,
    client: TenantClient,
    principal: CurrentPrincipal,
    query: Annotated[str, Query(max_length=MAX_QUERY_CHARACTERS)] = "",
    session: Annotated[str, Query(max_length=200)] = "",
) -> HTMLResponse:
    """Render a search of memory."""
    asked = query.strip()
    wish = MemorySearchRequest(query=asked, session=session.strip() or None) if asked else None
    found, status, remark = (), 200, ""
    try:
        found = () if wish is None else await search_memory_for_tenant(request, client, principal, wish)
    except (BadInput, MemoryUnavailable, Unreachable) as error:
        status, _, remark = convert_exception_to_problem(error)
    hits = await run_in_threadpool(lambda: [build_memory_match_view(asked, one) for one in found])
    if found and not any(matched for hit in hits for _, matched in hit.parts):
        remark = NOTHING_FITS
    return _page(
        request, "memory.html", status, query=query, session=session, asked=bool(asked), hits=hits, remark=remark
    )


def build_memory_match_view(query: str, found: MemoryExcerpt) -> MemoryMatchView:
    """Build the view of one excerpt, with matching words separate."""
    # The libraries that split text into words take a while to load.
    from waystation.documents.search_terms import find_term_spans  # noqa: PLC0415

    parts: list[tuple[str, bool]] = []
    read = 0
    for start, end in find_term_spans(query, found.text):
        parts += [(found.text[read:start], False), (found.text[start:end], True)]
        read = end
    best = found.best_turn.passage
    return MemoryMatchView(
        format_passage_origin(best),
        best.created,
        found.best_turn.score,
        best.task_id,
        (*parts, (found.text[read:], False)),
    )


@pages.get("/tasks/{task}")
async def render_task_page(request: Request, client: TenantClient, feed: TenantFeed, task: TaskPath) -> Response:
    """Render one task as it is now; if no server answers, as the store has it."""
    return await _task(request, client, feed, task)


async def _task(
    request: Request, client: Client, feed: EventFeed, task: str, back: RejectedForm = NO_REJECTED_FORM
) -> Response:
    task_id = await client.resolve_task_id(task)
    seen = await client.get_newest_event_number()
    parts = await build_task_page_view(client, task_id, await feed.known.list_events(task_id))
    view, waiting = parts.view, list_pending_approvals(parts.view)
    forms = {f"answer-{task_id}-{one.approval.request_id}" for one in waiting}
    forms |= {"fork"} if view.over else {"message", "deliver"} if view.steps else {"message"}
    answered = {f"answer-{task_id}-{one.request_id}": one for one in view.approvals if one.decision != "pending"}
    over = describe_closed_request(answered[back.form]) if back.form in answered else None
    if back.form and back.form not in forms and over is None:
        return render_error_page(request, back.status, "Not accepted", back.reason, back.labelled_values)
    return _page(
        request,
        "task.html",
        back=back,
        **parts._asdict(),
        seen=seen,
        request_id=back.value("fork", "request_id") or token_hex(8),
        waiting=waiting,
        over=over,
    )


class ActivityPageQuery(ActivityQuery):
    """Query of the page with a task's activity. An empty form filters nothing; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore")

    event: Annotated[int | None, Field(ge=1, le=LAST_NUMBER)] = None

    @field_validator("agent", "kind", mode="before")
    @classmethod
    def _unless_empty(cls, given: object) -> object:
        return () if given == [""] else given

    @field_validator("since", "until", mode="before")
    @classmethod
    def _without_empty(cls, given: object) -> object:
        return given or None


@pages.get("/tasks/{task}/activity")
async def render_activity_page(
    request: Request,
    client: TenantClient,
    feed: TenantFeed,
    task: TaskPath,
    query: Annotated[ActivityPageQuery, Query()],
) -> HTMLResponse:
    """Render what a task's agents did: a part of the timeline, its events, and totals of tools and compactions."""
    task_id = await client.resolve_task_id(task)
    seen = await client.get_newest_event_number()
    events = await feed.known.list_events(task_id)
    view = await client.get_last_known_task(task_id)
    activity = await client.get_activity(task_id, query.activity_filter, events)
    selection = ActivitySelection(task_id, query.activity_filter, query.first, query.event)
    shown = await run_in_threadpool(
        build_activity_page_view, selection, events, activity, None if view.over else utc_now()
    )
    return _page(
        request,
        "activity.html",
        **shown._asdict(),
        seen=seen,
        view=view,
        query=query,
        selection=selection,
        links=LinkBuilder(task_id, "pages"),
        selectable=SELECTABLE,
        event_words=EVENT_WORDS,
        duration=format_duration,
        here=f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path,
    )


@pages.get("/tasks/{task}/plan")
async def render_plan_page(request: Request, client: TenantClient, task: TaskPath) -> Response:
    """Render the plan, as a form while it waits for approval."""
    return await _plan(request, client, task)


async def _plan(
    request: Request,
    client: Client,
    task: str,
    back: RejectedForm = NO_REJECTED_FORM,
    steps: Sequence[PlanFormStep] | None = None,
    chosen: int = 0,
) -> Response:
    """Render the plan. `steps`: those of the form, if it was changed and not refused. `chosen`: step to continue at."""
    task_id = await client.resolve_task_id(task)
    seen = await client.get_newest_event_number()
    view = await client.get_last_known_task(task_id, details=True)
    if view.forgotten:
        return _forgotten(request, task_id)
    now = list_form_steps(await client.get_plan(task_id))
    waiting = next((one for one in list_pending_approvals(view) if one.approval.is_editable_plan), None)
    # While no server answers, no one knows whether the plan waits: the form stays as it was sent.
    open_form = waiting is not None or bool(view.remark and back.form)
    typed = parse_form_steps(back.typed) if steps is None else steps
    return _page(
        request,
        "plan.html",
        back=back,
        seen=seen,
        view=view,
        editable=open_form and get_principal(request).has_permission("approve"),
        request_id=back.value(PLAN_FORM, "request_id") or (waiting.approval.request_id if waiting else ""),
        steps=typed if typed and open_form else now,
        left_over=typed if typed and not open_form else (),
        chosen=chosen,
        roles=list_step_roles(),
        most_steps=MAX_STEPS,
    )


@pages.post("/tasks/{task}/plan/draft")
async def change_plan_form(
    request: Request,
    client: TenantClient,
    task: TaskPath,
    remove: Annotated[str, Query(max_length=100)] = "",
    keep: Annotated[str, Query(max_length=10)] = "",
    restore: Annotated[str, Query(max_length=10)] = "",
) -> Response:
    """Render the form of a plan with a step more, or without one. Nothing is stored.

    `keep`: with the same steps. It is what Enter in a field does, which otherwise would press the first button.
    `restore`: with the steps of the plan that waits for approval.
    """

    async def act(form: FormData) -> Response:
        typed = extract_form_texts(form)
        before = parse_form_steps(typed)
        if restore:
            steps = list_form_steps(await client.get_plan(await client.resolve_task_id(task)))
        else:
            steps = before if keep else remove_form_step(before, remove) if remove else add_form_step(before)
        chosen = 0 if remove or keep or restore else max(1, len(steps) - 1)
        return await _plan(request, client, task, RejectedForm(PLAN_FORM, typed), steps, chosen)

    return await _taken(request, act, lambda sent: _plan(request, client, task, sent), PLAN_FORM)


@pages.post("/tasks/{task}/plan/approve")
async def send_plan_by_form(
    request: Request, client: TenantClient, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """Replace the plan that waits for approval by the form's."""

    async def act(form: FormData) -> Response:
        plan = build_plan_of_form(parse_form_steps(extract_form_texts(form)))
        given = FormErrorCollector().build_or_raise(lambda: NewPlan(steps=plan.steps, **_answer_of(form)))
        return _after(task, await send_plan(client, task, given, principal))

    return await _taken(request, act, lambda sent: _plan(request, client, task, sent), PLAN_FORM)


@pages.get("/tasks/{task}/document")
async def render_document_page(
    request: Request, client: TenantClient, task: TaskPath, name: Annotated[str, Query(max_length=200)]
) -> Response:
    """Render a whole document of a task, with the lines marked that its report cites."""
    task_id = await client.resolve_task_id(task)
    try:
        text = await client.get_document_text(task_id, name)
    except BadInput as refused:
        return await _render_forgotten_or_raise(request, client, task_id, refused)
    report = await load_exported_report(client, await client.get_last_known_task(task_id))
    citations = [one for one in report.sources if one.document == name and not one.fault] if report else []
    return _page(
        request,
        "document.html",
        task_id=task_id,
        name=name,
        citations=citations,
        lines=await run_in_threadpool(mark_cited_lines, text, citations),
        more=max(0, text.count("\n") + 1 - MAX_DOCUMENT_LINES),
    )


@pages.get("/tasks/{task}/run.html")
async def download_run_file(client: TenantClient, task: TaskPath) -> Response:
    """Render the whole run as one file, to keep or to send."""
    task_id = await client.resolve_task_id(task)
    named = {"content-disposition": f'attachment; filename="{task_id}.html"'}
    return HTMLResponse(await render_run_file(client, task_id), headers=named)


def _forgotten(request: Request, task_id: str) -> Response:
    """Render that the texts of a task are gone, in the place of one of them."""
    return render_error_page(request, 410, "This task was forgotten", FORGOTTEN_TASK, task_id=task_id)


async def _render_forgotten_or_raise(request: Request, client: Client, task_id: str, refused: BadInput) -> Response:
    """Render that the texts of a task are gone, if they are; otherwise raise the error."""
    if (await client.get_last_known_task(task_id)).forgotten:
        return _forgotten(request, task_id)
    raise refused


@pages.get("/tasks/{task}/report")
async def render_report_page(
    request: Request, client: TenantClient, task: TaskPath, source: Annotated[int, Query(ge=0, le=100_000)] = 0
) -> Response:
    """Render the report, and next to it the source of one of its citations."""
    task_id = await client.resolve_task_id(task)
    view = await client.get_last_known_task(task_id)
    if view.forgotten:
        return _forgotten(request, task_id)
    report = await load_exported_report(client, view)
    if report is None:
        raise BadInput(f"{task_id} has no report yet")
    cited = next((one for one in report.sources if one.number == source), None)
    passage, remark = None, ""
    if cited is not None:
        try:
            passage = (await load_source_view(client, task_id, cited)).passage
        except BadInput as gone:
            remark = str(gone)
    return _page(
        request,
        "report.html",
        task_id=task_id,
        title=report.title,
        report=await render_report_markup(report, task_id),
        source=cited,
        most_bytes=MAX_BODY_BYTES,
        passage=passage,
        remark=remark,
    )


@pages.post("/tasks/{task}/report/picture")
async def render_picture_by_form(
    request: Request, client: TenantClient, task: TaskPath, source: Annotated[int, Query(ge=1, le=100_000)]
) -> Response:
    """Draw the page of the chosen file with the passage of a source marked. The file is not stored."""

    async def act(form: FormData) -> Response:
        return await draw_uploaded_passage(client, await client.resolve_task_id(task), source, _files_of(form))

    return await _taken(request, act)


@pages.get("/tasks/{task}/shares")
async def render_shares_page(request: Request, client: TenantClient, task: TaskPath) -> Response:
    """Render the links to a task's report, and the form for another."""
    return await _shares(request, client, task)


async def _shares(
    request: Request,
    client: Client,
    task: str,
    made: MadeReportLink | None = None,
    back: RejectedForm = NO_REJECTED_FORM,
) -> Response:
    task_id = await client.resolve_task_id(task)
    view = await client.get_last_known_task(task_id)
    if view.forgotten:
        return _forgotten(request, task_id)
    return _page(
        request,
        "shares.html",
        back=back,
        task_id=task_id,
        title=view.title,
        made=made,
        address=f"{str(request.base_url).rstrip('/')}{made.path}" if made else "",
        local=not _access(request).names,
        links=await client.list_report_links(task_id),
        default_days=DEFAULT_DAYS,
        now=utc_now(),
    )


@pages.post("/tasks/{task}/shares")
async def share_by_form(
    request: Request, client: TenantClient, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """Make a read-only link to the report, and show it once."""

    async def act(form: FormData) -> Response:
        days, faults = _field(form, "days"), FormErrorCollector()
        given = {"days": days, "sources": bool(_field(form, "sources"))}
        with faults.collecting_errors_of("days"):
            if not (days.isascii() and days.isdecimal()):
                raise BadInput(f"write a number of days, like {DEFAULT_DAYS}")
            if len(days) > len(str(MAX_DAYS)) or not 1 <= int(days) <= MAX_DAYS:
                raise BadInput(f"a link is valid for 1 to {MAX_DAYS} days: write a number like {DEFAULT_DAYS}")
        wanted = faults.build_or_raise(lambda: NewReportLink.model_validate(given))
        made = await create_report_link(client, principal, task, wanted)
        return await _shares(request, client, task, made)

    return await _taken(request, act, lambda sent: _shares(request, client, task, back=sent), "share")


@pages.post("/tasks/{task}/shares/{link}/revoke")
async def revoke_by_form(
    request: Request,
    client: TenantClient,
    task: TaskPath,
    link: LinkPath,
) -> Response:
    """Revoke a link to the report."""

    async def act(_: FormData) -> Response:
        task_id = await client.resolve_task_id(task)
        await client.revoke_report_link(task_id, link)
        return RedirectResponse(f"/tasks/{task_id}/shares", 303)

    return await _taken(request, act)


_SHARED_RATE = RateLimiter(SHARED_AT_ONCE, SHARED_A_SECOND)
_SHARED_REDACTION = asyncio.Semaphore(1)
"""A document that no agent has read is redacted for the page, which takes seconds and hundreds of megabytes."""


def _dead_link(request: Request) -> Response:
    """Render what a person sees whose link is unknown, has expired, was revoked, or has lost its report."""
    return render_error_page(
        request, 404, "This link no longer works", "Ask the person who sent it to you for a new link."
    )


@pages.get("/shared/{address}")
async def render_shared_page(
    request: Request,
    address: Annotated[str, PathField(max_length=200)],
    source: Annotated[int, Query(ge=0, le=100_000)] = 0,
) -> Response:
    """Render one report for a person who has a link to it, and nothing else."""
    if not _SHARED_RATE.try_acquire(request.client.host if request.client else "", monotonic()):
        raise HTTPException(429, "too many requests for shared reports came from this address: try again in a minute")
    tenants: TenantServiceProvider = request.app.state.tenants
    shared = await tenants.open_report_link(address)
    if shared is None:
        return _dead_link(request)
    # A person without a key may know no more than the agents: neither the names in the title nor the original lines.
    client, link = (await tenants.get_client(shared.tenant)).build_placeholder_client(), shared.link
    view = await client.get_last_known_task(link.task_id)
    report = await load_exported_report(client, view, link.version)
    if report is None:
        return _dead_link(request)
    cited = next((one for one in report.sources if link.sources and one.number == source), None)
    lines, remark = (), ""
    if cited is not None:
        try:
            async with _SHARED_REDACTION:
                passage = (await load_redacted_source_view(client, link.task_id, cited)).passage
            lines = tuple(line for line in passage.lines if line.is_cited)
        except (BadInput, RedactionFailed):
            remark = "These lines cannot be shown: their document was replaced or removed, or cannot be redacted now."
    own = report.replace(account=())
    return HTMLResponse(
        render_template(
            "shared.html",
            title=report.title,
            report=await render_linked_markup(own, f"/shared/{address}" if link.sources else ""),
            has_sources=link.sources,
            source=cited,
            lines=lines,
            remark=remark,
            expires_at=link.expires_at,
        )
    )


@pages.get("/tasks/{task}/draft")
async def render_draft_page(request: Request, client: TenantClient, making: Exporter, task: TaskPath) -> Response:
    """Render what the task would deliver if it ended now."""
    task_id = await client.resolve_task_id(task)
    try:
        found = await making.build_draft(client, task_id)
    except NothingToDraft:
        return render_error_page(request, 400, "No draft yet", NOTHING_TO_DRAFT, task_id=task_id)
    except BadInput as refused:
        return await _render_forgotten_or_raise(request, client, task_id, refused)
    return _page(
        request,
        "draft.html",
        task_id=found.report.task_id,
        phase=found.report.phase,
        report=await render_report_markup(
            await run_in_threadpool(build_exported_report, found), found.report.task_id, "file"
        ),
    )


@pages.get("/tasks/{task}/agents/{agent}")
async def render_agent_page(request: Request, client: TenantClient, task: TaskPath, agent: AgentPath) -> Response:
    """Render the transcript of one agent."""
    task_id = await client.resolve_task_id(task)
    try:
        log = build_transcript_view(await client.get_transcript(task_id, agent))
    except BadInput as refused:
        return await _render_forgotten_or_raise(request, client, task_id, refused)
    over, links = await client.is_over(task_id), LinkBuilder(task_id, "pages")
    return _page(request, "agent.html", task_id=task_id, agent=agent, log=log, over=over, links=links)


@pages.get("/tasks/{task}/agents/{agent}/compactions")
async def render_compactions_page(
    request: Request, client: TenantClient, task: TaskPath, agent: AgentPath
) -> HTMLResponse:
    """Render what the agent's compactions kept and lost, which takes a while to compute."""
    task_id = await client.resolve_task_id(task)
    audits = [one for found in await client.audit_compactions(task_id, agent) for one in found.compactions]
    links = LinkBuilder(task_id, "pages")
    return _page(request, "compactions.html", task_id=task_id, agent=agent, audits=audits, links=links)


@pages.post("/tasks")
async def submit_by_form(
    request: Request, client: TenantClient, principal: CurrentPrincipal, reader: Uploads
) -> Response:
    """Submit the form's task. Files that cannot be used are left out, and the task's page names them."""

    async def act(form: FormData) -> Response:
        return await _submit_task(client, principal, reader, form)

    return await _taken(request, act, lambda sent: _home(request, client, principal, TasksPageQuery(), sent), NEW_TASK)


@pages.post("/tasks/check")
async def check_task_form(request: Request, client: TenantClient, principal: CurrentPrincipal) -> Response:
    """Check the fields of a task's form before its files are sent: 204, or the form with what is wrong."""

    async def act(form: FormData) -> Response:
        request_id, faults = _field(form, "request_id") or token_hex(8), FormErrorCollector()
        session = _field(form, "session") or make_own_session_name(request_id)
        new = _build_new_task(form, session, faults)
        await _raise_if_impossible(client, build_task_request(principal.tenant, new, session, request_id))
        return Response(status_code=HTTPStatus.NO_CONTENT)

    return await _taken(request, act, lambda sent: _home(request, client, principal, TasksPageQuery(), sent), NEW_TASK)


@pages.get("/documents")
async def render_documents_page(request: Request) -> HTMLResponse:
    """Render the form that shows what agents would see of files."""
    return _documents_page(request)


def _documents_page(
    request: Request, found: FilePreviews | None = None, back: RejectedForm = NO_REJECTED_FORM
) -> HTMLResponse:
    return _page(
        request,
        "documents.html",
        back=back,
        found=found,
        most_bytes=MAX_BODY_BYTES,
        most_files=MAX_FILES,
        most_lines=MAX_PREVIEW_LINES,
    )


@pages.post("/documents/read")
async def read_documents_by_form(request: Request, client: TenantClient, reader: Uploads) -> Response:
    """Render what agents would see of the chosen files. Nothing is stored."""

    async def act(form: FormData) -> Response:
        files, faults = _files_of(form), FormErrorCollector()
        with faults.collecting_errors_of("documents"):
            found = await reader.load_previews(client, files, redacted=bool(_field(form, "redacted")))
            return _documents_page(request, found)
        raise faults.error

    async def again(sent: RejectedForm) -> Response:
        return _documents_page(request, back=sent)

    return await _taken(request, act, again, "read")


def _files_of(form: FormData) -> list[UploadFile]:
    """Return the chosen files. A form without any has one without a name."""
    return [one for one in form.getlist("documents") if isinstance(one, UploadFile) and one.filename]


async def _submit_task(client: Client, principal: Principal, reader: UploadReader, form: FormData) -> Response:
    """Submit a task. Raises FormValidationError, and as `Client.submit` does."""
    request_id, faults, loaded = (
        _field(form, "request_id") or token_hex(8),
        FormErrorCollector(),
        DocumentLoadResult(documents=()),
    )
    session = _field(form, "session") or make_own_session_name(request_id)
    documents: Sequence[SourceDocument] = ()
    with faults.collecting_errors_of("documents"):
        loaded = await reader.load(_files_of(form))
        documents = await use_session_documents(client, session, loaded.documents)
    left_out = (*_parse_left_out(_field(form, "left_out")), *loaded.skipped_items)
    faults.skipped_items = left_out
    asked = build_task_request(principal.tenant, _build_new_task(form, session, faults), session, request_id, left_out)
    await _raise_if_impossible(client, asked)
    try:
        submitted = await client.submit(asked, documents)
    except StartUnknownError as unknown:
        # The form keeps its request id, so the same task is found when the form is sent again.
        raise FormValidationError(
            {WHOLE_FORM: START_UNKNOWN}, left_out, HTTPStatus.SERVICE_UNAVAILABLE, unknown.task_id
        ) from unknown
    return RedirectResponse(f"/tasks/{submitted.task_id}", 303)


def _build_new_task(form: FormData, session: str, faults: FormErrorCollector) -> NewTask:
    """Build the task of a form, without its documents. Raises FormValidationError with all errors."""
    with faults.collecting_errors_of("budget"):
        parse_task_budget(_field(form, "budget"))
    chosen = {name: _field(form, name) or None for name in ("budget", "length", "mode", "preset")}
    return faults.build_or_raise(
        lambda: NewTask.model_validate(
            {
                **chosen,
                "question": _field(form, "question"),
                "session": session,
                "instructions": _field(form, "instructions"),
                "accept": [line.strip() for line in _field(form, "accept").splitlines() if line.strip()],
                "review_plan": True if _field(form, "review_plan") else None,
            }
        )
    )


async def _raise_if_impossible(client: Client, asked: TaskRequest) -> None:
    """Raise FormValidationError if the configuration cannot work."""
    if cause := await _impossible(client, asked):
        about_budget = asked.budget and not await _impossible(client, asked.replace(budget=None))
        raise FormValidationError({"budget" if about_budget else WHOLE_FORM: cause}, asked.skipped_items)


_LEFT_OUT = TypeAdapter(tuple[SkippedItem, ...])


def _parse_left_out(sent: str) -> tuple[SkippedItem, ...]:
    """Return the files that the page left out before it sent the others, since they cannot be used."""
    try:
        found = _LEFT_OUT.validate_json(sent or "[]")[:MAX_FILES]
    except ValidationError:
        return ()
    return tuple(
        SkippedItem(name=sanitize_document_name(one.name), reason=sanitize_line(one.reason)[:MAX_REASON_CHARACTERS])
        for one in found
    )


async def _impossible(client: Client, request: TaskRequest) -> str:
    """Return why the configuration cannot work; empty: it can."""
    try:
        await client.prepare_task(request)
    except BadInput as error:
        return str(error)
    return ""


def _answers_form(task: str) -> Named:
    """Return the id of the form that answers the request which its fields name."""
    return lambda typed: f"answer-{task}-{typed.get('request_id', '')}"


@pages.post("/tasks/{task}/approve")
async def approve_by_form(
    request: Request, client: TenantClient, feed: TenantFeed, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """Approve the request that the form names."""

    async def act(form: FormData) -> Response:
        faults, written = FormErrorCollector(), _field(form, "add") or _field(form, "choice")
        with faults.collecting_errors_of("add"):
            if written == "other":
                raise BadInput("write an amount, like 60k or $0.50")
            if written:
                parse_grant(written)
        given = faults.build_or_raise(lambda: Grant(**_answer_of(form), add=written or None))
        return _after(task, await grant_task_request(client, task, given, principal))

    return await _taken(request, act, lambda sent: _task(request, client, feed, task, back=sent), _answers_form(task))


@pages.post("/tasks/{task}/deny")
async def deny_by_form(
    request: Request, client: TenantClient, feed: TenantFeed, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """Deny the request that the form names."""

    async def act(form: FormData) -> Response:
        return _after(task, await deny_task_request(client, task, Denial.model_validate(_answer_of(form)), principal))

    return await _taken(request, act, lambda sent: _task(request, client, feed, task, back=sent), _answers_form(task))


@pages.post("/tasks/{task}/message")
async def send_message_by_form(
    request: Request, client: TenantClient, feed: TenantFeed, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """Send the task's agents a message."""

    async def act(form: FormData) -> Response:
        task_id, faults = await client.resolve_task_id(task), FormErrorCollector()
        said = faults.build_or_raise(lambda: NewMessage(message=_field(form, "message"), by=_field(form, "by")))
        with faults.collecting_errors_of("message"):
            return _after(task, await client.send_message(task_id, said.message, principal.name or said.by))
        raise faults.error

    return await _taken(request, act, lambda sent: _task(request, client, feed, task, back=sent), "message")


@pages.post("/tasks/{task}/agents/{agent}/edit")
async def edit_by_form(
    request: Request, client: TenantClient, principal: CurrentPrincipal, task: TaskPath, agent: AgentPath
) -> Response:
    """Compact, pin, or rewind an agent's context."""

    async def act(form: FormData) -> Response:
        wanted = NewEdit.model_validate(
            {"agent": agent, "action": _field(form, "action"), "message": _field(form, "message") or None}
        )
        return _after(task, await edit_agent_context(client, task, wanted, principal))

    return await _taken(request, act)


@pages.post("/tasks/{task}/fork")
async def fork_by_form(request: Request, client: TenantClient, feed: TenantFeed, task: TaskPath) -> Response:
    """Start a new task that reuses this one's finished steps, from a step on."""

    async def act(form: FormData) -> Response:
        faults = FormErrorCollector()
        with faults.collecting_errors_of("budget"):
            parse_task_budget(_field(form, "budget"))
        wanted = faults.build_or_raise(
            lambda: NewFork(step=_field(form, "step"), budget=_field(form, "budget") or None)
        )
        submitted = await fork_task(client, task, wanted, _field(form, "request_id") or token_hex(8))
        return RedirectResponse(f"/tasks/{submitted.task_id}", 303)

    return await _taken(request, act, lambda sent: _task(request, client, feed, task, back=sent), "fork")


@pages.post("/tasks/{task}/deliver")
async def deliver_by_form(
    request: Request, client: TenantClient, feed: TenantFeed, principal: CurrentPrincipal, task: TaskPath
) -> Response:
    """End the task with a report of what it has."""

    async def act(form: FormData) -> Response:
        faults = FormErrorCollector()
        given = faults.build_or_raise(lambda: NewDelivery(by=_field(form, "by"), note=_field(form, "note")))
        return _after(task, await deliver_task(client, task, given, principal))

    return await _taken(request, act, lambda sent: _task(request, client, feed, task, back=sent), "deliver")


@pages.post("/tasks/{task}/cancel")
async def cancel_by_form(request: Request, client: TenantClient, task: TaskPath) -> Response:
    """Ask the task to stop."""

    async def act(_: FormData) -> Response:
        return RedirectResponse(f"/tasks/{(await cancel_task(client, task)).task_id}", 303)

    return await _taken(request, act)


def _after(task: str, answer: AnswerResult) -> Response:
    """Redirect to the task. Raises FormValidationError if the answer had no effect."""
    if answer.outcome == "refused":
        about = "add" if is_amount_rejection(answer.reason) else WHOLE_FORM
        raise FormValidationError({about: answer.reason}, status=HTTPStatus.CONFLICT)
    return RedirectResponse(f"/tasks/{task}", 303)
