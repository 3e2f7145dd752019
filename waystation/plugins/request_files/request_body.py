"""Converts a request body of the Messages API into a transcript and back: messages by their places, earlier summaries
as records; what the engine left alone is written back unchanged.

Blocks other than text are estimated: images by pixels, documents by pages or bytes, the rest by their JSON. The size of
an image is read from its first bytes, for the four formats that the Messages API accepts; not by a library: those read
many more formats, some with parsers that a hostile file could exploit.
"""

import binascii
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256

from pydantic import JsonValue, ValidationError

from waystation.context.summary import CLOSE, MARKER_ID_PREFIX, OPEN, SUMMARY_ID_PREFIX
from waystation.context.tokens import estimate_text
from waystation.context.transcript import (
    SYSTEM_MESSAGE_TYPE,
    Block,
    MaskRecord,
    Message,
    MessageRole,
    OpaqueBlock,
    PinRecord,
    Record,
    RedactedThinking,
    SummaryRecord,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
    Transcript,
    TruncationRecord,
)
from waystation.kernel.patterns import compile_bounded
from waystation.plugins.request_files.json_text import JsonNode, read_json

JsonObject = dict[str, JsonValue]


def read_block(node: JsonNode) -> Block:
    """Read a block. Raises BadInput, naming the place, if a field is missing or of another type."""
    match node.require("type").as_nonempty_text:
        case "text":
            return Text(text=node.require("text").as_text)
        case "thinking":
            return Thinking(thinking=node.require("thinking").as_text, signature=node.require("signature").as_text)
        case "redacted_thinking":
            return RedactedThinking(data=node.require("data").as_text)
        case "tool_use":
            with_input = node.require("input")
            try:
                return ToolUse(
                    id=node.require("id").as_nonempty_text,
                    name=node.require("name").as_nonempty_text,
                    input=with_input.as_object,
                )
            except ValidationError:
                raise with_input.build_error("is nested too deeply") from None
        case "tool_result":
            return _read_result(node)
        case _:
            return read_opaque(node)


def read_opaque(node: JsonNode) -> OpaqueBlock:
    """Read a block as opaque: nothing looks into it."""
    kind = node.require("type").as_nonempty_text
    try:
        return OpaqueBlock(kind=kind, tokens=estimate_block_tokens(node), body=node.as_object)
    except ValidationError:
        raise node.build_error("is nested too deeply") from None


def _read_result(node: JsonNode) -> ToolResult:
    call, content, is_error = (
        node.require("tool_use_id").as_nonempty_text,
        node.find("content"),
        node.get_bool("is_error"),
    )
    said = content.as_text_or_items if content else ""
    if isinstance(said, str):
        return ToolResult(tool_use_id=call, content=said, is_error=is_error)
    parts = [(part, part.require("type").as_nonempty_text) for part in said]
    return ToolResult(
        tool_use_id=call,
        content="\n".join(part.require("text").as_text for part, kind in parts if kind == "text"),
        is_error=is_error,
        attachments=tuple(read_opaque(part) for part, kind in parts if kind != "text"),
    )


def serialize_block(block: Block) -> JsonObject:
    """Return the block as the Messages API accepts it."""
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
            return {"type": "tool_result", "tool_use_id": block.tool_use_id, **serialize_result(block)}
        case OpaqueBlock():
            return block.body


def serialize_result(result: ToolResult) -> JsonObject:
    """Return the content of a result, without the call that it answers."""
    parts: list[JsonValue] = [{"type": "text", "text": result.content}] if result.content else []
    content: JsonValue = [*parts, *(part.body for part in result.attachments)] if result.attachments else result.content
    return {"content": content, "is_error": True} if result.is_error else {"content": content}


MESSAGES = "messages"
_ROLES: dict[str, MessageRole] = {"user": "user", "assistant": "assistant"}
_PLACE = compile_bounded(r"(?:[st]-)?messages\[(\d{1,9})\]")
_MARKER = compile_bounded(r"\A\[[\d,]++ earlier messages are hidden here\b")
_MARKERS_LEDGER = compile_bounded(r"\]\s*+<ledger>")
_GONE = OpaqueBlock(kind=SYSTEM_MESSAGE_TYPE, tokens=0, body={})
"""Stands for what an earlier summary or marker replaced, which is gone from the file. It is not the user's text."""


@dataclass(frozen=True)
class _Original:
    """A message as it was read, and as the file has it."""

    message: Message
    body: JsonObject
    block_bodies: tuple[JsonObject, ...]
    """The JSON of each block of the message."""


@dataclass(frozen=True)
class RequestBody:
    """The content of one request."""

    model: str | None
    system: str
    tools_json: str
    transcript: Transcript
    """Ids of messages are their places in the file: `messages[3]`."""
    originals: tuple[_Original, ...]
    body: JsonObject
    """The whole body; for an array of messages, an object with only these."""


