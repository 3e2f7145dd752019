"""Request bodies of `api.py` and forms of `pages.py`, and the operations that both run on them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol, cast

from fastapi import Depends, Header, Request
from fastapi import Path as PathField
from pydantic import BeforeValidator, Field, JsonValue, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from waystation.agents.deliverables import ReportLength
from waystation.budgets.budget import MIN_BUDGET_MICRO_USD, MIN_BUDGET_TOKENS, BudgetMode
from waystation.client import Client
from waystation.client.erasure import ForgetResult
from waystation.client.remote import RemoteMethod
from waystation.client.schedules import OWN_SESSION, ScheduleClient, ScheduleDescription, build_schedule_definition
from waystation.client.submission import CONTROL_CHARACTERS, ForkRequest
from waystation.documents.document_loading import (
    DocumentLoadResult,
    load_documents,
)
from waystation.documents.documents import MAX_TASK_DOCUMENTS, SkippedItem, SourceDocument
from waystation.documents.procedures import Procedures
from waystation.kernel.amount import UNLIMITED, Amount, Limit, parse_bounded_limit, parse_limit
from waystation.kernel.errors import BadInput, InvalidFieldError, WaystationError
from waystation.kernel.value import EagerValue, Value, describe_fault
from waystation.memory.passages import MemoryExcerpt, MemoryQuery
from waystation.planning.plan import MAX_PLAN_CHARACTERS, Plan, Step, find_plan_errors
from waystation.plugins.web.access import CurrentPrincipal
from waystation.plugins.web.event_feed import EventFeed
from waystation.plugins.web.principals import AssistantPolicy, Principal, find_path_below
from waystation.security.untrusted import (
    ServerNames,
    is_blank,
    replace_control_characters,
    sanitize_line,
    strip_invisible_characters,
)
from waystation.tasks.approvals import MessageInput, VerifiedName
from waystation.tasks.details import format_request_and_answer, parse_grant
from waystation.tasks.report_links import MadeReportLink, NewReportLink, SharedReport
from waystation.tasks.schedules import Overlap
from waystation.tasks.signals import (
    AnswerResult,
    ContextEditAction,
    ContextEditInput,
    TaskSignalDefinition,
    UpdateResult,
)
from waystation.tasks.task import Preset, TaskConfig, TaskRequest, TaskRow, make_own_session_name
from waystation.tasks.view import CancelResult, SubmittedTask

MAX_REQUEST_DOCUMENTS, MAX_FAULTS = 1_000, 20
MAX_PAGE_ITEMS, COUNTS = 5_000, frozenset({"maximum", "count", "limit"})
"""Maximum number of tasks, sessions or events in one answer to a client, and the arguments that set it."""
MAX_NAME_CHARACTERS, NAMES = 200, frozenset({"task_id", "prefix", "session", "agent", "request_id"})
MAX_NUMBER = 10**15 - 1


class TenantServiceProvider(Protocol):
    """Access to a tenant's data: see `app.TenantRegistry`."""

    async def get_client(self, tenant: str) -> Client:
        """Return the tenant's client."""
        ...

    async def get_feed(self, tenant: str) -> EventFeed:
        """Return the tenant's event feed."""
        ...

    async def open_report_link(self, address: str) -> SharedReport | None:
        """Return what the address of a link opens, of whatever tenant."""
        ...

    async def search_memory(self, query: MemoryQuery, tokens: int) -> tuple[MemoryExcerpt, ...]:
        """Search memory as agents do."""
        ...


async def get_tenant_client(request: Request, principal: CurrentPrincipal) -> Client:
    """Return the client of the principal's tenant."""
    tenants: TenantServiceProvider = request.app.state.tenants
    return await tenants.get_client(principal.tenant)


TenantClient = Annotated[Client, Depends(get_tenant_client)]
TASK_ID_PATTERN = "^(task-)?[0-9a-f]{4,16}$"
"""Pattern of a task's id, or its first characters."""
TaskPath = Annotated[
    str, PathField(pattern=TASK_ID_PATTERN, description="Id of the task, or the first characters of the id.")
]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Key for a safe retry: the same key returns the same task.",
    ),
]
ByField = Annotated[
    str, Field(max_length=200, description="Your name, for the record; ignored if your key or token has a name.")
]
NoteField = Annotated[str, Field(max_length=2_000, description="Note for the audit log.")]


