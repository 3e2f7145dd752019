"""The MCP server: tools, resources and prompts by which assistants hand work over and read what came of it.

Over standard streams by `waystation mcp`, over HTTP at `/mcp` of `waystation serve`. Everything that an assistant
sends is checked in `waystation.plugins.web.assistants`.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Any, Literal

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
from waystation.client.context import RecalledJson
from waystation.client.task_json import CancelJson, TaskJson, task_json
from waystation.context.audit import shown
from waystation.kernel.errors import BadInput, WaystationError
from waystation.plugins.web.app import logs_without_words, messages_of, own_input, pass_on
from waystation.plugins.web.assistants import (
    SCHEME,
    AcceptedTask,
    AnsweredRequest,
    Assistant,
    GivenDocument,
    Handing,
    PersonsGrant,
    ReportPart,
    budget_of,
)
from waystation.plugins.web.listeners import ALIVE_SECONDS, StillMay
from waystation.plugins.web.mcp_tasks import (
    SUBMITS,
    FollowedTasks,
    doing_line,
    faults_text,
    filled_in,
    made_plain,
    not_to_approve,
    only_declared,
    shows_forms,
    status_text,
    text_with,
    told_in_short,
)
from waystation.plugins.web.task_page import asking_text
from waystation.security.untrusted import ServerNames, one_line, plain, plain_json
from waystation.tasks.signals import Answer
from waystation.tasks.view import PendingApproval, TaskView, Waiting, pending

LONGEST_WAIT, USUAL_WAIT = 600, 50
"""Seconds: many clients give a call up after a minute."""
LOOK_AGAIN_SECONDS = 1.0
REVOKED = (
    "the key was revoked meanwhile: what was submitted goes on. `waystation keys make NAME --role assistant` "
    "makes another"
)
RECALLED = 2_000
"""Tokens."""
PROMPTS = Path(__file__).parent / "prompts"
INSTRUCTIONS = (PROMPTS / "instructions.md").read_text(encoding="utf-8").strip()
Ctx = Context[Any, Any]
Task = Annotated[str, Field(max_length=100, description="Id of the task, as submit_research gave it.")]
RequestId = Annotated[str | None, Field(max_length=200, description="Of the request; needed where several wait.")]


def assistant_of(ctx: Ctx) -> Assistant:
    """Whose server this is."""
    server = ctx.mcp_server
    if not isinstance(server, AssistantServer):
        raise TypeError("the server has no assistant")
    return server.assistant


# ------------------------------------------------------------------------------------------------------------ the tools


async def submit_research(
    ctx: Ctx,
    question: Annotated[str, Field(min_length=1, max_length=20_000, description="What is to be found out.")],
    documents: Annotated[tuple[GivenDocument, ...], Field(min_length=1, description="What it is found out from.")],
    budget: Annotated[
        str | None, Field(max_length=60, description="For the whole task, like 300k tokens or $1.50; else the usual.")
    ] = None,
    instructions: Annotated[str, Field(max_length=20_000, description="How the report is to be.")] = "",
    servers: Annotated[
        ServerNames | None, Field(description="Tool servers by name, of those that you may name; else the usual ones.")
    ] = None,
    skills: Annotated[tuple[str, ...], Field(description="Skills that its agents follow, by name.")] = (),
    request_id: Annotated[
        str | None, Field(max_length=200, description="The same id again finds the same task: so a call is repeated.")
    ] = None,
) -> AcceptedTask:
    """Hand a question over with documents. Returns at once with the task's id; the work takes minutes to hours."""
    return await assistant_of(ctx).hand_in(
        Handing(
            question=question,
            documents=documents,
            budget=budget_of(budget),
            instructions=instructions,
            servers=servers,
            skills=skills,
            request_id=request_id or token_hex(8),
        )
    )


async def task_status(ctx: Ctx, task: Task) -> Annotated[CallToolResult, TaskJson]:
    """How a task stands: its phase, steps, money, and what it asks for."""
    return _status(await assistant_of(ctx).view(task))


