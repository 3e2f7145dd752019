"""The MCP server: tools, resources and prompts by which assistants submit work and read its results.

Over standard streams by `waystation mcp`, over HTTP at `/mcp` of `waystation serve`. Everything that an assistant sends
is validated in `waystation.plugins.web.assistant_gateway`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from io import StringIO
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal, Self

from anyio import CancelScope, create_memory_object_stream, create_task_group, wrap_file
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError, UnexpectedToolError
from mcp.server.mcpserver.resolve import Elicit, ElicitationResult, Resolve
from mcp.server.mcpserver.resources import ResourceSecurity
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    CallToolResult,
    GetPromptResult,
    InputRequiredResult,
    Resource,
    Tool,
    ToolAnnotations,
)
from pydantic import AnyUrl, Field, ValidationError

from waystation import __version__
from waystation.agents.deliverables import ReportLength
from waystation.client.agent_contexts import RecallResultJson
from waystation.context.audit import build_transcript_view
from waystation.kernel.errors import BadInput, WaystationError
from waystation.kernel.value import Value
from waystation.plugins.web.app import (
    configure_mcp_logging,
    forward_messages,
    open_exclusive_stdin,
    parse_session_messages,
)
from waystation.plugins.web.assistant_gateway import (
    SCHEME,
    AcceptedTask,
    AssistantGateway,
    DocumentInput,
    GrantForm,
    ReportPart,
    RequestOutcome,
    SubmitResearchRequest,
    parse_optional_budget,
)
from waystation.plugins.web.event_feed import ALIVE_SECONDS, AccessCheck
from waystation.plugins.web.mcp_tasks import (
    SUBMITS,
    TasksExtension,
    build_tool_result,
    can_show_forms,
    format_progress_line,
    format_task_status,
    format_validation_faults,
    get_approval_block_reason,
    get_form_answer,
    require_declared_extension,
    sanitize_tool_result,
    truncate_mcp_errors,
)
from waystation.plugins.web.task_page import format_approval_request
from waystation.security.untrusted import (
    ServerNames,
    escape_control_characters_in_json,
    replace_control_characters,
    sanitize_line,
)
from waystation.tasks.signals import AnswerResult
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import CancelResult, PendingApproval, PendingApprovals, ShownAmount, TaskView

MAX_WAIT_SECONDS, DEFAULT_WAIT_SECONDS = 600, 50
"""Seconds: many clients time out a call after a minute."""
POLL_SECONDS = 1.0
REVOKED = "the key was revoked; submitted tasks continue. `waystation keys make NAME --role assistant` makes a new key"
RECALLED = 2_000
"""Default size of recalled text, in tokens."""
PROMPTS = Path(__file__).parent / "prompts"
INSTRUCTIONS = (PROMPTS / "instructions.md").read_text(encoding="utf-8").strip()
Ctx = Context[Any, Any]
Task = Annotated[str, Field(max_length=100, description="Id of the task, as submit_research gave it.")]
RequestId = Annotated[str | None, Field(max_length=200, description="Id of the request; needed if several are open.")]


def get_assistant(ctx: Ctx) -> AssistantGateway:
    """Return the gateway of the server's assistant."""
    server = ctx.mcp_server
    if not isinstance(server, AssistantServer):
        raise TypeError("the server has no assistant")
    return server.assistant


# ------------------------------------------------------------------------------------------------------------ the tools


