"""What a tool is: a name, an input model, and one coroutine that returns text or refuses with a reason.

A tool of a tool server, as the agents' toolbox sees it.
"""

from abc import ABC, abstractmethod
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
from waystation.documents.redacted_documents import RedactedDocumentStore
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

PAGE_CHARACTERS = 12_000
"""Most characters of one page of any tool; smaller in a small working window."""
_WINDOW_SHARE = 6
"""A stretch has at most a sixth as many characters as the window has tokens: it must not be put into the store again,
in whatever script it is written."""


class ToolInput(Value):
    """Arguments of a call. Unknown ones are refused, so that the model learns of its error."""


_InputT = TypeVar("_InputT", bound=ToolInput)


class ToolCallRejectedError(Exception):
    """The call cannot be carried out. The message tells the model why and what to do instead."""

    def __init__(self, words: str) -> None:
        """`words` may be `SafeMarkup`."""
        super().__init__(words)
        self.words = words


@dataclass(frozen=True)
class ToolContext:
    """Who calls, with which right to write."""

    run: RunRef
    fence: Fence
    call_id: str
    transcript: Transcript
    """The conversation so far; its last message asks for the call."""
    policy: CompactionPolicy
    measure: TokenEstimator
    notices: list[str] = field(default_factory=list[str])
    """For people: "memory did not answer". Shown in the leg's outcome."""
    records: list[Record] = field(default_factory=list[Record])
    """What the call does to the conversation: committed before its result is."""

    memory: MemoryScope = "session"
    """Whose passages it recalls."""

    handed_back: tuple[SubagentResult, ...] = ()
    """Subagents of the run that have ended."""

    limit: Limit = field(default_factory=lambda: Limit(tokens=0, micro_usd=0))
    """What the run may spend in all, for tools whose calls cost. Nothing, unless it is said."""

    def get_raw_argument(self, argument: str) -> str:
        """An argument that is text, as the model wrote it, with its placeholders; empty where it did not."""
        asked = self.transcript.messages[-1].tool_uses if self.transcript.messages else ()
        written = next((call.input.get(argument) for call in asked if call.id == self.call_id), None)
        return written if isinstance(written, str) else ""

    @property
    def window(self) -> int:
        """Working window in tokens."""
        return self.policy.window

    @property
    def page_characters(self) -> int:
        """A page is at most a sixth of the working window (at four characters a token)."""
        return min(PAGE_CHARACTERS, self.window * 4 // 6)


class Tool(ABC):
    """One tool of the agents, as the toolbox sees it.

    One object serves all agents of a process, several at a time. A call is checked against limits and permissions, and
    a person has agreed to it where that is needed, before the tool sees it; what it returns is redacted, and tags in it
    are defused unless it is `SafeMarkup`. Tools of plug-ins derive from `PluginTool`, which adds to this.
    """

    name: str
    """Unique among the tools of an agent: letters, digits, _ and -, at most 64."""
    description: str
    """What the model reads of it: what it does, when it is of use, what it returns."""
    rereadable: bool = False
    """Calling it again brings the same result, so an old result may be masked."""
    repeatable: bool = True
    """Running it twice does no more than running it once. One that is not is never run again after a crash."""
    ends_run: ClassVar[bool] = False
    """A successful call hands in the agent's result."""
    permission: ToolPermission = "read"
    """What an agent must have for it. Tools of `hand_in` are always shown."""
    urgency: PhaseUrgency = make_urgency(LATER)
    """In which phases it is shown, and how urgently, where definitions are more than their budget."""

    originals: ClassVar[frozenset[str]] = frozenset()
    """Arguments that are looked for in documents as they were handed in: placeholders in them become again what they
    stand for, where the tool is granted that by name (`GRANTED`). The result is redacted, whatever it repeats of them.
    """

    definition: str = ""
    """Digest of what the tool is like, where others may change that while a task goes on."""

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:  # noqa: ARG002 (tools that ask look at them)
        """What a person is asked before a call with these arguments is carried out; None: nobody has to be asked."""
        return None

    @property
    @abstractmethod
    def spec(self) -> ToolSpec:
        """The tool as the model sees it."""

    @abstractmethod
    async def call(self, arguments: dict[str, JsonValue], at: ToolContext) -> str:
        """Carry out one call with the arguments that the model wrote.

        Raises:
            ValidationError: the arguments do not fit. Becomes an error result.
            ToolCallRejectedError: becomes an error result.
        """


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that pydantic makes of names: a sixth of all tokens of definitions, and nothing new."""

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, JsonValue]:
        """Also without the docstring, which is for whoever reads the code."""
        whole = super().generate(schema, mode)
        return {name: part for name, part in whole.items() if name not in {"title", "description"}}


@cache
def _schema(model: type[ToolInput]) -> dict[str, JsonValue]:
    """Made once a process: it takes milliseconds, and every leg and compaction asks for those of all tools."""
    return model.model_json_schema(schema_generator=_Untitled)


class TypedTool(Tool, Generic[_InputT]):
    """A tool whose arguments are a pydantic model."""

    input_model: type[_InputT]

    @property
    def spec(self) -> ToolSpec:
        """Name, description, and the model's JSON schema."""
        return ToolSpec(name=self.name, description=self.description, input_schema=_schema(self.input_model))

    async def call(self, arguments: dict[str, JsonValue], at: ToolContext) -> str:
        """Validate, then run."""
        return await self.run(self.input_model.model_validate(arguments), at)

    @abstractmethod
    async def run(self, arguments: _InputT, at: ToolContext) -> str:
        """Carry out one call. Raises ToolCallRejectedError."""


async def load_redacted_text(
    redacted: RedactedDocumentStore, blob: str, called: str, at: ToolContext, reader: TenantScope | None = None
) -> RedactedText:
    """A text as the agent may see it. `called` is how the agent knows the text; without a
    reader it is one of its task.

    Raises:
        ToolCallRejectedError: it could not be redacted, so that nothing of it is shown.
        TextNotFoundError: no task that the reader may see has it.
    """
    shown = await redacted.get_redacted_text(blob, reader or at.run.scope)
    at.notices.extend(await redacted.build_redaction_notes(shown, called, at.run.tenant))
    if shown.withheld:
        raise ToolCallRejectedError(
            f"{called} could not be redacted (it takes too long, or redaction fails at it), so nothing of it is shown. "
            "Reading it again changes nothing: go on without it, and say in your result that it was not read."
        )
    return shown


async def load_redacted_lines(
    redacted: RedactedDocumentStore, blob: str, called: str, at: ToolContext, reader: TenantScope | None = None
) -> list[str]:
    """Its lines, at least one. Raises as `load_redacted_text` does."""
    return (await load_redacted_text(redacted, blob, called, at, reader)).lines


def select_page_lines(lines: list[str], characters: int) -> tuple[list[str], bool]:
    """As many lines as fit, at least one (cut to fit), and whether that is all of them."""
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


def render_text_slice(text: str, first: int, at: ToolContext) -> str:
    """Characters of a text from this number on, at most half a page of them, and where it goes on."""
    end = find_slice_end(text, first, at)
    rest = f"\ncontinues at character {end:,} of {len(text):,}" if end < len(text) else ""
    return f"{text[first:end]}{rest}"


def find_slice_end(text: str, first: int, at: ToolContext) -> int:
    """Where a stretch that begins at this character ends: after at most half a page, and in no placeholder."""
    room = min(at.page_characters // 2, at.window // _WINDOW_SHARE)
    end = find_cut_position(text, min(len(text), first + room))
    return end if end > first else len(text)


class UntrustedTool(Tool):
    """What it returns is framed as data with its source, also where it is an error."""

    permission = "foreign"
    urgency = make_urgency(SOON)

    def __init__(self, spec: UntrustedToolSpec, servers: ToolServers, redactor: Redactor) -> None:
        self.name = spec.name
        self.description = spec.description
        self.rereadable = spec.read_only
        self.repeatable = spec.read_only or spec.idempotent
        self.definition = spec.definition.digest
        self._offered, self._servers, self._redactor = spec, servers, redactor

    @property
    def spec(self) -> ToolSpec:
        """With the server's own schema."""
        return ToolSpec(name=self.name, description=self.description, input_schema=self._offered.input_schema)

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:
        """Everything that would be sent, where the config file wants a person to see it."""
        return render_approval_question(self._offered, arguments) if self._offered.asks else None

    async def call(self, arguments: dict[str, JsonValue], at: ToolContext) -> str:
        """The server checks the arguments itself. Its result is redacted as it was returned, then cut and framed."""
        try:
            result = await self._servers.call_tool(self._offered, arguments)
        except ToolServerFailed as failure:
            raise ToolCallRejectedError(f"{failure}. Go on without it, or try once more later.") from None
        (redacted,) = await self._redactor.redact([result.text], TextDestination.TOOL_RESULT, at.run.tenant)
        at.notices.extend(build_redaction_notes(redacted))
        text = wrap_tool_result(self._offered, truncate_tool_result(result, redacted))
        if result.is_error:
            raise ToolCallRejectedError(text)
        return text
