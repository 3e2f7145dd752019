"""Files that the `context` commands read, with the file's name in every complaint."""

import sys
from pathlib import Path

from waystation.adapters.conversation.request_body import RequestBody, read_request_body
from waystation.domain.errors import BadInput

STDIN = Path("-")


def read_bytes(path: Path) -> bytes:
    """What is in the file, or comes from stdin. Raises BadInput."""
    try:
        return sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror or type(error).__name__}") from error


def read_body(path: Path) -> RequestBody:
    """The request body in the file. Raises BadInput, naming file and place."""
    raw = read_bytes(path)
    try:
        return read_request_body(raw)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def read_text(path: Path, option: str) -> str:
    """The text of a file that an option names. Raises BadInput."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{option} {path} is no UTF-8 text: save it as plain text in UTF-8") from error
