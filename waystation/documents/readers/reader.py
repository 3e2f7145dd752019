"""The parent's side of reading: sends files and downloaded bytes to a confined child, and survives its crashes.

Files are only opened here, and their content is not examined.
"""

import asyncio
import hashlib
import os
import stat
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter, ValidationError

from waystation.documents.readers.extraction import (
    BREAKS,
    MAX_FILE_BYTES,
    READER_MEMORY_BYTES,
    ExtractedText,
    ExtractionFailure,
    FileReadRequest,
    UnreadableFileError,
)
from waystation.kernel.errors import WebFetchRejectedError
from waystation.security.confined_process import ChildProcessFailedError, ChildTimeoutError, ConfinedProcess

FILE_TIMEOUT_S = 60.0
READER_MODULE = "waystation.documents.readers.reader_child"
_ANSWER = TypeAdapter[ExtractedText | ExtractionFailure](ExtractedText | ExtractionFailure)


_MAX_BROKEN_ATTACHMENTS = 3
"""Maximum attachments of one e-mail that may crash their parsers, each within a file's time limit."""


class ParserCrashError(UnreadableFileError):
    """A file crashed its parser in an unforeseen way."""


class _Announced:
    """A pipe through which the child announces which attachment of an e-mail it begins to read."""

    def __enter__(self) -> Self:
        self._exit, self.entrance = os.pipe()
        for end in (self._exit, self.entrance):
            os.set_blocking(end, False)
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        os.close(self._exit)
        os.close(self.entrance)

    def drain_last_number(self) -> int | None:
        """Return the last number announced since the previous call; None if there is none, or it is not a number."""
        said = b""
        with suppress(BlockingIOError):
            while more := os.read(self._exit, 65_536):
                said = (said + more)[-20:]
        number = said.rstrip(b"\n").rpartition(b"\n")[2]
        return int(number) if number.isdigit() else None


class SubprocessFileReader:
    """Reads files one after another in one child, which is started for the first and again after each crash.

    A context manager: the child ends with it, and with this program for any reason.
    """

    def __init__(self, seconds_a_file: float = FILE_TIMEOUT_S) -> None:
        self._seconds = seconds_a_file
        self._child: ConfinedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._end()

    @property
    def pid(self) -> int | None:
        """Process id of the child, while there is one."""
        return self._child.pid if self._child else None

    def read(self, file: int, request: FileReadRequest) -> ExtractedText:
        """Return the text of an open file, whose content is not examined here.

        Raises:
            ParserCrashError: the parser crashed, hung or ran out of memory.
            UnreadableFileError: the file is of a kind that cannot be read, damaged, or protected.
        """
        broken: list[int] = []
        with _Announced() as begun:
            while True:
                try:
                    return self._read_once(file, request.replace(broken=tuple(broken)), begun.entrance)
                except ParserCrashError as broke:
                    # One attachment must not cost the message, nor the other attachments.
                    last = begun.drain_last_number()
                    if last is None or last in broken or len(broken) == _MAX_BROKEN_ATTACHMENTS:
                        return self._without_attachments(file, request, begun.entrance, broke)
                    broken.append(last)

    def _without_attachments(
        self, file: int, request: FileReadRequest, begun: int, broke: ParserCrashError
    ) -> ExtractedText:
        try:
            return self._read_once(file, request.replace(attachments=False), begun)
        except UnreadableFileError as unreadable:
            raise (broke if str(unreadable) == BREAKS else unreadable) from None

    def _read_once(self, file: int, request: FileReadRequest, begun: int) -> ExtractedText:
        try:
            said = self._running().send_request(request.model_dump_json().encode(), self._seconds, [file, begun])
            answer = _ANSWER.validate_json(said)
        except (ChildProcessFailedError, ValidationError) as failed:
            self._end()
            hung = isinstance(failed, ChildTimeoutError)
            why = f"took longer than {self._seconds:g} s" if hung else "its parser crashed; the file may be damaged"
            raise ParserCrashError(f"could not be read ({why})") from None
        if isinstance(answer, ExtractionFailure):
            raise UnreadableFileError(answer.reason)
        return answer

    def _running(self) -> ConfinedProcess:
        if self._child is None or not self._child.is_alive:
            self._end()
            self._child = ConfinedProcess(READER_MODULE, READER_MEMORY_BYTES)
        return self._child

    def _end(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()


def read_file(path: Path, child: SubprocessFileReader) -> ExtractedText:
    r"""Return the text of a file with every line end as `\n` and no blank lines at its end, for uniform line numbers.

    Raises:
        UnreadableFileError: it is missing, not a file, too large, empty, damaged, protected, or of a kind that cannot
            be read.
    """
    with open_file(path) as file:
        return child.read(file, FileReadRequest(name=os.fsencode(path.name).decode("utf-8", "replace")))


def compute_file_hash(path: Path) -> str:
    """Return the content hash of a file, to detect changes; empty if it cannot be read."""
    try:
        with open_file(path) as number, os.fdopen(number, "rb", closefd=False) as file:
            if os.fstat(number).st_size > MAX_FILE_BYTES:
                return ""
            return hashlib.file_digest(file, "sha256").hexdigest()
    except (OSError, UnreadableFileError):
        return ""


@contextmanager
def open_file(path: Path) -> Generator[int]:
    """Open a regular file for reading. Raises UnreadableFileError."""
    try:
        # A pipe would block, and a device would never end.
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_file():
            raise UnreadableFileError(f"cannot be read ({error.strerror})") from error
        raise UnreadableFileError("neither a file nor a folder" if path.exists() else "no such file") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise UnreadableFileError("neither a file nor a folder")
        yield file
    finally:
        os.close(file)


PAGE_TIMEOUT_S = 20.0
_TEXTS = frozenset({".html", ".json", ".txt", ".xhtml", ".xml"})


class SubprocessWebTextExtractor:
    """Implements `WebTextExtractor`.

    Pages are read one after another, off the event loop; one that crashes its parser is rejected.
    """

    def __init__(self, seconds_a_page: float = PAGE_TIMEOUT_S) -> None:
        self._stack = ExitStack()
        self._child = self._stack.enter_context(SubprocessFileReader(seconds_a_page))
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="page-reader")

    async def read(self, content: bytes, suffix: str, charset: str | None) -> str:
        """See `WebTextExtractor`."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._read, content, suffix, charset)

    async def aclose(self) -> None:
        """Finish what was begun, then end the child."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._stack.close)
        self._thread.shutdown()

    def _read(self, content: bytes, suffix: str, charset: str | None) -> str:
        given = FileReadRequest(name=f"page{suffix}", charset=charset if suffix in _TEXTS else None)
        with TemporaryFile() as file:
            file.write(content)
            file.flush()
            try:
                return _with_left_out(self._child.read(file.fileno(), given))
            except UnreadableFileError as unreadable:
                raise WebFetchRejectedError(f"The page cannot be read: {unreadable}", "Use another source.") from None


def _with_left_out(page: ExtractedText) -> str:
    """Append what is not in the text, as text, so that names in it are redacted like the page."""
    named = [f"- {item.name}: {item.reason}" for item in page.skipped_items]
    return "\n".join([page.text, "", "Not read of this page:", *named]) if named else page.text