def _at_once(given: Any) -> Any:
    if isinstance(given, list | tuple) and (count := len(cast("Sequence[object]", given))) > MAX_REQUEST_DOCUMENTS:
        raise ValueError(
            f"{count:,} documents are too many for one request (maximum {MAX_REQUEST_DOCUMENTS:,}): send fewer, or use "
            f"`waystation submit --docs FOLDER` on a machine that can open the store (up to {MAX_TASK_DOCUMENTS:,} "
            "documents). An assistant can send the path of the folder instead"
        )
    return cast("object", given)


DocumentCountLimit = BeforeValidator(_at_once)
"""Limits the number of documents."""


class NewTask(EagerValue):
    """A task to submit. Amounts are written as in commands: `600k` (tokens), `$2.00` or `600k+$2.00`."""

    question: str = Field(min_length=1, max_length=20_000, description="The question that the report answers.")
    instructions: str = Field(default="", max_length=100_000, description="Instructions for the agents.")
    accept: tuple[str, ...] = Field(default=(), description="Criteria that the report must meet.")
    length: ReportLength | None = Field(
        default=None, description="Length of the report. By default, it depends on the number of findings."
    )
    session: str | None = Field(
        default=None, min_length=1, max_length=200, description="Session to continue; default: a new one."
    )
    budget: str | None = Field(
        default=None, max_length=60, description="Budget of the task; default: the setting of the server."
    )
    preset: Preset | None = Field(
        default=None, description="Defaults for a kind of work; other fields override them (docs/reference/presets.md)."
    )
    mode: BudgetMode | None = Field(default=None, description="What happens when the budget is spent.")
    review_plan: bool | None = Field(
        default=None, description="Whether the plan needs approval before any step starts."
    )
    servers: ServerNames | None = Field(
        default=None, description="Names of tool servers; default: those of the session's newest task."
    )
    procedures: Procedures = Field(default=(), description="Procedures and skills that agents follow.")
    documents: Annotated[tuple[SourceDocument, ...], DocumentCountLimit] = Field(
        default=(),
        max_length=MAX_REQUEST_DOCUMENTS,
        description="Documents with names and texts; default: those of the session's newest task.",
    )


class Grant(EagerValue):
    """An approval of a request."""

    request_id: str = Field(min_length=1, max_length=200, description="Id of the request, from `GET /v1/approvals`.")
    add: str | None = Field(
        default=None, min_length=1, max_length=60, description="Amount to grant; default: the requested amount."
    )
    by: ByField = ""
    note: NoteField = ""


class Denial(EagerValue):
    """A denial of a request."""

    request_id: str = Field(min_length=1, max_length=200, description="Id of the request, from `GET /v1/approvals`.")
    finish: Literal["partial", "cancel"] = Field(
        default="partial",
        description="partial: the agent delivers what it has, or, if the request is about a tool call, continues "
        "without the call; cancel: the task is cancelled.",
    )
    by: ByField = ""
    note: str = Field(
        default="",
        max_length=2_000,
        description="Note for the audit log; the agent of a denied tool call sees it, too.",
    )


class NewPlan(EagerValue):
    """A plan in place of the one that waits for approval. A step may also have a `share`, like `40k` or `25%`."""

    steps: tuple[Step, ...] = Field(max_length=100, description="All steps in order, each with a goal.")
    request_id: str | None = Field(
        default=None,
        max_length=200,
        description="Id of the request that you looked at. If that request has been answered, the plan is refused.",
    )
    by: ByField = ""
    note: NoteField = ""


