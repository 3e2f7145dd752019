"""Which messages and records of a transcript count, and the view of it that a model is sent.

Pure functions of the log: an undone compaction leaves no marker, no summary and no half of a tool call.
"""

from collections.abc import Iterable, Sequence

from waystation.context.repair import repair_messages, split_into_units
from waystation.context.tokens import estimate_text
from waystation.context.transcript import (
    Block,
    Compaction,
    MaskRecord,
    Message,
    PinRecord,
    PromptPrefixRecord,
    Record,
    RedactedThinking,
    RestoreRecord,
    RewindRecord,
    SummaryFailureRecord,
    SummaryPartRecord,
    SummaryRecord,
    Thinking,
    ToolResult,
    Transcript,
    TruncationRecord,
)
from waystation.kernel.errors import BadInput


def get_effective_transcript(transcript: Transcript) -> Transcript:
    """Return the transcript without what was rewound or restored: the messages, compactions and pins that count.

    This is the transcript itself if nothing was undone. Its length does not give turns or IDs: the log counts those.
    """
    if not any(isinstance(record, RewindRecord | RestoreRecord) for record in transcript.records):
        return transcript
    places = {message.id: place for place, message in enumerate(transcript.messages)}
    messages: list[Message] = []
    trail: list[Record] = []
    taken = 0
    for record in transcript.records:
        messages += transcript.messages[taken : count_messages_before(record, transcript)]
        taken = max(taken, count_messages_before(record, transcript))
        if not isinstance(record, RewindRecord):
            trail.append(record)
        elif (target := places.get(record.message_id)) is not None:
            messages = [message for message in messages if places[message.id] < target + record.keeps_message]
            trail = _until(trail, transcript, target, messages)
    messages += transcript.messages[taken:]
    undone = {record.record_id for record in trail if isinstance(record, RestoreRecord)}
    kept = tuple(record for record in trail if not isinstance(record, RestoreRecord) and record.id not in undone)
    return transcript.replace(messages=tuple(messages), records=kept)


def get_replacement(record: SummaryRecord | TruncationRecord) -> Message:
    """Return what the view shows instead of the covered messages."""
    return record.summary if isinstance(record, SummaryRecord) else record.marker


def get_pinned_message_ids(transcript: Transcript) -> frozenset[str]:
    """Return the IDs of pinned messages, which no compaction covers."""
    return frozenset(
        record.message_id for record in get_effective_transcript(transcript).records if isinstance(record, PinRecord)
    )


def build_rewind_record(transcript: Transcript, message_id: str, record_id: str, *, keep: bool) -> RewindRecord:
    """Build the record that rewinds the conversation to a message, which stays if `keep`. Raises BadInput."""
    validate_message_id(message_id, get_effective_transcript(transcript))
    return RewindRecord(id=record_id, message_id=message_id, keeps_message=keep)


def build_restore_record(transcript: Transcript, compaction: str, record_id: str) -> RestoreRecord:
    """Build the record that undoes a compaction, named by its ID or the beginning of it. Raises BadInput."""
    records = [record for record in get_effective_transcript(transcript).records if isinstance(record, Compaction)]
    found = [record for record in records if record.id.startswith(compaction)] if compaction else []
    if len(found) != 1:
        names = ", ".join(record.id for record in records) or "none"
        many = "more than one compaction has" if found else "no compaction has"
        raise BadInput(f"{many} an id that begins with {compaction!r}. Ids of this agent's compactions: {names}")
    (record,) = found
    covering = [later for later in records if not isinstance(later, MaskRecord)]
    if not isinstance(record, MaskRecord) and (
        over := [r for r in covering if get_replacement(record).id in r.covered]
    ):
        raise BadInput(f"compaction {over[0].id} covers what compaction {record.id} produced: undo {over[0].id} first")
    return RestoreRecord(id=record_id, record_id=record.id)


def count_messages_before(record: Record, transcript: Transcript) -> int:
    """Return the number of messages when the record was committed."""
    return len(transcript.messages) if record.after is None else record.after


def _until(trail: Sequence[Record], transcript: Transcript, target: int, left: Sequence[Message]) -> list[Record]:
    """Return what was recorded before the target message. Pins and unpins stay while their message does."""
    there = {message.id for message in left}
    pins = {record.id for record in trail if isinstance(record, PinRecord) and record.message_id in there}
    return [
        record
        for record in trail
        if (record.id in pins if isinstance(record, PinRecord) else count_messages_before(record, transcript) <= target)
        or (isinstance(record, RestoreRecord) and record.record_id in pins)
    ]


def validate_message_id(message_id: str, now: Transcript) -> None:
    """Raise BadInput for a message that the conversation does not have, or no longer has."""
    if not any(message.id == message_id for message in now.messages):
        ends = f"{now.messages[0].id} to {now.messages[-1].id}" if now.messages else "none"
        raise BadInput(f"there is no message {message_id!r} in this conversation; its messages are: {ends}")


def with_record(transcript: Transcript, record: Record) -> Transcript:
    """Return the transcript with the record appended: one version later, with all messages."""
    placed = record.replace(after=len(transcript.messages))
    return transcript.replace(records=(*transcript.records, placed), version=transcript.version + 1)


