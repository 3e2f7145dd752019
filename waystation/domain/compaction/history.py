"""What of a transcript counts now, and the records by which people rewind and restore.

All of it is a pure function of the log: an undone compaction leaves no marker, no summary and no half of a tool call.
"""

from collections.abc import Sequence

from waystation.domain.errors import BadInput
from waystation.domain.messages import Message
from waystation.domain.transcript import (
    Compaction,
    Masked,
    Pinned,
    Record,
    Restored,
    Rewound,
    Summarised,
    Transcript,
    Truncated,
)


def current(transcript: Transcript) -> Transcript:
    """The transcript without what was rewound or restored away: its messages, compactions and pins that count.

    The transcript itself where nothing was undone. Its length says nothing of turns or ids: those the log counts.
    """
    if not any(isinstance(record, Rewound | Restored) for record in transcript.records):
        return transcript
    places = {message.id: place for place, message in enumerate(transcript.messages)}
    messages: list[Message] = []
    trail: list[Record] = []
    taken = 0
    for record in transcript.records:
        messages += transcript.messages[taken : place_of(record, transcript)]
        taken = max(taken, place_of(record, transcript))
        if not isinstance(record, Rewound):
            trail.append(record)
        elif (target := places.get(record.message_id)) is not None:
            messages = [message for message in messages if places[message.id] < target + record.kept]
            trail = _until(trail, transcript, target, messages)
    messages += transcript.messages[taken:]
    undone = {record.record_id for record in trail if isinstance(record, Restored)}
    kept = tuple(record for record in trail if not isinstance(record, Restored) and record.id not in undone)
    return transcript.model_copy(update={"messages": tuple(messages), "records": kept})


def stand_in(record: Summarised | Truncated) -> Message:
    """What the view shows instead of the messages that the record covers."""
    return record.summary if isinstance(record, Summarised) else record.marker


def pinned_ids(transcript: Transcript) -> frozenset[str]:
    """Ids of the messages that no compaction covers because somebody said so."""
    return frozenset(record.message_id for record in current(transcript).records if isinstance(record, Pinned))


def rewind(transcript: Transcript, message_id: str, record_id: str, *, keep: bool) -> Rewound:
    """The record of this id that takes the conversation back to a message, which stays or goes. Raises BadInput."""
    known(message_id, current(transcript))
    return Rewound(id=record_id, message_id=message_id, kept=keep)


def restore(transcript: Transcript, compaction: str, record_id: str) -> Restored:
    """The record of this id that undoes one compaction, named by its id or the beginning of it. Raises BadInput."""
    records = [record for record in current(transcript).records if isinstance(record, Compaction)]
    found = [record for record in records if record.id.startswith(compaction)] if compaction else []
    if len(found) != 1:
        names = ", ".join(record.id for record in records) or "none"
        many = "more than one compaction begins" if found else "there is no compaction whose id begins"
        raise BadInput(f"{many} with {compaction!r}; there are: {names}")
    (record,) = found
    covering = [later for later in records if not isinstance(later, Masked)]
    if not isinstance(record, Masked) and (over := [r for r in covering if stand_in(record).id in r.covered]):
        raise BadInput(f"compaction {over[0].id} covers what {record.id} left: restore {over[0].id} first")
    return Restored(id=record_id, record_id=record.id)


def place_of(record: Record, transcript: Transcript) -> int:
    """How many messages had been said when it was recorded."""
    return len(transcript.messages) if record.after is None else record.after


def _until(trail: Sequence[Record], transcript: Transcript, target: int, left: Sequence[Message]) -> list[Record]:
    """What was recorded before the target message was said. Pins and unpins stay as long as their message does."""
    there = {message.id for message in left}
    pins = {record.id for record in trail if isinstance(record, Pinned) and record.message_id in there}
    return [
        record
        for record in trail
        if (record.id in pins if isinstance(record, Pinned) else place_of(record, transcript) <= target)
        or (isinstance(record, Restored) and record.record_id in pins)
    ]


def known(message_id: str, now: Transcript) -> None:
    """Raises BadInput for a message that the conversation does not have (any more)."""
    if not any(message.id == message_id for message in now.messages):
        ends = f"{now.messages[0].id} to {now.messages[-1].id}" if now.messages else "none"
        raise BadInput(f"there is no message {message_id!r} in this conversation; there are: {ends}")
