"""One file to text: text here, every kind with a parser in a child, each up to its size."""

import hashlib
from pathlib import Path

from waystation.adapters.documents.child_reader import ChildReader, ParserBroke
from waystation.adapters.documents.decoding import decoded
from waystation.adapters.documents.extract import Extracted, Unreadable
from waystation.adapters.documents.kinds import HEAD, Kind, kind_of

LARGEST_TEXT = 20_000_000
"""Bytes. A text of that size has over a hundred thousand lines; more than that is a data set, not a document."""
LARGEST_FILE = 200_000_000
"""Bytes of a file of any other kind: most of a large PDF is pictures."""


def read_file(path: Path, child: ChildReader) -> Extracted:
    r"""The text of a file with every line end as `\n` and no blank lines at its end, so that all count lines alike.

    Raises:
        Unreadable: missing, no file, too large, empty, damaged, protected, or of a kind that cannot be read.
    """
    try:
        # A pipe or device would block or never end.
        if not path.is_file():
            raise Unreadable("neither a file nor a folder" if path.exists() else "no such file")
        with path.open("rb") as file:
            kind = kind_of(file.read(HEAD), path.suffix.lower())
        _check_size(path.stat().st_size, LARGEST_TEXT if kind in {Kind.TEXT, Kind.HTML} else LARGEST_FILE)
        if kind is not Kind.TEXT:
            return _by_child(path, kind, child)
        content = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"cannot be read ({error.strerror})") from error
    text = "\n".join(decoded(content).splitlines()).rstrip()
    if not text.strip():
        raise Unreadable("empty")
    return Extracted(text=text)


def fingerprint(path: Path) -> str:
    """Content hash of a file as it is, to tell whether it has changed; empty where it cannot be read."""
    try:
        # A pipe or device would block or never end.
        if not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return ""
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        most = limit // 1_000_000
        raise Unreadable(
            f"{size / 1e6:.1f} MB, and {most} MB is the most that one file of this kind may have; split it"
        )


def _by_child(path: Path, kind: Kind, child: ChildReader) -> Extracted:
    try:
        return child.read(path)
    except ParserBroke:
        if kind is not Kind.MAIL:
            raise
        # One attachment must not take the message down.
        return child.read(path, attachments=False)
