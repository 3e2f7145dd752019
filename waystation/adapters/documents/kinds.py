"""What the beginning of a file says that it is; its suffix only decides where that leaves a choice."""

import re
from enum import Enum, auto

from waystation.adapters.documents.extract import Unreadable
from waystation.patterns import linear, proven

HEAD = 8_192
"""Bytes that are looked at. Text has no NUL there, as git finds too; nearly every binary format has one."""

_PDF, _ZIP, _OLE, _RTF = b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", b"{\\rtf"
_PDF_WITHIN = 1_024
"""Bytes of anything that readers accept before a PDF."""
_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")
_HTML_SUFFIXES = frozenset({".html", ".htm", ".xhtml"})
_SAVED_WRONG = frozenset({"", ".pdf", ".doc", ".docx", ".xls", ".xlsx", ".ppt", ".pptx", ".epub", ".eml"})
"""Whatever of these begins as a page is one: web servers and programs name pages so. Source code stays source code."""
_HTML = linear(
    r"\A(?:\xef\xbb\xbf)?[\t-\r ]*(?:<\?xml[^>]*>[\t-\r ]*)?(?:<!--.*?-->[\t-\r ]*)*"
    r"<(?:!doctype[\t-\r ]+html|html)\b",
    re.IGNORECASE | re.DOTALL,
)
"""For bytes as Latin-1 has them. What stands before the page is anybody's: an engine that goes back would try all ways
to part it into comments.
"""
_HEADER = proven(rb"\A(?:([A-Za-z][A-Za-z0-9-]*+)[ \t]*+:|[ \t])")
_OF_MAIL = frozenset({b"from", b"to", b"subject", b"date"})
_OF_TRANSPORT = frozenset({b"message-id", b"mime-version", b"received", b"return-path"})
_OLD_FILES = (
    ("EncryptedPackage", "protected by a password; save it without one"),
    ("WordDocument", "an old Word file; save it as .docx"),
    ("PowerPoint Document", "an old PowerPoint file; save it as .pptx"),
    ("__properties_version", "an Outlook message; save it as .eml"),
)
"""The stream that tells what a compound file is, and what to do about it."""


class Kind(Enum):
    """How a file is read."""

    TEXT = auto()
    HTML = auto()
    MAIL = auto()
    PDF = auto()
    CONTAINER = auto()
    """A zip archive: its members say what it is."""
    OLD_SHEETS = auto()


def kind_of(head: bytes, suffix: str) -> Kind:
    """The kind of a file by its first bytes and its suffix (lower case, with the dot).

    Raises:
        Unreadable: of a kind that cannot be read.
    """
    if head.lstrip().startswith(_PDF) or (suffix == ".pdf" and _PDF in head[:_PDF_WITHIN]):
        return Kind.PDF
    if head.startswith(_ZIP):
        return Kind.CONTAINER
    if head.startswith(_OLE):
        return Kind.OLD_SHEETS
    if head.startswith(_RTF):
        raise Unreadable("an RTF file; save it as .docx or as text")
    if _is_mail(head, suffix):
        return Kind.MAIL
    if b"\x00" in head and not head.startswith(_BYTE_ORDER_MARKS):
        raise Unreadable("binary, not text")
    is_page = suffix in _HTML_SUFFIXES or (suffix in _SAVED_WRONG and _HTML.match(head.decode("latin-1")))
    return Kind.HTML if is_page else Kind.TEXT


def check_old_file(content: bytes) -> None:
    """Raises Unreadable, with what to do, for a compound file that is no Excel file."""
    for stream, reason in _OLD_FILES:
        if stream.encode("utf-16-le") in content:
            raise Unreadable(reason)


def _is_mail(head: bytes, suffix: str) -> bool:
    """Whether it begins with an e-mail's headers; unless the suffix says so, with those of its transport, too."""
    lines = head.lstrip().replace(b"\r\n", b"\n").split(b"\n")
    if suffix == ".eml" and lines[0].startswith(b"From "):
        lines = lines[1:]
    names: set[bytes] = set()
    for line in lines[: lines.index(b"")] if b"" in lines else lines[:-1]:
        header = _HEADER.match(line)
        if header is None:
            return False
        names.add((header[1] or b"").lower())
    said = len(names & _OF_MAIL)
    return said > 0 if suffix == ".eml" else said > 1 and not names.isdisjoint(_OF_TRANSPORT)
