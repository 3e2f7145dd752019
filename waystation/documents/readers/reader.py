"""The parent's side of reading: sends files and downloaded bytes to a confined child, and survives its crashes.

Files are only opened here, and their content is not examined.
"""

import asyncio
import hashlib
import os
import stat
import sys
from collections.abc import Generator, Sequence
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
    RecognitionOptions,
    UnreadableFileError,
)
from waystation.documents.readers.ocr import is_installed
from waystation.documents.readers.recognition import RECOGNITION_HINT
from waystation.kernel.errors import WebPageUnreadableError
from waystation.kernel.text import format_count
from waystation.security.confined_process import ChildProcessFailedError, ChildTimeoutError, ConfinedProcess

FILE_TIMEOUT_S = 60.0
READER_MODULE = "waystation.documents.readers.reader_child"
_ANSWER = TypeAdapter[ExtractedText | ExtractionFailure](ExtractedText | ExtractionFailure)
_RECOGNITION_BYTES, _RECOGNITION_THREAD_BYTES = 1_500_000_000, 1_000_000_000
"""Maximum address space in bytes of a child that recognises text: for itself, and for each of its threads."""
_LAST_PICTURES_S = 300.0
"""Seconds for pictures that are begun before the time for recognition is over: the machine may be busy."""
_MAX_THREADS = 4
"""Each of them takes about 400 MB."""
_MAX_BROKEN_ATTACHMENTS = 3
"""Maximum attachments of one e-mail that may crash their parsers, each within a file's time limit."""


class ParserCrashError(UnreadableFileError):
    """A file crashed its parser in an unforeseen way, or took it too long."""

    def __init__(self, time_limit: float | None = None) -> None:
        """`time_limit`: the limit in seconds that was exceeded; None if the parser crashed."""
        self.time_limit = time_limit
        crashed = "the parser crashed; the file may be damaged"
        super().__init__(f"reading took longer than {time_limit:g} s" if time_limit else crashed)


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


def find_recognition_options() -> RecognitionOptions | None:
    """Return how this machine recognises text in pictures; None if the extra `ocr` is not installed."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return RecognitionOptions(threads=min(cores, _MAX_THREADS)) if is_installed() else None


def describe_recognition(options: RecognitionOptions | None) -> str:
    """Describe whether text in pictures is recognised, and what adds it."""
    if options is None:
        return f"text in pictures is not recognised: {RECOGNITION_HINT}"
    return f"text in pictures is recognised with up to {format_count(options.threads, 'thread')}"


class _ReaderChild:
    """A child that is started for the first file, and again after each crash."""

    def __init__(self, memory: int, seconds: float) -> None:
        """`memory`: limit of its address space in bytes; `seconds`: maximum time for a file."""
        self._memory = memory
        self._seconds = seconds
        self._process: ConfinedProcess | None = None

    @property
    def pid(self) -> int | None:
        """Process id, while there is one."""
        return self._process.pid if self._process else None

    def read(self, request: FileReadRequest, files: Sequence[int]) -> ExtractedText | ExtractionFailure:
        """Return the child's answer. Raises ParserCrashError."""
        try:
            said = self._running().send_request(request.model_dump_json().encode(), self._seconds, files)
            return _ANSWER.validate_json(said)
        except (ChildProcessFailedError, ValidationError) as failed:
            self.end()
            raise ParserCrashError(self._seconds if isinstance(failed, ChildTimeoutError) else None) from None

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()

    def _running(self) -> ConfinedProcess:
        if self._process is None or not self._process.is_alive:
            self.end()
            self._process = ConfinedProcess(READER_MODULE, self._memory)
        return self._process


class SubprocessFileReader:
    """Reads files one after another in one child, which is started for the first and again after each crash.

    Text in pictures is recognised in a second child, which may take more time and memory.

    A context manager: the children end with it, and with this program for any reason.
    """

    def __init__(self, seconds_a_file: float = FILE_TIMEOUT_S, recognition: RecognitionOptions | None = None) -> None:
        """`seconds_a_file`: maximum time without text recognition; `recognition`: None leaves pictures out."""
        self._recognition = recognition
        limits = recognition or RecognitionOptions()
        self._child = _ReaderChild(READER_MEMORY_BYTES, seconds_a_file)
        self._recogniser = _ReaderChild(
            _RECOGNITION_BYTES + limits.threads * _RECOGNITION_THREAD_BYTES,
            seconds_a_file + limits.seconds + _LAST_PICTURES_S,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._child.end()
        self._recogniser.end()

    @property
    def pid(self) -> int | None:
        """Process id of the child that reads without text recognition, while there is one."""
        return self._child.pid

    def read(self, file: int, request: FileReadRequest) -> ExtractedText:
        """Return the text of an open file, whose content is not examined here.

        Raises:
            ParserCrashError: the parser crashed, hung or ran out of memory.
            UnreadableFileError: the file is of a kind that cannot be read, damaged, or protected.
        """
        with _Announced() as begun:
            answer = self._read_unbroken(file, request, begun)
        if isinstance(answer, ExtractionFailure):
            raise UnreadableFileError(answer.reason)
        return answer

    def _read_unbroken(
        self, file: int, request: FileReadRequest, begun: _Announced
    ) -> ExtractedText | ExtractionFailure:
        """Read without the attachments that crash. Raises ParserCrashError."""
        broken: list[int] = []
        while True:
            attempt = request.replace(broken=tuple(broken))
            try:
                return self._recognise(self._child.read(attempt, [file, begun.entrance]), attempt, file, begun)
            except ParserCrashError as broke:
                # One attachment must not cost the message, nor the other attachments.
                last = begun.drain_last_number()
                if last is None or last in broken or len(broken) == _MAX_BROKEN_ATTACHMENTS:
                    answer = self._child.read(request.replace(attachments=False), [file, begun.entrance])
                    if isinstance(answer, ExtractionFailure) and answer.reason == BREAKS:
                        raise broke from None
                    return answer
                broken.append(last)

    def _recognise(
        self, answer: ExtractedText | ExtractionFailure, request: FileReadRequest, file: int, begun: _Announced
    ) -> ExtractedText | ExtractionFailure:
        """Read the file again with text recognition if that adds text. If it crashes, the text without it remains."""
        if self._recognition is None or not answer.has_pictures:
            return answer
        files = [file, begun.entrance]
        try:
            recognised = self._recogniser.read(request.replace(recognition=self._recognition), files)
        except ParserCrashError as broke:
            took = f"took longer than {broke.time_limit:g} s" if broke.time_limit else "crashed"
            reason = f"text recognition {took}"
        else:
            if isinstance(recognised, ExtractedText) or isinstance(answer, ExtractionFailure):
                return recognised
            reason = recognised.reason
        return self._child.read(request.replace(unrecognised_reason=reason), files)


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
                raise WebPageUnreadableError(f"The page cannot be read: {unreadable}", "Use another source.") from None


def _with_left_out(page: ExtractedText) -> str:
    """Append what is not in the text, as text, so that names in it are redacted like the page."""
    named = [f"- {item.name}: {item.reason}" for item in page.skipped_items]
    return "\n".join([page.text, "", "Left out of this page:", *named]) if named else page.text
