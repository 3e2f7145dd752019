"""The words that pass between an agent and its model: blocks and messages, as the Messages API has them."""

from typing import Annotated, Final, Literal

from pydantic import Field, JsonValue

from waystation.domain.foreign_text import Tagged, tagged_line, without_tags
from waystation.domain.value import Value

OPERATORS: Final = "system_message"
"""The type of a block that is a whole message of the operator's in mid-conversation (role `system`)."""
USERS_BLOCKS: Final = frozenset({"image", "document", "search_result", "container_upload", OPERATORS})
"""Types of blocks of the user that nothing here looks into. All other unknown ones are the assistant's."""
PLATFORM_OPEN, PLATFORM_CLOSE = "<platform>", "</platform>"
"""Around what the platform itself tells an agent in a message of the user's role."""


class Text(Value):
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


class Thinking(Value):
    """Signed reasoning. It stays byte-identical, or goes together with its tool loop."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    signature: str


class RedactedThinking(Value):
    """Reasoning that the provider sealed."""

    type: Literal["redacted_thinking"] = "redacted_thinking"
    data: str


class ToolUse(Value):
    """The model asks for one call of a tool."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, JsonValue]


class Opaque(Value):
    """A block that nothing here looks into: an image, a document, a call that the provider carried out itself."""

    type: Literal["opaque"] = "opaque"
    kind: str
    """Its type for the Messages API."""
    tokens: int
    """What it is estimated to cost."""
    body: dict[str, JsonValue]
    """As the Messages API has it."""

    @property
    def of_the_user(self) -> bool:
        """Whether it belongs into messages of the user."""
        return self.kind in USERS_BLOCKS


class ToolResult(Value):
    """What a tool call gave back."""

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: str
    is_error: bool = False
    attached: tuple[Opaque, ...] = ()
    """What came beside the text."""


Block = Annotated[Text | Thinking | RedactedThinking | ToolUse | ToolResult | Opaque, Field(discriminator="type")]
Role = Literal["user", "assistant"]


class Message(Value):
    """One message of a transcript. `id` is stable within its agent run and never used again."""

    id: str
    role: Role
    blocks: tuple[Block, ...]
    told: int = 0
    """Number of what a person told the task at work (`domain.telling`); 0 for every other message."""
    updates: int = 0
    """Number of the newest update of the task's documents that it tells of; 0 for every other message."""

    @property
    def tool_uses(self) -> tuple[ToolUse, ...]:
        """The calls this message asks for, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_use"])

    @property
    def tool_results(self) -> tuple[ToolResult, ...]:
        """The results this message carries, in order."""
        return tuple([block for block in self.blocks if block.type == "tool_result"])

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join([block.text for block in self.blocks if block.type == "text"])

    @property
    def of_the_platform(self) -> bool:
        """Whether `platform_text` made it: nobody asked for anything."""
        return self.role == "user" and self.text.startswith(PLATFORM_OPEN) and self.text.endswith(PLATFORM_CLOSE)


def refused_call(call: ToolUse, words: str) -> ToolResult:
    """The result of a call that was not carried out: why, and what to do instead."""
    return ToolResult(tool_use_id=call.id, content=words, is_error=True)


def user_text(message_id: str, text: str) -> Message:
    """A user message of one text block."""
    return Message(id=message_id, role="user", blocks=(Text(text=text),))


def platform_text(message_id: str, text: str) -> Message:
    """What the platform tells an agent: of the user's role, as the Messages API wants it, and yet no user's word.

    What others wrote in the text is defused already; of its own tag nothing in it can step out.
    """
    return user_text(message_id, tagged_line("platform", Tagged(without_tags(text, "platform"))))
