"""The view: what the model is sent. A pure function of a transcript's messages and the records that lie over them."""

from collections.abc import Iterable, Sequence

from waystation.domain.compaction.history import current, pinned_ids, stand_in
from waystation.domain.compaction.repair import legal, units_of
from waystation.domain.compaction.tokens import estimate_text
from waystation.domain.messages import Block, Message, ToolResult
from waystation.domain.transcript import Masked, Summarised, Transcript, Truncated


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


def placeholder(tool: str, content: str) -> str:
    """What is shown instead of a result of this tool."""
    return f"[Old result of {tool}, {len(content):,} characters, not shown. Repeat the call to read it again.]"


def _masked(messages: tuple[Message, ...], calls: frozenset[str]) -> tuple[Message, ...]:
    if not calls:
        return messages
    names = {call.id: call.name for message in messages for call in message.tool_uses}
    return tuple(
        message.model_copy(update={"blocks": tuple(_masked_block(block, calls, names) for block in message.blocks)})
        if any(result.tool_use_id in calls for result in message.tool_results)
        else message
        for message in messages
    )


def _masked_block(block: Block, calls: frozenset[str], names: dict[str, str]) -> Block:
    if not isinstance(block, ToolResult) or block.tool_use_id not in calls:
        return block
    shown = placeholder(names[block.tool_use_id], block.content)
    if estimate_text(shown) >= estimate_text(block.content) and not block.attached:
        return block
    return block.model_copy(update={"content": shown, "attached": ()})


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
