"""What a tool is: a name, an input model, and a coroutine that returns text or rejects the call with a reason.

Also adapts tools of tool servers to the toolbox.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Generic, TypeVar

from pydantic import JsonValue
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from waystation.agents.delegation import SubagentResult
from waystation.agents.tool_visibility import LATER, SOON, PhaseUrgency, make_urgency
from waystation.context.policy import CompactionPolicy
from waystation.context.tokens import TokenEstimator
from waystation.context.transcript import Fence, Record, Transcript
from waystation.documents.documents import Document
from waystation.documents.ports import DocumentReader
from waystation.documents.redacted_documents import DocumentNames, RedactedDocumentStore
from waystation.kernel.amount import Limit
from waystation.kernel.errors import ToolServerFailed
from waystation.kernel.refs import RunRef
from waystation.kernel.roles import ToolPermission
from waystation.kernel.scopes import TenantScope
from waystation.kernel.value import Value
from waystation.mcp.ports import ToolServers
from waystation.memory.passages import MemoryScope
from waystation.models.ports import ToolSpec
from waystation.privacy.policy import RedactedText, TextDestination, build_redaction_notes, find_cut_position
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import (
    UntrustedToolSpec,
    render_approval_question,
    truncate_tool_result,
    wrap_tool_result,
)
from waystation.security.web_addresses import WebLimits

PAGE_CHARACTERS = 12_000
"""Maximum characters of a page of any tool in windows of up to 60,000 tokens; smaller in a small working window."""
MAX_PAGE_CHARACTERS = 80_000
_PAGE_SHARE = 5
"""A page has as many characters as 1/5 of the window has tokens, about 1/20 of what fits: 40,000 of 200,000 tokens."""
_WINDOW_SHARE = 6
"""A slice has at most 1/6 as many characters as the window has tokens, so that it is not offloaded to the store again,
in whatever script it is written.
"""


class ToolInput(Value):
    """Arguments of a call. Unknown arguments are rejected, so that the model learns of its error."""


_InputT = TypeVar("_InputT", bound=ToolInput)


class ToolCallRejectedError(Exception):
    """The call cannot run. The message says why, and what the model can do instead."""

    def __init__(self, words: str) -> None:
        """Initialise. `words` may be `SafeMarkup`."""
        super().__init__(words)
        self.message = words


@dataclass(frozen=True)
class ToolContext:
    """The agent that makes a call, with its fence and its conversation."""

    run: RunRef
    fence: Fence
    call_id: str
    transcript: Transcript
    """The conversation so far; its last message makes the call."""
    policy: CompactionPolicy
    token_estimator: TokenEstimator
    notes: list[str] = field(default_factory=list[str])
    """Notes for people, such as "memory did not answer", shown in the leg's outcome."""
    records: list[Record] = field(default_factory=list[Record])
    """Changes of the conversation by the call, committed before its result."""

    memory: MemoryScope = "session"
    """Scope of the passages that it recalls."""

    subagent_results: tuple[SubagentResult, ...] = ()
    """Subagents of the run that have ended."""

    limit: Limit = field(default_factory=lambda: Limit(tokens=0, micro_usd=0))
    """Limit of the whole run, for tools whose calls cost. Zero by default."""

    used_share: float = 0.0
    """Used share of the run's limit."""

    documents: tuple[Document, ...] | None = None
    """Of the task, as the agent knows of them; None where nobody has read them yet."""

    document_names: DocumentNames | None = None
    """Names of the task's documents, as submitted and as the agent knows them; set by the toolbox."""

    web_limits: WebLimits | None = None
    """Limits within which the use of the web was approved in advance; None: it was not."""

    async def list_documents(self, store: DocumentReader) -> tuple[Document, ...]:
        """The task's documents in the order in which they were given. Raises StoreError."""
        if self.documents is not None:
            return self.documents
        return await store.list_documents(self.run.task_id, self.run.scope)

    def get_argument_with_placeholders(self, argument: str) -> str:
        """Return a text argument as the model wrote it, with its placeholders; empty if there is none."""
        written = self._get_argument(argument)
        return written if isinstance(written, str) else ""

    def get_arguments_with_placeholders(self, argument: str) -> tuple[str, ...]:
        """Return the texts of an argument that is a list, as the model wrote them."""
        written = self._get_argument(argument)
        return tuple(one if isinstance(one, str) else "" for one in written) if isinstance(written, list) else ()

    def _get_argument(self, argument: str) -> JsonValue:
        asked = self.transcript.messages[-1].tool_uses if self.transcript.messages else ()
        return next((call.input.get(argument) for call in asked if call.id == self.call_id), None)

    @property
    def window(self) -> int:
        """Working window in tokens."""
        return self.policy.window

    @property
    def page_characters(self) -> int:
        """Maximum characters of a page: a sixth of a small working window at four characters per token; of a large
        window about a twentieth.
        """
        large = min(MAX_PAGE_CHARACTERS, max(PAGE_CHARACTERS, self.window // _PAGE_SHARE))
        return min(large, self.window * 4 // 6)


class Tool(ABC):
    """One tool of the agents, as the toolbox sees it.

    One object serves all agents of a process, several at a time. A call is checked against limits and permissions, and
    a person has agreed to it where that is needed, before the tool sees it. Its arguments are redacted already; what it
    returns is redacted, and tags in it are defused unless it is `SafeMarkup`. Tools of plug-ins derive from
    `PluginTool`, which adds to this.
    """

    name: str
    """Unique among the tools of an agent: letters, digits, _ and -, at most 64."""
    description: str
    """What the model reads of it: what it does, when it is of use, what it returns."""
    rereadable: bool = False
    """Whether calling it again returns the same result, so that an old result may be masked."""
    idempotent: bool = True
    """Whether running it twice does no more than running it once. If not, it is never rerun after a crash."""
    ends_run: ClassVar[bool] = False
    """A successful call hands in the agent's result."""
    permission: ToolPermission = "read"
    """What an agent must have for it. Tools of `submit` are always shown."""
    urgency: PhaseUrgency = make_urgency(LATER)
    """Phases in which it is shown, and its urgency if definitions exceed their budget."""

    originals: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are looked up in the original documents: their placeholders are restored if the tool is listed in
    `TOOLS_GRANTED_ORIGINALS`. The result is redacted, whatever it repeats of them.
    """

    strict: ClassVar[bool] = False
    """Whether its arguments are constrained to its schema while the model writes them, at endpoints that do that."""

    definition: str = ""
    """Digest of the tool's definition, if others may change it while a task is running."""

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:  # noqa: ARG002 (tools that ask look at them)
        """Return what a person is asked before a call with these arguments runs; None: no approval is needed."""
        return None

    def is_approved_in_advance(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> bool:  # noqa: ARG002 (as above)
        """Return whether the submission of the task approved this call, so that no one is asked."""
        return False

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""

    @abstractmethod
    async def call(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> str:
        """Run a call with the arguments that the model wrote.

        Raises:
            ValidationError: The arguments do not fit. Becomes an error result.
            ToolCallRejectedError: Becomes an error result.
        """


_EMPTY_DEFAULTS: tuple[JsonValue, ...] = (None, "", [])
_OBVIOUS_BOUNDS: tuple[tuple[str, JsonValue], ...] = (("minLength", 1), ("minimum", 0), ("minimum", 1))
"""Bounds that no call crosses: a model sends no empty query, and asks for no line -1."""
_GENEROUS_LENGTH = 300
"""Characters. A text may have this many or more where no sensible call is as long; the error names the bound."""


class _CompactSchema(GenerateJsonSchema):
    """Omits what tells a model nothing: titles, docstrings, empty defaults, obvious bounds, and null as a second way to
    leave a parameter out.

    Every request has these tokens, and for strict tools the SDK would write bounds and defaults into the descriptions.
    The input model checks all of it in any case.
    """

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, JsonValue]:
        """Simplify the model and those inside it."""
        whole = _simplify_model(super().generate(schema, mode))
        nested = whole.get("$defs")
        if isinstance(nested, dict):
            whole["$defs"] = {name: _simplify_model(part) for name, part in nested.items() if isinstance(part, dict)}
        return whole


def _simplify_model(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Omit title and docstring, which are for readers of the code: the fields are described."""
    kept = {name: part for name, part in schema.items() if name not in {"title", "description"}}
    fields = kept.get("properties")
    if isinstance(fields, dict):
        kept["properties"] = {name: _simplify(part) for name, part in fields.items()}
    return kept


def _simplify(schema: JsonValue) -> JsonValue:
    """Simplify the schema of a field or of its items."""
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if name != "default" or part not in _EMPTY_DEFAULTS}
    match kept.get("anyOf"):
        case [dict(value), {"type": "null"}] if kept.keys() != schema.keys():
            kept = {name: part for name, part in kept.items() if name != "anyOf"} | value
        case _:
            pass
    return {
        name: _simplify(part) if name == "items" else part for name, part in kept.items() if not _is_obvious(name, part)
    }


def _is_obvious(keyword: str, value: JsonValue) -> bool:
    generous = keyword == "maxLength" and isinstance(value, int) and value >= _GENEROUS_LENGTH
    return generous or (keyword, value) in _OBVIOUS_BOUNDS


@cache
def build_input_schema(model: type[ToolInput]) -> dict[str, JsonValue]:
    """Return the schema of a tool's arguments as models are sent it, cached per process.

    It takes milliseconds, and every leg and compaction needs those of all tools.
    """
    return model.model_json_schema(schema_generator=_CompactSchema)


class TypedTool(Tool, Generic[_InputT]):
    """A tool whose arguments are a pydantic model."""

    input_model: type[_InputT]

    @property
    def spec(self) -> ToolSpec:
        """Name, description, and the input model's JSON schema."""
        schema = build_input_schema(self.input_model)
        return ToolSpec(name=self.name, description=self.description, input_schema=schema, strict=self.strict)

    async def call(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> str:
        """Validate the arguments, then run the call."""
        return await self.run(self.input_model.model_validate(arguments), ctx)

    @abstractmethod
    async def run(self, arguments: _InputT, ctx: ToolContext) -> str:
        """Run a call. Raises ToolCallRejectedError."""


async def load_redacted_text(
    redacted: RedactedDocumentStore, blob: str, called: str, ctx: ToolContext, reader: TenantScope | None = None
) -> RedactedText:
    """Load a text as the agent may see it.

    Args:
        redacted: Store of redacted texts.
        blob: Content hash of the text.
        called: Name by which the agent knows the text.
        ctx: Context of the call.
        reader: Scope to read in; None: the agent's task.

    Raises:
        ToolCallRejectedError: It could not be redacted, so nothing of it is shown.
        TextNotFoundError: No task in the reader's scope has it.
    """
    shown = await redacted.get_redacted_text(blob, reader or ctx.run.scope)
    ctx.notes.extend(await redacted.build_redaction_notes(shown, called, ctx.run.tenant))
    if shown.withheld:
        raise ToolCallRejectedError(
            f"{called} could not be redacted (redaction takes too long, or fails), so nothing of it is shown. "
            "Reading it again changes nothing: go on without it, and say in your result that it was not read."
        )
    return shown


async def load_redacted_lines(
    redacted: RedactedDocumentStore, blob: str, called: str, ctx: ToolContext, reader: TenantScope | None = None
) -> list[str]:
    """Load the text's lines, at least one. Raises as `load_redacted_text` does."""
    return (await load_redacted_text(redacted, blob, called, ctx, reader)).lines


def select_page_lines(lines: list[str], characters: int) -> tuple[list[str], bool]:
    """Return as many lines as fit, at least one (cut to fit), and whether these are all."""
    taken: list[str] = []
    room = characters
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        taken.append(line)
    if not taken and lines:
        return [f"{lines[0][: find_cut_position(lines[0], characters)]} …"], len(lines) == 1
    return taken, len(taken) == len(lines)


def render_text_slice(text: str, first: int, ctx: ToolContext) -> str:
    """Return at most half a page of a text from this character on, and where it continues."""
    end = find_slice_end(text, first, ctx)
    rest = f"\ncontinues at character {end:,} of {len(text):,}" if end < len(text) else ""
    return f"{text[first:end]}{rest}"


def find_slice_end(text: str, first: int, ctx: ToolContext) -> int:
    """Return the end of a slice that starts at this character: at most half a page, and not inside a placeholder."""
    room = min(ctx.page_characters // 2, ctx.window // _WINDOW_SHARE)
    end = find_cut_position(text, min(len(text), first + room))
    return end if end > first else len(text)


class McpTool(Tool):
    """A tool of a tool server. Its results, including errors, are framed as data with their source."""

    permission = "foreign"
    urgency = make_urgency(SOON)

    def __init__(self, spec: UntrustedToolSpec, servers: ToolServers, redactor: Redactor) -> None:
        self.name = spec.name
        self.description = spec.description
        self.rereadable = spec.read_only
        self.idempotent = spec.read_only or spec.idempotent
        self.definition = spec.definition.digest
        self._offered, self._servers, self._redactor = spec, servers, redactor

    @property
    def spec(self) -> ToolSpec:
        """The tool with the server's own schema."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self._offered.input_schema)

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:
        """Return everything that would be sent, if the config file requires approval."""
        return render_approval_question(self._offered, arguments) if self._offered.requires_approval else None

    async def call(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> str:
        """Call the tool; the server validates the arguments. The result is redacted as a whole, then cut and framed."""
        try:
            result = await self._servers.call_tool(self._offered, arguments)
        except ToolServerFailed as failure:
            raise ToolCallRejectedError(f"{failure}. Go on without this call, or try once more later.") from None
        (redacted,) = await self._redactor.redact([result.text], TextDestination.TOOL_RESULT, ctx.run.tenant)
        ctx.notes.extend(build_redaction_notes(redacted))
        text = wrap_tool_result(self._offered, truncate_tool_result(result, redacted))
        if result.is_error:
            raise ToolCallRejectedError(text)
        return text
