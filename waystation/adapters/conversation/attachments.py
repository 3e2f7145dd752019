"""What blocks cost that are no text: images by pixels, documents by pages or bytes, the rest by its JSON."""

import binascii
import json

from waystation.adapters.conversation.image_size import image_size
from waystation.adapters.conversation.node import Node
from waystation.domain.compaction.tokens import estimate_text
from waystation.patterns import proven

PIXELS_A_TOKEN = 750
MOST_IMAGE_TOKENS = 1_600
"""Larger images are scaled down to this. It also stands for an image whose size cannot be seen (a URL, a file id)."""
PAGE_TOKENS = 3_000
"""A page of a PDF: its text and its picture. A document that cannot be looked into counts as one page."""
PAGE_BYTES = 50_000
"""Where a PDF does not tell its pages, one is taken to have so many bytes."""
_HEAD_CHARACTERS = 400_000
"""Base64 of the first 300,000 bytes: a camera writes a preview of some ten thousand before the size."""
_PAGE = proven(rb"/Type\s{0,9}/Page(?![A-Za-z])")


def block_tokens(block: Node) -> int:
    """Estimated tokens of a block that nothing looks into. Raises BadInput for an image without a source."""
    match block.object.get("type"):
        case "image":
            return _image_tokens(block.at("source"))
        case "document":
            return _document_tokens(block.at("source"))
        case _:
            return estimate_text(json.dumps(block.value, ensure_ascii=False))


def _image_tokens(source: Node) -> int:
    if source.at("type").text != "base64":
        return MOST_IMAGE_TOKENS
    size = image_size(_decoded(source.at("data").text[:_HEAD_CHARACTERS]))
    if size is None:
        return MOST_IMAGE_TOKENS
    return min(MOST_IMAGE_TOKENS, max(1, -(-size[0] * size[1] // PIXELS_A_TOKEN)))


def _document_tokens(source: Node) -> int:
    match source.at("type").text:
        case "text":
            return estimate_text(source.at("data").text)
        case "content":
            return estimate_text(json.dumps(source.at("content").value, ensure_ascii=False))
        case "base64":
            body = _decoded(source.at("data").text)
            return PAGE_TOKENS * (len(_PAGE.findall(body)) or -(-len(body) // PAGE_BYTES) or 1)
        case _:
            return PAGE_TOKENS


def _decoded(data: str) -> bytes:
    """As far as it is base64."""
    try:
        return binascii.a2b_base64(data[: len(data) // 4 * 4])
    except ValueError:
        return b""