def parse_message_index(message_id: str) -> int | None:
    """Return the index in the file of the message, or of the earlier summary or marker, with this id; None for a new
    one.
    """
    found = _PLACE.fullmatch(message_id)
    return int(found[1]) if found else None


def build_message_id(index: int) -> str:
    """Return the id of the message at this index."""
    return f"{MESSAGES}[{index}]"


def read_request_body(raw: bytes) -> RequestBody:
    """Read the request body in these bytes; an array is read as its messages.

    Does not check whether calls have their results, and the like: the view repairs that.

    Raises:
        BadInput: Something does not have the shape that the Messages API documents; the message names the place.
    """
    root = parse_root_node(raw)
    tools, model = root.find("tools"), root.find("model")
    listed = [node.as_object for node in tools.as_items] if tools else []
    originals = tuple(read_message(node) for node in root.require(MESSAGES).as_items)
    return RequestBody(
        model=model.as_nonempty_text if model else None,
        system=read_system(root),
        tools_json=json.dumps(listed, ensure_ascii=False) if listed else "",
        transcript=_transcript([original.message for original in originals], root.require(MESSAGES).value),
        originals=originals,
        body=root.as_object,
    )


def parse_root_node(raw: bytes) -> JsonNode:
    """Parse the body without reading it. Raises BadInput if it is neither an object nor an array."""
    value = read_json(raw)
    return JsonNode({MESSAGES: value} if isinstance(value, list) else JsonNode(value).as_object)


def read_message(node: JsonNode) -> _Original:
    """Read one message. Raises BadInput."""
    role, content = node.require("role").as_text, node.require("content")
    if role == "system":
        return _system_message(node)
    if role not in _ROLES:
        raise node.require("role").build_error("must be user, assistant or system")
    said = content.as_text_or_items
    if isinstance(said, str):
        blocks: list[Block] = [Text(text=said)]
        bodies: list[JsonObject] = [{"type": "text", "text": said}]
    else:
        blocks = [read_block(block) for block in said]
        bodies = [block.as_object for block in said]
    message = Message(id=node.path, role=_ROLES[role], blocks=tuple(blocks))
    return _Original(message, node.as_object, tuple(bodies))


def _system_message(node: JsonNode) -> _Original:
    """Read an operator's instruction within the conversation: one opaque block."""
    tokens = estimate_text(json.dumps(node.require("content").value, ensure_ascii=False))
    try:
        block = OpaqueBlock(kind=SYSTEM_MESSAGE_TYPE, tokens=tokens, body=node.as_object)
    except ValidationError:
        raise node.build_error("is nested too deeply") from None
    return _Original(Message(id=node.path, role="user", blocks=(block,)), node.as_object, (node.as_object,))


def read_system(root: JsonNode) -> str:
    """Return the text of the system prompt. Raises BadInput."""
    system = root.find("system")
    said = system.as_text_or_items if system else ""
    return said if isinstance(said, str) else "\n".join(block.require("text").as_text for block in said)


def _transcript(read: Sequence[Message], written: JsonValue) -> Transcript:
    messages: list[Message] = []
    records: list[Record] = []
    for message in read:
        record = _stand_in(message) or _pin_of_operator(message)
        if record is not None:
            records.append(record.replace(after=len(read)))
        is_stand_in = isinstance(record, SummaryRecord | TruncationRecord)
        messages.append(message.replace(blocks=(_GONE,)) if is_stand_in else message)
    digest = sha256(json.dumps(written, sort_keys=True).encode()).hexdigest()
    return Transcript(run_id=f"file-{digest[:16]}", messages=tuple(messages), records=tuple(records))


def _stand_in(message: Message) -> SummaryRecord | TruncationRecord | None:
    """Return the record of the earlier compaction that left this message."""
    if message.role != "user" or len(message.blocks) != 1:
        return None
    text = message.text.strip()
    if text.startswith(OPEN) and text.endswith(CLOSE):
        summary = message.replace(id=f"{SUMMARY_ID_PREFIX}{message.id}")
        return SummaryRecord(id=summary.id, strategy="earlier", covered=(message.id,), summary=summary)
    if _is_marker(text):
        marker = message.replace(id=f"{MARKER_ID_PREFIX}{message.id}")
        return TruncationRecord(id=marker.id, covered=(message.id,), marker=marker)
    return None


def _pin_of_operator(message: Message) -> PinRecord | None:
    """Pin the operator's instructions, which are never compacted and do not count towards the cap of pins."""
    block = message.blocks[0] if message.blocks else None
    if isinstance(block, OpaqueBlock) and block.kind == SYSTEM_MESSAGE_TYPE:
        return PinRecord(id=f"p-{message.id}", message_id=message.id)
    return None


def _is_marker(text: str) -> bool:
    """Return whether the whole text is what an earlier compaction left: a sentence in brackets, and perhaps a
    ledger.
    """
    begun = _MARKER.match(text)
    if begun is None or text.endswith("]"):
        return begun is not None
    ledger = _MARKERS_LEDGER.search(text, begun.end())
    return ledger is not None and text.endswith("</ledger>")


