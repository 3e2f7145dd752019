"""Ports to a model behind the Messages protocol."""

from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from waystation.domain.budget import Usage
from waystation.domain.models import Effort, ThinkingSetting
from waystation.domain.transcript import Block, Message
from waystation.domain.value import Value


class StopReason(StrEnum):
    """Why a reply ended."""

    END_TURN = "end_turn"
    TOOL_USE = "tool_use"
    MAX_TOKENS = "max_tokens"
    REFUSAL = "refusal"
    CONTEXT_EXCEEDED = "model_context_window_exceeded"


class ToolSpec(Value):
    """A tool as the model sees it. `input_schema` is a JSON schema of type object."""

    name: str
    description: str
    input_schema: dict[str, JsonValue]


class ModelRequest(Value):
    """One call of a model."""

    model: str
    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output: int
    """Most tokens of the reply, its thinking included: more than are set aside for thinking."""
    effort: Effort | None = None
    """None: as the provider has it for the model."""
    thinking: ThinkingSetting | None = None
    """The same; and so it is where `require_tool` forces a call, which goes with no other thinking."""
    require_tool: str | None = None
    """The one tool that the reply must call."""
    reminder: str = ""
    """Appended to the last user message as its last text block, after the cache breakpoint: it changes at every turn
    and is no part of the transcript."""


class ModelReply(Value):
    """A whole reply. A stream that was cut never becomes one."""

    blocks: tuple[Block, ...]
    stop: StopReason
    usage: Usage
    model: str
    """The model that answered, as the provider names it."""


class ChatModel(Protocol):
    """A model behind the Messages protocol."""

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Ask once. No retries in here: Temporal retries.

        Raises:
            ModelUnavailable: rate limit, overload, connection, cut stream; worth another attempt.
            ModelRejected: credentials, bad request, too large; another attempt changes nothing.
            ReplyBlocked: the provider's filter took the reply away: nor does it here, but this may have been billed.
        """
        ...

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The provider's count of the request's input tokens; None where the endpoint does not count.

        Raises as `complete` does.
        """
        ...

    async def aclose(self) -> None:
        """Close connections."""
        ...