async def wait_for_task(
    ctx: Ctx,
    task: Task,
    seconds: Annotated[int, Field(ge=1, le=LONGEST_WAIT, description="How long to wait at most.")] = USUAL_WAIT,
) -> Annotated[CallToolResult, TaskJson]:
    """Wait until a task is over or asks for something, or the time is up; tells its progress meanwhile."""
    assistant, clock = assistant_of(ctx), asyncio.get_running_loop().time
    task_id, began, told = await assistant.task(task), clock(), ""
    while True:
        view = await assistant.client.progress(task_id)
        waited = clock() - began
        if view.progress.phase.over or pending(view.progress) or waited >= seconds:
            return _status(view)
        if (line := doing_line(view)) != told:
            told = line
            await ctx.report_progress(waited, seconds, line)
        await asyncio.sleep(min(LOOK_AGAIN_SECONDS, seconds - waited))


async def list_approvals(ctx: Ctx) -> Waiting:
    """What tasks wait for: more budget, a call of a tool, a plan to be agreed to. The most urgent first."""
    return Waiting(requests=await assistant_of(ctx).requests())


async def looked_up_request(ctx: Ctx, task: str, request_id: str | None) -> PendingApproval:
    """Looked up once a call: what is granted is what the form was about, whatever waits when it comes back."""
    return await assistant_of(ctx).request(task, request_id)


RequestMeant = Annotated[PendingApproval, Resolve(looked_up_request)]


async def form_for(ctx: Ctx, one: RequestMeant) -> Elicit[PersonsGrant] | None:
    """A form for a person; None where the assistant may answer for itself. Raises ToolError where nobody can."""
    assistant = assistant_of(ctx)
    answers = assistant.rights.answers
    why_not = not_to_approve(one, answers, forms=shows_forms(ctx.client_capabilities))
    if why_not is not None:
        raise ToolError(why_not)
    return Elicit(asking_text(one), PersonsGrant) if answers == "person" else None


async def approve_request(
    ctx: Ctx,
    task: Task,
    one: RequestMeant,
    form: Annotated[ElicitationResult[PersonsGrant], Resolve(form_for)],
    request_id: RequestId = None,
    amount: Annotated[str, Field(max_length=60, description="Only where assistants may answer: 50k, or $0.25.")] = "",
    note: Annotated[str, Field(max_length=2_000, description="Only where assistants may answer.")] = "",
) -> AnsweredRequest:
    """Grant what a task asks for. Where the client can, this shows the person a form: ask nobody beforehand."""
    del task, request_id  # by these `looked_up_request` has found it
    said = filled_in(form) or PersonsGrant(amount=amount, note=note)
    return _answered(one, await assistant_of(ctx).approve(one, said.amount, said.note))


async def deny_request(
    ctx: Ctx,
    task: Task,
    request_id: RequestId = None,
    finish: Annotated[
        Literal["partial", "cancel"], Field(description="partial: the agent delivers what it has; cancel: all ends.")
    ] = "partial",
    note: Annotated[str, Field(max_length=2_000, description="Kept with the answer; the agent reads it.")] = "",
) -> AnsweredRequest:
    """Refuse what a task asks for, for good: the agent ends with what it has, or goes on without the call."""
    assistant = assistant_of(ctx)
    one = await assistant.request(task, request_id)
    return _answered(one, await assistant.deny(one, note, finish))


async def read_report(
    ctx: Ctx,
    task: Task,
    section: Annotated[str | None, Field(max_length=500, description="A heading of it; else the whole.")] = None,
    version: Annotated[int | None, Field(description="Another version than the newest.")] = None,
) -> Annotated[CallToolResult, ReportPart]:
    """The report of a task that is over, whole or by section, with the places that it cites."""
    part = await assistant_of(ctx).report(task, section, version)
    return text_with(part.report, part)


async def recall_for(
    ctx: Ctx,
    query: Annotated[str, Field(max_length=2_000, description="A few words.")],
    tokens: Annotated[int, Field(ge=100, le=20_000, description="At most so many.")] = RECALLED,
) -> RecalledJson:
    """Search what earlier tasks read, said and found."""
    return RecalledJson.of(await assistant_of(ctx).recall(query, tokens))


async def tell_agents(
    ctx: Ctx,
    task: Task,
    message: Annotated[str, Field(min_length=1, max_length=20_000, description="What its agents shall know.")],
) -> Answer:
    """Tell the agents of a running task something; each hears it at its next turn."""
    assistant = assistant_of(ctx)
    return _unless_refused(await assistant.client.tell(await assistant.task(task), message, assistant.rights.signature))


