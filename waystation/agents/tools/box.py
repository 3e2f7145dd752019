"""Runs the calls of one reply: validates arguments, keeps promises about repetition, redacts and bounds results."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import ValidationError

from waystation.agents.tools.tool import CallSite, Tool, ToolRefused
from waystation.domain.compaction.offload import is_too_large, preview
from waystation.domain.messages import ToolResult, ToolUse
from waystation.domain.redaction import Scope
from waystation.ports import DocumentStore, Redactor, ToolSpec, TranscriptStore

OUTCOME_UNKNOWN = (
    "Outcome unknown: this call was started before an interruption and was not run again. "
    "Check its effect before you repeat it."
)


@dataclass(frozen=True)
class Toolbox:
    """The tools of one role."""

    tools: Sequence[Tool]
    transcripts: TranscriptStore
    texts: DocumentStore
    redactor: Redactor

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """In a fixed order: the prompt cache lives on that. Made once: schemas take milliseconds."""
        return tuple(tool.spec for tool in self.tools)

    @property
    def rereadable(self) -> frozenset[str]:
        """Names of the tools whose old results may be masked."""
        return frozenset(tool.name for tool in self.tools if tool.rereadable)

    @property
    def ending(self) -> frozenset[str]:
        """Names of the tools whose success ends the run."""
        return frozenset(tool.name for tool in self.tools if tool.ends_run)

    async def run(self, call: ToolUse, at: CallSite) -> ToolResult:
        """The call's result, redacted and bounded. Only failures of the platform itself are raised."""
        tool = next((tool for tool in self.tools if tool.name == call.name), None)
        if tool is None:
            return _error(call, f"There is no tool {call.name!r}. Yours are: {', '.join(t.name for t in self.tools)}.")
        if not tool.repeatable and not await self.transcripts.record_tool_intent(at.fence, call.id):
            return _error(call, OUTCOME_UNKNOWN)
        refused = False
        try:
            text = await tool.call(call.input, at)
        except ValidationError as error:
            text, refused = _complaint(error), True
        except ToolRefused as refusal:
            text, refused = str(refusal), True
        return ToolResult(tool_use_id=call.id, content=await self._presentable(text, at), is_error=refused)

    async def _presentable(self, text: str, at: CallSite) -> str:
        (redacted,) = await self.redactor.redact([text], Scope.MODEL, at.run.tenant)
        if not is_too_large(redacted.text, at.window):
            return redacted.text
        return preview(redacted.text, await self.texts.put_text(redacted.text))


def _error(call: ToolUse, message: str) -> ToolResult:
    return ToolResult(tool_use_id=call.id, content=message, is_error=True)


def _complaint(error: ValidationError) -> str:
    """What is wrong with the arguments, without repeating their values."""
    faults = [f"{'.'.join(str(part) for part in fault['loc']) or 'input'}: {fault['msg']}" for fault in error.errors()]
    return "These arguments cannot be used. " + "; ".join(faults)
