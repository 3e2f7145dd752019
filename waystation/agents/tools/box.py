"""Runs the calls of one reply: validates arguments, keeps promises about repetition, redacts and bounds results."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pydantic import JsonValue, ValidationError

from waystation.agents.document_names import DocumentNames, document_names
from waystation.agents.tools.tool import CallSite, Tool, ToolRefused
from waystation.domain.compaction.offload import is_too_large, preview
from waystation.domain.messages import ToolResult, ToolUse
from waystation.domain.privacy import Place
from waystation.domain.redaction import redaction_notes
from waystation.ports import DocumentStore, Redactor, ToolSpec, TranscriptStore, Vault

OUTCOME_UNKNOWN = (
    "Outcome unknown: this call was started before an interruption and was not run again. "
    "Check its effect before you repeat it."
)


UNREADABLE = "This result could not be redacted, so it is not shown. Ask for less of it, or go on without it: "


@dataclass(frozen=True)
class Toolbox:
    """The tools of one role."""

    tools: Sequence[Tool]
    transcripts: TranscriptStore
    texts: DocumentStore
    redactor: Redactor
    vault: Vault | None = None
    """Without one placeholders in arguments stay what they are."""

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
        names, refused = await self._names(at), False
        try:
            text = await tool.call(await _with_originals(tool, call.input, names), at)
        except ValidationError as error:
            text, refused = _complaint(error), True
        except ToolRefused as refusal:
            text, refused = str(refusal), True
        return ToolResult(
            tool_use_id=call.id, content=await self._presentable(names.shown_in(text), at), is_error=refused
        )

    async def _names(self, at: CallSite) -> DocumentNames:
        documents = await self.texts.documents(at.run.task_id)
        return await document_names(documents, self.redactor, at.run.tenant, self.vault)

    async def _presentable(self, text: str, at: CallSite) -> str:
        (redacted,) = await self.redactor.redact([text], Place.TOOL_RESULT, at.run.tenant)
        at.notices.extend(redaction_notes(redacted))
        if redacted.unredacted:
            return UNREADABLE + redacted.text
        if not is_too_large(redacted.text, at.window):
            return redacted.text
        return preview(redacted.text, await self.texts.put_text(redacted.text))


async def _with_originals(tool: Tool, given: dict[str, JsonValue], names: DocumentNames) -> dict[str, JsonValue]:
    wanted = {name: value for name, value in given.items() if name in tool.originals and isinstance(value, str)}
    return given | {name: await names.original(value) for name, value in wanted.items()}


def _error(call: ToolUse, message: str) -> ToolResult:
    return ToolResult(tool_use_id=call.id, content=message, is_error=True)


def _complaint(error: ValidationError) -> str:
    """What is wrong with the arguments, without repeating their values."""
    faults = [f"{'.'.join(str(part) for part in fault['loc']) or 'input'}: {fault['msg']}" for fault in error.errors()]
    return "These arguments cannot be used. " + "; ".join(faults)
