"""Tasks as MCP clients follow them: as short text, and through the protocol's tasks extension.

The extension is `io.modelcontextprotocol/tasks` in its schema of 2026-07-28: a client that declares it gets a handle
from `submit_research`, polls the task by it, and answers its requests. The task is ours, under its own id: no state is
kept here, so that any server can answer for it.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from typing import Any

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.elicitation import ElicitationResult, render_elicitation_schema
from mcp.server.extension import Extension, MethodBinding
from mcp.server.mcpserver import require_client_extension
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ClientCapabilities,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    RequestParams,
    TextContent,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, Field, JsonValue, ValidationError

from waystation.kernel.amount import format_used_amount
from waystation.kernel.errors import BadInput, Unreachable, WaystationError
from waystation.kernel.value import accept_every_name, extract_validation_faults, map_strings
from waystation.plugins.web.assistant_gateway import AcceptedTask, AnswerForm, AssistantGateway, GrantForm
from waystation.plugins.web.principals import Answers
from waystation.plugins.web.request_bodies import format_faults
from waystation.plugins.web.task_page import format_approval_request
from waystation.security.untrusted import escape_control_characters_in_json, replace_control_characters, sanitize_line
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import PendingApproval, TaskView, list_pending_approvals

EXTENSION = "io.modelcontextprotocol/tasks"
SUBMITS = "submit_research"
"""The tool whose calls become tasks; others answer at once, or wait as long as requested."""
POLL_INTERVAL_MS, MAX_ERROR_CHARACTERS = 5_000, 1_000
_VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
"""Protocol versions in which each request states the client's capabilities."""
_Request = ServerRequestContext[Any, Any]


# ------------------------------------------------------------------------------------------------------------ as text


def format_task_status(view: TaskView) -> str:
    """Format a task in a few lines: what an assistant needs in order to continue."""
    title = sanitize_line(view.title)
    lines = [f"{view.task_id} is {view.phase}{f': {title}' if title else ''}", format_progress_line(view)]
    lines += [f"step {step.id}: {step.state}" for step in view.steps]
    lines += [f"note: {sanitize_line(note)}" for note in (*view.notes, *view.waiting_for)]
    lines += [
        f"open request, request_id {one.approval.request_id}: {format_approval_request(one)}"
        for one in list_pending_approvals(view)
    ]
    if view.over and view.shown_report is not None:
        lines.append("to read the report, call get_report")
    return "\n".join(filter(None, lines))


def format_progress_line(view: TaskView) -> str:
    """Format numbers and names of tools, without text of the work."""
    budget = view.budget
    at_work = ", ".join(f"{one.agent} is {one.doing}" for one in view.activity)
    done = sum(step.state == "done" for step in view.steps)
    steps = f"{done} of {len(view.steps)} steps done; " if view.steps else ""
    return f"{steps}{format_used_amount(budget.spent, budget.limit)} spent{f'; {at_work}' if at_work else ''}"


def build_tool_result(text: str, content: BaseModel) -> CallToolResult:
    """Build a tool's result, as text and as data."""
    return CallToolResult(
        content=[TextContent(text=replace_control_characters(text))], structured_content=content.model_dump(mode="json")
    )


def sanitize_tool_result(said: CallToolResult) -> CallToolResult:
    """Sanitise the data as text: a model reads what no person sees."""
    texts = [
        TextContent(text=escape_control_characters_in_json(one.text))
        for one in said.content
        if isinstance(one, TextContent)
    ]
    seen = map_strings(said.structured_content, replace_control_characters, accept_every_name)
    return said.__replace__(content=[*texts], structured_content=seen)


def format_validation_faults(faults: ValidationError) -> str:
    """Format validation errors by place; values are not repeated."""
    return format_faults(
        [(fault.place, replace_control_characters(fault.words)) for fault in extract_validation_faults(faults)]
    )


# ---------------------------------------------------------------------------------------------------------- who answers


def can_show_forms(capabilities: ClientCapabilities | None) -> bool:
    """Return whether a client with these capabilities shows forms to its user."""
    able = capabilities.elicitation if capabilities is not None else None
    return able is not None and (able.form is not None or able.url is None)


def get_form_answer(form: ElicitationResult[GrantForm]) -> GrantForm | None:
    """Return a person's answer; None if no one had to be asked. Raises BadInput: the form was closed without one."""
    if form.action == "accept":
        return form.data
    closed = "declined" if form.action == "decline" else "closed"
    raise BadInput(
        f"the person {closed} the form, so nothing was granted and the request stays open: `approve` shows the form "
        "again, and `deny` denies the request"
    )


