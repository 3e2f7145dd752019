"""What a tool returned as text of a bounded size: what is no text becomes a line that says what was left out."""

import json
from collections.abc import Iterable

from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from waystation.adapters.mcp.expansion import without_secrets
from waystation.domain.foreign_tools import RESULT_CHARACTERS, ForeignResult

BEYOND_CHARACTERS = 20_000
"""Handed on beyond what is kept: what private lies across the end is found only as a whole."""
LABEL_CHARACTERS = 300
"""Most of an address or a kind in a line of ours."""
BASE64_BYTES = 3 / 4
"""Bytes for each character."""


def as_result(result: CallToolResult, secrets: Iterable[str]) -> ForeignResult:
    """Its blocks as text; structured content only where there are none, since it repeats them."""
    blocks = [_text(block) for block in result.content]
    if not blocks and result.structured_content is not None:
        blocks = [json.dumps(result.structured_content, ensure_ascii=False, indent=1)]
    whole = "\n".join(blocks) or "(The tool returned nothing.)"
    return as_said(without_secrets(whole, secrets), is_error=result.is_error)


def as_said(text: str, *, is_error: bool) -> ForeignResult:
    """The text, or its beginning with how long it was."""
    most = RESULT_CHARACTERS + BEYOND_CHARACTERS
    return ForeignResult(text=text[:most], characters=len(text) if len(text) > most else 0, is_error=is_error)


def _text(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent() | AudioContent():
            return _left_out(f"an {block.type}", block.mime_type, block.data)
        case ResourceLink():
            return f"(A link to {_label(block.uri)}; it was not followed.)"
        case EmbeddedResource():
            return _resource(block.resource)


def _resource(resource: TextResourceContents | BlobResourceContents) -> str:
    match resource:
        case TextResourceContents():
            return f"(From {_label(resource.uri)}:)\n{resource.text}"
        case BlobResourceContents():
            return _left_out(f"a file, {_label(resource.uri)},", resource.mime_type or "unknown", resource.blob)


def _left_out(what: str, kind: str, base64: str) -> str:
    size = int(len(base64) * BASE64_BYTES)
    return f"({what[0].upper()}{what[1:]} of type {_label(kind)} and about {size:,} bytes was left out: it is no text.)"


def _label(text: str) -> str:
    return " ".join(text[:LABEL_CHARACTERS].split())
