"""The bytes of a file of any kind to its parts. Runs in the child only: the parsers of these kinds may crash."""

from functools import partial
from pathlib import PurePath
from zipfile import ZipFile

from waystation.adapters.documents.book import book_extract
from waystation.adapters.documents.containers import member, opened
from waystation.adapters.documents.decoding import decoded, page_text
from waystation.adapters.documents.extract import Extract, Part, Unreadable
from waystation.adapters.documents.kinds import HEAD, Kind, check_old_file, kind_of
from waystation.adapters.documents.mail import mail_extract
from waystation.adapters.documents.pdf import pdf_extract
from waystation.adapters.documents.sheets import sheets_extract
from waystation.adapters.documents.slides import slides_extract
from waystation.adapters.documents.word import word_extract

MOST_NESTED = 3
"""E-mails within e-mails."""
_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."


def extract(content: bytes, name: str, *, depth: int = 0, attachments: bool = True) -> Extract:
    """The parts of a file, whose name only helps where its bytes do not say what it is. Raises Unreadable."""
    match kind_of(content[:HEAD], PurePath(name).suffix.lower()):
        case Kind.TEXT:
            return Extract([Part("", decoded(content))])
        case Kind.HTML:
            return Extract([Part("", page_text(content))])
        case Kind.MAIL:
            return mail_extract(content, partial(_attachment, depth=depth + 1) if attachments else _no_attachment)
        case Kind.PDF:
            return pdf_extract(content)
        case Kind.CONTAINER:
            return _contained(content)
        case Kind.OLD_SHEETS:
            check_old_file(content)
            return sheets_extract(content)


def _attachment(content: bytes, name: str, depth: int) -> Extract:
    if depth > MOST_NESTED:
        raise Unreadable(f"more than {MOST_NESTED} e-mails deep; give it by itself")
    return extract(content, name, depth=depth)


def _no_attachment(_content: bytes, _name: str) -> Extract:
    raise Unreadable("an attachment of this e-mail broke its reader, so none was read; give them by themselves")


def _contained(content: bytes) -> Extract:
    with opened(content) as archive:
        folders = {name.partition("/")[0] for name in archive.namelist()}
        said = _said_kind(archive)
        if "word" in folders:
            return word_extract(content)
        if "ppt" in folders:
            return slides_extract(archive)
        if "xl" in folders or said == f"{_OPEN_DOCUMENT}spreadsheet":
            return sheets_extract(content)
        if said == "application/epub+zip":
            return book_extract(archive)
    if said.startswith(_OPEN_DOCUMENT):
        raise Unreadable("an OpenDocument file; save it as .docx, .pptx or PDF")
    raise Unreadable("an archive; unpack it first")


def _said_kind(archive: ZipFile) -> str:
    """What the member says that OpenDocument and EPUB have for this."""
    return member(archive, "mimetype").decode("ascii", "replace").strip() if "mimetype" in archive.NameToInfo else ""
