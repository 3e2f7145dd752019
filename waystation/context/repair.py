"""Makes any sequence of messages legal for the Messages API, with as few changes as possible.

The result depends on the messages alone and repairing twice changes nothing, so that the prompt cache holds.
"""

from collections.abc import Sequence

from waystation.context.transcript import (
    Block,
    Message,
    MessageRole,
    OpaqueBlock,
    RedactedThinking,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    build_user_message,
)

NO_RESULT = "No result of this call was recorded. Whether it had an effect is unknown: check before repeating it."
_OPENING = build_user_message("opening", "(The beginning of this conversation is not in the record.)")


def repair_messages(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Repair messages.

    A call without a result gets a synthetic one, unless it is at the very end, where calls may be pending. Results are
    moved right after their calls, in the order of the calls; of two results the first wins; orphans are removed, and
    text next to them stays. Blank text, repeated calls, trailing reasoning, and messages that become empty are removed,
    and so are refused replies.
    """
    if any(message.refusal for message in messages):
        messages = [message for message in messages if not message.refusal]
    if _is_in_order(messages):
        return tuple(messages)
    sound = _sound(messages)
    repaired: list[Message] = []
    start = 0
    while start < len(sound):
        end = start + 1
        while end < len(sound) and sound[end].role == "user":
            end += 1
        repaired += _paired(sound[start], sound[start + 1 : end], at_end=end == len(sound))
        start = end
    if repaired and repaired[0].role == "assistant":
        repaired.insert(0, _OPENING)
    return tuple(repaired)


def split_into_units(messages: Sequence[Message]) -> tuple[tuple[Message, ...], ...]:
    """Split a legal sequence of messages into units."""
    units: list[list[Message]] = []
    for message in messages:
        if message.outline.results and units:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(tuple(unit) for unit in units)


def _is_in_order(messages: Sequence[Message]) -> bool:
    """Return whether the messages are texts, and calls with all their results right after them, as agents write them.

    A fast path: other legal messages go through the repair, which takes three times as long to change nothing.
    """
    asked: tuple[str, ...] = ()
    seen: set[str] = set()
    for message in messages:
        results, calls, ordinary = message.outline
        if not ordinary or results != asked or not seen.isdisjoint(calls):
            return False
        seen.update(calls)
        asked = calls
    return not messages or messages[0].role == "user"


def _sound(messages: Sequence[Message]) -> list[Message]:
    """Return every message with its allowed blocks."""
    seen: set[str] = set()
    sound: list[Message] = []
    for message in messages:
        blocks = [block for block in message.blocks if _may_stand(block, message.role, seen)]
        while blocks and isinstance(blocks[-1], Thinking | RedactedThinking):
            blocks.pop()
        if blocks and len(blocks) == len(message.blocks):
            sound.append(message)
        elif blocks:
            sound.append(message.replace(blocks=tuple(blocks)))
    return sound


def _may_stand(block: Block, role: MessageRole, seen: set[str]) -> bool:
    """Return whether a block is allowed. `seen`: IDs of all calls so far; a call adds its own."""
    match block:
        case Text():
            return bool(block.text) and not block.text.isspace()
        case ToolUse():
            first = block.id not in seen
            seen.add(block.id)
            return role == "assistant" and first
        case Thinking() | RedactedThinking():
            return role == "assistant"
        case ToolResult():
            return role == "user"
        case OpaqueBlock():
            return block.is_user_block == (role == "user")


def _paired(head: Message, followers: Sequence[Message], *, at_end: bool) -> list[Message]:
    """Return an assistant message and the user messages after it, with all its results first in the first of them.

    `head` may also be the user message that opens the conversation; then no result belongs here.
    """
    results: dict[str, ToolResult] = {}
    for follower in followers:
        for result in follower.tool_results:
            results.setdefault(result.tool_use_id, result)
    calls = head.tool_uses
    pending = at_end and all(len(follower.tool_results) == len(follower.blocks) for follower in followers)
    answers = [
        results.get(call.id) or ToolResult(tool_use_id=call.id, content=NO_RESULT, is_error=True)
        for call in calls
        if call.id in results or not pending
    ]
    paired = [_with_blocks(head, _without_results(head))]
    rest = list(followers)
    if answers:
        called = {call.id for call in calls}
        carries = bool(rest) and any(result.tool_use_id in called for result in rest[0].tool_results)
        host = rest.pop(0) if carries else Message(id=f"{head.id}.results", role="user", blocks=())
        paired.append(_with_blocks(host, [*answers, *_without_results(host)]))
    paired += [_with_blocks(follower, _without_results(follower)) for follower in rest]
    return [message for message in paired if message.blocks]


def _without_results(message: Message) -> list[Block]:
    return [block for block in message.blocks if not isinstance(block, ToolResult)]


def _with_blocks(message: Message, blocks: Sequence[Block]) -> Message:
    """Return the message itself if nothing changes: most messages are legal as they are."""
    if len(blocks) == len(message.blocks) and all(a is b for a, b in zip(blocks, message.blocks, strict=True)):
        return message
    return message.replace(blocks=tuple(blocks))
