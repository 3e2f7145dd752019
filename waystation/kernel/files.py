"""Files and folders that only the current user can access, whatever the umask of the program that creates them.

A program that imports the client has its own umask, usually one that lets everyone read.
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
    """Create the folder and its missing parents with mode 0700, and return it.

    An existing folder stays as it is: it may be shared on purpose, or belong to someone else.

    Raises:
        OSError: a folder cannot be created.
    """
    if not path.is_dir():
        if not path.parent.exists():
            create_private_folder(path.parent)
        # 0700 even under a umask that removes more; another process may create it first.
        path.mkdir(mode=FOLDER_MODE, exist_ok=True)
    return path


def ensure_private_folder(path: Path) -> Path:
    """Return a folder that only we write to, created if missing. If others have access to it, that is removed.

    Raises:
        OSError: the folder cannot be created or changed.
    """
    make_path_private(create_private_folder(path))
    return path


def ensure_private_file(path: Path) -> Path:
    """Return the file with mode 0600, created empty if missing. If it is ours and others have access, that is removed.

    Raises:
        OSError: the file cannot be created or changed.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE))
    except FileExistsError:
        make_path_private(path)
    return path


def open_private_file(path: Path, *, fresh: bool = False) -> IO[bytes]:
    """Open a private file for appending, or emptied if `fresh`.

    Links are not followed. The file must belong to this user alone; root may use a file of any owner.

    Raises:
        BadInput: it is a link, or someone else's file.
        OSError: it cannot be opened.
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
    """Write a file in one step, so that a reader never sees half of it, nor a file that others can read.

    What was at `path` is replaced. A link is replaced, too, and not followed.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    # A killed process with the same pid may have left its draft.
    draft.unlink(missing_ok=True)
    with open_private_file(draft, fresh=True) as file:
        file.write(content)
    draft.replace(path)


def make_path_private(path: Path) -> None:
    """Remove access of group and others if the path is ours.

    A path of someone else, a missing one, or one with the sticky bit (like /tmp) stays as it is.
    """
    try:
        found = path.stat()
        if found.st_uid == os.geteuid() and found.st_mode & _OTHERS and not found.st_mode & stat.S_ISVTX:
            path.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    except FileNotFoundError:
        return


def is_private_folder(path: Path) -> bool:
    """Whether this is a folder, not a link, that belongs to this user and is closed to everyone else."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & _OTHERS


def find_shared_paths(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths that group or others may read or write, judged by their own modes only."""
    return tuple(path for path in paths if path.exists() and path.stat().st_mode & _OTHERS)


def _foreign(path: Path) -> BadInput:
    return BadInput(f"{path} is a link, or belongs to another user, who may have put it there: remove it")
