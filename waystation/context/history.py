"""What counts of a transcript, and the view of it that a model is sent.

What of a transcript counts now, and the records by which people rewind and restore.

All of it is a pure function of the log: an undone compaction leaves no marker, no summary and no half of a tool call.

Adding a record to a transcript.

What a compaction hides in truth: what it covers, and what the summaries and markers among that stood for.

The view: what the model is sent. A pure function of a transcript's messages and the records that lie over them.
"""

from collections.abc import Iterable, Sequence

from waystation.context.repair import legal, units_of
from waystation.context.tokens import estimate_text
from waystation.context.transcript import (
    Block,
    Compaction,
    Masked,
    Message,
    Pinned,
    PromptPrefix,
    Record,
    RedactedThinking,
    Restored,
    Rewound,
    Summarised,
    SummaryFailed,
    SummaryPart,
    Thinking,
    ToolResult,
    Transcript,
    Truncated,
)
from waystation.kernel.errors import BadInput


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
        messages += transcript.messages[taken : recorded_at(record, transcript)]
        taken = max(taken, recorded_at(record, transcript))
        if not isinstance(record, Rewound):
            trail.append(record)
        elif (target := places.get(record.message_id)) is not None:
            messages = [message for message in messages if places[message.id] < target + record.kept]
            trail = _until(trail, transcript, target, messages)
    messages += transcript.messages[taken:]
    undone = {record.record_id for record in trail if isinstance(record, Restored)}
    kept = tuple(record for record in trail if not isinstance(record, Restored) and record.id not in undone)
    return transcript.replace(messages=tuple(messages), records=kept)


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


def recorded_at(record: Record, transcript: Transcript) -> int:
    """How many messages had been said when it was recorded."""
    return len(transcript.messages) if record.after is None else record.after


def _until(trail: Sequence[Record], transcript: Transcript, target: int, left: Sequence[Message]) -> list[Record]:
    """What was recorded before the target message was said. Pins and unpins stay as long as their message does."""
    there = {message.id for message in left}
    pins = {record.id for record in trail if isinstance(record, Pinned) and record.message_id in there}
    return [
        record
        for record in trail
        if (record.id in pins if isinstance(record, Pinned) else recorded_at(record, transcript) <= target)
        or (isinstance(record, Restored) and record.record_id in pins)
    ]


def known(message_id: str, now: Transcript) -> None:
    """Raises BadInput for a message that the conversation does not have (any more)."""
    if not any(message.id == message_id for message in now.messages):
        ends = f"{now.messages[0].id} to {now.messages[-1].id}" if now.messages else "none"
        raise BadInput(f"there is no message {message_id!r} in this conversation; there are: {ends}")


def with_record(transcript: Transcript, record: Record) -> Transcript:
    """The transcript with the record over it: one commit more, no message less."""
    placed = record.replace(after=len(transcript.messages))
    return transcript.replace(records=(*transcript.records, placed), version=transcript.version + 1)


def behind(covered: Iterable[str], compactions: Iterable[Compaction]) -> frozenset[str]:
    """The covered ids with everything that is behind them; those of summaries and markers stay among them."""
    inside = {stand_in(record).id: record.covered for record in compactions if not isinstance(record, Masked)}
    found: set[str] = set()
    waiting = list(covered)
    while waiting:
        message_id = waiting.pop()
        if message_id not in found:
            found.add(message_id)
            waiting += inside.get(message_id, ())
    return frozenset(found)


def view(transcript: Transcript) -> tuple[Message, ...]:
    """The messages as the model sees them, legal for the Messages API; calls at the very end may be pending."""
    # Repaired before the records apply, so that what they cover are whole units and nothing that had to go comes
    # back when its rival is covered; and after, because a view is legal whatever a stored record says.
    now = current(transcript)
    shown = legal(now.messages)
    if not now.compactions:
        return shown
    covering = [record for record in now.compactions if not isinstance(record, Masked)]
    return legal(_replaced(_masked(shown, masked_calls(now)), covering, kept_whole(now)))


