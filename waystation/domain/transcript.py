"""The append-only record of an agent run's messages, and the compaction records that lie over it."""

from typing import Annotated, Literal

from pydantic import Field

from waystation.domain.messages import Message
from waystation.domain.value import Value


class Summarised(Value):
    """`summary` stands for the covered messages. Covered ids may include summaries of earlier records."""

    type: Literal["summarised"] = "summarised"
    id: str
    strategy: str
    covered: tuple[str, ...]
    summary: Message


class Masked(Value):
    """The results of these tool calls are shown as placeholders; the originals stay in the transcript."""

    type: Literal["masked"] = "masked"
    id: str
    tool_use_ids: tuple[str, ...]


class Truncated(Value):
    """The covered messages are hidden behind a marker that gives their count and ids."""

    type: Literal["truncated"] = "truncated"
    id: str
    covered: tuple[str, ...]
    marker: Message


CompactionRecord = Annotated[Summarised | Masked | Truncated, Field(discriminator="type")]


class Transcript(Value):
    """Everything said in one agent run.

    `version` grows by one with every commit (message or record) and is what compare-and-set compares.
    """

    run_id: str
    version: int = 0
    messages: tuple[Message, ...] = ()
    records: tuple[CompactionRecord, ...] = ()

    @property
    def turns(self) -> int:
        """How many replies of the model were committed. It only ever grows."""
        return sum(message.role == "assistant" for message in self.messages)

    def with_message(self, message: Message) -> "Transcript":
        """One commit further."""
        return self.model_copy(update={"messages": (*self.messages, message), "version": self.version + 1})

    @property
    def next_id(self) -> str:
        """Id of the next message."""
        return f"m{len(self.messages) + 1}"
