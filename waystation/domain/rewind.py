"""Taking a conversation back: what goes with the messages that count no more, and what stays."""

from datetime import datetime

from waystation.domain.compaction.apply import with_record
from waystation.domain.compaction.history import current, rewind
from waystation.domain.task import TaskRef
from waystation.domain.transcript import Rewound, Transcript
from waystation.domain.value import Value
from waystation.domain.work import Deliverable


class Rewind(Value):
    """One transcript taken back. Charges stay, and so does what was said: it only counts no more."""

    record: Rewound
    gone: frozenset[str]
    """Ids of the messages that count no more: passages that have any of them go."""
    calls: frozenset[str]
    """Ids of the tool calls in them: notes that they took go."""
    handed_in: Deliverable | None = None
    """What the calls that still count have handed in."""


class TaskRewind(Value):
    """A finished task is to go on from a message of one of its agents."""

    ref: TaskRef
    agent: str
    """Id of the agent's step."""
    message: str
    keep: bool
    """Whether the message itself stays."""
    by: str = ""
    """The name that the person gave: a claim, not a proof."""
    note: str = ""
    asked_at: datetime


def taken_back(transcript: Transcript, message_id: str, record_id: str, *, keep: bool) -> Rewind:
    """The rewind to a message, and what goes with it. Raises BadInput for a message that does not count."""
    record = rewind(transcript, message_id, record_id, keep=keep)
    stays = {message.id for message in current(with_record(transcript, record)).messages}
    gone = [message for message in current(transcript).messages if message.id not in stays]
    return Rewind(
        record=record,
        gone=frozenset(message.id for message in gone),
        calls=frozenset(call.id for message in gone for call in message.tool_uses),
    )
