"""The pages: tasks with what waits for a person, and one task with its plan, money, requests and report.

Whatever a document, a model or a person wrote is text here: escaped by the templates, with controls made visible.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response

from waystation.adapters.clock import utc_now
from waystation.adapters.documents.sources import Named, load_documents, unique_names
from waystation.adapters.reports.page import report_body
from waystation.client import Client
from waystation.domain.amount import amount_text, limit_text
from waystation.domain.details import answer_text, denial_text, estimate_line, hidden_text, least_text
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.events import TaskEvent
from waystation.domain.exports import ExportedReport, Imprint, NumberedSource, stored_report
from waystation.domain.foreign import plain
from waystation.domain.task import Approval, SourceDocument
from waystation.markdown import exported_report
from waystation.serve.access import SignIn
from waystation.serve.api import (
    AgentPath,
    Asking,
    Denial,
    Grant,
    NewEdit,
    NewFork,
    NewTask,
    TaskPath,
    change,
    fork_off,
    grant,
    refuse,
    shown,
    stop,
    take_in,
)
from waystation.serve.pictures import BOX_HEIGHT, BOX_WIDTH, bar, picture, timeline
from waystation.task_view import PendingApproval, TaskView, pending

FOLDER = Path(__file__).parent
MOST_FILES, MOST_FIELDS = 200, 20
LONGEST_UPLOAD_NAME = 200
"""Bytes. File systems take 255."""
MOST_EVENTS = 2_000
"""At once, of the store."""
LINES_AROUND, MOST_LINES = 12, 400

pages = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)


def _finalized(value: object) -> object:
    """What a template shows: controls and signs that turn the direction of writing are made visible."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def for_what(one: PendingApproval) -> Sequence[tuple[str, str]]:
    """What a person should know before answering, in rows."""
    asked = one.approval
    if asked.about_plan:
        steps = tuple((step.role, f"{step.title}, with {limit_text(step.limit)}") for step in one.steps)
        return (*steps, ("if approved", "its steps begin"), ("if denied", "the task ends; planning stays paid"))
    if asked.action is not None:
        return (
            ("if approved", "it is called once, with exactly these arguments"),
            ("if denied", f"{asked.agent} goes on without it, and reads your note"),
            ("not shown", hidden_text(one.task_id, asked.agent, asked.action)),
        )
    rows = [("it has spent", amount_text(asked.spent))]
    if asked.reason:
        rows.append(("why", asked.reason))
    else:
        rows.append(("at least", least_text(asked)))
    if asked.outlook is not None:
        rows.append(("so far", estimate_line(asked.outlook, asked.asked)))
        rows.append(("if denied", denial_text(asked.outlook, asked.agent)))
    return tuple(rows)


def _answered(approval: Approval) -> str:
    return answer_text(approval, over=True)


_TEMPLATES = Environment(
    loader=PackageLoader("waystation.serve"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalized,
    trim_blocks=True,
    lstrip_blocks=True,
)
_SHOWN: Mapping[str, object] = {
    "bar": bar,
    "for_what": for_what,
    "answered": _answered,
    "amount": amount_text,
    "limit": limit_text,
    "size": {"width": BOX_WIDTH, "height": BOX_HEIGHT},
}
"""What every template may ask for."""


def _access(request: Request) -> SignIn:
    access = request.app.state.access
    if not isinstance(access, SignIn):
        raise TypeError("the application has no access")
    return access


def _page(request: Request, name: str, status: int = 200, **shown_there: object) -> HTMLResponse:
    mark = _access(request).mark
    return HTMLResponse(_TEMPLATES.get_template(name, globals=dict(_SHOWN)).render(mark=mark, **shown_there), status)


def error_page(request: Request, status: int, title: str, detail: str) -> Response:
    """What went wrong and what to do, with the way back."""
    return _page(request, "error.html", status, title=title, detail=detail)


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


@pages.get("/")
async def front(request: Request, client: Asking) -> HTMLResponse:
    """What waits for a person, the newest tasks, and the form for another."""
    views = await client.tasks()
    try:
        waiting, remark = await client.approvals(), ""
    except Unreachable as away:
        waiting, remark = (), str(away)
    return _page(request, "tasks.html", tasks=views, waiting=waiting, remark=remark, request_id=token_hex(8))


@pages.get("/tasks/{task}")
async def task_page(request: Request, client: Asking, task: TaskPath) -> HTMLResponse:
    """One task as it is now; where no server answers, as the store has it."""
    task_id = await client.resolve(task)
    seen = await client.newest_event()
    view = await client.with_stored(await client.with_origins(await client.last_known(task_id)))
    progress = view.progress
    states = {step.id: str(step.state) for step in progress.steps}
    events = await _happened(client, task_id)
    return _page(
        request,
        "task.html",
        view=view,
        seen=seen,
        request_id=token_hex(8),
        waiting=pending(progress),
        lanes=timeline(events, None if progress.phase.over else utc_now()),
        graph=picture(view.plans[-1], states) if view.plans else None,
        report=await _report(client, view),
    )


async def _happened(client: Client, task_id: str) -> Sequence[TaskEvent]:
    """All of the task's events."""
    found: list[TaskEvent] = []
    while True:
        page = await client.events(found[-1].number if found else 0, task_id, MOST_EVENTS)
        found.extend(page.events)
        if len(page.events) < MOST_EVENTS:
            return found


async def _report(client: Client, view: TaskView) -> Markup | None:
    exported = await _exported(client, view)
    return None if exported is None else await _written(exported, view.progress.task_id)


async def _written(exported: ExportedReport, task_id: str) -> Markup:
    """In a thread: a report may be long and made to be slow. The writer escapes every word of it."""
    return Markup(await run_in_threadpool(report_body, exported, _report_path(task_id)))


async def _exported(client: Client, view: TaskView) -> ExportedReport | None:
    progress = view.progress
    if progress.readable is None:
        return None
    text, version = await client.report_text(progress.readable), progress.readable.number
    imprint = Imprint(task_id=progress.task_id, phase=progress.phase, version=version)
    return await run_in_threadpool(lambda: exported_report(stored_report(text), imprint))


def _report_path(task_id: str) -> str:
    return f"/tasks/{task_id}/report"


class CitedLine(NamedTuple):
    """A line of a document beside a report."""

    number: int
    text: str
    cited: bool


@pages.get("/tasks/{task}/report")
async def report_page_beside(
    request: Request, client: Asking, task: TaskPath, source: Annotated[int, Query(ge=0, le=100_000)] = 0
) -> HTMLResponse:
    """The report, and beside it what one of its citations leads to."""
    task_id = await client.resolve(task)
    exported = await _exported(client, await client.last_known(task_id))
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
        report=await _written(exported, task_id),
        source=cited,
        lines=lines,
        remark=remark,
    )


