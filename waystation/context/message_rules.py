"""Checks messages against the rules of the Messages API; independent of the code that makes views legal.

Reasoning need not come first in a message (adaptive reasoning may follow text), but it may not come last.
"""

from collections.abc import Iterator, Sequence

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
)

ALLOWED_BLOCKS: dict[MessageRole, tuple[type[Block], ...]] = {
    "user": (Text, ToolResult),
    "assistant": (Text, Thinking, RedactedThinking, ToolUse),
}


def find_violations(messages: Sequence[Message], *, pending_allowed: bool = False) -> tuple[str, ...]:
    """Return every rule that the messages break, with the message's ID; empty for a legal request.

    `pending_allowed`: calls of the last assistant message may lack results if nothing else follows it.
    """
    found: list[str] = []
    if messages and messages[0].role != "user":
        found.append(f"{messages[0].id}: the first message is not the user's")
    found += _repeated(messages)
    for message in messages:
        found += (f"{message.id}: {fault}" for fault in _block_faults(message))
    for index, message in enumerate(messages):
        found += (f"{message.id}: {fault}" for fault in _pairing_faults(messages, index, pending_allowed))
    return tuple(found)


def _repeated(messages: Sequence[Message]) -> Iterator[str]:
    ids = [message.id for message in messages]
    calls = [call.id for message in messages for call in message.tool_uses]
    for name, values in (("message", ids), ("call", calls)):
        if len(set(values)) < len(values):
            yield f"a {name} id occurs twice"


def _block_faults(message: Message) -> Iterator[str]:
    if not message.blocks:
        yield "no blocks"
        return
    for block in message.blocks:
        if isinstance(block, OpaqueBlock):
            if block.is_user_block != (message.role == "user"):
                yield f"a block of type {block.kind} is not allowed in a message of the {message.role}"
        elif not isinstance(block, ALLOWED_BLOCKS[message.role]):
            yield f"a block of type {block.type} is not allowed in a message of the {message.role}"
        if isinstance(block, Text) and not block.text.strip():
            yield "blank text"
    if isinstance(message.blocks[-1], Thinking | RedactedThinking):
        yield "reasoning is the last block"


def _pairing_faults(messages: Sequence[Message], index: int, pending_allowed: bool) -> Iterator[str]:
    message = messages[index]
    before = messages[index - 1] if index else None
    asked = {call.id for call in before.tool_uses} if before else set[str]()
    given = [result.tool_use_id for result in message.tool_results]
    if not set(given) <= asked:
        yield "a result of a call that is not in the previous message"
    if len(set(given)) < len(given):
        yield "two results of one call"
    if any(not isinstance(block, ToolResult) for block in message.blocks[: len(given)]):
        yield "results do not come first"
    if not asked <= set(given) and not (pending_allowed and index == len(messages) - 1 and _only_results(message)):
        yield "calls of the previous message lack results"
    if message.tool_uses and index == len(messages) - 1 and not pending_allowed:
        yield "the last calls have no results"


def _only_results(message: Message) -> bool:
    return message.role == "user" and all(isinstance(block, ToolResult) for block in message.blocks)
