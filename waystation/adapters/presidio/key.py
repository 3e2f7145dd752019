"""The key file from which placeholders are derived: without it they can be neither forged nor guessed back."""

import os
import secrets
from pathlib import Path

KEY_BYTES = 32


def load_or_create_key(path: Path) -> bytes:
    """The key of 32 bytes at `path`, created with mode 0600 where there is none.

    Two processes that start at once get the same key: each writes a file of its own, and the one that is linked to
    the path first stays. Raises OSError, and ValueError for a file that is not a key.
    """
    if not path.exists():
        _create(path)
    key = path.read_bytes()
    if len(key) != KEY_BYTES:
        raise ValueError(f"{path} is not a redaction key: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def _create(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
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