def cited_lines(text: str, source: NumberedSource) -> tuple[CitedLine, ...]:
    """The cited lines with what stands around them."""
    lines = text.split("\n")
    first, last = max(1, source.first_line - LINES_AROUND), min(len(lines), source.last_line + LINES_AROUND)
    shown_lines = range(first, min(last, first + MOST_LINES) + 1)
    return tuple(
        CitedLine(number, lines[number - 1], source.first_line <= number <= source.last_line) for number in shown_lines
    )


@pages.get("/tasks/{task}/agents/{agent}")
async def agent_page(request: Request, client: Asking, task: TaskPath, agent: AgentPath) -> HTMLResponse:
    """Everything that one agent said and was told."""
    task_id = await client.resolve(task)
    log = shown(await client.transcript(task_id, agent))
    over = await client.is_over(task_id)
    first = {one.originals[0]: one for one in log.compactions if one.originals}
    return _page(request, "agent.html", task_id=task_id, agent=agent, log=log, over=over, first=first)


@pages.post("/tasks")
async def submit_by_form(request: Request, client: Asking) -> RedirectResponse:
    """Hand in what the form has."""
    async with _form(request) as form:
        files = [one for one in form.getlist("documents") if isinstance(one, UploadFile) and one.filename]
        new = NewTask(
            question=_field(form, "question"),
            session=_field(form, "session") or None,
            budget=_field(form, "budget") or None,
            documents=await uploaded(files),
        )
        request_id = _field(form, "request_id") or token_hex(8)
    submitted = await take_in(client, str(request.app.state.tenant), new, request_id)
    return RedirectResponse(f"/tasks/{submitted.task_id}", 303)


async def uploaded(files: Sequence[UploadFile]) -> tuple[SourceDocument, ...]:
    """Their texts, read as those of `submit --docs` are. A file's name is no path here. Raises BadInput."""
    if not files:
        return ()
    with TemporaryDirectory() as folder:
        for number, file in enumerate(files):
            own = Path(folder) / str(number)
            own.mkdir()
            (own / file_name(file.filename or "")).write_bytes(await file.read())
        loaded = await run_in_threadpool(load_documents, [Path(folder)])
    if loaded.left_out:
        raise BadInput("; ".join(f"{one.name}: {one.reason}" for one in loaded.left_out))
    names = unique_names([Named(one.name.partition("/")[2] or one.name, one.name) for one in loaded.documents])
    return tuple(one.model_copy(update={"name": name}) for one, name in zip(loaded.documents, names, strict=True))


def file_name(given: str) -> str:
    """The last part of what a browser called a file, without signs that lead elsewhere or hide it."""
    last = plain(given).replace("\\", "/").rpartition("/")[2]
    kept = "".join(sign for sign in last if sign not in "\n\t\0")
    return kept.encode(errors="replace")[-LONGEST_UPLOAD_NAME:].decode(errors="ignore").lstrip(".") or "document.txt"


@pages.post("/tasks/{task}/approve")
async def approve_by_form(request: Request, client: Asking, task: TaskPath) -> Response:
    """Grant the one request that the form names."""
    async with _form(request) as form:
        given = Grant(**_answer_of(form), add=_field(form, "add") or None)
    answer = await grant(client, task, given)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/deny")
async def deny_by_form(request: Request, client: Asking, task: TaskPath) -> Response:
    """Refuse the one request that the form names."""
    async with _form(request) as form:
        given = Denial.model_validate(_answer_of(form))
    answer = await refuse(client, task, given)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/tell")
async def tell_by_form(request: Request, client: Asking, task: TaskPath) -> Response:
    """Tell the task's agents something."""
    async with _form(request) as form:
        words, by = _field(form, "message"), _field(form, "by")
    answer = await client.tell(await client.resolve(task), words, by)
    return _after(request, task, answer.outcome, answer.reason)


@pages.post("/tasks/{task}/agents/{agent}/edit")
async def edit_by_form(request: Request, client: Asking, task: TaskPath, agent: AgentPath) -> Response:
    """Compact, pin, or rewind an agent's context."""
    async with _form(request) as form:
        wanted = NewEdit.model_validate(
            {"agent": agent, "action": _field(form, "action"), "message": _field(form, "message") or None}
        )
    answer = await change(client, task, wanted)
    return _after(request, task, answer.outcome, answer.reason)


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