def get_approval_block_reason(one: PendingApproval, answers: Answers, *, forms: bool) -> str | None:
    """Return why the request cannot be approved through this client, and who can; None if it can."""
    elsewhere = f"`waystation approve {one.task_id} --request {one.approval.request_id}`, or on the task's page"
    match answers:
        case "nobody":
            return (
                "the setting WAYSTATION_MCP_ANSWERS does not allow assistants to approve requests. A person can "
                f"approve this request with {elsewhere}"
            )
        case "person" if not forms:
            return (
                "this client cannot show a form to its user, and an assistant may not approve its own request. A "
                f"person can approve it with {elsewhere}. WAYSTATION_MCP_ANSWERS=client allows assistants to approve"
            )
        case "person" | "client":
            return None


# -------------------------------------------------------------------------------------------------------- the extension


class _OfTask(RequestParams):
    task_id: str = Field(max_length=100)


class _Answers(_OfTask):
    input_responses: dict[str, JsonValue]
    """Answers by the key of the request, which is the id of ours."""


class TasksExtension(Extension):
    """Tasks of one assistant through the extension; see its specification for what a client may rely on."""

    identifier = EXTENSION

    def __init__(self, assistant: AssistantGateway) -> None:
        self._assistant = assistant

    def methods(self) -> Sequence[MethodBinding]:
        """See base class."""
        return (
            MethodBinding("tasks/get", _OfTask, self._get, _VERSIONS),
            MethodBinding("tasks/update", _Answers, self._update, _VERSIONS),
            MethodBinding("tasks/cancel", _OfTask, self._cancel, _VERSIONS),
        )

    async def intercept_tool_call(
        self, params: CallToolRequestParams, ctx: _Request, call_next: CallNext
    ) -> HandlerResult:
        """See base class. A submission becomes a task for a client that asked for it; for others nothing changes."""
        result = await call_next(ctx)
        if params.name != SUBMITS or not _declares(ctx) or not isinstance(result, CallToolResult) or result.is_error:
            return result
        accepted = AcceptedTask.model_validate(result.structured_content)
        try:
            view = await self._assistant.get_task(accepted.task_id)
        except Unreachable:
            # The task exists and its id is known: without a handle, the client follows it by tools.
            return result
        page = f"page: {accepted.page}" if accepted.page else ""
        return {**self._task(view, ctx, page, *accepted.warnings), "resultType": "task"}

    async def _get(self, ctx: _Request, params: _OfTask) -> HandlerResult:
        _require_allowed(ctx, params)
        with _in_words():
            view = await self._assistant.get_task(params.task_id)
            task = self._task(view, ctx)
            return {**task, **await self._inlined(task["status"], view)}

    async def _update(self, ctx: _Request, params: _Answers) -> HandlerResult:
        """Forward answers. Those to requests that are no longer pending are ignored, since they may arrive twice."""
        _require_allowed(ctx, params)
        with _in_words():
            wrong: list[str] = []
            for one in list_pending_approvals(await self._assistant.get_task(params.task_id)):
                if (said := params.input_responses.get(one.approval.request_id)) is not None:
                    fault = await self._answered(one, said, ctx)
                    wrong += [f"{one.approval.request_id}: {fault}"] if fault else []
            if wrong:
                raise BadInput("; ".join(wrong))
        return None

    async def _cancel(self, ctx: _Request, params: _OfTask) -> HandlerResult:
        _require_allowed(ctx, params)
        with _in_words():
            await self._assistant.client.cancel(await self._assistant.require_own_task(params.task_id))
        return None

    def _task(self, view: TaskView, ctx: _Request, *more: str) -> dict[str, Any]:
        barred = [why for one in list_pending_approvals(view) if (why := self._why_not(one, ctx))]
        times = [view.submitted_at, view.ended_at]
        times += [moment for one in view.approvals for moment in (one.requested_at, one.answered_at)]
        known = [f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}" for moment in times if moment is not None]
        asks = bool(list_pending_approvals(view)) and not barred and can_show_forms(ctx.session.client_capabilities)
        return {
            "taskId": view.task_id,
            "status": _status(view.phase, asks=asks),
            "statusMessage": replace_control_characters(
                "\n".join(filter(None, (format_task_status(view), *barred, *more)))
            ),
            "createdAt": min(known),
            "lastUpdatedAt": max(known),
            "ttlMs": None,
            "pollIntervalMs": POLL_INTERVAL_MS,
        }

    def _why_not(self, one: PendingApproval, ctx: _Request) -> str | None:
        forms = can_show_forms(ctx.session.client_capabilities)
        return get_approval_block_reason(one, self._assistant.policy.answers, forms=forms)

    async def _inlined(self, status: str, view: TaskView) -> dict[str, Any]:
        if status == "input_required":
            return {"inputRequests": {one.approval.request_id: _form(one) for one in list_pending_approvals(view)}}
        if status != "completed":
            return {}
        result = sanitize_tool_result(await self._result(view))
        return {"result": result.model_dump(mode="json", by_alias=True, exclude_none=True)}

    async def _result(self, view: TaskView) -> CallToolResult:
        """Return what the call would have returned, had it waited: the report with its citations."""
        status = format_task_status(view)
        try:
            if view.phase != TaskPhase.FAILED:
                finished = await self._assistant.build_finished_task(view)
                return build_tool_result(f"{status}\n\n{finished.markdown}", finished)
        except BadInput as without:
            status = f"{status}\n{without}"
        return CallToolResult(content=[TextContent(text=replace_control_characters(status))], is_error=True)

    async def _answered(self, one: PendingApproval, said: JsonValue, ctx: _Request) -> str:
        """Return the error of an answer, or nothing. A declined form is no answer: another person may give one."""
        try:
            form = ElicitResult.model_validate(said)
            if form.action != "accept":
                return ""
            person = AnswerForm.model_validate(form.content or {}, extra="ignore")
        except ValidationError as faults:
            return format_validation_faults(faults)
        why_not = self._why_not(one, ctx)
        if person.decision == "approve" and why_not is not None:
            return why_not
        try:
            answer = await self._assistant.answer_request(one, person)
            reason = answer.reason if answer.outcome == "refused" else ""
        except BadInput as refused:
            reason = str(refused)
        if not reason:
            return ""
        still = list_pending_approvals(await self._assistant.get_task(one.task_id))
        return reason if any(each.approval.request_id == one.approval.request_id for each in still) else ""


