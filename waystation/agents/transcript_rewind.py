"""The rewind of a transcript to one of its messages, and what goes with the messages that no longer count."""

from waystation.agents.deliverables import Deliverable
from waystation.context.history import build_rewind_record, get_effective_transcript, with_record
from waystation.context.transcript import RewindRecord, Transcript
from waystation.kernel.value import Value


class TranscriptRewind(Value):
    """Rewind of one transcript. Charges stay, and so do the messages, which no longer count."""

    record: RewindRecord
    removed_messages: frozenset[str]
    """IDs of the messages that no longer count: passages with any of them are deleted."""
    removed_calls: frozenset[str]
    """IDs of the tool calls in them: notes taken by them are deleted."""
    deliverable: Deliverable | None = None
    """Deliverable of the calls that still count."""


def build_transcript_rewind(transcript: Transcript, message_id: str, record_id: str, *, keep: bool) -> TranscriptRewind:
    """Build the rewind to a message. Raises BadInput for a message that does not count."""
    record = build_rewind_record(transcript, message_id, record_id, keep=keep)
    stays = {message.id for message in get_effective_transcript(with_record(transcript, record)).messages}
    gone = [message for message in get_effective_transcript(transcript).messages if message.id not in stays]
    return TranscriptRewind(
        record=record,
        removed_messages=frozenset(message.id for message in gone),
        removed_calls=frozenset(call.id for message in gone for call in message.tool_uses),
    )
