"""Tools for memory: find what a compaction hid or earlier tasks found, and show it in full."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from pydantic import Field

from waystation.agents.delegation import get_parent_id
from waystation.agents.ports import EarlierTasks, PlaceholderAudit, TranscriptReader, WorkRepository
from waystation.agents.task_brief import RECALL, record_restored_placeholders
from waystation.agents.tool_visibility import FIRST, LATER, SOON, make_urgency
from waystation.agents.tools.submissions import load_agent_result
from waystation.agents.tools.tool import (
    ToolCallRejectedError,
    ToolContext,
    ToolInput,
    TypedTool,
    load_redacted_lines,
    render_text_slice,
)
from waystation.context.repair import split_into_units
from waystation.context.transcript import Message
from waystation.documents.redacted_documents import RedactedDocumentStore
from waystation.kernel.errors import MemoryUnavailable, TextNotFoundError
from waystation.kernel.patterns import compile_bounded
from waystation.kernel.scopes import TenantScope
from waystation.memory.indexing import FRAMED_TOKENS, RECALLED_TOKENS, MemoryRecall, render_recalled_excerpts
from waystation.memory.passage_builder import map_tool_names, render_message
from waystation.memory.passages import Passage
from waystation.memory.ports import PassageReader
from waystation.security.untrusted import escape_tags

_WINDOW_SHARE = 8
"""At most 1/8 of the window is recalled at once."""


class RecallInput(ToolInput):
    """Recall query."""

    query: str = Field(min_length=1, max_length=1_000, description="A phrase that contains the relevant names.")


class RecallTool(TypedTool[RecallInput]):
    """Finds passages of compacted conversation and of other tasks' documents, as labelled records."""

    name = RECALL
    description = (
        "Searches memory: conversation that is no longer shown, and documents, reports and findings of earlier "
        "tasks. Use it if a summary lacks a detail, or an earlier task may have the answer. Returns passages with "
        "ids for expand. Not for this task's documents: use search_documents."
    )
    urgency = make_urgency(LATER, SOON)
    input_model = RecallInput

    def __init__(self, recollection: MemoryRecall, store: PlaceholderAudit) -> None:
        self._recollection, self._store = recollection, store

    async def run(self, arguments: RecallInput, ctx: ToolContext) -> str:
        """Return passages, or that there are none, or that memory is down: the agent goes on either way.

        Restored names are recorded in the audit trail before they are shown.
        """
        tokens = min(RECALLED_TOKENS, ctx.window // _WINDOW_SHARE) - FRAMED_TOKENS
        try:
            found = await self._recollection.find(ctx.run, arguments.query, tokens, ctx.memory)
        except MemoryUnavailable:
            ctx.notes.append("Memory did not answer a search; the agent continued without it.")
            return "Memory does not answer now. Go on without it, or read the documents again."
        await record_restored_placeholders(self._store, ctx.run, ctx.call_id, found)
        return render_recalled_excerpts(found) if found else "Nothing like that is remembered."


_MESSAGE = compile_bounded(r"m\d+")
LINES_AROUND = 20
"""Lines shown before and after those of a document's passage."""


class ExpandInput(ToolInput):
    """What to show, and where to start."""

    id: str = Field(
        min_length=2,
        max_length=60,
        description="Id of a passage (p1a2b3c4d), a message in it (p1a2b3c4d/m23), a message of this conversation "
        "(m23), a subagent (research-1.2) or an earlier task (task-…).",
    )
    first: int = Field(default=0, ge=0, description="First character.")


class ReferenceSource(PassageReader, TranscriptReader, WorkRepository, Protocol):
    """What references of agents stand for."""


class ExpandReferenceTool(TypedTool[ExpandInput]):
    """Shows the originals of a passage: what the agent saw, without what it must not be shown now."""

    name = "expand"
    description = (
        "Shows the original behind an id. Use it if a passage, a summary or a subagent's result is too short. "
        "Returns the messages, the lines around the passage, all that the subagent submitted, or the report. Not "
        "for searching: use recall."
    )
    rereadable = True
    urgency = make_urgency(LATER, FIRST)
    input_model = ExpandInput

    def __init__(self, store: ReferenceSource, redacted: RedactedDocumentStore, earlier: EarlierTasks) -> None:
        self._store, self._redacted, self._earlier = store, redacted, earlier

    async def run(self, arguments: ExpandInput, ctx: ToolContext) -> str:
        """Return a page of them, and where to continue."""
        wanted = arguments.id.strip("<>[] ,;").lower()
        # Escape our own tags, too: they were instructions then and are a record now.
        text = await asyncio.to_thread(escape_tags, await self._text(wanted, ctx))
        if arguments.first >= len(text):
            raise ToolCallRejectedError(
                f"The original has {len(text):,} characters; character {arguments.first:,} is beyond its end."
            )
        return render_text_slice(text, arguments.first, ctx)

    async def _text(self, wanted: str, ctx: ToolContext) -> str:
        if _MESSAGE.fullmatch(wanted):
            return await self._message(wanted, ctx)
        if wanted.startswith("task-"):
            return await self._report(wanted, ctx)
        if get_parent_id(wanted) == ctx.run.step_id:
            return await self._handed_in(wanted, ctx)
        return await self._passage(wanted, ctx)

    async def _handed_in(self, wanted: str, ctx: ToolContext) -> str:
        lines = (await load_agent_result(self._store, ctx.run.scope, wanted)).lines
        if not lines:
            raise ToolCallRejectedError(f"{wanted} has submitted nothing.")
        return "\n".join(lines)

    async def _report(self, task: str, ctx: ToolContext) -> str:
        if (report := await self._earlier.load_report(ctx.run, task, ctx.memory)) is None:
            raise ToolCallRejectedError(f"There is no earlier task {task!r} with a report that you may read.")
        return report

    async def _message(self, wanted: str, ctx: ToolContext) -> str:
        shown = _between(ctx.transcript.messages, wanted, wanted)
        if not shown:
            raise ToolCallRejectedError(f"This conversation has no message {wanted}.")
        return _rendered(shown, ctx.transcript.messages)

    async def _passage(self, wanted: str, ctx: ToolContext) -> str:
        """Return the text of a passage. Passages of another tenant or session appear not to exist."""
        reader, (passage, _, message) = ctx.run.scope.get_recall_scope(ctx.memory), wanted.partition("/")
        found = await self._store.find_passages(passage.removeprefix("p"), reader)
        if len(found) != 1:
            raise ToolCallRejectedError(f"No passage is called {wanted!r}. Use an id that recall or a summary gives.")
        if found[0].kind == "document":
            return await self._document(found[0], ctx, reader)
        if found[0].kind != "conversation":
            return await self._report(found[0].task_id, ctx)
        said = (await self._store.load_transcript(found[0].run_id, reader)).messages
        shown = _between(said, message, message) if message else _of(found[0], said)
        if message and not shown:
            raise ToolCallRejectedError(f"The conversation of passage {passage} has no message {message}.")
        return _rendered(shown, said)

    async def _document(self, passage: Passage, ctx: ToolContext, reader: TenantScope) -> str:
        try:
            lines = await load_redacted_lines(self._redacted, passage.blob, passage.document, ctx, reader)
        except TextNotFoundError:
            raise ToolCallRejectedError(f"The document of passage {passage.short_id} is no longer stored.") from None
        first = max(1, passage.first_line - LINES_AROUND)
        shown = lines[first - 1 : passage.last_line + LINES_AROUND]
        return "\n".join([f"[{passage.document}:{first}-{first + len(shown) - 1}]", *shown])


def _of(passage: Passage, messages: Sequence[Message]) -> Sequence[Message]:
    return _between(messages, passage.first_message, passage.last_message)


def _between(messages: Sequence[Message], first: str, last: str) -> list[Message]:
    """Return the messages from the first to the last; results together with their calls."""
    units = split_into_units(messages)
    places = {message.id: place for place, unit in enumerate(units) for message in unit}
    if first not in places or last not in places:
        return []
    return [message for unit in units[places[first] : places[last] + 1] for message in unit]


def _rendered(messages: Sequence[Message], said: Sequence[Message]) -> str:
    names = map_tool_names(said)
    return "\n".join(text for message in messages if (text := render_message(message, names)))
