"""The result of reading a file (parts with places, and what was skipped), size limits, and detection of file kinds.

A file's beginning says what it is; its suffix only decides if that leaves a choice.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from waystation.documents.documents import DocumentDate, SkippedItem, join_with_place_markers
from waystation.kernel.patterns import compile_bounded, compile_linear
from waystation.kernel.value import Value

_MAX_CHARACTERS = 20_000_000
"""Maximum characters of the text of a document."""
_CONTROLS = compile_bounded(r"[\x00-\x08\x0e-\x1b\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that no text has, and lone surrogates, which no file can contain."""


MAX_TEXT_BYTES = 20_000_000
"""Maximum bytes of a text file. That many have over a hundred thousand lines; more is a data set, not a document."""
MAX_FILE_BYTES = 200_000_000
"""Maximum bytes of a file of any other kind: most of a large PDF is pictures."""
READER_MEMORY_BYTES = 2_000_000_000
"""Maximum address space in bytes for reading one file."""
BREAKS = "makes its parser fail"


class UnreadableFileError(Exception):
    """A file that gives no text. The message is the reason, in words that follow the file's name."""


class DocumentPart(NamedTuple):
    """A piece of text and its place, such as `page 3`; empty if it has none."""

    place: str
    text: str


class ExtractionResult(NamedTuple):
    """The parts in the order of the document; names in `left_out` are parts of it, such as `sheet Old`."""

    parts: Sequence[DocumentPart]
    skipped_items: Sequence[SkippedItem] = ()


class RecognitionOptions(Value):
    """Limits on the recognition of text in the pictures of one file."""

    threads: int = 1
    """Maximum threads that compute at once."""
    max_pictures: int = 500
    """Maximum pictures; later ones are left out."""
    seconds: float = 900.0
    """Seconds after which no further picture is begun."""


class FileReadRequest(Value):
    """How to read an open file."""

    name: str
    """Last part of its path, which helps if the bytes do not say what it is."""
    charset: str | None = None
    """The charset that it is said to have."""
    attachments: bool = True
    """Whether an e-mail's attachments are read. False if its parser crashed before: nothing else is read then."""
    broken: tuple[int, ...] = ()
    """Numbers of an e-mail's attachments that crashed their parsers before, counted from 1 in reading order."""
    recognition: RecognitionOptions | None = None
    """How text in pictures is recognised; None if it is not."""
    unrecognised_reason: str = ""
    """Why text in pictures is not recognised; empty if the packages for it are not installed."""


class ExtractedText(Value):
    r"""The text of one file with every line end as `\n`, and what of the file is not in it."""

    text: str
    skipped_items: tuple[SkippedItem, ...] = ()
    date: DocumentDate = ""
    """Day that the properties of the file state; empty if they state none."""
    has_pictures: bool = False
    """Whether it has pictures in which text was not looked for."""


class ExtractionFailure(Value):
    """Why a file gives no text."""

    reason: str
    has_pictures: bool = False
    """Whether it has pictures in which text was not looked for."""


def join_extracted_parts(extract: ExtractionResult) -> ExtractedText:
    """Join the parts into one text with place markers.

    Raises:
        UnreadableFileError: nothing is left, or too much.
    """
    text = _CONTROLS.sub(" ", join_with_place_markers(extract.parts))
    if not text.strip():
        first = next(
            (f"nothing in it can be read ({item.name}: {item.reason})" for item in extract.skipped_items), "empty"
        )
        raise UnreadableFileError(first)
    if len(text) > _MAX_CHARACTERS:
        limit = _MAX_CHARACTERS // 1_000_000
        raise UnreadableFileError(
            f"too long: {len(text) / 1e6:.1f} million characters of text; the maximum is {limit} million. "
            "Split the file"
        )
    return ExtractedText(text=text, skipped_items=tuple(extract.skipped_items))


HEAD_BYTES = 8_192
"""Number of bytes that are examined. Text has no NUL in them, as git assumes too; nearly every binary format has
one.
"""