def expand_covered_ids(covered: Iterable[str], compactions: Iterable[Compaction]) -> frozenset[str]:
    """Expand covered IDs to everything behind them; IDs of summaries and markers stay included."""
    inside = {
        get_replacement(record).id: record.covered for record in compactions if not isinstance(record, MaskRecord)
    }
    found: set[str] = set()
    waiting = list(covered)
    while waiting:
        message_id = waiting.pop()
        if message_id not in found:
            found.add(message_id)
            waiting += inside.get(message_id, ())
    return frozenset(found)


def build_model_view(transcript: Transcript) -> tuple[Message, ...]:
    """Build the messages that the model is sent, legal for the Messages API; calls at the very end may be pending."""
    # Repaired before the records apply, so that they cover whole units and nothing that was dropped reappears when its
    # duplicate is covered; and afterwards, because a view must be legal whatever a stored record says.
    now = get_effective_transcript(transcript)
    shown = repair_messages(now.messages)
    if not now.compactions:
        return shown
    covering = [record for record in now.compactions if not isinstance(record, MaskRecord)]
    return repair_messages(
        _replaced(_masked(shown, get_masked_call_ids(now)), covering, get_pinned_unit_message_ids(now))
    )


def find_prompt_prefix(transcript: Transcript) -> PromptPrefixRecord | None:
    """Return the system prompt and tools that the next request begins with.

    None if new ones must be recorded: nothing was sent yet, or the view has changed since (by a compaction or an edit).
    """
    records = transcript.records
    place = next(
        (place for place in reversed(range(len(records))) if isinstance(records[place], PromptPrefixRecord)), None
    )
    if place is None or not isinstance(found := records[place], PromptPrefixRecord):
        return None
    if all(isinstance(later, SummaryPartRecord | SummaryFailureRecord) for later in records[place + 1 :]):
        return found
    before = transcript.replace(records=records[: place + 1])
    return found if build_model_view(before) == build_model_view(transcript) else None


def build_view_without_outdated_thinking(transcript: Transcript) -> tuple[Message, ...]:
    """Build the view for a model that signs its thinking over everything before it.

    Thinking from before the newest `PromptPrefixRecord` is omitted: the model would drop it anyway.
    """
    prefixes = [record for record in transcript.records if isinstance(record, PromptPrefixRecord)]
    shown = build_model_view(transcript)
    if not prefixes:
        return shown
    outdated = {message.id for message in transcript.messages[: count_messages_before(prefixes[-1], transcript)]}
    return tuple(_without_thinking(message) if message.id in outdated else message for message in shown)


def _without_thinking(message: Message) -> Message:
    left = tuple(block for block in message.blocks if not isinstance(block, Thinking | RedactedThinking))
    return message if len(left) == len(message.blocks) else message.replace(blocks=left)


def get_pinned_unit_message_ids(transcript: Transcript) -> frozenset[str]:
    """Return the IDs of the pinned messages and of those that stay with them: a call with its results.

    They are shown as they were said, even if a compaction covered them before they were pinned.
    """
    now = get_effective_transcript(transcript)
    if not (pins := get_pinned_message_ids(now)):
        return frozenset()
    units = (frozenset(message.id for message in unit) for unit in split_into_units(repair_messages(now.messages)))
    return frozenset(message_id for unit in units if unit & pins for message_id in unit)


def get_masked_call_ids(transcript: Transcript) -> frozenset[str]:
    """Return the IDs of the calls whose results are shown as placeholders."""
    now = get_effective_transcript(transcript)
    masked = frozenset(call for record in now.records if isinstance(record, MaskRecord) for call in record.tool_use_ids)
    if not masked or not (whole := get_pinned_unit_message_ids(now)):
        return masked
    return masked - {call.id for message in now.messages if message.id in whole for call in message.tool_uses}


def render_masked_result(tool: str, content: str) -> str:
    """Render the placeholder of a masked result."""
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
    shown = render_masked_result(names[block.tool_use_id], block.content)
    if estimate_text(shown) >= estimate_text(block.content) and not block.attachments:
        return block
    return block.replace(content=shown, attachments=())


def _replaced(
    messages: Sequence[Message], records: Iterable[SummaryRecord | TruncationRecord], whole: frozenset[str]
) -> tuple[Message, ...]:
    """Apply each record in turn: its replacement takes the place of the first message that it covers.

    `whole`: IDs of messages that stay although a record covers them.
    """
    # By index, so that a log with many compactions takes no longer.
    shown: list[Message | None] = [*messages]
    places: dict[str, list[int]] = {}
    for place, message in enumerate(messages):
        if message.id not in whole:
            places.setdefault(message.id, []).append(place)
    for record in records:
        covered = [place for message_id in record.covered for place in places.pop(message_id, ())]
        if covered:
            replacement, first = get_replacement(record), min(covered)
            for place in covered:
                shown[place] = None
            shown[first] = replacement
            places.setdefault(replacement.id, []).append(first)
    return tuple([message for message in shown if message is not None])
