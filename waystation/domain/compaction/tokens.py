"""How many tokens a request has: a local estimate for planning, and a certain upper bound for money.

One unit everywhere: the whole request, with system prompt and tools.
"""

import json
import math
import re
from collections.abc import Iterable
from unicodedata import normalize

from waystation.domain.messages import Block, Message, RedactedThinking, Text, Thinking, ToolResult, ToolUse
from waystation.domain.value import Value

MESSAGE_TOKENS = 5
"""What a message costs beside its content."""

# Tokens a character, in sixtieths, so that sums stay whole: 1/4, 1/3, 1.3 and 1/2 of a token.
PROSE, DENSE, WIDE, OTHER = 15, 20, 78, 30
UNIT = 60

DENSE_SHARE = 12
"""Text with more than one symbol or digit in so many characters is code, JSON or a table."""
SYMBOLS = b'{}[]()<>=_:;"/\\|&*+#@$%^~`0123456789'
WIDE_RUN = re.compile(
    "[\u1100-\u11ff\u2e80-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00010000-\U0010ffff]+"
)
"""Scripts and signs of which one character is about a token: CJK, kana, hangul, emoji."""
SEALED_CHARACTERS = 6
"""Characters of a signature or of sealed reasoning that stand for one token of it (base64 of four characters)."""

LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0

REQUEST_OVERHEAD = 1_000
"""Tokens that a provider adds to any request with tools, with room to spare (346 to 700 are published)."""
PART_OVERHEAD = 64
"""Tokens that a message, a block or a tool may need beside its bytes on the wire."""


def estimate_text(text: str) -> int:
    """Tokens of a text by kind of content: prose 4 characters a token, code and JSON 3, CJK 1.3 tokens a character,
    other scripts 2 characters a token.
    """
    ascii_part = text.encode("ascii", "ignore")
    symbols = len(ascii_part) - len(ascii_part.translate(None, SYMBOLS))
    rate = DENSE if symbols * DENSE_SHARE > len(ascii_part) else PROSE
    sixtieths = len(ascii_part) * rate
    if len(ascii_part) < len(text):
        wide = sum(len(run) for run in WIDE_RUN.findall(text))
        sixtieths += wide * WIDE + (len(text) - len(ascii_part) - wide) * OTHER
    return -(-sixtieths // UNIT)


def estimate_message(message: Message) -> int:
    """Tokens of a message, its overhead included."""
    return MESSAGE_TOKENS + sum(_estimate_block(block) for block in message.blocks)


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens of these messages together."""
    return sum(estimate_message(message) for message in messages)


def fixed_tokens(system: str, tools_json: str) -> int:
    """Tokens that every request of an agent has: system prompt and tools."""
    return estimate_text(system) + estimate_text(tools_json)


def request_tokens(fixed: int, messages: Iterable[Message], scale: float = 1.0) -> int:
    """Tokens of the whole request. `scale` is the `correction` that the last reply taught."""
    return math.ceil((fixed + estimate_messages(messages)) * scale)


def correction(estimated: int, real: int) -> float:
    """What estimates are to be multiplied with, from one request's estimate and its real count. Between 0.5 and 2."""
    if estimated <= 0 or real <= 0:
        return 1.0
    return min(max(real / estimated, LEAST_CORRECTION), MOST_CORRECTION)


def upper_bound(system: str, tools_json: str, messages: Iterable[Message]) -> int:
    """Tokens that the request certainly does not exceed.

    A token covers at least one byte, so the bytes of everything as it goes over the wire bound the content; a fixed
    overhead for the request and for each message, block and tool bounds what the provider wraps around it.
    """
    bound = REQUEST_OVERHEAD + _most_bytes(system) + _most_bytes(tools_json)
    bound += PART_OVERHEAD * tools_json.count('"input_schema"')
    for message in messages:
        bound += _most_bytes(message.model_dump_json()) + PART_OVERHEAD * (1 + len(message.blocks))
    return bound


class Measure(Value):
    """Measures requests of one agent run as its provider would count them."""

    fixed: int
    """Estimated tokens of system prompt and tools."""
    scale: float = 1.0

    def request(self, messages: Iterable[Message]) -> int:
        """Tokens of the whole request."""
        return request_tokens(self.fixed, messages, self.scale)

    def part(self, estimated: int) -> int:
        """Tokens of a part of a request whose estimate this is."""
        return math.ceil(estimated * self.scale)


def _estimate_block(block: Block) -> int:
    match block:
        case Text():
            return estimate_text(block.text)
        case Thinking():
            return max(estimate_text(block.thinking), len(block.signature) // SEALED_CHARACTERS)
        case RedactedThinking():
            return len(block.data) // SEALED_CHARACTERS
        case ToolUse():
            return estimate_text(block.name) + estimate_text(json.dumps(block.input, ensure_ascii=False))
        case ToolResult():
            return estimate_text(block.content)


def _most_bytes(text: str) -> int:
    """UTF-8 bytes; tokenisers that normalise first can lengthen a text (one ligature becomes eighteen letters)."""
    raw = len(text.encode())
    return raw if text.isascii() else max(raw, len(normalize("NFKC", text).encode()))