async def cancel_task(ctx: Ctx, task: Task) -> CancelJson:
    """Stop a task. It cannot be undone; what it has found stays readable."""
    assistant = assistant_of(ctx)
    task_id = await assistant.task(task)
    return CancelJson.of(task_id, await assistant.client.cancel(task_id))


_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ENDS = ToolAnnotations(destructive_hint=True, idempotent_hint=True, open_world_hint=False)
TOOLS: dict[str, tuple[Callable[..., Any], ToolAnnotations]] = {
    SUBMITS: (submit_research, ToolAnnotations(destructive_hint=False, open_world_hint=True)),
    "task_status": (task_status, _READS),
    "wait_for_task": (wait_for_task, _READS),
    "list_approvals": (list_approvals, _READS),
    "approve": (approve_request, ToolAnnotations(destructive_hint=False, idempotent_hint=True, open_world_hint=True)),
    "deny": (deny_request, _ENDS),
    "get_report": (read_report, _READS),
    "recall": (recall_for, _READS),
    "tell": (tell_agents, ToolAnnotations(destructive_hint=False, idempotent_hint=False, open_world_hint=False)),
    "cancel": (cancel_task, _ENDS),
}
"""By name, with what each does to the world: reads, ends something for good, may be repeated, goes elsewhere."""


# -------------------------------------------------------------------------------------------------------- what they say


def _status(view: TaskView) -> CallToolResult:
    return text_with(status_text(view), task_json(view, None))


def _unless_refused(answer: Answer) -> Answer:
    """Raises BadInput where it was refused."""
    if answer.outcome == "refused":
        raise BadInput(answer.reason)
    return answer


def _answered(one: PendingApproval, answer: Answer) -> AnsweredRequest:
    answer = _unless_refused(answer)
    return AnsweredRequest(
        task_id=one.task_id, request_id=one.approval.request_id, outcome=answer.outcome, reason=answer.reason
    )


# ------------------------------------------------------------------------------------------------ resources and prompts

LOOKED_UP = ResourceSecurity(exempt_params={"name"})
"""A document's name is looked for in the store, and never a path."""


async def report_of(task: str, ctx: Ctx) -> str:
    """The report of a task, as Markdown."""
    assistant = assistant_of(ctx)
    return await assistant.client.report(await assistant.task(task))


async def transcript_of(task: str, agent: str, ctx: Ctx) -> str:
    """Everything that an agent said and was told, with what hides it from the agent now, as JSON."""
    assistant = assistant_of(ctx)
    return shown(await assistant.client.transcript(await assistant.task(task), agent)).model_dump_json()


async def document_of(task: str, name: str, ctx: Ctx) -> str:
    """A document of a task, as its agents saw it; a citation gives lines of it."""
    return await assistant_of(ctx).document(task, name)


RESOURCES: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("{task}/report", report_of, "text/markdown"),
    ("{task}/agents/{agent}/transcript", transcript_of, "application/json"),
    ("{task}/documents/{+name}", document_of, "text/plain"),
)


def research_question(topic: str, purpose: str = "") -> str:
    """Turn something that somebody wants to know into a question that agents can answer from documents."""
    what_for = f"What it is for: {purpose}\n" if purpose else ""
    return (PROMPTS / "question.md").read_text(encoding="utf-8").format(topic=topic, purpose=what_for)