def serialize_messages(body: RequestBody, view: Iterable[Message]) -> list[JsonObject]:
    """Return the view's messages. Those in the file are written back equal, with all their fields."""
    known = _Known(body)
    return [known.message_json(message) for message in view]


class _Known:
    """The file's contents, by what the engine may have kept of them."""

    def __init__(self, body: RequestBody) -> None:
        self._messages: dict[str, _Original] = {original.message.id: original for original in body.originals}
        for record in body.transcript.compactions:
            if not isinstance(record, MaskRecord):
                (covered,) = record.covered
                shown = record.summary if record.type == "summarised" else record.marker
                self._messages[shown.id] = self._messages[covered]
        pairs = [pair for original in body.originals for pair in _pairs(original)]
        # Blocks are compared by identity: two equal ones may differ in fields that the domain does not know.
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
            return {**self._results[block.tool_use_id], **serialize_result(block)}
        return serialize_block(block)


def _pairs(original: _Original) -> list[tuple[Block, JsonObject]]:
    return list(zip(original.message.blocks, original.block_bodies, strict=True))


_PNG, _GIF, _JPEG = b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a"), b"\xff\xd8"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG segments that begin a frame and have its size."""
_WITHOUT_LENGTH = frozenset(range(0xD0, 0xDA)) | {0x01}


def read_image_size(head: bytes) -> tuple[int, int] | None:
    """Return width and height in pixels; None if these bytes do not have them."""
    if head.startswith(_PNG) and len(head) >= 24:
        return _big(head[16:20]), _big(head[20:24])
    if head.startswith(_GIF) and len(head) >= 10:
        return _little(head[6:8]), _little(head[8:10])
    if head.startswith(_JPEG):
        return _jpeg(head)
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp(head)
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    for marker, start in _segments(head):
        if marker in _FRAMES and start + 7 <= len(head):
            return _big(head[start + 5 : start + 7]), _big(head[start + 3 : start + 5])
    return None


def _segments(head: bytes) -> Iterator[tuple[int, int]]:
    """Yield the marker of each segment, and the position of its length."""
    at = 2
    while at + 4 <= len(head) and head[at] == 0xFF:
        marker = head[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            yield marker, at + 2
            at += 2 + max(2, _big(head[at + 2 : at + 4]))


def _webp(head: bytes) -> tuple[int, int] | None:
    match head[12:16]:
        case b"VP8X":
            return _little(head[24:27]) + 1, _little(head[27:30]) + 1
        case b"VP8L":
            bits = _little(head[21:25])
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return _little(head[26:28]) & 0x3FFF, _little(head[28:30]) & 0x3FFF
        case _:
            return None


def _big(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _little(raw: bytes) -> int:
    return int.from_bytes(raw, "little")


PIXELS_A_TOKEN = 750
MAX_IMAGE_TOKENS = 1_600
"""Larger images are scaled down to this. Also used for an image of unknown size (a URL, a file id)."""
PAGE_TOKENS = 3_000
"""Tokens of a PDF page: its text and its image. A document that cannot be read counts as one page."""
PAGE_BYTES = 50_000
"""Assumed bytes per page of a PDF that does not reveal its pages."""
_HEAD_CHARACTERS = 400_000
"""Base64 of the first 300,000 bytes: a camera writes a preview of some ten thousand bytes before the size."""
_PAGE = compile_bounded(rb"/Type\s{0,9}/Page(?![A-Za-z])")


def estimate_block_tokens(block: JsonNode) -> int:
    """Estimate the tokens of an opaque block. Raises BadInput for an image without a source."""
    match block.as_object.get("type"):
        case "image":
            return _image_tokens(block.require("source"))
        case "document":
            return _document_tokens(block.require("source"))
        case _:
            return estimate_text(json.dumps(block.value, ensure_ascii=False))


def _image_tokens(source: JsonNode) -> int:
    if source.require("type").as_text != "base64":
        return MAX_IMAGE_TOKENS
    size = read_image_size(_decoded(source.require("data").as_text[:_HEAD_CHARACTERS]))
    if size is None:
        return MAX_IMAGE_TOKENS
    return min(MAX_IMAGE_TOKENS, max(1, -(-size[0] * size[1] // PIXELS_A_TOKEN)))


def _document_tokens(source: JsonNode) -> int:
    match source.require("type").as_text:
        case "text":
            return estimate_text(source.require("data").as_text)
        case "content":
            return estimate_text(json.dumps(source.require("content").value, ensure_ascii=False))
        case "base64":
            body = _decoded(source.require("data").as_text)
            return PAGE_TOKENS * (len(_PAGE.findall(body)) or -(-len(body) // PAGE_BYTES) or 1)
        case _:
            return PAGE_TOKENS


def _decoded(data: str) -> bytes:
    """Decode as much as is valid base64."""
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4])
    except ValueError:
        return b""
