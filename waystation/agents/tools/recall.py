"""The tool that finds again what a compaction hid, and earlier work of the session."""

from pydantic import Field

from waystation.agents.recollection import RECALLED_TOKENS, Recollection, as_passages
from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool
from waystation.domain.errors import MemoryUnavailable
from waystation.domain.projection import LATER, SOON, urgent

WINDOW_SHARE = 8
"""At most this part of the window is recalled at once."""


class RecallInput(ToolInput):
    """What to remember."""

    query: str = Field(min_length=1, max_length=1_000)


class Recall(TypedTool[RecallInput]):
    """Passages of compressed-away conversation and of other tasks' documents, as labelled records."""

    name = "recall"
    description = (
        "Finds passages of earlier conversation that is no longer shown, from this task and its session, and of "
        "documents, reports and findings of its earlier tasks. `expand` shows what is behind one."
    )
    urgency = urgent(LATER, SOON)
    input_model = RecallInput

    def __init__(self, recollection: Recollection) -> None:
        self._recollection = recollection

    async def run(self, arguments: RecallInput, at: CallSite) -> str:
        """Passages, or that there are none, or that memory is down: the agent goes on either way."""
        tokens = min(RECALLED_TOKENS, at.window // WINDOW_SHARE)
        try:
            found = await self._recollection.find(at.run, arguments.query, tokens, at.memory)
        except MemoryUnavailable:
            at.notices.append("Memory did not answer a recall; the agent went on without it.")
            return "Memory does not answer now. Go on without it, or read the documents again."
        return as_passages(found) if found else "Nothing like that is remembered."