class NewSchedule(EagerValue):
    """A question that is asked again and again, as `waystation schedule add` takes it."""

    question: str = Field(min_length=1, max_length=20_000, description="The question that each report answers.")
    paths: tuple[Annotated[str, Field(min_length=1, max_length=4_000)], ...] = Field(
        default=(),
        max_length=100,
        description="Absolute paths of files or folders on the workers' machine, read at each run; default: the "
        "documents of the session's newest task.",
    )
    cron: str = Field(
        min_length=1,
        max_length=200,
        description="Times of the runs as a cron expression, like `0 7 * * 1` for Mondays at 07:00.",
    )
    zone: str = Field(default="UTC", min_length=1, max_length=100, description="Time zone, like Europe/Oslo.")
    budget: str | None = Field(
        default=None, max_length=60, description="Budget of each run; default: the setting of the workers."
    )
    mode: BudgetMode | None = Field(
        default=None,
        description="What happens when a task has spent its budget; default: the setting of the workers.",
    )
    monthly: str | None = Field(
        default=None, max_length=60, description="Budget of all runs in a calendar month (UTC); default: no limit."
    )
    session: str | None = Field(
        default=None, min_length=1, max_length=200, description="Session of the tasks; default: a new one."
    )
    name: str | None = Field(
        default=None,
        max_length=60,
        description="Name of the schedule: lower-case letters, digits and hyphens; default: a generated name.",
    )
    overlap: Overlap = Field(
        default="skip", description="What happens if a run is due while another one is in progress."
    )
    instructions: str = Field(default="", max_length=100_000, description="Instructions for the agents.")
    accept: tuple[str, ...] = Field(default=(), description="Criteria that each report must meet.")
    length: ReportLength | None = Field(default=None, description="Length of the reports.")
    request_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Id of your choice: the same request with the same id adds one schedule, however often it is sent.",
    )


class NewDelivery(EagerValue):
    """An order to end a task with a report of what it has."""

    by: ByField = ""
    note: Annotated[str, Field(max_length=2_000, description="Note for the audit log; agents read it, too.")] = ""


class NewMessage(EagerValue):
    """A message to the agents of a task."""

    message: str = Field(
        min_length=1, max_length=20_000, description="Text of the message; agents receive it word for word."
    )
    by: ByField = ""


class NewEdit(EagerValue):
    """An edit of an agent's context, as `waystation compact`, `pin`, `restore` and `rewind` make it."""

    action: ContextEditAction = Field(description="The kind of edit.")
    agent: str = Field(
        min_length=1,
        max_length=60,
        description="Id of the agent, like research-1 (for a step) or research-1.2 (for a subagent).",
    )
    message: str | None = Field(
        default=None, max_length=200, description="For pin, unpin and rewind: id of the message, like m4."
    )
    keep: bool | None = Field(default=None, description="For rewind: whether the message itself stays.")
    compaction: str | None = Field(default=None, max_length=200, description="For restore: id of the compaction.")
    instructions: str = Field(default="", max_length=20_000, description="For compact: instructions for the summary.")
    by: ByField = ""
    note: NoteField = ""


class NewFork(EagerValue):
    """A new task that reuses the finished steps of a task that is over."""

    step: str = Field(
        min_length=1, max_length=60, description="Id of the step to run again, with all steps that depend on it."
    )
    instructions: str | None = Field(
        default=None, max_length=100_000, description="Instructions for the agents; default: those of the forked task."
    )
    budget: str | None = Field(
        default=None, max_length=60, description="Budget of the new task; default: that of the forked task."
    )


class SessionLimit(EagerValue):
    """How much all tasks of a session may spend together."""

    budget: str | None = Field(min_length=1, max_length=60, description="An amount; null or `unlimited` for no limit.")


class ForgetSessionRequest(EagerValue):
    """An order to delete the tasks of a session from memory, or everything that they have."""

    confirm: str = Field(max_length=200, description="Name of the session, repeated to confirm the deletion.")
    everything: bool = Field(
        default=False,
        description="Also delete questions, documents, transcripts, reports and histories, not only memory.",
    )


_EXAMPLES: Mapping[str, str] = {
    "int": "it should be a whole number, like 30",
    "date": "it should be a day, like 2026-11-30",
    "datetime": "it should be a time, like 2026-11-30T07:00:00Z",
}
"""What is said of text that is no such value, by the first word of pydantic's kind of fault."""


