"""The whole log for people: each message with what hides it, each compaction with what it stands for, undone or not."""

from collections.abc import Mapping
from typing import Literal

from waystation.domain.compaction.behind import behind
from waystation.domain.compaction.history import current, pinned_ids, stand_in
from waystation.domain.compaction.view import kept_whole, masked_calls
from waystation.domain.messages import Message
from waystation.domain.transcript import Compaction, Masked, Restored, Summarised, Transcript
from waystation.domain.value import Value


class ShownMessage(Message):
    """A message of the log, and what became of it."""

    hidden_by: str | None
    """Id of the compaction that covers it; that one's own summary may be hidden again. None where a pin keeps it."""
    masked_by: dict[str, str]
    """By the call of each masked result, the id of the compaction that masks it."""
    pinned: bool
    rewound: bool
    """It counts no more."""


class ShownCompaction(Value):
    """A compaction of the log, and what became of it."""

    id: str
    type: Literal["summarised", "masked", "truncated"]
    strategy: str | None
    covered: tuple[str, ...]
    """Ids of what it covers itself: messages, and summaries and markers of earlier compactions."""
    originals: tuple[str, ...]
    """Ids of the messages of the log that are behind those, in order. The first is its place."""
    added: tuple[str, ...]
    removed: tuple[str, ...]
    stand_in: str | None
    """Id of the summary or marker in the view."""
    text: str
    """That of the summary or marker; empty for a mask."""
    hidden_by: str | None
    """Id of the later compaction that covers this one's summary or marker."""
    undone: Literal["restored", "rewound"] | None


class ShownTranscript(Value):
    """Everything in the order of the log."""

    run_id: str
    version: int
    messages: tuple[ShownMessage, ...]
    compactions: tuple[ShownCompaction, ...]


def shown(transcript: Transcript) -> ShownTranscript:
    """The log with what hides, masks and pins each message now."""
    now = current(transcript)
    hiding, pins = _hiding(now), pinned_ids(now)
    masked, masking = masked_calls(now), [record for record in now.compactions if isinstance(record, Masked)]
    masks = {call: record.id for record in masking for call in record.tool_use_ids if call in masked}
    there = {message.id for message in now.messages}
    return ShownTranscript(
        run_id=transcript.run_id,
        version=transcript.version,
        messages=tuple(
            ShownMessage(
                id=message.id,
                role=message.role,
                blocks=message.blocks,
                told=message.told,
                updates=message.updates,
                hidden_by=hiding.get(message.id),
                masked_by={call: masks[call] for call in _answered(message) if call in masks},
                pinned=message.id in pins,
                rewound=message.id not in there,
            )
            for message in transcript.messages
        ),
        compactions=tuple(_compaction(record, transcript, now, hiding) for record in transcript.compactions),
    )


def _hiding(now: Transcript) -> dict[str, str]:
    """By the id of what is hidden, the compaction that covers it: the first one, as in the view."""
    whole = kept_whole(now)
    covering = [record for record in now.compactions if not isinstance(record, Masked)]
    return {covered: record.id for record in reversed(covering) for covered in record.covered if covered not in whole}


def _compaction(
    record: Compaction, transcript: Transcript, now: Transcript, hiding: Mapping[str, str]
) -> ShownCompaction:
    covered, replacement = _covered(record, transcript), None if isinstance(record, Masked) else stand_in(record)
    hidden = behind(covered, transcript.compactions)
    summarised = record if isinstance(record, Summarised) else None
    undone = _undone(record, transcript, now)
    return ShownCompaction(
        id=record.id,
        type=record.type,
        strategy=summarised.strategy if summarised else None,
        covered=covered,
        originals=tuple(message.id for message in transcript.messages if message.id in hidden),
        added=summarised.added if summarised else (),
        removed=summarised.removed if summarised else (),
        stand_in=replacement.id if replacement else None,
        text=replacement.text if replacement else "",
        hidden_by=hiding.get(replacement.id) if replacement and not undone else None,
        undone=undone,
    )


def _covered(record: Compaction, transcript: Transcript) -> tuple[str, ...]:
    if not isinstance(record, Masked):
        return record.covered
    calls = frozenset(record.tool_use_ids)
    return tuple(message.id for message in transcript.messages if not calls.isdisjoint(_answered(message)))


def _undone(record: Compaction, transcript: Transcript, now: Transcript) -> Literal["restored", "rewound"] | None:
    if any(record.id == counting.id for counting in now.records):
        return None
    restored = any(isinstance(later, Restored) and later.record_id == record.id for later in transcript.records)
    return "restored" if restored else "rewound"


def _answered(message: Message) -> tuple[str, ...]:
    return tuple(result.tool_use_id for result in message.tool_results)
