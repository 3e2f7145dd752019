"""The key from which placeholders are derived: without it they can be neither forged nor reversed by guessing."""

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
    """Parse a key of 32 bytes in hexadecimal. Raises BadInput, which does not show the text."""
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadInput(
            f"the key must be {KEY_BYTES} bytes, written as {2 * KEY_BYTES} hexadecimal digits: `openssl rand -hex "
            f"{KEY_BYTES}` makes such a key. Set WAYSTATION_KEY to the same key on all workers that share a store"
        )
    return key


def resolve_key(in_hex: str | None, path: Path) -> bytes:
    """Return the given key, else the one at `path`, which is created if missing. Raises BadInput, OSError."""
    return load_or_create_key(path) if in_hex is None else parse_hex_key(in_hex)


def compute_key_check(key: bytes) -> str:
    """Return 16 hexadecimal digits by which two workers compare their keys, without revealing them."""
    return hmac.digest(key, b"waystation: is it the same key?", "sha256").hex()[:CHECK_CHARACTERS]


def load_or_create_key(path: Path) -> bytes:
    """Load the key of 32 bytes at `path`, created with mode 0600 if missing.

    Two processes that start at once get the same key: each writes a file of its own, and the first that is linked to
    the path stays.

    Raises:
        OSError: The file cannot be read or created.
        ValueError: The file is not a key.
        BadInput: Others may read the file. They may have the key already, so its mode is not silently corrected.
    """
    if not path.exists():
        _create(path)
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & _OTHERS:
        raise BadInput(
            f"the key file {path} has mode {mode:04o}, so other users of this machine can read it: run `chmod "
            f"600 {path}`. If someone may have read it, replace the key "
            "(docs/how-to/encrypt-what-is-stored.md)"
        )
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} is not a key file, because it has {len(key)} bytes instead of {KEY_BYTES}")
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
        pass  # another process was first: its key is used
    finally:
        draft.unlink()
