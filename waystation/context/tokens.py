"""How many tokens a request has: a local estimate for planning, and a certain upper bound for money.

One unit everywhere: the whole request, with system prompt and tools.
"""

import json
import math
from collections.abc import Iterable
from unicodedata import normalize

from waystation.context.transcript import Block, Message, RedactedThinking, Thinking
from waystation.kernel.value import Value

MESSAGE_TOKENS = 5
"""What a message costs beside its content."""

# Tokens a character, in hundredths, so that sums stay whole and a text costs what its pieces cost.
LETTER, DIGIT, SYMBOL = 25, 70, 60
"""ASCII: letters and blanks, digits, everything else."""
_CUT = 100
"""On top, where a word goes on in capitals or digits: base64 and hexadecimal come in pieces of a character or two."""
ACCENTED, CYRILLIC, WIDE, OTHER = 150, 50, 130, 75
"""Latin letters beyond ASCII (a word breaks there); Cyrillic; CJK, kana, hangul, halves of an emoji; all the rest."""
UNIT = 100


_LOWER, _CAPITAL, _FIGURE, _SIGN = 0b1, 0b10, 0b1010, 0b10_0000
"""Kinds of ASCII characters as bits; blanks have none."""
_CUT_BITS = 9
"""From the bit of a small letter to the one of a capital or digit in the next character: a word is cut there."""


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
"""Of each ASCII character."""
_SCRIPTS = "".join(_script(high) for high in range(256)).encode()
"""Of each UTF-16 code unit, by its high byte: a block of Unicode, roughly."""

_JSON = json.JSONEncoder(ensure_ascii=False)
SEALED_CHARACTERS = 6
"""Characters of a signature or of sealed reasoning that stand for one token of it (base64 of four characters)."""

_KEPT = "estimate"
"""Under which name a message keeps its tokens."""

LEAST_CORRECTION, MOST_CORRECTION = 0.5, 2.0

REQUEST_OVERHEAD = 1_000
"""Tokens that a provider adds to any request with tools, with room to spare (346 to 700 are published)."""
PART_OVERHEAD = 64
"""Tokens that a message, a block or a tool may need beside its bytes on the wire."""


def estimate_text(text: str) -> int:
    """Tokens of a text by kind of content: prose has some 4 characters a token, code 3, JSON and logs 2.4, base64 1.6,
    CJK 1.3 tokens a character. Linear, and some milliseconds for a megabyte.
    """
    ascii_part = text.encode("ascii", "ignore")
    kinds = ascii_part.translate(_KINDS)
    digits, symbols = kinds.count(_FIGURE), kinds.count(_SIGN)
    # All characters beside the ones after them, in one number: searching for pairs takes three times as long.
    bits = int.from_bytes(kinds, "little")
    cuts = (bits & bits >> _CUT_BITS).bit_count()
    hundredths = (len(kinds) - digits - symbols) * LETTER + digits * DIGIT + symbols * SYMBOL + cuts * _CUT
    if not text.isascii():
        hundredths += _beyond_ascii(text, len(ascii_part))
    return -(-hundredths // UNIT)


def estimate_message(message: Message) -> int:
    """Tokens of a message, its overhead included. The message keeps them: it never changes."""
    kept = message.memoised_counts
    if (tokens := kept.get(_KEPT)) is None:
        tokens = kept[_KEPT] = MESSAGE_TOKENS + sum([_estimate_block(block) for block in message.blocks])
    return tokens


def estimate_messages(messages: Iterable[Message]) -> int:
    """Tokens of these messages together."""
    return sum(estimate_message(message) for message in messages)


def estimate_fixed_tokens(system: str, tools_json: str) -> int:
    """Tokens that every request of an agent has: system prompt and tools."""
    return estimate_text(system) + estimate_text(tools_json)


def estimate_request_tokens(fixed: int, messages: Iterable[Message], scale: float = 1.0) -> int:
    """Tokens of the whole request. `scale` is the `correction` that the last reply taught."""
    return math.ceil((fixed + estimate_messages(messages)) * scale)


def compute_correction_factor(estimated: int, real: int) -> float:
    """What estimates are to be multiplied with, from one request's estimate and its real count. Between 0.5 and 2."""
    if estimated <= 0 or real <= 0:
        return 1.0
    return min(max(real / estimated, LEAST_CORRECTION), MOST_CORRECTION)


def compute_request_upper_bound(system: str, tools_json: str, messages: Iterable[Message]) -> int:
    """Tokens that the request certainly does not exceed.

    A token covers at least one byte, so the bytes of everything as it goes over the wire bound the content; a fixed
    overhead for the request and for each message, block and tool bounds what the provider wraps around it.
    """
    bound = REQUEST_OVERHEAD + compute_max_utf8_bytes(system) + compute_max_utf8_bytes(tools_json)
    bound += PART_OVERHEAD * tools_json.count('"input_schema"')
    for message in messages:
        bound += compute_max_utf8_bytes(message.model_dump_json()) + PART_OVERHEAD * (1 + len(message.blocks))
    return bound


def compute_reply_upper_bound(blocks: Iterable[Block], max_output: int) -> int:
    """Tokens that a reply certainly does not exceed. Of what was thought only a part may be shown."""
    said = list(blocks)
    if any(isinstance(block, Thinking | RedactedThinking) for block in said):
        return max_output
    return min(max_output, sum(compute_max_utf8_bytes(block.model_dump_json()) + PART_OVERHEAD for block in said))


class TokenEstimator(Value):
    """Measures requests of one agent run as its provider would count them."""

    fixed: int
    """Estimated tokens of system prompt and tools."""
    scale: float = 1.0

    def request(self, messages: Iterable[Message]) -> int:
        """Tokens of the whole request."""
        return estimate_request_tokens(self.fixed, messages, self.scale)

    def scale_estimate(self, estimated: int) -> int:
        """Tokens of a part of a request whose estimate this is."""
        return math.ceil(estimated * self.scale)


def _estimate_block(block: Block) -> int:
    # By its tag: asking for its class takes as long as the estimate of a text.
    match block.type:
        case "text":
            return estimate_text(block.text)
        case "tool_result":
            return estimate_text(block.content) + sum([part.tokens for part in block.attached])
        case "tool_use":
            return estimate_text(f"{block.name} {_JSON.encode(block.input)}")
        case "thinking":
            return max(estimate_text(block.thinking), len(block.signature) // SEALED_CHARACTERS)
        case "redacted_thinking":
            return len(block.data) // SEALED_CHARACTERS
        case "opaque":
            return block.tokens


def _beyond_ascii(text: str, ascii_characters: int) -> int:
    """Hundredths of a token for the other characters."""
    scripts = text.encode("utf-16-le", "surrogatepass")[1::2].translate(_SCRIPTS)
    latin, cyrillic, wide, other = map(scripts.count, (b"l", b"c", b"w", b"o"))
    return (latin - ascii_characters) * ACCENTED + cyrillic * CYRILLIC + wide * WIDE + other * OTHER


def compute_max_utf8_bytes(text: str) -> int:
    """UTF-8 bytes; tokenisers that normalise first can lengthen a text (one ligature becomes eighteen letters)."""
    raw = len(text.encode())
    return raw if text.isascii() else max(raw, len(normalize("NFKC", text).encode()))
