"""Token counts of requests: a local estimate for planning, and a certain upper bound for budgets.

The unit is always the whole request, with system prompt and tools.
"""

import json
import math
from collections.abc import Iterable
from unicodedata import normalize

from waystation.context.transcript import Block, Message, RedactedThinking, Thinking
from waystation.kernel.value import Value

MESSAGE_TOKENS = 5
"""Tokens of a message besides its content."""

# Hundredths of a token per character, so that sums stay whole and a text costs what its pieces cost.
LETTER, DIGIT, SYMBOL = 25, 70, 60
"""ASCII: letters and blanks, digits, everything else."""
_CUT = 100
"""Added where a word continues in capitals or digits: base64 and hexadecimal are split every character or two."""
ACCENTED, CYRILLIC, WIDE, OTHER = 150, 50, 130, 75
"""Latin letters beyond ASCII (a word breaks there); Cyrillic; CJK, kana, hangul and halves of an emoji; the rest."""
UNIT = 100


_LOWER, _CAPITAL, _FIGURE, _SIGN = 0b1, 0b10, 0b1010, 0b10_0000
"""Kinds of ASCII characters as bits; blanks have none."""
_CUT_BITS = 9
"""Shift from the bit of a small letter to that of a capital or digit in the next character: a word is cut there."""


def _kind(sign: str) -> int:
    if sign.isspace():
        return 0
    if sign.isalpha():
        return _LOWER if sign.islower() else _CAPITAL
    return _FIGURE if sign.isdigit() else _SIGN


def _script(high: int) -> str:
    if high in {*range(0x03), 0x1E}:
        return "l"
    if high in {0x11, *range(0x2E, 0xA0), 0xA9, *range(0xAC, 0xE0), 0xF9, 0xFA, 0xFF}:
        return "w"
    return "c" if high == 0x04 else "o"


_KINDS = bytes(_kind(chr(number)) for number in range(128)).ljust(256, b"\0")
"""Kind of each ASCII character."""
_SCRIPTS = "".join(_script(high) for high in range(256)).encode()
"""Script of each UTF-16 code unit, by its high byte: roughly a Unicode block."""

_JSON = json.JSONEncoder(ensure_ascii=False)
SEALED_CHARACTERS = 6
"""Characters of a signature or of sealed reasoning per token (base64 of four characters)."""

_ESTIMATE_KEY = "estimate"
"""Key under which a message memoises its tokens."""

MIN_CORRECTION, MAX_CORRECTION = 0.5, 2.0

REQUEST_OVERHEAD = 1_000
"""Tokens that a provider adds to any request with tools, with a margin (346 to 700 are published)."""
PART_OVERHEAD = 64
"""Tokens that a message, a block or a tool may need besides its bytes on the wire."""