def prompt_prefix(transcript: Transcript) -> PromptPrefix | None:
    """The system prompt and tools that the next request begins with.

    None where new ones are to be recorded: nothing was sent yet, or what was sent is not what the model would see now
    (after a compaction, or a change that somebody made).
    """
    records = transcript.records
    place = next((place for place in reversed(range(len(records))) if isinstance(records[place], PromptPrefix)), None)
    if place is None or not isinstance(found := records[place], PromptPrefix):
        return None
    if all(isinstance(later, SummaryPart | SummaryFailed) for later in records[place + 1 :]):
        return found
    before = transcript.replace(records=records[: place + 1])
    return found if view(before) == view(transcript) else None


def sent_view(transcript: Transcript) -> tuple[Message, ...]:
    """The view for a model that signs its thinking over everything before it: without thinking from before the newest
    `PromptPrefix`, which it would leave out itself.
    """
    prefixes = [record for record in transcript.records if isinstance(record, PromptPrefix)]
    shown = view(transcript)
    if not prefixes:
        return shown
    outdated = {message.id for message in transcript.messages[: recorded_at(prefixes[-1], transcript)]}
    return tuple(_without_thinking(message) if message.id in outdated else message for message in shown)


def _without_thinking(message: Message) -> Message:
    left = tuple(block for block in message.blocks if not isinstance(block, Thinking | RedactedThinking))
    return message if len(left) == len(message.blocks) else message.replace(blocks=left)


def kept_whole(transcript: Transcript) -> frozenset[str]:
    """Ids of the pinned messages and of those that stay with them, a call with its results.

    They are shown as they were said, also where a compaction covered them before they were pinned.
    """
    now = current(transcript)
    if not (pins := pinned_ids(now)):
        return frozenset()
    units = (frozenset(message.id for message in unit) for unit in units_of(legal(now.messages)))
    return frozenset(message_id for unit in units if unit & pins for message_id in unit)


def masked_calls(transcript: Transcript) -> frozenset[str]:
    """Ids of the calls whose results are shown as placeholders."""
    now = current(transcript)
    masked = frozenset(call for record in now.records if isinstance(record, Masked) for call in record.tool_use_ids)
    if not masked or not (whole := kept_whole(now)):
        return masked
    return masked - {call.id for message in now.messages if message.id in whole for call in message.tool_uses}


def masked_result(tool: str, content: str) -> str:
    """What is shown instead of a result of this tool."""
    return f"[Old result of {tool}, {len(content):,} characters, not shown. Repeat the call to read it again.]"


def _masked(messages: tuple[Message, ...], calls: frozenset[str]) -> tuple[Message, ...]:
    if not calls:
        return messages
    names = {call.id: call.name for message in messages for call in message.tool_uses}
    return tuple(
        message.replace(blocks=tuple(_masked_block(block, calls, names) for block in message.blocks))
        if any(result.tool_use_id in calls for result in message.tool_results)
        else message
        for message in messages
    )


def _masked_block(block: Block, calls: frozenset[str], names: dict[str, str]) -> Block:
    if not isinstance(block, ToolResult) or block.tool_use_id not in calls:
        return block
    shown = masked_result(names[block.tool_use_id], block.content)
    if estimate_text(shown) >= estimate_text(block.content) and not block.attached:
        return block
    return block.replace(content=shown, attached=())


def _replaced(
    messages: Sequence[Message], records: Iterable[Summarised | Truncated], whole: frozenset[str]
) -> tuple[Message, ...]:
    """For each record in turn its stand-in at the place of the first message that it covers, and none of those.

    `whole`: ids of messages that stay although a record covers them.
    """
    # By places, so that a log takes no longer for having been compacted often.
    shown: list[Message | None] = [*messages]
    places: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        if message.id not in whole:
            places.setdefault(message.id, []).append(place)
    for record in records:
        covered = [place for message_id in record.covered for place in places.pop(message_id, ())]
        if covered:
            replacement, first = stand_in(record), min(covered)
            for place in covered:
                shown[place] = None
            shown[first] = replacement
            places.setdefault(replacement.id, []).append(first)
    return tuple([message for message in shown if message is not None])
