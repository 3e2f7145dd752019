"""Tools of plug-ins: what a third party writes, and how the agents' toolbox has it."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Collection
from hashlib import sha256
from typing import ClassVar, TypeVar

from pydantic import JsonValue, ValidationError

from waystation.agents.tool_visibility import SOON, PhaseUrgency, make_urgency
from waystation.agents.tools.tool import Tool, ToolCallRejectedError, ToolContext, ToolInput, TypedTool
from waystation.kernel.errors import BadInput
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.roles import AgentRole, ToolPermission, list_step_roles
from waystation.models.ports import ToolSpec
from waystation.privacy.policy import TextDestination, build_redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import (
    DEFINITION_DIGITS,
    MAX_RESULT_CHARACTERS,
    SafeMarkup,
    UntrustedToolResult,
    render_plugin_question,
    truncate_tool_result,
    wrap_plugin_result,
)

_InputT = TypeVar("_InputT", bound=ToolInput)
_NAME = compile_bounded(r"\A[a-zA-Z0-9_-]{1,64}\Z")
PLUGIN_PERMISSIONS: Collection[ToolPermission] = ("read", "note", "compute", "web", "foreign")
"""That a tool of a plug-in may need. `submit` could not be denied, and `delegate` is bounded by the platform."""
_BEYOND = 2_000
"""Characters of a result that are redacted beyond those that are kept: what lies across the end is seen whole."""


class PluginToolBase(Tool):
    """A tool of a plug-in, with whatever schema it has. Most are a `PluginTool`."""

    permission: ToolPermission = "foreign"
    """One of `PLUGIN_PERMISSIONS`: agents whose role lacks it do not have the tool, nor do any where the setting
    `tools_denied` names it.
    """
    roles: ClassVar[tuple[AgentRole, ...]] = ("research",)
    """Roles of plans' steps whose agents have the tool."""
    requires_approval: ClassVar[bool] = True
    """A person is asked before each call, and sees its arguments. False is for tools that send nothing anywhere, and
    change nothing."""
    idempotent: bool = False
    """As for any tool; by default a call is never made again after a crash."""
    timeout_seconds: ClassVar[float] = 60.0
    """How long one call may take."""
    urgency: PhaseUrgency = make_urgency(SOON)

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:
        """Everything that the call is given, where it asks. An own question may be shorter, or depend on arguments."""
        return render_plugin_question(self.name, arguments) if self.requires_approval else None


class PluginTool(PluginToolBase, TypedTool[_InputT]):
    """A tool of a plug-in whose arguments are a pydantic model.

        class ShoutInput(ToolInput):
            text: str = Field(max_length=1_000, description="What to shout.")


        class ShoutTool(PluginTool[ShoutInput]):
            name = "shout"
            description = "Writes a text in capitals."
            input_model = ShoutInput
            asks = False

            async def run(self, arguments: ShoutInput, at: ToolContext) -> str:
                return arguments.text.upper()

    One object serves all agents of a process, several at a time: it keeps nothing of a call. What it returns is
    untrusted text, redacted, framed with its name and bounded before an agent sees it, unless it is `SafeMarkup` made
    by `wrap_untrusted`. Arguments have placeholders where the agent has them.
    """

    @abstractmethod
    async def run(self, arguments: _InputT, ctx: ToolContext) -> str:
        """Carry out one call. What blocks is done in a thread (`asyncio.to_thread`).

        Raises:
            ToolCallRejectedError: the call cannot be carried out; the agent reads the message, framed as a result is.
        """


class AdaptedPluginTool(Tool):
    """A tool of a plug-in as the toolbox has it: bounded in time, its results redacted, framed and cut."""

    def __init__(self, tool: PluginToolBase, redactor: Redactor) -> None:
        self.name = tool.name
        self.description = tool.description
        self.rereadable, self.idempotent = tool.rereadable, tool.idempotent
        self.permission, self.urgency = tool.permission, tool.urgency
        self.definition = _digest(tool.spec, asks=tool.requires_approval)
        self._tool, self._redactor = tool, redactor

    @property
    def spec(self) -> ToolSpec:
        """The plug-in's own."""
        return self._tool.spec

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str | None:
        """The plug-in's own."""
        return self._tool.build_approval_question(arguments)

    async def call(self, arguments: dict[str, JsonValue], ctx: ToolContext) -> str:
        """What it returns is redacted as it is, then cut and framed; its refusals likewise.

        A plug-in's mistake is an error result, of which the type is told and no word: it may hold an argument.
        """
        try:
            async with asyncio.timeout(self._tool.timeout_seconds):
                text, refused = await self._tool.call(arguments, ctx), False
        except ValidationError:
            raise
        except ToolCallRejectedError as refusal:
            text, refused = refusal.message, True
        except TimeoutError:
            late = f"The tool did not answer within {self._tool.timeout_seconds:g} s. Go on without it."
            raise ToolCallRejectedError(late) from None
        except Exception as error:  # noqa: BLE001 - code of others: its mistakes are not the run's
            raise ToolCallRejectedError(f"The tool failed ({type(error).__name__}). Go on without it.") from None
        shown = text if isinstance(text, SafeMarkup) else await self._framed(text, ctx)
        if refused:
            raise ToolCallRejectedError(shown)
        return shown

    async def _framed(self, text: str, ctx: ToolContext) -> SafeMarkup:
        result = UntrustedToolResult(text=text[: MAX_RESULT_CHARACTERS + _BEYOND], characters=len(text))
        (redacted,) = await self._redactor.redact([result.text], TextDestination.TOOL_RESULT, ctx.run.tenant)
        ctx.notes.extend(build_redaction_notes(redacted))
        return wrap_plugin_result(self.name, truncate_tool_result(result, redacted))


def _digest(spec: ToolSpec, *, asks: bool) -> str:
    """Of what a person agrees to: an answer does not hold for a tool that is another by now."""
    return sha256(json.dumps([spec.model_dump(mode="json"), asks], sort_keys=True).encode()).hexdigest()[
        :DEFINITION_DIGITS
    ]


def validate_plugin_tool(tool: PluginToolBase, name: str, reserved: Collection[str]) -> None:
    """Check a tool of a plug-in before any agent has it.

    Args:
        tool: as the plug-in made it.
        name: of its entry point.
        reserved: names of the platform's own tools.

    Raises:
        BadInput: says what is wrong with it.
    """
    unknown = [role for role in tool.roles if role not in list_step_roles()]
    fault = ""
    if tool.name != name or not _NAME.match(name):
        fault = (
            "its name must equal the name of its entry point, and have at most 64 characters: letters, digits, `_` "
            "and `-`"
        )
    elif name in reserved:
        fault = "a tool of Waystation has that name"
    elif tool.permission not in PLUGIN_PERMISSIONS:
        fault = f"its permission is {tool.permission!r}, but must be one of {', '.join(PLUGIN_PERMISSIONS)}"
    elif tool.ends_run:
        fault = "it ends agent runs, which only Waystation's own tools may do"
    elif unknown or not tool.roles:
        fault = f"its roles must be among {', '.join(list_step_roles())}"
    elif tool.spec.input_schema.get("type") != "object":
        fault = "the schema of its arguments must be an object"
    if fault:
        raise BadInput(f"the tool {name} cannot be used: {fault}")
