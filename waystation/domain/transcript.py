"""The append-only log of an agent run: everything that was said, and everything that was done to it.

Nothing in it is changed or removed. What counts of it now is `domain.compaction.history.current`.
"""

from typing import Annotated, Literal

from pydantic import Field

from waystation.domain.messages import Message
from waystation.domain.value import Value


class _Record(Value):
    id: str
    after: int | None = None
    """How many messages the transcript had when this was committed: its place among them. Set by `with_record`."""


class Summarised(_Record):
    """`summary` stands for the covered messages. Covered ids may include summaries of earlier records."""

    type: Literal["summarised"] = "summarised"
    strategy: str
    covered: tuple[str, ...]
    summary: Message
    added: tuple[str, ...] = ()
    """What the check before commit wrote under the summary: kinds and counts."""
    removed: tuple[str, ...] = ()
    """What it took out of the summary: kinds and counts."""


class Masked(_Record):
    """The results of these tool calls are shown as placeholders; the originals stay in the transcript."""

    type: Literal["masked"] = "masked"
    tool_use_ids: tuple[str, ...]


class SummaryPart(_Record):
    """What one part of a middle came to that was too long for the summariser: kept, so that nobody pays it twice.

    It changes nothing of the view. Its id is that of the compaction, a hyphen, and the number of the part.
    """

    type: Literal["summary_part"] = "summary_part"
    text: str


class SummaryFailed(_Record):
    """A summary that nobody had asked for by hand, and that came to nothing: it is not tried again at once
    (`domain.compaction.failed`).

    It changes nothing of the view. Its id is that of the compaction, and `-failed`.
    """

    type: Literal["summary_failed"] = "summary_failed"
    middle_tokens: int
    """Plain estimate of what it was to stand for."""


class Truncated(_Record):
    """The covered messages are hidden behind a marker that gives their count and ids."""

    type: Literal["truncated"] = "truncated"
    covered: tuple[str, ...]
    marker: Message


class Pinned(_Record):
    """No compaction covers this message."""

    type: Literal["pinned"] = "pinned"
    message_id: str


class Restored(_Record):
    """An earlier record (not a rewind) counts no more."""

    type: Literal["restored"] = "restored"
    record_id: str


class Rewound(_Record):
    """The conversation goes on from this message: what was said and compacted after it counts no more."""

    type: Literal["rewound"] = "rewound"
    message_id: str
    kept: bool = True
    """Whether the message itself stays."""


Compaction = Summarised | Masked | Truncated
Record = Annotated[Compaction | SummaryPart | SummaryFailed | Pinned | Restored | Rewound, Field(discriminator="type")]


class Transcript(Value):
    """Everything said in one agent run.

    `version` grows by one with every commit (message or record) and is what compare-and-set compares.
    """

    run_id: str
    version: int = 0
    messages: tuple[Message, ...] = ()
    records: tuple[Record, ...] = ()
    """Everything that was done to the conversation, in the order of its commits."""

    @property
    def compactions(self) -> tuple[Compaction, ...]:
        """The records that hide something, undone ones included."""
        return tuple(record for record in self.records if isinstance(record, Compaction))

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
