"""Reads files for its parent, in a confined child (`security.children`): sniffing, decoding and parsing happen here.

It protects its parent from what it reads: whatever a parser does that nobody foresaw ends it, and the parent takes that
for the file's fault and starts another. It opens no file: each comes open, with its name, which is only a hint.
"""

import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath

from charset_normalizer.utils import iana_name

from waystation.documents.readers.extraction import (
    BREAKS,
    HEAD_BYTES,
    MAX_FILE_BYTES,
    MAX_TEXT_BYTES,
    READER_MEMORY_BYTES,
    ExtractedText,
    ExtractionFailure,
    ExtractionResult,
    FileKind,
    FileReadRequest,
    UnreadableFileError,
    detect_file_kind,
    is_utf8,
    join_extracted_parts,
)
from waystation.documents.readers.formats import decode_text, extract_file


def prepare() -> None:
    """Nothing is needed beyond what is imported."""


def answer(request: bytes, files: Sequence[int]) -> bytes:
    """An `ExtractedText` or an `ExtractionFailure` as JSON, for a `FileReadRequest`, the open file, and where
    attachments
    are announced.
    """
    file, begun = files
    # Trees of large documents are alive to the end: looking for garbage among them takes as long as reading.
    gc.disable()
    try:
        return _read(FileReadRequest.model_validate_json(request), file, begun).model_dump_json().encode()
    finally:
        gc.enable()
        for one in files:
            os.close(one)


class _Attachments:
    """Reads the attachments of an e-mail, and tells the parent of each before: the one told last may end this child."""

    def __init__(self, given: FileReadRequest, begun: int) -> None:
        self._given = given
        self._begun = begun
        self._count = 0

    def read(self, content: bytes, name: str, depth: int) -> ExtractionResult:
        """Raises Unreadable."""
        if not self._given.attachments:
            raise UnreadableFileError(
                "an attachment of this e-mail broke its reader, so none was read; give them by themselves"
            )
        self._count += 1
        if self._count in self._given.broken:
            raise UnreadableFileError("broke its reader; it may be damaged")
        with suppress(BlockingIOError):
            os.write(self._begun, b"%d\n" % self._count)
        return extract_file(content, name, depth, self.read)


def _read(given: FileReadRequest, file: int, begun: int) -> ExtractedText | ExtractionFailure:
    try:
        return _extracted(given, file, begun)
    except UnreadableFileError as unreadable:
        return ExtractionFailure(reason=str(unreadable))
    except MemoryError:
        return ExtractionFailure(
            reason=f"could not be read (needs more than {READER_MEMORY_BYTES // 1_000_000_000} GB of memory)"
        )
    except OSError as error:
        return ExtractionFailure(reason=f"cannot be read ({error.strerror})")


def _extracted(given: FileReadRequest, file: int, begun: int) -> ExtractedText:
    size = os.fstat(file).st_size
    # What it says of its charset decides what its first bytes are, too.
    content = _in_utf8(_content(file), given.charset) if given.charset else b""
    kind = detect_file_kind(content[:HEAD_BYTES] or os.pread(file, HEAD_BYTES, 0), PurePath(given.name).suffix.lower())
    _check_size(size, MAX_TEXT_BYTES if kind in {FileKind.TEXT, FileKind.HTML} else MAX_FILE_BYTES)
    content = content or _content(file)
    if kind is not FileKind.TEXT:
        _check_again(given, kind)
        return join_extracted_parts(extract_file(content, given.name, attached=_Attachments(given, begun).read))
    text = "\n".join(decode_text(content).splitlines()).rstrip()
    if not text.strip():
        raise UnreadableFileError("empty")
    return ExtractedText(text=text)


def _check_again(given: FileReadRequest, kind: FileKind) -> None:
    """What broke a parser is read again only where there is something to leave out: an e-mail's attachments."""
    if (given.broken or not given.attachments) and kind is not FileKind.MAIL:
        raise UnreadableFileError(BREAKS)


def _content(file: int) -> bytes:
    with os.fdopen(file, "rb", closefd=False) as opened:
        opened.seek(0)
        # It may grow while it is read.
        return opened.read(MAX_FILE_BYTES)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        most = limit // 1_000_000
        raise UnreadableFileError(
            f"{size / 1e6:.1f} MB, and {most} MB is the most that one file of this kind may have; split it"
        )


def _in_utf8(content: bytes, charset: str) -> bytes:
    """The bytes of a text in UTF-8, where its charset is as it is said to be; else as they are.

    What is UTF-8 by its bytes is taken for that, whatever is said: no text in another encoding is so by accident.
    """
    if not content.isascii() and is_utf8(content):
        return content
    try:
        return content.decode(iana_name(charset)).encode()
    except (ValueError, LookupError):
        return content
