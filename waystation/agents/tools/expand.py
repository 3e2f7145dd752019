"""The tool that shows the messages behind a passage, as they were said."""

import re
from collections.abc import Sequence

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.compaction.units import units_of
from waystation.domain.memory import Passage
from waystation.domain.messages import Message
from waystation.domain.passages import render, tool_names
from waystation.ports import TranscriptStore

_MESSAGE = re.compile(r"m\d+")
WINDOW_SHARE = 6
"""A page has a sixth as many characters as the window has tokens, in whatever script it is written."""


class ExpandInput(ToolInput):
    """Which messages, and where to begin."""

    id: str = Field(
        min_length=2,
        max_length=40,
        description="Of a passage, like p1a2b3c4d, or of a message, like m23.",
    )
    first: int = Field(default=0, ge=0, description="Number of the first character.")


class Expand(TypedTool[ExpandInput]):
    """The originals of a passage: what the agent saw, without what must not be shown to it now."""

    name = "expand"
    description = "Shows the whole messages behind a passage, or one earlier message of this conversation."
    rereadable = True
    input_model = ExpandInput

    def __init__(self, transcripts: TranscriptStore) -> None:
        self._transcripts = transcripts

    async def run(self, arguments: ExpandInput, at: CallSite) -> str:
        """A page of them, and where to go on."""
        wanted = arguments.id.strip("<>[] ,;").lower()
        text = await (self._message(wanted, at) if _MESSAGE.fullmatch(wanted) else self._passage(wanted, at))
        if arguments.first >= len(text):
            raise ToolRefused(f"They have {len(text):,} characters; there is none from number {arguments.first:,} on.")
        end = arguments.first + min(at.page_characters // 2, at.window // WINDOW_SHARE)
        rest = f"\ncontinues at character {end:,} of {len(text):,}" if end < len(text) else ""
        return f"{text[arguments.first : end]}{rest}"

    async def _message(self, wanted: str, at: CallSite) -> str:
        shown = _between(at.transcript.messages, wanted, wanted)
        if not shown:
            raise ToolRefused(f"This conversation has no message {wanted}.")
        return _rendered(shown, at.transcript.messages)

    async def _passage(self, wanted: str, at: CallSite) -> str:
        """Of another tenant or session it is as if there were none."""
        named = await self._transcripts.passages_named(at.run.tenant, wanted.removeprefix("p"))
        found = [passage for passage in named if passage.session == at.run.session]
        if len(found) != 1:
            raise ToolRefused(f"No passage is called {wanted!r}. Use an id that recall or a summary gives.")
        said = (await self._transcripts.load(found[0].run_id)).messages
        return _rendered(_of(found[0], said), said)


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
