"""Whether uploaded files can be used for a task, file by file, before the task starts. Nothing is stored on a disk."""

from collections.abc import Sequence
from typing import Literal

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile

from waystation.context.tokens import estimate_text
from waystation.documents.documents import SkippedItem
from waystation.kernel.value import Value
from waystation.plugins.web.uploads import UploadedFile, UploadReader

FileState = Literal["ready", "scanned", "locked", "too large", "unreadable"]
_SIGNS: tuple[tuple[FileState, tuple[str, ...]], ...] = (
    ("locked", ("password", "encrypted")),
    ("scanned", ("a scan", "a picture")),
    ("too large", (" MB; the maximum", "million pixels", "has more than")),
)
"""Words of the readers' reasons that tell the common cases apart."""


class FileCheck(Value):
    """Whether a file can be used."""

    path: str
    """Path under which it was sent, without what would lead elsewhere."""
    state: FileState
    reason: str = ""
    """Why it cannot be used; empty if it can."""
    tokens: int = 0
    """Estimated tokens of its text."""
    left_out: tuple[SkippedItem, ...] = ()
    """Parts of it that cannot be used, such as `page 3`."""


class FileCheckResult(Value):
    """The files in the order in which they were sent."""

    files: tuple[FileCheck, ...]


def classify_reason(reason: str) -> FileState:
    """Return what kind of obstacle a reader's reason describes."""
    for state, signs in _SIGNS:
        if any(sign in reason for sign in signs):
            return state
    return "unreadable"


async def check_uploads(reader: UploadReader, files: Sequence[UploadFile]) -> FileCheckResult:
    """Read the files as a task would, and return what can be used of each."""
    read = await reader.check(files)
    return await run_in_threadpool(lambda: FileCheckResult(files=tuple(map(_check, read))))


def _check(file: UploadedFile) -> FileCheck:
    document, skipped = file.read
    if document is None:
        reason = "; ".join(one.reason for one in skipped) or "no text"
        return FileCheck(path=file.path, state=classify_reason(reason), reason=reason)
    return FileCheck(path=file.path, state="ready", tokens=estimate_text(document.text), left_out=skipped)
