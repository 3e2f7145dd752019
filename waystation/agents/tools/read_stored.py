"""The tool that reads a large tool result which was put into the store."""

from pydantic import Field

from waystation.agents.redacted_documents import RedactedDocuments
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, shown_lines, stretch
from waystation.domain.errors import TextMissing
from waystation.domain.projection import FIRST, SOON, urgent


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

    def __init__(self, redacted: RedactedDocuments) -> None:
        self._redacted = redacted

    async def run(self, arguments: ReadStoredInput, at: CallSite) -> str:
        """The page, and where to go on."""
        try:
            text = "\n".join(await shown_lines(self._redacted, arguments.id, "This result", at))
        except TextMissing as error:
            raise ToolRefused(f"Nothing is stored under {arguments.id!r}. Use the whole id of the pointer.") from error
        if arguments.first >= len(text):
            raise ToolRefused(f"It has {len(text):,} characters; there is none from number {arguments.first:,} on.")
        return stretch(text, arguments.first, at)