def format_fault_message(kind: str, message: str) -> str:
    """Format pydantic's message in our words; of text that is no number, day or time, give an example."""
    expected, _, fault = kind.partition("_")
    if expected in _EXAMPLES and fault.endswith(("type", "parsing", "parsing_size", "inexact")):
        return _EXAMPLES[expected]
    return replace_control_characters(describe_fault(kind, message))


_SHAPES: Mapping[str, str] = {
    "documents": 'objects, each with a name and a text: [{"name": "a.md", "text": "..."}]',
    "procedures": 'objects, each with a name and a text: [{"name": "style.md", "text": "..."}]',
    "accept": 'texts: ["every figure has a source"]',
    "servers": 'names of tool servers: ["github"]',
    "steps": 'objects: [{"id": "research-1", "role": "research", "title": "...", "goal": "...", "needs": []}]',
}
"""Item shapes of the lists in bodies."""
_KINDS = frozenset({"model_type", "model_attributes_type", "dict_type", "dataclass_type", "tuple_type", "list_type"})


def format_body_fault(kind: str, message: str, place: Sequence[int | str]) -> str:
    """Format pydantic's message about a body in our words; for a value of another type, say which type is expected."""
    named = next((part for part in place if part in _SHAPES), None)
    if named is not None and (kind in _KINDS or (kind == "string_type" and place[-1] != "text")):
        return f"{named} must be a list of {_SHAPES[str(named)]}"
    if kind in {"model_attributes_type", "json_invalid"}:
        return "it should be a JSON object with named fields"
    if kind == "json_type":
        return "it should be JSON"
    return format_fault_message(kind, message)


def format_faults(faults: Sequence[tuple[Sequence[int | str], str]]) -> str:
    """Format errors by place; names of fields are arbitrary input, and so is the number of errors."""
    told = [
        f"{'.'.join(sanitize_line(str(part)) for part in place)}: {words}" if place else words
        for place, words in faults[:MAX_FAULTS]
    ]
    more = len(faults) - len(told)
    return "; ".join((*told, f"and {more:,} more") if more else told)


def parse_optional_limit(text: str | None) -> Limit | None:
    """Parse a limit. Raises BadInput."""
    if not text:
        return None
    try:
        return parse_limit(text)
    except ValueError as error:
        raise BadInput(str(error)) from error


async def submit_new_task(client: Client, tenant: str, new: NewTask, request_id: str) -> SubmittedTask:
    """Submit a task. Raises BadInput if there is nothing to work on, and as `Client.submit` does."""
    session = make_own_session_name(request_id) if new.session is None else new.session
    documents = await use_session_documents(client, session, new.documents)
    return await client.submit(build_task_request(tenant, new, session, request_id), documents)


async def use_session_documents(
    client: Client, session: str, given: Sequence[SourceDocument]
) -> Sequence[SourceDocument]:
    """Return the given documents, else those of the session's newest task.

    Raises BadInput if there are none, and for one that has no readable text.
    """
    documents = given or await client.get_session_documents(session)
    if not documents:
        raise BadInput("give the documents to work on, or name a session whose newest task has documents")
    if blank := next((one for one in given if is_blank(one.text)), None):
        raise BadInput(
            f"the document {strip_invisible_characters(blank.name)} is blank: leave it out, or give its text"
        )
    return documents


def build_task_request(
    tenant: str, new: NewTask, session: str, request_id: str, left_out: Sequence[SkippedItem] = ()
) -> TaskRequest:
    """Build the request. `left_out`: given items that are in no document.

    Raises BadInput, ValidationError for its budget.
    """
    return TaskRequest(
        tenant=tenant,
        session=session,
        request_id=request_id,
        question=new.question,
        instructions=new.instructions,
        accept=new.accept,
        length=new.length,
        budget=parse_optional_limit(new.budget),
        preset=new.preset,
        mode=new.mode,
        review_plan=new.review_plan,
        servers=new.servers,
        procedures=new.procedures,
        skipped_items=tuple(left_out),
    )


