"""Files of this user's alone, and reports among them.

Folders and files that are this user's alone, whatever the umask of the program that makes them.

Whoever imports the client has a umask of their own, usually one that lets everybody read.

Reports as files in the home folder: one file a version, which no later version replaces; and beside them plans that
their tasks did not take.

They go when their tasks are forgotten, and lose who is erased.
"""

import errno
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from waystation.kernel.errors import BadInput

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def create_private_folder(path: Path) -> Path:
    """The folder, made with those above it that are missing, all of mode 0700. One that is there stays as it is: it
    may be shared on purpose, or not be ours. Raises OSError.
    """
    if not path.is_dir():
        if not path.parent.exists():
            create_private_folder(path.parent)
        # 0700 also under a umask that takes more away, and whoever is first makes it.
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def ensure_private_folder(path: Path) -> Path:
    """A folder that we alone put things into: one that others could look into is closed to them. Raises OSError."""
    make_path_private(create_private_folder(path))
    return path


def ensure_private_file(path: Path) -> Path:
    """The file, made empty where it is missing, of mode 0600; one of ours that others can use is closed to them.

    Raises OSError.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE))
    except FileExistsError:
        make_path_private(path)
    return path


def open_private_file(path: Path, *, fresh: bool = False) -> IO[bytes]:
    """Open for appending, or `fresh`: emptied. No link is followed, and the file is ours and nobody else's; root may
    use whosever it is.

    Raises BadInput for a link or somebody else's file, OSError.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | (0 if fresh else os.O_APPEND), FILE_MODE)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENXIO}:
            raise _foreign(path) from error
        raise
    found = os.fstat(descriptor)
    if os.geteuid() not in {found.st_uid, 0} or not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise _foreign(path)
    if found.st_uid == os.geteuid() and found.st_mode & _OTHERS:
        os.fchmod(descriptor, FILE_MODE)
    if fresh:
        os.ftruncate(descriptor, 0)
    return os.fdopen(descriptor, "r+b" if fresh else "ab")


def write_private_file(path: Path, content: bytes) -> None:
    """Put the content into the file in one step, so that a reader never sees half of it, nor an open file.

    Raises BadInput, OSError.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # What a process of this number left when it was killed.
    draft.unlink(missing_ok=True)
    with open_private_file(draft, fresh=True) as file:
        file.write(content)
    draft.replace(path)


def make_path_private(path: Path) -> None:
    """Take group and others away from what is ours; what is not ours, and what is gone, stays as it is."""
    try:
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    except FileNotFoundError:
        return


def is_private_folder(path: Path) -> bool:
    """Whether this is a folder, no link, that is ours and nobody else's."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def find_shared_paths(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Those that group or others may read or write, as far as their own modes say."""
    return tuple(path for path in paths if path.exists() and path.stat().st_mode & _OTHERS)


def _foreign(path: Path) -> BadInput:
    return BadInput(f"{path} is a link, or not a file of this user's: somebody else may have put it there; remove it")