_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\x00", b"MM\x00*")
"""PNG, JPEG and TIFF."""
_PDF, _ZIP, _OLE, _RTF = b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf"
_PDF_WITHIN = 1_024
"""Bytes of anything that readers accept before a PDF."""
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
_SAVED_WRONG = frozenset({"", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".epub", ".eml"})
"""A file with one of these suffixes that begins as a web page is one: servers and programs name pages so. Source code
stays source code.
"""
_HTML = compile_linear(
    r"\A(?:\xef\xbb\xbf)?[\t-\r ]*(?:<\?xml[^>]*>[\t-\r ]*)?(?:<!--.*?-->[\t-\r ]*)*"
    r"<(?:!doctype[\t-\r ]+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Applied to bytes as Latin-1. What precedes the page is untrusted: a backtracking engine would try all ways to split
it into comments.
"""
_NEVER_TEXT = frozenset(
    {
        ".doc",
        ".docx",
        ".epub",
        ".gif",
        ".jpeg",
        ".jpg",
        ".ods",
        ".odt",
        ".pdf",
        ".png",
        ".ppt",
        ".pptx",
        ".tif",
        ".tiff",
        ".xls",
        ".xlsx",
    }
)
"""A file with one of these suffixes that is neither of that kind nor a web page is a failed download, or misnamed."""
_HEADER = compile_bounded(rb"\A(?:([!-9;-~]++)[ \t]*+:|[ \t])")
_OF_MAIL = frozenset({b"from", b"to", b"subject", b"date"})
_OF_TRANSPORT = frozenset({b"message-id", b"mime-version", b"received", b"return-path"})
FROM_LINE = compile_bounded(rb"^From [^\r\n]{1,400}[ \t]\d{4}(?:[ \t][^\r\n]{0,40})?\r?\n", re.MULTILINE)
"""First line of each message in a mailbox: an address and a date."""
_MAIL_SUFFIXES = frozenset({".eml", ".mbox", ".mht", ".mhtml"})
"""Browsers save a page with its pictures as an e-mail without a recipient."""


class FileKind(Enum):
    """How a file is read."""

    TEXT = auto()
    HTML = auto()
    MAIL = auto()
    PDF = auto()
    CONTAINER = auto()
    """A zip archive: its members say what it is."""
    OLD_SHEETS = auto()
    PICTURE = auto()


def detect_file_kind(head: bytes, suffix: str) -> FileKind:
    """Return the kind of a file by its first bytes and its suffix (lower case, with the dot).

    Raises:
        UnreadableFileError: it is of a kind that cannot be read.
    """
    if head.lstrip().startswith(_PDF) or (suffix == ".pdf" and _PDF in head[:_PDF_WITHIN]):
        return FileKind.PDF
    if head.startswith(_ZIP):
        return FileKind.CONTAINER
    if head.startswith(_OLE):
        return FileKind.OLD_SHEETS
    if is_picture(head):
        return FileKind.PICTURE
    if head.startswith(_RTF):
        raise UnreadableFileError("an RTF file; save it as .docx or as text")
    if _is_mail(head, suffix):
        return FileKind.MAIL
    if b"\x00" in head and not head.startswith(_BYTE_ORDER_MARKS):
        raise UnreadableFileError("binary, not text")
    is_page = suffix in _HTML_SUFFIXES or (suffix in _SAVED_WRONG and _HTML.match(head.decode("latin-1")))
    if suffix in _NEVER_TEXT and head.strip() and not is_page:
        raise UnreadableFileError(
            f"plain text, although its name ends in {suffix}; rename it to .txt if it is a document"
        )
    return FileKind.HTML if is_page else FileKind.TEXT


def is_picture(head: bytes) -> bool:
    """Whether a file that begins like this is a picture in which text can be recognised."""
    return head.startswith(_PICTURES)


def _is_mail(head: bytes, suffix: str) -> bool:
    """Whether it begins with an e-mail's headers; without a mail suffix, transport headers are required too."""
    lines = head.removeprefix(b"\xef\xbb\xbf").lstrip().replace(b"\r\n", b"\n").split(b"\n")
    is_called_mail = suffix in _MAIL_SUFFIXES
    if lines[0].startswith(b"From ") and (is_called_mail or FROM_LINE.match(lines[0] + b"\n")):
        lines = lines[1:]
    names: set[bytes] = set()
    for line in lines[: lines.index(b"")] if b"" in lines else lines[:-1]:
        header = _HEADER.match(line)
        if header is None and not is_called_mail:
            return False
        names.add((header[1] or b"").lower() if header else b"")
    said, carried = len(names & _OF_MAIL), not names.isdisjoint(_OF_TRANSPORT)
    return said > 0 or carried or b"content-type" in names if is_called_mail else said > 1 and carried


def is_utf8(content: bytes) -> bool:
    """Whether all of it is UTF-8."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


MAX_NAMED_RANGES = 20
"""Maximum page or slide ranges named in a message."""


def build_skipped_pages(noun: str, pages: Sequence[int], reason: str) -> Iterator[SkippedItem]:
    """Yield one item that names these pages, slides or rows as ranges, with what is wrong; none without pages."""
    if pages:
        ranges = [f"{first}" if first == last else f"{first}–{last}" for first, last in group_consecutive(pages)]
        more = [f"and {len(ranges) - MAX_NAMED_RANGES} more ranges"] if len(ranges) > MAX_NAMED_RANGES else []
        numbers = ", ".join([*ranges[:MAX_NAMED_RANGES], *more])
        yield SkippedItem(name=f"{noun} {numbers}" if len(pages) == 1 else f"{noun}s {numbers}", reason=reason)


def group_consecutive(pages: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last number of each run of consecutive numbers."""
    runs: list[tuple[int, int]] = []
    for page in pages:
        if runs and runs[-1][1] == page - 1:
            runs[-1] = (runs[-1][0], page)
        else:
            runs.append((page, page))
    return runs
