"""Detects, decodes and parses files in a confined child (`waystation.security.confined_process`).

It protects its parent from the files: any unforeseen crash of a parser ends it, and the parent blames the file and
starts another child. It opens no file: each arrives open, with its name, which is only a hint.
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
from waystation.documents.readers.file_dates import read_file_date
from waystation.documents.readers.formats import decode_text, extract_file
from waystation.documents.readers.ocr import OcrRecogniser
from waystation.documents.readers.recognition import PageRecogniser, SkippingRecogniser


def prepare() -> None:
    """Do nothing: everything that is needed was imported."""


def answer(request: bytes, files: Sequence[int]) -> bytes:
    """Return an `ExtractedText` or an `ExtractionFailure` as JSON. The files are the open file, and the pipe on which
    attachments are announced.
    """
    file, begun = files
    # Trees of large documents are alive until the end: searching them for garbage takes as long as reading.
    gc.disable()
    try:
        return _read(FileReadRequest.model_validate_json(request), file, begun).model_dump_json().encode()
    finally:
        gc.enable()
        for one in files:
            os.close(one)


class _Attachments:
    """Reads the attachments of an e-mail, and announces each to the parent first: the last one may crash this child."""

    def __init__(self, request: FileReadRequest, begun: int, recogniser: PageRecogniser) -> None:
        self._given = request
        self._begun = begun
        self._recogniser = recogniser
        self._count = 0

    def read(self, content: bytes, name: str, depth: int) -> ExtractionResult:
        """Read an attachment. Raises UnreadableFileError."""
        if not self._given.attachments:
            raise UnreadableFileError(
                "an attachment of this e-mail crashed the parser, so none was read; submit the attachments separately"
            )
        self._count += 1
        if self._count in self._given.broken:
            raise UnreadableFileError("crashed the parser; the file may be damaged")
        with suppress(BlockingIOError):
            os.write(self._begun, b"%d\n" % self._count)
        return extract_file(content, name, depth, self.read, self._recogniser)


def _read(request: FileReadRequest, file: int, begun: int) -> ExtractedText | ExtractionFailure:
    skipping = SkippingRecogniser(request.unrecognised_reason)
    recogniser = skipping if request.recognition is None else OcrRecogniser(request.recognition)
    try:
        extracted = _extracted(request, file, begun, recogniser)
        return extracted.replace(has_pictures=skipping.has_skipped)
    except UnreadableFileError as unreadable:
        return ExtractionFailure(reason=str(unreadable), has_pictures=skipping.has_skipped)
    except MemoryError:
        if request.recognition is not None:
            return ExtractionFailure(reason="text recognition needs too much memory")
        return ExtractionFailure(reason=f"reading needs more than {READER_MEMORY_BYTES // 1_000_000_000} GB of memory")
    except OSError as error:
        return ExtractionFailure(reason=f"cannot be read ({error.strerror})")


def _extracted(request: FileReadRequest, file: int, begun: int, recogniser: PageRecogniser) -> ExtractedText:
    size = os.fstat(file).st_size
    # The declared charset also determines what the first bytes are.
    content = _in_utf8(_content(file), request.charset) if request.charset else b""
    kind = detect_file_kind(
        content[:HEAD_BYTES] or os.pread(file, HEAD_BYTES, 0), PurePath(request.name).suffix.lower()
    )
    _check_size(size, MAX_TEXT_BYTES if kind in {FileKind.TEXT, FileKind.HTML} else MAX_FILE_BYTES)
    content = content or _content(file)
    if kind is not FileKind.TEXT:
        _check_again(request, kind)
        attached = _Attachments(request, begun, recogniser).read
        extract = extract_file(content, request.name, attached=attached, recogniser=recogniser)
        return join_extracted_parts(extract).replace(date=read_file_date(content, kind, extract.parts))
    text = "\n".join(decode_text(content).splitlines()).rstrip()
    if not text.strip():
        raise UnreadableFileError("empty")
    return ExtractedText(text=text)


def _check_again(request: FileReadRequest, kind: FileKind) -> None:
    """Read a file again after a crash only if something can be left out: the attachments of an e-mail."""
    if (request.broken or not request.attachments) and kind is not FileKind.MAIL:
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
            f"{size / 1e6:.1f} MB; the maximum for this kind of file is {most} MB. Split the file"
        )


def _in_utf8(content: bytes, charset: str) -> bytes:
    """Return the bytes of a text in UTF-8 if its declared charset is right; otherwise unchanged.

    Valid UTF-8 is taken as such, whatever is declared: no text in another encoding is valid UTF-8 by accident.
    """
    if not content.isascii() and is_utf8(content):
        return content
    try:
        return content.decode(iana_name(charset)).encode()
    except (ValueError, LookupError):
        return content