async def submit_research(
    ctx: Ctx,
    question: Annotated[str, Field(min_length=1, max_length=20_000, description="The question to research.")],
    documents: Annotated[tuple[DocumentInput, ...], Field(min_length=1, description="Documents to research.")],
    budget: Annotated[
        str | None,
        Field(
            max_length=60,
            description="Budget of the task, such as 300k tokens or $1.50; default: the server's setting.",
        ),
    ] = None,
    instructions: Annotated[str, Field(max_length=20_000, description="Instructions for the agents.")] = "",
    accept: Annotated[tuple[str, ...], Field(description="Criteria that the report must meet.")] = (),
    length: Annotated[
        ReportLength | None,
        Field(description="Length of the report. By default, it depends on the number of findings."),
    ] = None,
    servers: Annotated[
        ServerNames | None,
        Field(description="Names of the tool servers that the task may use; if omitted, the default servers."),
    ] = None,
    skills: Annotated[tuple[str, ...], Field(description="Names of skills that the agents follow.")] = (),
    request_id: Annotated[
        str | None, Field(max_length=200, description="Id for a safe retry: the same id returns the same task.")
    ] = None,
) -> AcceptedTask:
    """Submit a question with documents. Returns the task's id immediately; the work takes minutes to hours."""
    return await get_assistant(ctx).submit(
        SubmitResearchRequest(
            question=question,
            documents=documents,
            budget=parse_optional_budget(budget),
            instructions=instructions,
            accept=accept,
            length=length,
            servers=servers,
            skills=skills,
            request_id=request_id or token_hex(8),
        )
    )


async def task_status(ctx: Ctx, task: Task) -> Annotated[CallToolResult, TaskView]:
    """The state of a task: its phase, steps, spending and open requests."""
    return _status(await get_assistant(ctx).get_task(task))


async def wait_for_task(
    ctx: Ctx,
    task: Task,
    seconds: Annotated[
        int, Field(ge=1, le=MAX_WAIT_SECONDS, description="Maximum time to wait, in seconds.")
    ] = DEFAULT_WAIT_SECONDS,
) -> Annotated[CallToolResult, TaskView]:
    """Wait until a task is over or has an open request, or the time is up. Reports the task's progress meanwhile."""
    assistant, clock = get_assistant(ctx), asyncio.get_running_loop().time
    task_id, began, told = await assistant.require_own_task(task), clock(), ""
    while True:
        view = await assistant.client.get_task(task_id)
        waited = clock() - began
        if view.over or view.pending_approvals or waited >= seconds:
            return _status(view)
        if (line := format_progress_line(view)) != told:
            told = line
            await ctx.report_progress(waited, seconds, line)
        await asyncio.sleep(min(POLL_SECONDS, seconds - waited))


class ListedTask(Value):
    """A task of an assistant, with what it needs in order to choose one."""

    task_id: str
    title: str
    phase: TaskPhase
    submitted_at: datetime | None
    spent: ShownAmount
    has_report: bool
    waiting_requests: int

    @classmethod
    def from_view(cls, view: TaskView) -> Self:
        """Build it from the task's view."""
        return cls(
            task_id=view.task_id,
            title=sanitize_line(view.title),
            phase=view.phase,
            submitted_at=view.submitted_at,
            spent=view.budget.spent,
            has_report=view.shown_report is not None,
            waiting_requests=len(view.pending_approvals),
        )


class ListedTasks(Value):
    """Tasks of an assistant, the newest first."""

    tasks: tuple[ListedTask, ...]


async def list_tasks(
    ctx: Ctx, count: Annotated[int, Field(ge=1, le=50, description="Maximum number of tasks.")] = 20
) -> ListedTasks:
    """Your newest tasks with their phase, what they spent, and whether they have a report or wait for an answer."""
    views = await get_assistant(ctx).list_tasks()
    return ListedTasks(tasks=tuple(map(ListedTask.from_view, views[:count])))


async def list_approvals(ctx: Ctx) -> PendingApprovals:
    """The open requests of your tasks for budget, a tool call or approval of a plan, the most urgent first."""
    return PendingApprovals(requests=await get_assistant(ctx).list_requests())


async def find_approval_request(ctx: Ctx, task: str, request_id: str | None) -> PendingApproval:
    """Find the request once per call, so that the grant is for the request that the form showed, whatever is pending
    when the form comes back.
    """
    return await get_assistant(ctx).find_request(task, request_id)


RequestMeant = Annotated[PendingApproval, Resolve(find_approval_request)]


async def build_approval_form(ctx: Ctx, one: RequestMeant) -> Elicit[GrantForm] | None:
    """Build a form for a person; None if the assistant may answer by itself. Raises ToolError if no one can approve."""
    assistant = get_assistant(ctx)
    answers = assistant.policy.answers
    why_not = get_approval_block_reason(one, answers, forms=can_show_forms(ctx.client_capabilities))
    if why_not is not None:
        raise ToolError(why_not)
    return Elicit(format_approval_request(one), GrantForm) if answers == "person" else None


