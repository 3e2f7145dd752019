"""The tools for memory: what a compaction hid is found again, and shown whole.

The tool that finds again what a compaction hid, and earlier work of the session.

The tool that shows what is behind a passage: messages as they were said, or a document around it.
"""

import asyncio
from collections.abc import Sequence

from pydantic import Field

from waystation.agents.delegation import parent_of
from waystation.agents.task_brief import RECALL, EarlierTasks, audited
from waystation.agents.tool_visibility import FIRST, LATER, SOON, urgent
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, shown_lines, stretch
from waystation.agents.tools.work import results_of
from waystation.context.repair import units_of
from waystation.context.transcript import Message
from waystation.documents.redacted import RedactedDocuments
from waystation.kernel.errors import MemoryUnavailable, TextMissing
from waystation.kernel.patterns import proven
from waystation.kernel.scopes import OfTenant
from waystation.memory.archive import FRAMED_TOKENS, RECALLED_TOKENS, Recollection, as_records
from waystation.memory.memory import Passage
from waystation.memory.passages import render, tool_names
from waystation.security.untrusted import without_tags
from waystation.store.ports import Store

_WINDOW_SHARE = 8
"""At most this part of the window is recalled at once."""


class RecallInput(ToolInput):
    """What to remember."""

    query: str = Field(min_length=1, max_length=1_000)


class Recall(TypedTool[RecallInput]):
    """Passages of compressed-away conversation and of other tasks' documents, as labelled records."""

    name = RECALL
    description = (
        "Finds what was said in conversation that is no longer shown, of this task and its session, and in documents, "
        "reports and findings of earlier tasks. Talk begins with [passage, day when it was hidden] and [message, who]; "
        "`expand` shows what is around it."
    )
    urgency = urgent(LATER, SOON)
    input_model = RecallInput

    def __init__(self, recollection: Recollection, store: Store) -> None:
        self._recollection, self._store = recollection, store

    async def run(self, arguments: RecallInput, at: CallSite) -> str:
        """Passages, or that there are none, or that memory is down: the agent goes on either way.

        Names that are restored in them are audited before they are shown.
        """
        tokens = min(RECALLED_TOKENS, at.window // _WINDOW_SHARE) - FRAMED_TOKENS
        try:
            found = await self._recollection.find(at.run, arguments.query, tokens, at.memory)
        except MemoryUnavailable:
            at.notices.append("Memory did not answer a recall; the agent went on without it.")
            return "Memory does not answer now. Go on without it, or read the documents again."
        await audited(self._store, at.run, at.call_id, found)
        return as_records(found) if found else "Nothing like that is remembered."


_MESSAGE = proven(r"m\d+")
LINES_AROUND = 20
"""Before and behind the lines of a document's passage."""


class ExpandInput(ToolInput):
    """Which messages, and where to begin."""

    id: str = Field(
        min_length=2,
        max_length=60,
        description="Of a passage (p1a2b3c4d), its message m23 (p1a2b3c4d/m23), a message here (m23), a subagent "
        "(research-1.2) or an earlier task.",
    )
    first: int = Field(default=0, ge=0, description="Number of the first character.")


class Expand(TypedTool[ExpandInput]):
    """The originals of a passage: what the agent saw, without what must not be shown to it now."""

    name = "expand"
    description = (
        "Shows the whole messages behind a passage or the document around it, one earlier message of this "
        "conversation, all that one of your subagents has handed in, or the report of an earlier task."
    )
    rereadable = True
    urgency = urgent(LATER, FIRST)
    input_model = ExpandInput

    def __init__(self, store: Store, redacted: RedactedDocuments, earlier: EarlierTasks) -> None:
        self._store, self._redacted, self._earlier = store, redacted, earlier

    async def run(self, arguments: ExpandInput, at: CallSite) -> str:
        """A page of them, and where to go on."""
        wanted = arguments.id.strip("<>[] ,;").lower()
        # Our tags are said again here, too: what they said then is a record now.
        text = await asyncio.to_thread(without_tags, await self._text(wanted, at))
        if arguments.first >= len(text):
            raise ToolRefused(f"They have {len(text):,} characters; there is none from number {arguments.first:,} on.")
        return stretch(text, arguments.first, at)

    async def _text(self, wanted: str, at: CallSite) -> str:
        if _MESSAGE.fullmatch(wanted):
            return await self._message(wanted, at)
        if wanted.startswith("task-"):
            return await self._report(wanted, at)
        if parent_of(wanted) == at.run.step_id:
            return await self._handed_in(wanted, at)
        return await self._passage(wanted, at)

    async def _handed_in(self, wanted: str, at: CallSite) -> str:
        lines = (await results_of(self._store, at.run.reader, wanted)).lines
        if not lines:
            raise ToolRefused(f"{wanted} has handed in nothing.")
        return "\n".join(lines)

    async def _report(self, task: str, at: CallSite) -> str:
        if (report := await self._earlier.report(at.run, task, at.memory)) is None:
            raise ToolRefused(f"No earlier task that you may look into is called {task!r} and has a report.")
        return report

    async def _message(self, wanted: str, at: CallSite) -> str:
        shown = _between(at.transcript.messages, wanted, wanted)
        if not shown:
            raise ToolRefused(f"This conversation has no message {wanted}.")
        return _rendered(shown, at.transcript.messages)

    async def _passage(self, wanted: str, at: CallSite) -> str:
        """Of another tenant, and of a session that is not recalled, it is as if there were none."""
        reader, (passage, _, message) = at.run.reader.recalling(at.memory), wanted.partition("/")
        found = await self._store.passages_named(passage.removeprefix("p"), reader)
        if len(found) != 1:
            raise ToolRefused(f"No passage is called {wanted!r}. Use an id that recall or a summary gives.")
        if found[0].kind == "document":
            return await self._document(found[0], at, reader)
        if found[0].kind != "conversation":
            return await self._report(found[0].task_id, at)
        said = (await self._store.load(found[0].run_id, reader)).messages
        shown = _between(said, message, message) if message else _of(found[0], said)
        if message and not shown:
            raise ToolRefused(f"The conversation of {passage} has no message {message}.")
        return _rendered(shown, said)

    async def _document(self, passage: Passage, at: CallSite, reader: OfTenant) -> str:
        try:
            lines = await shown_lines(self._redacted, passage.blob, passage.document, at, reader)
        except TextMissing:
            raise ToolRefused(f"The document behind {passage.short_id} is not kept any more.") from None
        first = max(1, passage.first_line - LINES_AROUND)
        shown = lines[first - 1 : passage.last_line + LINES_AROUND]
        return "\n".join([f"[{passage.document}:{first}-{first + len(shown) - 1}]", *shown])


def _of(passage: Passage, said: Sequence[Message]) -> Sequence[Message]:
    return _between(said, passage.first_message, passage.last_message)


def _between(said: Sequence[Message], first: str, last: str) -> list[Message]:
    """From the first message to the last; a result with the call that it answers."""
    units = units_of(said)
    places = {message.id: place for place, unit in enumerate(units) for message in unit}
    if first not in places or last not in places:
        return []
    return [message for unit in units[places[first] : places[last] + 1] for message in unit]


def _rendered(messages: Sequence[Message], said: Sequence[Message]) -> str:
    names = tool_names(said)
    return "\n".join(text for message in messages if (text := render(message, names)))
