"""What blocks cost that are no text: images by pixels, documents by pages or bytes, the rest by its JSON.

Width and height of an image by its first bytes: the four formats that the Messages API takes.

Not by a library: those read many formats more, some of them by parsers that a hostile file could harm.
"""

import binascii
import json
from collections.abc import Iterator

from waystation.adapters.conversation.json_text import Node
from waystation.domain.compaction.tokens import estimate_text
from waystation.patterns import proven

_PNG, _GIF, _JPEG = b"\x89PNG\r\n\x1a\n", (b"GIF87a", b"GIF89a"), b"\xff\xd8"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""JPEG segments that begin a frame and hold its size."""
_WITHOUT_LENGTH = frozenset(range(0xD0, 0xDA)) | {0x01}


def image_size(head: bytes) -> tuple[int, int] | None:
    """Pixels across and down; None where these bytes do not tell."""
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
    """Marker of each segment, and where its length stands."""
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