async def get_default_task_config(client: Client, tenant: str) -> TaskConfig | None:
    """Return the configuration of a task without choices; None if the settings allow none."""
    try:
        request = TaskRequest.model_validate({"question": "?", "tenant": tenant, "request_id": "usual"})
        return (await client.prepare_task(request)).config
    except BadInput:
        return None


async def set_session_limit(client: Client, session: str, budget: str | None) -> Limit:
    """Set the spending limit of a session; None removes it. Raises BadInput."""
    limit = parse_session_limit(budget)
    await client.set_session_limit(session, limit)
    return limit


async def forget_session(client: Client, session: str, order: ForgetSessionRequest) -> ForgetResult:
    """Delete what the tasks of a session have.

    Raises InvalidFieldError for another name in `confirm`; as `Client.forget_session`.
    """
    if order.confirm != session:
        raise InvalidFieldError("confirm", f"type the name of this session to confirm: {sanitize_line(session)}")
    return await client.forget_session(session, everything=order.everything)


_MIN_BUDGET = Amount(tokens=MIN_BUDGET_TOKENS, micro_usd=MIN_BUDGET_MICRO_USD)


def parse_session_limit(budget: str | None) -> Limit:
    """Parse a limit; empty or `unlimited`: no limit. Raises BadInput."""
    if budget is None or budget == UNLIMITED:
        return Limit()
    return _bounded("a session's budget", budget, _MIN_BUDGET)


def parse_task_budget(written: str) -> Limit | None:
    """Parse a budget; empty: the settings' default. Raises BadInput."""
    return _bounded("a budget", written, _MIN_BUDGET) if written else None


def _bounded(what: str, written: str, minimum: Amount) -> Limit:
    try:
        return parse_bounded_limit(written, minimum)
    except ValueError as error:
        raise BadInput(f"{what} is {error}") from error


async def cancel_task(client: Client, task: str) -> CancelResult:
    """Ask a task to stop; one that is over stays as it is."""
    task_id = await client.resolve_task_id(task)
    return CancelResult.from_phase(task_id, await client.cancel(task_id))


async def grant_task_request(client: Client, task: str, body: Grant, principal: Principal) -> AnswerResult:
    """Approve one request, by its id."""
    amount, by = parse_grant(body.add) if body.add else None, principal.resolve_signature(body.by)
    task_id = await client.resolve_task_id(task)
    return await client.approve(task_id, request_id=body.request_id, amount=amount, by=by, note=body.note)


async def deny_task_request(client: Client, task: str, body: Denial, principal: Principal) -> AnswerResult:
    """Deny one request, by its id."""
    task_id, by = await client.resolve_task_id(task), principal.resolve_signature(body.by)
    return await client.deny(task_id, request_id=body.request_id, finish=body.finish, note=body.note, by=by)


async def send_plan(client: Client, task: str, body: NewPlan, principal: Principal) -> AnswerResult:
    """Replace the plan of a task that waits for its approval. A refusal names who answered before.

    Raises BadInput for a plan that cannot run.
    """
    task_id, plan = await client.resolve_task_id(task), Plan(steps=body.steps)
    if len(plan.model_dump_json()) > MAX_PLAN_CHARACTERS:
        raise BadInput(f"the plan has more than {MAX_PLAN_CHARACTERS:,} characters: shorten it")
    if faults := find_plan_errors(plan):
        raise BadInput(f"the plan cannot run: {'; '.join(faults)}")
    answer = await client.review_plan(task_id, plan, principal.name or body.by, body.note, body.request_id)
    if answer.outcome != "refused":
        return answer
    view = await client.get_last_known_task(task_id, details=True)
    asked = next((one for one in view.approvals if one.about_plan and body.request_id in {None, one.request_id}), None)
    if asked is None or asked.decision == "pending":
        return answer
    before = format_request_and_answer(asked, over=True)
    return answer.replace(reason=f"this plan no longer waits for approval: {before}")


