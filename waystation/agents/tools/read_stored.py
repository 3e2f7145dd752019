"""The tool that reads a large tool result which was put into the store."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.errors import StoreError
from waystation.domain.projection import FIRST, SOON, urgent
from waystation.ports import DocumentStore

WINDOW_SHARE = 6
"""A page has a sixth as many characters as the window has tokens: it must not be put into the store again, in whatever
script it is written."""


class ReadStoredInput(ToolInput):
    """Which characters of which stored result."""

    id: str = Field(description="The id that the pointer gives.")
    first: int = Field(default=0, ge=0, description="Number of the first character.")


class ReadStored(TypedTool[ReadStoredInput]):
    """A page of a stored result."""

    name = "read_stored"
    description = "Reads on in a large result that was stored; its pointer gives the id."
    rereadable = True
    urgency = urgent(SOON, FIRST)
    input_model = ReadStoredInput

    def __init__(self, texts: DocumentStore) -> None:
        self._texts = texts

    async def run(self, arguments: ReadStoredInput, at: CallSite) -> str:
        """The page, and where to go on."""
        try:
            text = await self._texts.get_text(arguments.id)
        except StoreError as error:
            raise ToolRefused(f"Nothing is stored under {arguments.id!r}. Use the whole id of the pointer.") from error
        if arguments.first >= len(text):
            raise ToolRefused(f"It has {len(text):,} characters; there is none from number {arguments.first:,} on.")
        end = arguments.first + min(at.page_characters // 2, at.window // WINDOW_SHARE)
        rest = f"\ncontinues at character {end:,} of {len(text):,}" if end < len(text) else ""
        return f"{text[arguments.first : end]}{rest}"
