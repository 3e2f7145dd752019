"""Extracts the parts of a file of any kind, and reads plain text, HTML and EPUB itself.

Runs in the child only: the parsers of these kinds may crash.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from typing import NamedTuple
from urllib.parse import unquote
from zipfile import ZipFile

from bs4.dammit import EncodingDetector
from charset_normalizer import from_bytes

from waystation.documents.documents import SkippedItem
from waystation.documents.readers.compound_file import require_excel_file
from waystation.documents.readers.extraction import (
    HEAD_BYTES,
    DocumentPart,
    ExtractionResult,
    FileKind,
    UnreadableFileError,
    detect_file_kind,
)
from waystation.documents.readers.html import read_html
from waystation.documents.readers.mail import MailReaderDeps, ReadAttached, extract_email
from waystation.documents.readers.office_archive import (
    detect_office_file,
    get_local_name,
    open_archive,
    read_member,
    read_xml_member,
    resolve_relationship_target,
)
from waystation.documents.readers.pdf import extract_pdf
from waystation.documents.readers.pictures import extract_picture
from waystation.documents.readers.recognition import PageRecogniser, SkippingRecogniser
from waystation.documents.readers.sheets import extract_spreadsheet
from waystation.documents.readers.slides import extract_pptx
from waystation.documents.readers.word import extract_docx
from waystation.kernel.patterns import compile_bounded


def decode_text(content: bytes, encoding: str | None = None) -> str:
    """Decode bytes: in the declared encoding, or else as UTF-8, or else as what they look like.

    Raises:
        UnreadableFileError: no encoding fits.
    """
    for known in filter(None, (encoding, "utf-8-sig")):
        try:
            return content.decode(known)
        except (ValueError, LookupError):
            # Codecs that are not text encodings raise either of them.
            continue
    guess = from_bytes(content).best()
    if guess is None:
        raise UnreadableFileError("in an unknown text encoding; save the text as UTF-8")
    return str(guess)


def extract_html(content: bytes, encoding: str | None = None, styles: Sequence[str] = ()) -> ExtractionResult:
    """Extract the text of an HTML page, and what of it is not visible. `styles`: style sheets besides its own.

    Raises:
        UnreadableFileError: it cannot be decoded.
    """
    page = read_html(decode_text(content, encoding), styles)
    return ExtractionResult([DocumentPart("", page.text)], [page.hidden] if page.hidden else [])


_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PACKAGE = ".opf"
_HEADING = compile_bounded(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK, _LINK_TEXT = compile_bounded(r"\[([^\]]{0,1000}+)\]\([^)]{0,4000}+\)"), r"\1"


def extract_epub(archive: ZipFile) -> ExtractionResult:
    """Extract every text in reading order, one part for each file, named by its first heading.

    Unreadable files are listed.

    Raises:
        UnreadableFileError: the archive is damaged, or none of its texts can be read.
    """
    items, spine = _package(archive)
    protected, styles = _protected(archive), _style_sheets(archive, items.values())
    parts: list[DocumentPart] = []
    left_out: list[SkippedItem] = []
    for number, (name, kind) in enumerate(spine, 1):
        try:
            if name and not _is_text(kind):
                raise UnreadableFileError(
                    "a picture without text" if kind.startswith(_PICTURES) else f"no text, but {kind}"
                )
            extract = _chapter(archive, name, styles, is_protected=name in protected)
        except UnreadableFileError as unreadable:
            place = f"section {number} ({name or 'file missing in the book'})"
            left_out.append(SkippedItem(name=place, reason=str(unreadable)))
            continue
        text = extract.parts[0].text
        heading = _HEADING.search(text)
        place = f"chapter {_LINK.sub(_LINK_TEXT, heading[1])}" if heading else f"section {number}"
        parts.append(DocumentPart(place, text))
        if not text.strip() and not extract.skipped_items:
            left_out.append(SkippedItem(name=place, reason="no text, perhaps pictures"))
        left_out += [SkippedItem(name=f"{item.name} of {place}", reason=item.reason) for item in extract.skipped_items]
    if left_out and not parts:
        raise UnreadableFileError(left_out[0].reason)
    read = {name for name, _ in spine}
    beside = [name for name, kind in items.values() if kind in _CHAPTERS and name not in read]
    left_out += [SkippedItem(name=name, reason="not part of the book's reading order") for name in beside]
    return ExtractionResult(parts, left_out)


_CHAPTERS = frozenset({"application/xhtml+xml", "application/x-dtbook+xml"})
_PICTURES = "image/"


class _Item(NamedTuple):
    """A file of a book."""

    name: str
    kind: str


def _is_text(kind: str) -> bool:
    """Whether a file of this kind, which may be unspecified, has readable text: pages, and SVG drawings."""
    return not kind or kind.startswith("text/") or kind.endswith(("xml", "html"))


def _chapter(archive: ZipFile, name: str, styles: Mapping[str, str], *, is_protected: bool) -> ExtractionResult:
    if is_protected:
        raise UnreadableFileError("protected against copying (DRM); only an authorised program can open it")
    content = read_member(archive, name)
    used = [text for sheet, text in styles.items() if sheet.rpartition("/")[2].encode() in content]
    return extract_html(content, styles=used)


def _package(archive: ZipFile) -> tuple[dict[str, _Item], list[_Item]]:
    """Return the files of the book by id, without its table of contents, and those in reading order."""
    package = _package_name(archive)
    root = list(read_xml_member(archive, package).iter())
    items = {
        item.get("id", ""): _Item(
            resolve_relationship_target(package, unquote(item.get("href", ""))), item.get("media-type", "")
        )
        for item in root
        if get_local_name(item) == "item"
    }
    spine = [items.get(item.get("idref", "")) for item in root if get_local_name(item) == "itemref"]
    contents = {item.get("id", "") for item in root if "nav" in item.get("properties", "").split()}
    return (
        {key: item for key, item in items.items() if key not in contents},
        [item or _Item("", "") for item in spine],
    )


def _package_name(archive: ZipFile) -> str:
    try:
        listed = [
            found.get("full-path", "")
            for found in read_xml_member(archive, _CONTAINER).iter()
            if get_local_name(found) == "rootfile"
        ]
    except UnreadableFileError:
        listed = []
    there = [name for name in archive.namelist() if name.endswith(_PACKAGE)]
    return next((name for name in [*listed, *there] if name in archive.NameToInfo), "")


def _style_sheets(archive: ZipFile, items: Iterable[_Item]) -> dict[str, str]:
    """Return the style sheets by name; an unreadable one is left out."""
    found: dict[str, str] = {}
    for item in items:
        if item.kind == "text/css":
            with suppress(UnreadableFileError):
                found[item.name] = read_member(archive, item.name).decode("utf-8", "replace")
    return found


def _protected(archive: ZipFile) -> set[str]:
    """Return the encrypted members; fonts often are, even in books that anyone may read."""
    if _ENCRYPTION not in archive.NameToInfo:
        return set()
    return {
        unquote(found.get("URI", ""))
        for found in read_xml_member(archive, _ENCRYPTION).iter()
        if get_local_name(found) == "CipherReference"
    }


_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."


def extract_file(
    content: bytes,
    name: str,
    depth: int = 0,
    attached: ReadAttached | None = None,
    recogniser: PageRecogniser | None = None,
) -> ExtractionResult:
    """Extract the parts of a file, whose name only helps if its bytes do not say what it is.

    Args:
        content: its bytes.
        name: its name.
        depth: number of e-mails that it is nested in.
        attached: function that reads the attachments of an e-mail; this function by default.
        recogniser: recognises text in pictures; without it, they are left out.

    Raises:
        UnreadableFileError: it gives no text.
    """
    recogniser = recogniser or SkippingRecogniser()
    match detect_file_kind(content[:HEAD_BYTES], PurePath(name).suffix.lower()):
        case FileKind.TEXT:
            return ExtractionResult([DocumentPart("", decode_text(content))])
        case FileKind.HTML:
            return extract_html(content)
        case FileKind.MAIL:
            return extract_email(
                content, MailReaderDeps(_inline, attached or partial(extract_file, recogniser=recogniser)), depth
            )
        case FileKind.PDF:
            return extract_pdf(content, recogniser)
        case FileKind.PICTURE:
            return extract_picture(content, recogniser)
        case FileKind.CONTAINER:
            return _contained(content)
        case FileKind.OLD_SHEETS:
            require_excel_file(content)
            return extract_spreadsheet(content)


def _inline(content: bytes, kind: str, charset: str | None) -> ExtractionResult:
    """Extract text of an e-mail. Raises UnreadableFileError."""
    if kind != "text/html":
        return ExtractionResult([DocumentPart("", decode_text(content, charset))])
    charset = charset or EncodingDetector.find_declared_encoding(content, is_html=True)
    return extract_html(content, charset)


def _contained(content: bytes) -> ExtractionResult:
    with open_archive(content) as archive:
        said, office = _said_kind(archive), detect_office_file(archive)
        if office and office.kind == "document":
            return extract_docx(archive, office.main)
        if office and office.kind == "presentation":
            return extract_pptx(archive, office.main)
        if said.startswith(_OPEN_DOCUMENT) and _is_encrypted(archive):
            raise UnreadableFileError("protected by a password; save the file without one")
        if office or said == _OPEN_SHEETS:
            return extract_spreadsheet(content, archive, office.main if office else None)
        if said == _BOOK:
            return extract_epub(archive)
    if said.startswith(_OPEN_DOCUMENT):
        raise UnreadableFileError("an OpenDocument file; save it as .docx, .pptx or PDF")
    raise UnreadableFileError("an archive; unpack it first")


_OPEN_SHEETS, _BOOK = f"{_OPEN_DOCUMENT}spreadsheet", "application/epub+zip"
_MANIFEST = "META-INF/manifest.xml"


def _is_encrypted(archive: ZipFile) -> bool:
    return _MANIFEST in archive.NameToInfo and b"encryption-data" in read_member(archive, _MANIFEST)


def _said_kind(archive: ZipFile) -> str:
    """Return the archive's kind from the member that OpenDocument and EPUB have for it, or else from other members."""
    if "mimetype" in archive.NameToInfo:
        return read_member(archive, "mimetype").decode("ascii", "replace").strip()
    if _CONTAINER in archive.NameToInfo or any(name.endswith(_PACKAGE) for name in archive.namelist()):
        return _BOOK
    if _MANIFEST not in archive.NameToInfo:
        return ""
    entries = read_xml_member(archive, _MANIFEST).iter()
    said = [dict((key.rpartition("}")[2], value) for key, value in entry.items()) for entry in entries]
    return next((entry.get("media-type", "") for entry in said if entry.get("full-path") == "/"), "")
