"""The day that the properties of a file state: when a PDF or Office file was last changed. Runs in the child only."""

from collections.abc import Sequence
from typing import Protocol, cast

from pypdfium2 import PdfDocument, PdfiumError

from waystation.documents.descriptions import parse_day
from waystation.documents.documents import RECOGNISED_FROM_PICTURE
from waystation.documents.readers.extraction import DocumentPart, FileKind, UnreadableFileError
from waystation.documents.readers.office_archive import get_local_name, open_archive, read_xml_member
from waystation.kernel.patterns import compile_bounded

_CORE = "docProps/core.xml"
_PDF_DAY = compile_bounded(r"\AD:(\d{4})(\d{2})(\d{2})")


class _Document(Protocol):
    def get_metadata_value(self, key: str) -> str: ...


def read_file_date(content: bytes, kind: FileKind, parts: Sequence[DocumentPart]) -> str:
    """Return the day in ISO 8601; empty if the properties state none, or cannot be read.

    Those of a scan state when it was scanned, which says nothing about the text.

    Args:
        content: The file.
        kind: Its kind.
        parts: What was read from it.
    """
    if all(RECOGNISED_FROM_PICTURE in part.place for part in parts):
        return ""
    try:
        match kind:
            case FileKind.PDF:
                return _read_pdf_date(content)
            case FileKind.CONTAINER:
                return _read_office_date(content)
            case _:
                return ""
    except (UnreadableFileError, PdfiumError):
        return ""


def _read_pdf_date(content: bytes) -> str:
    document = cast("_Document", PdfDocument(content))
    written = (document.get_metadata_value(name) for name in ("ModDate", "CreationDate"))
    found = filter(None, map(_PDF_DAY.match, written))
    return next(filter(None, (parse_day("-".join(one.groups())) for one in found)), "")


def _read_office_date(content: bytes) -> str:
    with open_archive(content) as archive:
        if _CORE not in archive.NameToInfo:
            return ""
        stated = {get_local_name(one): one.text or "" for one in read_xml_member(archive, _CORE).iter()}
    return parse_day(stated.get("modified", "")) or parse_day(stated.get("created", ""))
