"""Runs the calls of a reply: validates arguments, avoids unsafe reruns, redacts and bounds results."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from pydantic import JsonValue, ValidationError

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.ports import PlaceholderAudit, RunRepository
from waystation.agents.redaction import TOOLS_GRANTED_ORIGINALS
from waystation.agents.tool_visibility import (
    ParameterLimits,
    ToolVisibility,
    apply_parameter_limits,
    find_argument_error,
    with_defaults,
)
from waystation.agents.tools.documents import FILE_READING_TOOLS
from waystation.agents.tools.tool import Tool, ToolCallRejectedError, ToolContext
from waystation.context.stages import build_offload_preview, is_too_large
from waystation.context.tokens import estimate_fixed_tokens
from waystation.context.transcript import PromptPrefixRecord, ToolResult, ToolUse, build_rejected_call_result
from waystation.documents.ports import DocumentStore
from waystation.documents.redacted_documents import DocumentNames, build_document_names, redact_display_name
from waystation.models.ports import ToolSpec
from waystation.privacy.policy import TextDestination, build_redaction_notes, normalize_line_endings
from waystation.privacy.ports import Redactor, Vault
from waystation.security.untrusted import SafeMarkup, escape_tags, sanitize_line

OUTCOME_UNKNOWN = (
    "Outcome unknown: this call was started before an interruption and was not run again. "
    "Check its effect before you repeat it."
)

ARGUMENTS_UNPARSED = (
    "The arguments of this call are not a JSON object, so it was not run. Send it again with one JSON object: close "
    "every bracket and quotation mark, and escape quotation marks, backslashes and line breaks inside strings."
)
_UNREADABLE = "This result could not be redacted, so {} replaces it. Ask for a smaller result, or go on without it."


class ToolboxStore(RunRepository, DocumentStore, PlaceholderAudit, Protocol):
    """What running a tool needs of the store."""


@dataclass(frozen=True)
class Toolbox:
    """The tools of one agent."""

    tools: Sequence[Tool]
    """All tools that it could have; `visibility` says which of them it sees."""
    store: ToolboxStore
    redactor: Redactor
    vault: Vault | None = None
    """Without it, placeholders in arguments are not restored."""
    limits: Mapping[str, ParameterLimits] = field(default_factory=dict[str, ParameterLimits])
    """Limits on parameters that the tool has, by tool name."""
    visibility: ToolVisibility | None = None
    """Without it, the agent sees all tools."""
    prefix: PromptPrefixRecord | None = None
    """System prompt and tools sent since the last compaction, to be sent again. None: nothing was sent yet."""
    notes: tuple[str, ...] = ()
    """For people: what the task asked for and is not among the tools."""
    _known_names: list[DocumentNames] = field(default_factory=list[DocumentNames], init=False, compare=False)
    """Of the documents that calls had last: a leg has the same ones until it hears of others."""

    @cached_property
    def specs_by_name(self) -> Mapping[str, ToolSpec]:
        """Every tool by name, with its limits, in a fixed order."""
        return {tool.name: self._limited(tool.spec) for tool in self.tools}

    @cached_property
    def visible_specs(self) -> tuple[ToolSpec, ...]:
        """Specs of the visible tools in a fixed order, which the prompt cache and signed thinking depend on."""
        if self.prefix is not None:
            return self.prefix.tools
        return tuple(self.specs_by_name[tool.name] for tool in self._shown)

    @property
    def sent_system_prompt(self) -> str:
        """System prompt sent since the last compaction; empty if none was."""
        return self.prefix.system if self.prefix is not None else ""

    def estimate_prompt_overhead(self, system: str) -> int:
        """Estimate the tokens of the system prompt and the tools, which every request has.

        `system` counts only if no other system prompt was sent since the last compaction.
        """
        system = self.sent_system_prompt or system
        # Whether a tool is strict is no text that the model reads.
        specs = [spec.model_dump(mode="json", exclude={"strict"}) for spec in self.visible_specs]
        return estimate_fixed_tokens(system, json.dumps(specs))

    @property
    def rereadable_tool_names(self) -> frozenset[str]:
        """Names of the tools whose old results may be masked."""
        return frozenset(tool.name for tool in self._shown if tool.rereadable)

    @property
    def ending_tool_names(self) -> frozenset[str]:
        """Names of the tools whose success ends the run."""
        return frozenset(tool.name for tool in self.tools if tool.ends_run)

    def find_refusal_reason(self, call: ToolUse) -> str | None:
        """Return why the call must not run, whatever a person decides; None if it may."""
        if call.has_unparsed_arguments:
            return ARGUMENTS_UNPARSED
        if (tool := self._tool(call)) is None:
            away = any(spec.name == call.name for spec in self.visible_specs)
            what = "The tool {} is not available at present" if away else "There is no tool {!r}"
            return f"{what.format(sanitize_line(call.name))}. Your tools are: {self._names_shown}."
        if self.visibility is not None and (why := self.visibility.get_hidden_reason(tool.name)) is not None:
            return f"The tool {tool.name} is hidden: {why}. Your tools are: {self._names_shown}."
        wrong = find_argument_error(self._complete(call), self.limits.get(tool.name, {}))
        return None if wrong is None else f"These arguments are not allowed: {wrong}."

    def is_repeatable(self, call: ToolUse) -> bool:
        """Whether the call does no more when it is carried out again, or is not carried out at all."""
        tool = self._tool(call)
        return tool is None or tool.idempotent

    def build_approval_question(self, call: ToolUse, ctx: ToolContext | None = None) -> str | None:
        """Return what a person is asked before the call runs.

        None: no approval is needed or it was given in advance, or the call is refused anyway. Without a context nothing
        counts as approved in advance.
        """
        tool = self._tool(call)
        if tool is None or self.find_refusal_reason(call) is not None:
            return None
        arguments = self._complete(call)
        question = tool.build_approval_question(arguments)
        return None if ctx is not None and tool.is_approved_in_advance(arguments, ctx) else question

    def get_definition_digest(self, call: ToolUse) -> str:
        """Return the digest of the tool's definition if others may change it; otherwise empty."""
        tool = self._tool(call)
        return "" if tool is None else tool.definition

    async def run(self, call: ToolUse, ctx: ToolContext) -> ToolResult:
        """Run a call and return its result, redacted and bounded. Raises failures of the platform only."""
        tool, refusal = self._tool(call), self.find_refusal_reason(call)
        if any(back.call_id == call.id for back in ctx.subagent_results):
            refusal = None  # a subagent's finished work is not thrown away
        if tool is None or refusal is not None:
            return build_rejected_call_result(call, refusal or OUTCOME_UNKNOWN)
        if not tool.idempotent and not await self.store.record_tool_intent(ctx.fence, call.id):
            return build_rejected_call_result(call, OUTCOME_UNKNOWN)
        names, refused = await self._names(ctx), False
        try:
            arguments = await self._with_originals(tool, self._complete(call), names, ctx)
            text = await tool.call(arguments, replace(ctx, document_names=names))
        except ValidationError as error:
            text, refused = _complaint(error), True
        except ToolCallRejectedError as refusal:
            text, refused = refusal.message, True
        content = await self._presentable(text, names, call, ctx)
        return ToolResult(tool_use_id=call.id, content=content, is_error=refused)

    def _tool(self, call: ToolUse) -> Tool | None:
        return next((tool for tool in self.tools if tool.name == call.name), None)

    @property
    def _names_shown(self) -> str:
        return ", ".join(tool.name for tool in self._shown)

    @property
    def _shown(self) -> Sequence[Tool]:
        seen = self.visibility
        return self.tools if seen is None else [tool for tool in self.tools if tool.name in seen.names]

    def _limited(self, spec: ToolSpec) -> ToolSpec:
        limits = self.limits.get(spec.name)
        if limits is None:
            return spec
        return spec.replace(input_schema=apply_parameter_limits(spec.input_schema, limits))

    def _complete(self, call: ToolUse) -> dict[str, JsonValue]:
        """Return the arguments with the defaults that limits imposed."""
        limits = self.limits.get(call.name)
        return (
            call.input
            if limits is None
            else with_defaults(call.input, self.specs_by_name[call.name].input_schema, limits)
        )

    async def _names(self, ctx: ToolContext) -> DocumentNames:
        documents = await ctx.list_documents(self.store)
        names = next((known for known in self._known_names if known.documents is documents), None)
        if names is None:
            names = await build_document_names(documents, self.redactor, ctx.run.tenant)
            self._known_names[:] = [names]
        return names.with_vault(self.vault, ctx.run.session)

    async def _with_originals(
        self, tool: Tool, given: dict[str, JsonValue], names: DocumentNames, ctx: ToolContext
    ) -> dict[str, JsonValue]:
        """Restore placeholders in granted arguments.

        Restored ones are recorded in the audit trail before the tool runs.
        """
        granted = tool.originals & TOOLS_GRANTED_ORIGINALS.get(tool.name, frozenset()) & given.keys()
        arguments = given | {name: await _original(given[name], names) for name in granted}
        if names.resolved:
            placeholders = tuple(sorted(names.resolved))
            entry = PlaceholderResolution(
                agent=ctx.run.step_id, tool=tool.name, call_id=ctx.call_id, placeholders=placeholders
            )
            await self.store.add_audit_entry(ctx.run.task_id, entry)
        return arguments

    async def _presentable(self, text: str, names: DocumentNames, call: ToolUse, ctx: ToolContext) -> str:
        """Redact, escape and bound a result. Our own tags survive only in `SafeMarkup`.

        Runs in threads, since a result may be long and crafted to be slow.
        """
        named = await asyncio.to_thread(names.replace_private_names, text)
        (redacted,) = await self.redactor.redact([named], TextDestination.TOOL_RESULT, ctx.run.tenant)
        ctx.notes.extend(build_redaction_notes(redacted, of=await self._told(call, ctx) if redacted.timed_out else ""))
        if redacted.redaction_failed:
            return _UNREADABLE.format(redacted.text)
        shown = redacted.text if isinstance(text, SafeMarkup) else await asyncio.to_thread(escape_tags, redacted.text)
        if not is_too_large(shown, ctx.window):
            return shown
        # With line feeds, as `read_stored` reads it: the pointer's character numbers then match.
        whole = normalize_line_endings(shown)
        return build_offload_preview(whole, await self.store.put_text(whole, ctx.run.scope))

    async def _told(self, call: ToolUse, ctx: ToolContext) -> str:
        """Return how people see this call's result named: by its document, if it has one."""
        name = call.input.get(FILE_READING_TOOLS.get(call.name, ""))
        if not isinstance(name, str):
            return f"result of {call.name}"
        return f"result of {call.name} for {await redact_display_name(name, self.redactor, ctx.run.tenant)}"


async def _original(value: JsonValue, names: DocumentNames) -> JsonValue:
    match value:
        case str():
            return await names.resolve_original_name(value)
        case dict():
            return {key: await _original(item, names) for key, item in value.items()}
        case list():
            return [await _original(item, names) for item in value]
        case _:
            return value


def _complaint(error: ValidationError) -> str:
    """Describe what is wrong with the arguments, without repeating their values."""
    faults = [f"{'.'.join(str(part) for part in fault['loc']) or 'input'}: {fault['msg']}" for fault in error.errors()]
    return "These arguments cannot be used. " + "; ".join(faults)
