"""One file to text: which files can be read, as what, and why the others cannot."""

from collections.abc import Callable
from pathlib import Path

from charset_normalizer import from_bytes

from waystation.adapters.documents.html import html_to_text

LARGEST_FILE = 20_000_000
"""Bytes. A text of that size has over a hundred thousand lines; more than that is a data set, not a document."""

_SNIFFED = 8_000
"""Bytes looked at for a NUL, as git does: text has none, nearly every binary format has one early."""

_NOT_TEXT = (
    (b"%PDF-", "a PDF; convert it to text or Markdown first"),
    (b"PK\x03\x04", "an archive or office file; save it as text, Markdown, HTML or CSV first"),
    (b"\xd0\xcf\x11\xe0", "an old office file; save it as text, Markdown, HTML or CSV first"),
)
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_CONVERTERS: dict[str, Callable[[str], str]] = {".html": html_to_text, ".htm": html_to_text, ".xhtml": html_to_text}


class Unreadable(Exception):
    """A file that gives no text. The message is the reason, as words that follow the file's name."""


def read_text(path: Path) -> str:
    r"""The text of a file with every line end as `\n` and no blank lines at its end, so that all count lines alike.

    Raises:
        Unreadable: missing, no file, too large, empty, or binary.
    """
    text = _decoded(_content(path))
    text = _CONVERTERS.get(path.suffix.lower(), str)(text)
    if not text.strip():
        raise Unreadable("empty")
    return "\n".join(text.splitlines()).rstrip()


def _content(path: Path) -> bytes:
    try:
        # A pipe or device would block or never end.
        if not path.is_file():
            raise Unreadable("neither a file nor a folder" if path.exists() else "no such file")
        size = path.stat().st_size
        if size > LARGEST_FILE:
            limit = LARGEST_FILE // 1_000_000
            raise Unreadable(f"{size / 1e6:.1f} MB, and {limit} MB is the most that one file may have; split it")
        return path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error


def _decoded(content: bytes) -> str:
    for start, reason in _NOT_TEXT:
        if content.startswith(start):
            raise Unreadable(reason)
    if b"\x00" in content[:_SNIFFED] and not content.startswith(_UTF16):
        raise Unreadable("binary, not text")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        guess = from_bytes(content).best()
    if guess is None:
        raise Unreadable("in no text encoding that can be recognised; save it as UTF-8")
    return str(guess)