def resolve_schedule_paths(
    written: Sequence[str], principal: Principal, folders: AssistantPolicy | None
) -> tuple[str, ...]:
    """Return the paths of a schedule's documents.

    The holder of the printed token is the server's user and may name any path. A person with a key may name what is
    below the folders that the server's settings release for reading (`WAYSTATION_MCP_ROOTS`).

    Raises:
        InvalidFieldError: A path is relative, or may not be named.
    """
    paths = [Path(one).expanduser() for one in written]
    if relative := next((one for one in paths if not one.is_absolute()), None):
        words = f"give an absolute path, like /srv/contracts, not {sanitize_line(str(relative))!r}"
        raise InvalidFieldError("paths", words)
    if not principal.proof:
        return tuple(map(str, paths))
    ours = folders if folders is not None and folders.tenant == principal.tenant else None
    roots = () if ours is None else ours.roots
    found = [next((real for root in roots if (real := find_path_below(root, str(one)))), None) for one in paths]
    for path, real in zip(paths, found, strict=True):
        if real is None or (ours is not None and real.is_relative_to(ours.home)):
            listed = ", ".join(map(str, roots))
            raise InvalidFieldError(
                "paths",
                f"callers with a key or token may not read {sanitize_line(str(path))!r}"
                + (f": give a file or folder below {listed}" if listed else ": this server lets them read no folder")
                + " (see the setting WAYSTATION_MCP_ROOTS)",
            )
    return tuple(str(real) for real in found)


async def add_schedule(
    client: Client, principal: Principal, folders: AssistantPolicy | None, new: NewSchedule
) -> ScheduleDescription:
    """Create a schedule, after its documents were read once.

    Raises BadInput, InvalidFieldError, ValidationError; Unreachable.
    """
    paths = resolve_schedule_paths(new.paths, principal, folders)
    request = TaskRequest(
        question=new.question,
        tenant=principal.tenant,
        request_id=new.request_id or "schedule",
        session=new.session or OWN_SESSION,
        budget=parse_optional_limit(new.budget),
        mode=new.mode,
        accept=new.accept,
        length=new.length,
        instructions=new.instructions,
    )
    given = {
        "name": new.name or None,
        "paths": paths,
        "timing": {"cron": new.cron, "zone": new.zone, "overlap": new.overlap},
        "monthly": parse_optional_limit(new.monthly) or Limit(),
    }
    try:
        definition = build_schedule_definition(given, request)
    except ValidationError as error:
        if any("name" in fault["loc"] for fault in error.errors()):
            words = "a name has at most 60 lower-case letters, digits and hyphens, and no hyphen at its beginning"
            raise InvalidFieldError("name", words) from error
        raise
    try:
        if paths:
            await run_in_threadpool(load_documents, [Path(path) for path in paths])
    except BadInput as error:
        raise InvalidFieldError("paths", str(error)) from error
    if not paths and not await client.get_session_documents(definition.request.session):
        raise InvalidFieldError("paths", "give files or folders, or the session of a task that has documents")
    return await (await client.get_schedule_client()).add(definition, repeated=new.request_id is not None)


async def apply_schedule_action(
    schedules: ScheduleClient,
    name: str,
    action: Literal["run", "pause", "resume", "remove"],
    principal: Principal,
    by: str = "",
) -> None:
    """Run, pause, resume or remove a schedule. Raises BadInput for an unknown name.

    `by`: name that a person without a key gives.
    """
    by = principal.name or sanitize_line(by)[:MAX_NAME_CHARACTERS] or "a person on the page"
    match action:
        case "run":
            await schedules.trigger(name)
        case "pause":
            await schedules.pause(name, f"paused by {by}")
        case "resume":
            await schedules.resume(name, f"resumed by {by}")
        case "remove":
            await schedules.remove(name)


async def deliver_task(client: Client, task: str, body: NewDelivery, principal: Principal) -> AnswerResult:
    """End a task with a report of what it has: deny its open requests, and ask its agents to submit their results."""
    task_id, by = await client.resolve_task_id(task), principal.resolve_signature(body.by)
    return (await client.deliver(task_id, by=by, note=body.note)).answer