async def require_declared_extension(ctx: _Request, call_next: CallNext) -> HandlerResult:
    """Reject clients that subscribe to tasks without declaring the extension.

    No notifications are sent: clients poll.
    """
    wanted = (ctx.params or {}).get("notifications")
    if ctx.method == "subscriptions/listen" and isinstance(wanted, Mapping) and "taskIds" in wanted:
        require_client_extension(ctx, EXTENSION)
    return await call_next(ctx)


async def truncate_mcp_errors(ctx: _Request, call_next: CallNext) -> HandlerResult:
    """Truncate errors: the SDK repeats unknown methods and addresses, however long they are."""
    try:
        return await call_next(ctx)
    except MCPError as error:
        if len(error.message) <= MAX_ERROR_CHARACTERS and len(str(error.data)) <= MAX_ERROR_CHARACTERS:
            raise
        shown = error.data if error.data is None else map_strings(error.data, sanitize_line)
        raise MCPError(error.code, sanitize_line(error.message, MAX_ERROR_CHARACTERS), shown) from None


def _declares(ctx: _Request) -> bool:
    able = ctx.session.client_capabilities
    return ctx.protocol_version in _VERSIONS and able is not None and EXTENSION in (able.extensions or {})


def _require_allowed(ctx: _Request, params: _OfTask) -> None:
    """Raise MCPError if the client does not declare the extension, or a proxy could route by another task."""
    require_client_extension(ctx, EXTENSION)
    name = ctx.request.headers.get(MCP_NAME_HEADER) if ctx.request is not None else None
    if name is not None and decode_header_value(name) != params.task_id:
        raise MCPError(
            HEADER_MISMATCH, f"{MCP_NAME_HEADER} header does not match the request body's 'taskId' parameter"
        )


def _status(phase: TaskPhase, *, asks: bool) -> str:
    """Return the protocol's status.

    `failed` is for requests that fail with a protocol error: a failed task of ours has a result that says so.
    """
    if phase == TaskPhase.CANCELLED:
        return "cancelled"
    return "completed" if phase.over else "input_required" if asks else "working"


_FORM = render_elicitation_schema(AnswerForm)


def _form(one: PendingApproval) -> dict[str, Any]:
    asked = ElicitRequest(params=ElicitRequestFormParams(message=format_approval_request(one), requested_schema=_FORM))
    return asked.model_dump(mode="json", by_alias=True, exclude_none=True)


@contextmanager
def _in_words() -> Generator[None]:
    """Translate our errors into the protocol's."""
    try:
        yield
    except BadInput as wrong:
        raise MCPError(INVALID_PARAMS, replace_control_characters(str(wrong))) from None
    except WaystationError as fault:
        raise MCPError(INTERNAL_ERROR, replace_control_characters(str(fault))) from None