async def approve_request(
    ctx: Ctx,
    task: Task,
    one: RequestMeant,
    form: Annotated[ElicitationResult[GrantForm], Resolve(build_approval_form)],
    request_id: RequestId = None,
    amount: Annotated[
        str,
        Field(
            max_length=60,
            description="Amount to grant, such as 50k or $0.25; used only if assistants may answer requests.",
        ),
    ] = "",
    note: Annotated[
        str,
        Field(
            max_length=2_000,
            description="Note to send with the answer; used only if assistants may answer requests.",
        ),
    ] = "",
) -> RequestOutcome:
    """Approve a request of a task. If the client supports forms, the person sees one, so ask no one beforehand."""
    del task, request_id  # `find_approval_request` has used these to find it
    said = get_form_answer(form) or GrantForm(amount=amount, note=note)
    return _answered(one, await get_assistant(ctx).approve(one, said.amount, said.note))


async def deny_request(
    ctx: Ctx,
    task: Task,
    request_id: RequestId = None,
    finish: Annotated[
        Literal["partial", "cancel"],
        Field(
            description="partial: the agent delivers what it has, or, if the request is about a tool call, continues "
            "without the call; cancel: the task is cancelled."
        ),
    ] = "partial",
    note: Annotated[
        str,
        Field(max_length=2_000, description="Note for the audit log; the agent of a denied tool call sees it, too."),
    ] = "",
) -> RequestOutcome:
    """Deny a request of a task, for good. The agent delivers what it has, or continues without the call."""
    assistant = get_assistant(ctx)
    one = await assistant.find_request(task, request_id)
    return _answered(one, await assistant.deny(one, note, finish))


async def read_report(
    ctx: Ctx,
    task: Task,
    section: Annotated[
        str | None, Field(max_length=500, description="Heading of one section; default: the whole report.")
    ] = None,
    version: Annotated[int | None, Field(description="Version of the report; default: the newest.")] = None,
) -> Annotated[CallToolResult, ReportPart]:
    """The report of a task that is over, whole or by section, with the places that it cites."""
    part = await get_assistant(ctx).get_report(task, section, version)
    return build_tool_result(part.markdown, part)


async def recall_memory(
    ctx: Ctx,
    query: Annotated[str, Field(max_length=2_000, description="Words to search for.")],
    tokens: Annotated[int, Field(ge=100, le=20_000, description="Maximum size of the result in tokens.")] = RECALLED,
) -> RecallResultJson:
    """Search what earlier tasks read, said and found."""
    return RecallResultJson.from_matches(await get_assistant(ctx).search_memory(query, tokens))


async def send_task_message(
    ctx: Ctx,
    task: Task,
    message: Annotated[str, Field(min_length=1, max_length=20_000, description="Text of the message.")],
) -> AnswerResult:
    """Send the agents of a running task a message, which each receives at its next turn."""
    assistant = get_assistant(ctx)
    return _unless_refused(
        await assistant.client.send_message(await assistant.require_own_task(task), message, assistant.policy.signature)
    )


async def deliver_task(
    ctx: Ctx,
    task: Task,
    note: Annotated[str, Field(max_length=2_000, description="Note for the audit log; agents read it, too.")] = "",
) -> AnswerResult:
    """End a task early with a report of what it has. Its requests are denied, and its agents submit their results.

    Use this when an answer is needed now. To stop a task without a report, use cancel. This cannot be undone.
    """
    return _unless_refused(await get_assistant(ctx).deliver(task, note))


async def cancel_task(ctx: Ctx, task: Task) -> CancelResult:
    """Stop a task. This cannot be undone. What the task has found stays readable."""
    assistant = get_assistant(ctx)
    task_id = await assistant.require_own_task(task)
    return CancelResult.from_phase(task_id, await assistant.client.cancel(task_id))