async def grant_task_requests(
    client: Client, task: str, request_ids: Sequence[str], grant: Grant, principal: Principal
) -> Mapping[str, AnswerResult]:
    """Approve these requests of one task in one signal, each with its requested amount. Returns each result by id."""
    try:
        task_id, by = await client.resolve_task_id(task), principal.resolve_signature(grant.by)
        return await client.approve_many(task_id, request_ids, by=by, note=grant.note)
    except WaystationError as error:
        return dict.fromkeys(request_ids, _failed(error))


async def deny_task_requests(
    client: Client, task: str, request_ids: Sequence[str], grant: Grant, principal: Principal
) -> Mapping[str, AnswerResult]:
    """Deny these requests of one task in one signal. Returns each result by id."""
    try:
        task_id, by = await client.resolve_task_id(task), principal.resolve_signature(grant.by)
        return await client.deny_many(task_id, request_ids, by=by, note=grant.note)
    except WaystationError as error:
        return dict.fromkeys(request_ids, _failed(error))


AnswersEach = Callable[[Client, str, Sequence[str], Grant, Principal], Awaitable[Mapping[str, AnswerResult]]]


class RequestAnswerResult(NamedTuple):
    """The result of one of several answers."""

    task_id: str
    request_id: str
    answer: AnswerResult


async def answer_selected_requests(
    client: Client, chosen: Sequence[str], grant: Grant, principal: Principal, answer_each: AnswersEach
) -> tuple[RequestAnswerResult, ...]:
    """Answer all these requests, named by task and id, those of different tasks concurrently.

    Returns the result of each.
    """
    by_task: dict[str, list[str]] = {}
    for task, _, request_id in (one.partition("/") for one in dict.fromkeys(chosen)):
        by_task.setdefault(task, []).append(request_id)
    found = await asyncio.gather(*(answer_each(client, task, ids, grant, principal) for task, ids in by_task.items()))
    return tuple(
        RequestAnswerResult(task, request_id, answer)
        for task, answers in zip(by_task, found, strict=True)
        for request_id, answer in answers.items()
    )


def _failed(error: WaystationError) -> AnswerResult:
    return AnswerResult(outcome="refused", reason=replace_control_characters(" ".join(str(error).split())))


async def invoke_client_method(
    client: Client, principal: Principal, called: RemoteMethod[Any, Any], sent: Mapping[str, JsonValue]
) -> bytes:
    """Call a method of the client for a caller over HTTP, and return its result as JSON.

    It only reaches tasks of the caller's tenant, and answers are signed by the authenticated caller. Raises as the
    method does; BadInput, ValidationError.
    """
    given = await asyncio.to_thread(called.parse_arguments, sent)
    for name, value in given.items():
        _stay_in_bounds(name, value)
        match value:
            case TaskRequest():
                given[name] = _of_tenant(value, principal)
            case TaskRow():
                given[name] = await _same(client, value, principal)
            case ContextEditInput():
                given[name] = value.replace(by=principal.name or value.by)
            case _:
                pass
    if "by" in called.parameters:
        claimed = given.get("by", "")
        name = claimed.name if isinstance(claimed, VerifiedName) else str(claimed)
        given["by"] = principal.resolve_signature(name) if called.signs else principal.name or name
    return called.serialize_result(await called.method(client, **given))


class SentMessage(Value):
    """A message of our own client to a task."""

    task_id: str
    message: JsonValue
    """Of the model that the row of its name has."""


async def send_client_message(
    client: Client, who: Principal, signal: TaskSignalDefinition[Any], sent: SentMessage
) -> UpdateResult:
    """Send a message for a caller over HTTP, who signs it with the authenticated name.

    Raises as `Client.send` does; ValidationError.
    """
    _stay_in_bounds("task_id", sent.task_id)
    given: MessageInput = signal.model.model_validate(sent.message)
    return await client.send(sent.task_id, signal, given.sign(who.resolve_signature(given.by)))


