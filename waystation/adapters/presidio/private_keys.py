"""Private keys in PEM and PGP armour, also where something stands before each line, and fragments of them.

A log, a quotation or a listing with line numbers keeps all but the key. For the whole text: a key may be longer than a
chunk.
"""

import base64
import re
from collections.abc import Iterator, Sequence

from waystation.adapters.presidio.formats import Hit
from waystation.patterns import proven

_Span = tuple[int, int]
_MARKER = proven(r"-{4,5} ?(?P<which>BEGIN|END) (?P<of>[A-Z0-9 ]{1,60}?) ?-{4,5}")
_PRIVATE = proven(r"\A(?:.* )?PRIVATE KEY(?: BLOCK)?\Z")
_REACH = 40_000
"""Characters from a marker in which its key is looked for: the longest in use, behind time stamps."""
_LINE = proven(r"(?:\\[nr])++|(?P<line>(?:[^\r\n\\]++|\\(?![nr]))++)")
_A_CHARACTER = proven(r"[^\W_]")
_BETWEEN = proven(r"(?:\s++|\\[nr])*+")
_CHARACTERS = "[A-Za-z0-9+/=]"
_AFTER = r"[\"'`,;|+*\\\s]{0,12}\Z"
_WORDS = proven(rf"{_CHARACTERS}++(?: {_CHARACTERS}++)*+")
_ENDS = proven(_AFTER)
_LONG_WORD = proven(
    rf"(?<!{_CHARACTERS})(?:{_CHARACTERS}{{40}}|(?=[A-Za-z+/=]{{0,38}}\d){_CHARACTERS}{{16,39}}(?!{_CHARACTERS}))"
)
_TAIL = proven(rf"(?<![\w+/=])(?P<key>{_CHARACTERS}{{1,39}}){_AFTER}")
_CUT_OFF = proven(rf"\A[^A-Za-z+/=]*?(?P<key>{_CHARACTERS}{{1,39}}){_AFTER}")
_NO_BODY = proven(r"\A(?:[^A-Za-z]*\Z|.*\b(?:Proc-Type|DEK-Info|Version|Comment|Hash|Charset): )")
"""Lines that may stand in the block beside the key: empty ones, and headers."""


_IN_BASE64 = proven(
    r"(?<![A-Za-z0-9+/=])LS0tL(?P<first>[A-Za-z0-9+/]{31,79})"
    r"(?P<rest>[A-Za-z0-9+/]*+(?:[ \t]{0,40}+(?:\\n|\r?\n)[ \t]{0,40}+[A-Za-z0-9+/]{16,}+)*+=*+)"
)
"""Dashes at the beginning of what is encoded."""
_PUTTY = proven(r"\bPrivate-Lines:[ \t]{0,8}+(?P<count>\d{1,4})[ \t\r]{0,80}+(?=\n|\\[nr]|\Z)")
_PUTTY_MAC = proven(r"\bPrivate-(?:MAC|Hash):[ \t]{0,8}(?P<secret>[0-9a-f]{40,128})")


def private_keys(text: str) -> Iterator[Hit]:
    """Every private key, as one secret where only white space is between its lines, else line by line."""
    yield from _of_putty(text)
    for encoded in _IN_BASE64.finditer(text):
        written = f"LS0tL{encoded['first']}"
        if b"PRIVATE" in base64.b64decode(written[: len(written) // 4 * 4]):
            yield Hit("SECRET", *encoded.span(), 1.0)
    markers = list(_MARKER.finditer(text))
    private = [number for number, marker in enumerate(markers) if _PRIVATE.match(marker["of"])]
    body = {span for number in private for span in _beside(text, markers, number)}
    for start, end in _joined(text, body, [markers[number].span() for number in private]):
        yield Hit("SECRET", start, end, 1.0)


def _of_putty(text: str) -> Iterator[Hit]:
    """The private lines of a key of PuTTY's, whose header says how many they are, and their checksum."""
    for header in _PUTTY.finditer(text):
        lines = _lines(text, header.end(), min(len(text), header.end() + _REACH))[: int(header["count"])]
        body = {(offset + found[0], offset + found[1]) for line, offset in lines if (found := _body(line))}
        for start, end in _joined(text, body, []):
            yield Hit("SECRET", start, end, 1.0)
    for mac in _PUTTY_MAC.finditer(text):
        yield Hit("SECRET", *mac.span("secret"), 1.0)


def _beside(text: str, markers: Sequence[re.Match[str]], number: int) -> Iterator[_Span]:
    """The lines of the key that follow where it begins, or precede where it ends."""
    marker = markers[number]
    if marker["which"] == "BEGIN":
        next_marker = markers[number + 1].start() if number + 1 < len(markers) else len(text)
        return _key_lines(_lines(text, marker.end(), min(next_marker, marker.end() + _REACH)))
    last_marker = markers[number - 1].end() if number else 0
    return _key_lines(_lines(text, max(last_marker, marker.start() - _REACH), marker.start())[::-1])


def _lines(text: str, start: int, end: int) -> list[tuple[str, int]]:
    """Lines that are not empty and where they begin, without what stands before a marker on its own line."""
    lines = [
        (line["line"], line.start("line"))
        for line in _LINE.finditer(text, start, end)
        if line["line"] and _A_CHARACTER.search(line["line"])
    ]
    if lines and end < len(text) and lines[-1][1] + len(lines[-1][0]) == end and not _body(lines[-1][0]):
        lines.pop()
    return lines


def _key_lines(lines: Sequence[tuple[str, int]]) -> Iterator[_Span]:
    """From the marker on, up to the first line that is none of a key."""
    for number, (line, offset) in enumerate(lines):
        found = _body(line) or _short(lines, number)
        if found:
            yield offset + found[0], offset + found[1]
        elif not _NO_BODY.match(line):
            return


def _body(line: str) -> _Span | None:
    """Where a line ends in words of a key, from the first that is long enough to be one."""
    words = None
    for words in _WORDS.finditer(line):  # noqa: B007 - the last ones
        pass
    if not words or not _ENDS.match(line, words.end()):
        return None
    first = _LONG_WORD.search(line, *words.span())
    return (first.start(), words.end()) if first else None


def _short(lines: Sequence[tuple[str, int]], number: int) -> _Span | None:
    """The last line of a key, at the marker of its end; or what is left of a line where the text is cut off."""
    line = lines[number][0]
    found = None
    if number == 0 and len(lines) > 1 and _body(lines[1][0]):
        found = None if _NO_BODY.match(line) else _TAIL.search(line)
    elif number == len(lines) - 1 and number and _body(lines[number - 1][0]):
        found = _CUT_OFF.match(line)
    return found.span("key") if found else None


def _joined(text: str, body: set[_Span], markers: Sequence[_Span]) -> Iterator[_Span]:
    """Lines and markers with only white space between them as one; markers alone are no secret."""
    start = end = 0
    has_body = False
    for piece in sorted({*body, *markers}):
        if not _BETWEEN.fullmatch(text, end, max(end, piece[0])) or not end:
            if has_body:
                yield start, end
            start, has_body = piece[0], False
        end = max(end, piece[1])
        has_body = has_body or piece in body
    if has_body:
        yield start, end