_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ENDS = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)
TOOLS: dict[str, tuple[Callable[..., Any], ToolAnnotations]] = {
    SUBMITS: (submit_research, ToolAnnotations(destructive_hint=False, open_world_hint=True)),
    "list_tasks": (list_tasks, _READS),
    "task_status": (task_status, _READS),
    "wait_for_task": (wait_for_task, _READS),
    "list_approvals": (list_approvals, _READS),
    "approve": (approve_request, ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=True)),
    "deny": (deny_request, _ENDS),
    "get_report": (read_report, _READS),
    "recall": (recall_memory, _READS),
    "send_message": (
        send_task_message,
        ToolAnnotations(destructive_hint=False, idempotent_hint=False, open_world_hint=False),
    ),
    "deliver": (deliver_task, _ENDS),
    "cancel": (cancel_task, _ENDS),
}
"""Tools by name, with their effects: read-only, destructive, idempotent, open-world."""


# --------------------------------------------------------------------------------------------------------- tool results


def _status(view: TaskView) -> CallToolResult:
    return build_tool_result(format_task_status(view), view)


def _unless_refused(answer: AnswerResult) -> AnswerResult:
    """Return the answer. Raises BadInput if it was refused."""
    if answer.outcome == "refused":
        raise BadInput(answer.reason)
    return answer


def _answered(one: PendingApproval, answer: AnswerResult) -> RequestOutcome:
    answer = _unless_refused(answer)
    return RequestOutcome(
        task_id=one.task_id, request_id=one.approval.request_id, outcome=answer.outcome, reason=answer.reason
    )


# ------------------------------------------------------------------------------------------------ resources and prompts

LOOKED_UP = ResourceSecurity(exempt_params={"name"})
"""A document's name is looked up in the store, and is never a path."""


async def report_of(task: str, ctx: Ctx) -> str:
    """The report of a task, as Markdown."""
    assistant = get_assistant(ctx)
    return await assistant.client.get_report(await assistant.require_own_task(task))


async def transcript_of(task: str, agent: str, ctx: Ctx) -> str:
    """All messages of an agent, with the compactions that hide some of them from the agent, as JSON."""
    assistant = get_assistant(ctx)
    return build_transcript_view(
        await assistant.client.get_transcript(await assistant.require_own_task(task), agent)
    ).model_dump_json()


async def document_of(task: str, name: str, ctx: Ctx) -> str:
    """A document of a task, as its agents saw it; a citation gives lines of it."""
    return await get_assistant(ctx).get_document_text(task, name)


RESOURCES: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("{task}/report", report_of, "text/markdown"),
    ("{task}/agents/{agent}/transcript", transcript_of, "application/json"),
    ("{task}/documents/{+name}", document_of, "text/plain"),
)


def research_question(topic: str, purpose: str = "") -> str:
    """Turn what a person wants to know into a question that agents can answer from documents."""
    what_for = f"What it is for: {purpose}\n" if purpose else ""
    return (PROMPTS / "question.md").read_text(encoding="utf-8").format(topic=topic, purpose=what_for)


