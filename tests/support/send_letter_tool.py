"""A tool that requires approval and is not repeatable; its effects are recorded in a list."""

from pydantic import Field, JsonValue

from waystation.agents.tools.tool import ToolContext, ToolInput, TypedTool


class SendLetterInput(ToolInput):
    """A letter."""

    to: str = Field(max_length=100)
    text: str = Field(max_length=100_000)


class SendLetterTool(TypedTool[SendLetterInput]):
    """Sends a letter."""

    name = "send_letter"
    description = "Sends a letter."
    idempotent = False
    input_model = SendLetterInput

    def __init__(self) -> None:
        self.sent: list[str] = []
        """Recipients, in the order of the calls."""

    def build_approval_question(self, arguments: dict[str, JsonValue]) -> str:
        """Return a question with the whole letter."""
        return f"Send this letter to {arguments.get('to')}?\n{arguments.get('text')}"

    async def run(self, arguments: SendLetterInput, at: ToolContext) -> str:
        """Record the letter."""
        self.sent.append(arguments.to)
        return f"sent to {arguments.to}"
