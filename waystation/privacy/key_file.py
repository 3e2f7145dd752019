"""The key from which placeholders are derived: without it they can be neither forged nor guessed back."""

import hmac
import os
import secrets
import stat
from pathlib import Path

from waystation.kernel.errors import BadInput
from waystation.kernel.files import create_private_folder

KEY_BYTES = 32
CHECK_CHARACTERS = 16
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def parse_hex_key(text: str) -> bytes:
    """The key of 32 bytes that a person wrote in hex. Raises BadInput, which does not show the text."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadInput(
            f"the key must be {KEY_BYTES} bytes, written as {2 * KEY_BYTES} hexadecimal digits: `openssl rand -hex "
            f"{KEY_BYTES}` makes one; set WAYSTATION_KEY to the same for all workers that share a store"
        )
    return key


def resolve_key(in_hex: str | None, path: Path) -> bytes:
    """The key that is given, else the one at `path`, made there where it is missing. Raises BadInput, OSError."""
    return load_or_create_key(path) if in_hex is None else parse_hex_key(in_hex)


def compute_key_check(key: bytes) -> str:
    """16 hexadecimal digits by which two workers see whether their keys are equal, and nobody learns a key."""
    return hmac.digest(key, b"waystation: is it the same key?", "sha256").hex()[:CHECK_CHARACTERS]


def load_or_create_key(path: Path) -> bytes:
    """The key of 32 bytes at `path`, created with mode 0600 where there is none.

    Two processes that start at once get the same key: each writes a file of its own, and the one that is linked to
    the path first stays. Raises OSError, ValueError for a file that is not a key, and BadInput for one that others
    may use: they may have it already, so nothing is mended in silence.
    """
    if not path.exists():
        _create(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise BadInput(
            f"the key file {path} has mode {mode:04o}, so that others on this machine can use it: `chmod 600 {path}`; "
            "if somebody may have read it, replace the key (docs/privacy.md)"
        )
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} is not a redaction key: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def _create(path: Path) -> None:
    create_private_folder(path.parent)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        path.hardlink_to(draft)
    except FileExistsError:
        pass  # another process was first: its key counts
    finally:
        draft.unlink()
