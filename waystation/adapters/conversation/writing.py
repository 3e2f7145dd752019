"""A view as messages of a request body: what the engine left alone is written back as the file has it."""

from collections.abc import Iterable

from waystation.adapters.conversation.blocks import JsonObject, block_json, result_json
from waystation.adapters.conversation.request_body import Original, RequestBody
from waystation.domain.messages import Block, Message, ToolResult
from waystation.domain.transcript import Masked


def written_messages(body: RequestBody, view: Iterable[Message]) -> list[JsonObject]:
    """The view's messages. What is in the file is equal to it, with all its fields."""
    known = _Known(body)
    return [known.message_json(message) for message in view]


class _Known:
    """What the file has, by what the engine may have kept of it."""

    def __init__(self, body: RequestBody) -> None:
        self._messages: dict[str, Original] = {original.message.id: original for original in body.originals}
        for record in body.transcript.compactions:
            if not isinstance(record, Masked):
                (covered,) = record.covered
                shown = record.summary if record.type == "summarised" else record.marker
                self._messages[shown.id] = self._messages[covered]
        pairs = [pair for original in body.originals for pair in _pairs(original)]
        # Blocks are compared by identity: two that are equal may differ in what the domain does not know.
        self._blocks = {id(block): (block, written) for block, written in pairs}
        self._results: dict[str, JsonObject] = {}
        for block, written in pairs:
            if isinstance(block, ToolResult):
                self._results.setdefault(block.tool_use_id, written)

    def message_json(self, message: Message) -> JsonObject:
        original = self._messages.get(message.id)
        if original is not None and original.message.blocks == message.blocks:
            return original.body
        content = [self._block_json(block) for block in message.blocks]
        return {**(original.body if original else {}), "role": message.role, "content": [*content]}

    def _block_json(self, block: Block) -> JsonObject:
        _, written = self._blocks.get(id(block), (block, None))
        if written is not None:
            return written
        if isinstance(block, ToolResult) and block.tool_use_id in self._results:
            return {**self._results[block.tool_use_id], **result_json(block)}
        return block_json(block)


def _pairs(original: Original) -> list[tuple[Block, JsonObject]]:
    return list(zip(original.message.blocks, original.block_bodies, strict=True))
