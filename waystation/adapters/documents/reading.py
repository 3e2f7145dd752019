"""One file to text, which is taken out of it in a child: here it is opened, and nothing in it looked at."""

import hashlib
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from waystation.adapters.documents.child_reader import ChildReader
from waystation.adapters.documents.extract import LARGEST_FILE, Extracted, FileGiven, Unreadable


def read_file(path: Path, child: ChildReader) -> Extracted:
    r"""The text of a file with every line end as `\n` and no blank lines at its end, so that all count lines alike.

    Raises:
        Unreadable: missing, no file, too large, empty, damaged, protected, or of a kind that cannot be read.
    """
    with _opened(path) as file:
        return child.read(file, FileGiven(name=os.fsencode(path.name).decode("utf-8", "replace")))


def fingerprint(path: Path) -> str:
    """Content hash of a file as it is, to tell whether it has changed; empty where it cannot be read."""
    try:
        with _opened(path) as number, os.fdopen(number, "rb", closefd=False) as file:
            if os.fstat(number).st_size > LARGEST_FILE:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, Unreadable):
        return ""


@contextmanager
def _opened(path: Path) -> Generator[int]:
    """Raises Unreadable."""
    try:
        # A pipe would block, and a device would never end.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_file():
            raise Unreadable(f"cannot be read ({error.strerror})") from error
        raise Unreadable("neither a file nor a folder" if path.exists() else "no such file") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unreadable("neither a file nor a folder")
        yield file
    finally:
        os.close(file)
