"""Makes any sequence of messages one that the Messages API accepts, changing as little as it can.

The result depends on nothing but the messages, and repairing twice changes nothing: the prompt cache lives on that.
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
    """The messages, legal.

    A call that the conversation went past without a result gets a synthetic one; calls at the very end may be pending.
    Results stand right after their calls, in the order of the calls; the first of two wins; orphans go, and the text
    beside them stays. Blank text, repeated calls, and reasoning that nothing follows go, and so does a message of
    which nothing is left.
    """
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
    """A legal sequence of messages, cut between units."""
    units: list[list[Message]] = []
    for message in messages:
        if message.outline.results and units:
            units[-1].append(message)
        else:
            units.append([message])
    return tuple(tuple(unit) for unit in units)


def _is_in_order(messages: Sequence[Message]) -> bool:
    """Whether these are texts, and calls with all their results right after them: legal, and what agents write.

    Of other legal messages the repair finds out that nothing is to be changed, which takes three times as long.
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
    """Every message with the blocks that may stand in it."""
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
    """`seen` are the ids of all calls so far; a call adds its own."""
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
    """An assistant message and the user messages after it: its results first, all of them in the first message.

    `head` may also be the user message that opens the conversation; then no result has its place here.
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
    """The message itself where nothing changes: most messages are legal as they are."""
    if len(blocks) == len(message.blocks) and all(a is b for a, b in zip(blocks, message.blocks, strict=True)):
        return message
    return message.replace(blocks=tuple(blocks))