async def cancel_if_access_revoked(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Check the caller's access repeatedly during long calls over HTTP. Raises MCPError when it has ended."""
    state = getattr(ctx.request, "state", None)
    with CancelScope() as scope:
        watching = asyncio.create_task(_watch(getattr(state, "still", None), scope))
        try:
            return await call_next(ctx)
        finally:
            watching.cancel()
    raise MCPError(INVALID_REQUEST, REVOKED)


async def _watch(still: AccessCheck | None, scope: CancelScope) -> None:
    while still is not None:
        await asyncio.sleep(ALIVE_SECONDS)
        if not await still():
            scope.cancel()
            return


class AssistantServer(MCPServer[Any]):
    """The SDK's server for one assistant: with our errors as sentences, and its reports as resources."""

    def __init__(self, assistant: AssistantGateway) -> None:
        configure_mcp_logging()
        super().__init__(
            "waystation",
            title="Waystation",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
            extensions=[TasksExtension(assistant)],
            middleware=[truncate_mcp_errors, cancel_if_access_revoked, require_declared_extension],
        )
        self.assistant = assistant
        for name, (tool, annotations) in TOOLS.items():
            self.add_tool(tool, name, annotations=annotations)
        for address, resource, kind in RESOURCES:
            name = resource.__name__.removesuffix("_of")
            self.resource(f"{SCHEME}://tasks/{address}", name=name, mime_type=kind, security=LOOKED_UP)(resource)
        self.prompt(title="Ask a good question")(research_question)

    async def run_stdio_async(self) -> None:
        """See base class, which ignores a line that is no message, or that it takes for a notification by mistake: its
        sender would wait for ever.
        """
        heard, messages = create_memory_object_stream[SessionMessage | Exception]()
        nothing = wrap_file(StringIO())  # an empty input for the SDK
        with open_exclusive_stdin() as lines:
            async with stdio_server(stdin=nothing) as (read, write), create_task_group() as group:
                await read.aclose()
                group.start_soon(forward_messages, parse_session_messages(lines), heard, write.send)
                server = self._lowlevel_server
                await server.run(messages, write, server.create_initialization_options())

    async def list_resources(self) -> list[Resource]:
        """See base class."""
        return [
            Resource(
                uri=f"{SCHEME}://tasks/{view.task_id}/report",
                name=view.task_id,
                title=sanitize_line(view.title),
                mime_type="text/markdown",
            )
            for view in await self.assistant.list_tasks()
            if view.shown_report is not None
        ]

    async def list_tools(self) -> list[Tool]:
        """See base class. Each tool accepts only the arguments that it names."""
        return [
            tool.__replace__(input_schema={**tool.input_schema, "additionalProperties": False})
            for tool in await super().list_tools()
        ]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """See base class, which treats an invalid argument as a server error."""
        known = {prompt.name: prompt.arguments or [] for prompt in await self.list_prompts()}
        if name not in known:
            raise MCPError(
                INVALID_PARAMS, f"there is no prompt {sanitize_line(name)!r}; available prompts: {', '.join(known)}"
            )
        takes = [one.name for one in known[name]]
        needed = [one.name for one in known[name] if one.required]
        if not set(needed) <= (arguments or {}).keys() <= set(takes):
            required = ", ".join(needed) or "none"
            raise MCPError(
                INVALID_PARAMS, f"the prompt {name} takes the arguments {', '.join(takes)}; required: {required}"
            )
        return await super().get_prompt(name, arguments, context)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See base class. The SDK would ignore a misspelled argument, such as a budget or a reason."""
        if name not in TOOLS:
            raise ToolError(f"there is no tool {sanitize_line(name)!r}; available tools: {', '.join(TOOLS)}")
        taken = next(tool.input_schema["properties"] for tool in await self.list_tools() if tool.name == name)
        if unknown := sorted(arguments.keys() - taken.keys()):
            raise ToolError(
                f"{name} has no argument {sanitize_line(unknown[0])!r}: it takes {', '.join(taken) or 'none'}"
            )
        try:
            said = await super().call_tool(name, arguments, context)
            # A form has the text of `format_approval_request`, which is safe.
            return said if isinstance(said, InputRequiredResult) else sanitize_tool_result(said)
        except ToolError as error:
            if (said := _sentence(error)) is None:
                raise
            raise ToolError(said) from None

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """See base class."""
        try:
            read = await super().read_resource(uri, context)
            return read if isinstance(read, InputRequiredResult) else [_clean_part(one) for one in read]
        except ResourceError as error:
            if (said := _sentence(error)) is None:
                raise
            raise ResourceNotFoundError(said) from None


def _clean_part(one: ReadResourceContents) -> ReadResourceContents:
    written = escape_control_characters_in_json if one.mime_type == "application/json" else replace_control_characters
    return replace(one, content=written(one.content)) if isinstance(one.content, str) else one


def _sentence(error: ToolError | ResourceError) -> str | None:
    """Return the cause and the next step, if known; given values are not repeated."""
    match error.__cause__:
        case ValidationError() as faults:
            return format_validation_faults(faults)
        case (
            ToolError(__cause__=ValidationError() as faults)
            | ToolError(__cause__=ValueError(__cause__=ValidationError() as faults))
        ):
            what = format_validation_faults(faults)
            return f"nothing was granted, because the form was returned with invalid values: {what}"
        case WaystationError() | ToolError() as known if not isinstance(known, UnexpectedToolError):
            return replace_control_characters(str(known))
        case _:
            return None
