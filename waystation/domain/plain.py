"""Foreign text where people read it: without signs that steer a terminal, reorder words or hide among them.

It imports nothing: the first lines of every command need it.
"""

from collections.abc import Iterator

_PICTURES = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"} | {0x7F: "␡"}
"""Who reads a command that was smuggled in should see that it was."""


def _unseen() -> Iterator[int]:
    yield from range(0x80, 0xA0)  # C1: one sign begins a sequence
    yield 0x061C
    yield from range(0x200E, 0x2010)  # marks of direction
    yield from range(0x202A, 0x202F)  # embeddings and overrides
    yield from range(0x2066, 0x2070)  # isolates, and the deprecated ones behind them
    yield from range(0xD800, 0xE000)  # halves of characters, which no stream can encode
    yield from range(0xFFF9, 0xFFFC)  # interlinear annotations
    yield from range(0xE0000, 0xE0080)  # tags: what nobody sees and models read


_PLAIN = _PICTURES | dict.fromkeys(_unseen(), "�") | {0x2028: "\n", 0x2029: "\n"}
_IN_JSON = {
    code: f"\\u{code:04x}" if code <= 0xFFFF else f"\\ud{0xB40:03x}\\u{0xDC00 + (code & 0x3FF):04x}"
    for code in _PLAIN
    if code > 0x1F
}
"""U+E0000 to U+E007F share their first half. Controls below U+0020 are escaped in any JSON, or stand between values."""


def plain(text: str) -> str:
    """The text with controls as pictures (`␛`) and other unseen signs as `�`; line ends and tabs stay."""
    return text.replace("\r\n", "\n").translate(_PLAIN)


def plain_json(written: str) -> str:
    """JSON of the same value, with such signs as escapes."""
    return written.translate(_IN_JSON)