def estimate_text(text: str) -> int:
    """Estimate the tokens of a text by kind of content.

    Prose has about 4 characters per token, code 3, JSON and logs 2.4, base64 1.6; CJK has 1.3 tokens per character.
    Linear; a megabyte takes some milliseconds.
    """
    ascii_part = text.encode("ascii", "ignore")
    kinds = ascii_part.translate(_KINDS)
    digits, symbols = kinds.count(_FIGURE), kinds.count(_SIGN)
    # All characters next to their successors in one number: searching for pairs takes three times as long.
    bits = int.from_bytes(kinds, "little")
    cuts = (bits & bits >> _CUT_BITS).bit_count()
    hundredths = (len(kinds) - digits - symbols) * LETTER + digits * DIGIT + symbols * SYMBOL + cuts * _CUT
    if not text.isascii():
        hundredths += _beyond_ascii(text, len(ascii_part))
    return -(-hundredths // UNIT)


def estimate_message(message: Message) -> int:
    """Estimate the tokens of a message with its overhead. Memoised in the message, which never changes."""
    kept = message.memoised_counts
    if (tokens := kept.get(_ESTIMATE_KEY)) is None:
        tokens = kept[_ESTIMATE_KEY] = MESSAGE_TOKENS + sum([_estimate_block(block) for block in message.blocks])
    return tokens


def estimate_messages(messages: Iterable[Message]) -> int:
    """Estimate the tokens of these messages together."""
    return sum(estimate_message(message) for message in messages)


def estimate_fixed_tokens(system: str, tools_json: str) -> int:
    """Estimate the tokens of system prompt and tools, which every request of an agent has."""
    return estimate_text(system) + estimate_text(tools_json)


def estimate_request_tokens(fixed: int, messages: Iterable[Message], scale: float = 1.0) -> int:
    """Estimate the tokens of the whole request. `scale`: see `compute_correction_factor`."""
    return math.ceil((fixed + estimate_messages(messages)) * scale)


def compute_correction_factor(estimated: int, real: int) -> float:
    """Return the factor for estimates from one request's estimate and its real count, between 0.5 and 2."""
    if estimated <= 0 or real <= 0:
        return 1.0
    return min(max(real / estimated, MIN_CORRECTION), MAX_CORRECTION)


def compute_request_upper_bound(system: str, tools_json: str, messages: Iterable[Message]) -> int:
    """Return an upper bound of the request's tokens.

    A token covers at least one byte, so the bytes on the wire bound the content; a fixed overhead for the request and
    for each message, block and tool bounds what the provider adds.
    """
    bound = REQUEST_OVERHEAD + compute_max_utf8_bytes(system) + compute_max_utf8_bytes(tools_json)
    bound += PART_OVERHEAD * tools_json.count('"input_schema"')
    for message in messages:
        bound += compute_max_utf8_bytes(message.model_dump_json()) + PART_OVERHEAD * (1 + len(message.blocks))
    return bound


def compute_reply_upper_bound(blocks: Iterable[Block], max_output: int) -> int:
    """Return an upper bound of a reply's tokens.

    With thinking it is `max_output`, since only a part of it may be shown.
    """
    said = list(blocks)
    if any(isinstance(block, Thinking | RedactedThinking) for block in said):
        return max_output
    return min(max_output, sum(compute_max_utf8_bytes(block.model_dump_json()) + PART_OVERHEAD for block in said))


class TokenEstimator(Value):
    """Estimates requests of one agent run as its provider would count them."""

    fixed_tokens: int
    """Estimated tokens of system prompt and tools."""
    token_ratio: float = 1.0

    def request(self, messages: Iterable[Message]) -> int:
        """Return the tokens of the whole request."""
        return estimate_request_tokens(self.fixed_tokens, messages, self.token_ratio)

    def scale_estimate(self, estimated: int) -> int:
        """Return the corrected tokens of a part of a request, given its plain estimate."""
        return math.ceil(estimated * self.token_ratio)


def _estimate_block(block: Block) -> int:
    # By its tag: checking the class takes as long as estimating a text.
    match block.type:
        case "text":
            return estimate_text(block.text)
        case "tool_result":
            return estimate_text(block.content) + sum([part.tokens for part in block.attachments])
        case "tool_use":
            return estimate_text(f"{block.name} {_JSON.encode(block.input)}")
        case "thinking":
            return max(estimate_text(block.thinking), len(block.signature) // SEALED_CHARACTERS)
        case "redacted_thinking":
            return len(block.data) // SEALED_CHARACTERS
        case "opaque":
            return block.tokens


def _beyond_ascii(text: str, ascii_characters: int) -> int:
    """Return hundredths of a token for the non-ASCII characters."""
    scripts = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPTS)
    latin, cyrillic, wide, other = map(scripts.count, (b"l", b"c", b"w", b"o"))
    return (latin - ascii_characters) * ACCENTED + cyrillic * CYRILLIC + wide * WIDE + other * OTHER


def compute_max_utf8_bytes(text: str) -> int:
    """Return the maximum UTF-8 bytes of a text.

    Tokenisers that normalise can lengthen it (a ligature to eighteen letters).
    """
    raw = len(text.encode())
    return raw if text.isascii() else max(raw, len(normalize("NFKC", text).encode()))
