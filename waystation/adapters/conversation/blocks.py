"""One block of a request body: from its JSON into the domain, and back."""

from pydantic import JsonValue, ValidationError

from waystation.adapters.conversation.attachments import block_tokens
from waystation.adapters.conversation.node import Node
from waystation.domain.messages import Block, Opaque, RedactedThinking, Text, Thinking, ToolResult, ToolUse

JsonObject = dict[str, JsonValue]


def read_block(node: Node) -> Block:
    """The block. Raises BadInput, naming the place, where a field is missing or of another type."""
    match node.at("type").name:
        case "text":
            return Text(text=node.at("text").text)
        case "thinking":
            return Thinking(thinking=node.at("thinking").text, signature=node.at("signature").text)
        case "redacted_thinking":
            return RedactedThinking(data=node.at("data").text)
        case "tool_use":
            with_input = node.at("input")
            try:
                return ToolUse(id=node.at("id").name, name=node.at("name").name, input=with_input.object)
            except ValidationError:
                raise with_input.fault("is nested too deeply") from None
        case "tool_result":
            return _read_result(node)
        case _:
            return read_opaque(node)


def read_opaque(node: Node) -> Opaque:
    """A block that nothing looks into."""
    kind = node.at("type").name
    try:
        return Opaque(kind=kind, tokens=block_tokens(node), body=node.object)
    except ValidationError:
        raise node.fault("is nested too deeply") from None


def _read_result(node: Node) -> ToolResult:
    call, content, is_error = node.at("tool_use_id").name, node.find("content"), node.flag("is_error")
    said = content.text_or_items if content else ""
    if isinstance(said, str):
        return ToolResult(tool_use_id=call, content=said, is_error=is_error)
    parts = [(part, part.at("type").name) for part in said]
    return ToolResult(
        tool_use_id=call,
        content="\n".join(part.at("text").text for part, kind in parts if kind == "text"),
        is_error=is_error,
        attached=tuple(read_opaque(part) for part, kind in parts if kind != "text"),
    )


def block_json(block: Block) -> JsonObject:
    """The block as the Messages API takes it."""
    match block:
        case Text():
            return {"type": "text", "text": block.text}
        case Thinking():
            return {"type": "thinking", "thinking": block.thinking, "signature": block.signature}
        case RedactedThinking():
            return {"type": "redacted_thinking", "data": block.data}
        case ToolUse():
            return {"type": "tool_use", "id": block.id, "name": block.name, "input": block.input}
        case ToolResult():
            return {"type": "tool_result", "tool_use_id": block.tool_use_id, **result_json(block)}
        case Opaque():
            return block.body


def result_json(result: ToolResult) -> JsonObject:
    """What a result says, without the call that it answers."""
    parts: list[JsonValue] = [{"type": "text", "text": result.content}] if result.content else []
    content: JsonValue = [*parts, *(part.body for part in result.attached)] if result.attached else result.content
    return {"content": content, "is_error": True} if result.is_error else {"content": content}