def _stay_in_bounds(name: str, value: object) -> None:
    """Raise BadInput for what no client of ours sends: excessive counts, names that lists cannot show."""
    most = MAX_PAGE_ITEMS if name in COUNTS else MAX_NUMBER
    match value:
        case bool():
            pass
        case int() if not (name in COUNTS) <= value <= most:
            raise BadInput(f"{name}: give a number from {int(name in COUNTS)} to {most:,}")
        case Limit() | Amount():
            _amount_in_bounds(name, value)
        case str() if name in NAMES and (
            not value or len(value) > MAX_NAME_CHARACTERS or CONTROL_CHARACTERS.search(value)
        ):
            raise BadInput(f"{name}: give one line of at most {MAX_NAME_CHARACTERS} characters")
        case DocumentLoadResult() if len(value.documents) > MAX_REQUEST_DOCUMENTS:
            raise BadInput(f"{len(value.documents):,} documents: send at most {MAX_REQUEST_DOCUMENTS:,} in one request")
        case list() | tuple() if len(cast("Sequence[object]", value)) > MAX_REQUEST_DOCUMENTS:
            raise BadInput(f"{name}: send at most {MAX_REQUEST_DOCUMENTS:,} items in one request")
        case _:
            pass


def _amount_in_bounds(name: str, value: Limit | Amount) -> None:
    amounts = [one for one in (value.tokens, value.micro_usd) if one is not None]
    if not all(0 <= one <= MAX_NUMBER for one in amounts):
        raise BadInput(f"{name}: give an amount from 0 to {MAX_NUMBER:,} tokens or ${MAX_NUMBER // 10_000 / 100:,.2f}")


def _of_tenant(request: TaskRequest, principal: Principal) -> TaskRequest:
    """Check the tenant. Raises BadInput for a request that builds on a task implicitly: only its own method checks
    whose that is.
    """
    if request.forked_from is not None or request.since is not None:
        raise BadInput(
            "a request cannot set the fields `forked_from` and `since`: to build on an earlier task, "
            "fork it or continue its session"
        )
    return request.replace(tenant=principal.tenant)


async def _same(client: Client, row: TaskRow, principal: Principal) -> TaskRow:
    """Prepare the row again: a caller could have changed it. Raises BadInput if its configuration differs by now."""
    made = await client.prepare_task(_of_tenant(row.request, principal))
    if made.config != row.config:
        raise BadInput("the configuration of this task has changed since it was shown: submit the task again")
    return made


async def edit_agent_context(client: Client, task: str, body: NewEdit, principal: Principal) -> AnswerResult:
    """Edit an agent's context. Raises BadInput for fields that do not fit the action."""
    try:
        edit = ContextEditInput(
            action=body.action,
            agent=body.agent,
            message=body.message,
            keep=body.keep,
            compaction=body.compaction,
            by=principal.name or body.by,
            note=body.note,
        )
    except ValidationError as error:
        faults = [format_fault_message(fault["type"], fault["msg"]) for fault in error.errors()]
        raise BadInput("; ".join(faults)) from error
    return await client.edit_context(await client.resolve_task_id(task), edit, body.instructions)


async def fork_task(client: Client, task: str, body: NewFork, request_id: str) -> SubmittedTask:
    """Start a new task that reuses finished steps of one that is over."""
    limit = parse_optional_limit(body.budget)
    wish = ForkRequest(step=body.step, request_id=request_id, instructions=body.instructions, budget=limit)
    return await client.fork(await client.resolve_task_id(task), wish)


LinkPath = Annotated[str, PathField(pattern="^[0-9a-f]{12}$", description="Id of the link.")]


async def create_report_link(client: Client, principal: Principal, task: str, wanted: NewReportLink) -> MadeReportLink:
    """Make a link to the newest report of a task. Raises BadInput if there is none."""
    return await client.create_report_link(await client.resolve_task_id(task), wanted, principal.name)


def raise_if_refused(answer: AnswerResult) -> AnswerResult:
    """Return the answer unless it was refused: someone else answered first, or nothing waits for it.

    Raises HTTPException.
    """
    if answer.outcome == "refused":
        raise HTTPException(409, answer.reason)
    return answer