async def while_let_in(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Over HTTP, whoever asks for what takes long is looked at again meanwhile. Raises MCPError where it ends so."""
    state = getattr(ctx.request, "state", None)
    with CancelScope() as scope:
        watching = asyncio.create_task(_watch(getattr(state, "still", None), scope))
        try:
            return await call_next(ctx)
        finally:
            watching.cancel()
    raise MCPError(INVALID_REQUEST, REVOKED)


async def _watch(still: StillMay | None, scope: CancelScope) -> None:
    while still is not None:
        await asyncio.sleep(ALIVE_SECONDS)
        if not await still():
            scope.cancel()
            return


class AssistantServer(MCPServer[Any]):
    """The SDK's server for one assistant: our errors as sentences, and its reports as the resources that there are."""

    def __init__(self, assistant: Assistant) -> None:
        logs_without_words()
        super().__init__(
            "waystation",
            title="Waystation",
            instructions=INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
            extensions=[FollowedTasks(assistant)],
            middleware=[told_in_short, while_let_in, only_declared],
        )
        self.assistant = assistant
        for name, (tool, annotations) in TOOLS.items():
            self.add_tool(tool, name, annotations=annotations)
        for address, resource, kind in RESOURCES:
            name = resource.__name__.removesuffix("_of")
            self.resource(f"{SCHEME}://tasks/{address}", name=name, mime_type=kind, security=LOOKED_UP)(resource)
        self.prompt(title="Ask a good question")(research_question)

    async def run_stdio_async(self) -> None:
        """See base class, which passes over a line that is no message, or that it takes for a notification by mistake:
        who sent it would wait for ever.
        """
        heard, messages = create_memory_object_stream[SessionMessage | Exception]()
        nothing = wrap_file(StringIO())  # for the SDK to read
        with own_input() as lines:
            async with stdio_server(stdin=nothing) as (read, write), create_task_group() as group:
                await read.aclose()
                group.start_soon(pass_on, messages_of(lines), heard, write.send)
                server = self._lowlevel_server
                await server.run(messages, write, server.create_initialization_options())

    async def list_resources(self) -> list[Resource]:
        """See base class."""
        return [
            Resource(
                uri=f"{SCHEME}://tasks/{view.progress.task_id}/report",
                name=view.progress.task_id,
                title=one_line(view.progress.title),
                mime_type="text/markdown",
            )
            for view in await self.assistant.tasks()
            if view.progress.readable is not None
        ]

    async def list_tools(self) -> list[Tool]:
        """See base class. Each takes what it names and nothing else."""
        return [
            tool.__replace__(input_schema={**tool.input_schema, "additionalProperties": False})
            for tool in await super().list_tools()
        ]

    async def get_prompt(
        self, name: str, arguments: dict[str, Any] | None = None, context: Context[Any, Any] | None = None
    ) -> GetPromptResult | InputRequiredResult:
        """See base class, to which a wrong argument is a fault of the server."""
        known = {prompt.name: prompt.arguments or [] for prompt in await self.list_prompts()}
        if name not in known:
            raise MCPError(INVALID_PARAMS, f"there is no prompt {one_line(name)!r}: there is {', '.join(known)}")
        takes = [one.name for one in known[name]]
        needed = [one.name for one in known[name] if one.required]
        if not set(needed) <= (arguments or {}).keys() <= set(takes):
            raise MCPError(INVALID_PARAMS, f"{name} takes {', '.join(takes)}, and needs {', '.join(needed)}")
        return await super().get_prompt(name, arguments, context)

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See base class. The SDK would pass over an argument that is spelled wrong: a budget, or a reason."""
        if name not in TOOLS:
            raise ToolError(f"there is no tool {one_line(name)!r}: there is {', '.join(TOOLS)}")
        taken = next(tool.input_schema["properties"] for tool in await self.list_tools() if tool.name == name)
        if unknown := sorted(arguments.keys() - taken.keys()):
            raise ToolError(f"{name} has no argument {one_line(unknown[0])!r}: it takes {', '.join(taken) or 'none'}")
        try:
            said = await super().call_tool(name, arguments, context)
            # A form is one of `asking_text`, which is plain.
            return said if isinstance(said, InputRequiredResult) else made_plain(said)
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
    written = plain_json if one.mime_type == "application/json" else plain
    return replace(one, content=written(one.content)) if isinstance(one.content, str) else one


def _sentence(error: ToolError | ResourceError) -> str | None:
    """What is wrong and what to do, where it is known; values that were given are not repeated."""
    match error.__cause__:
        case ValidationError() as faults:
            return faults_text(faults)
        case (
            ToolError(__cause__=ValidationError() as faults)
            | ToolError(__cause__=ValueError(__cause__=ValidationError() as faults))
        ):
            return f"the form came back with what it does not take, and nothing was granted: {faults_text(faults)}"
        case WaystationError() | ToolError() as known if not isinstance(known, UnexpectedToolError):
            return plain(str(known))
        case _:
            return None
