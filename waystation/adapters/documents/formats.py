"""The parts of a file of any kind. Runs in the child only.

The bytes of a file of any kind to its parts. Runs in the child only: the parsers of these kinds may crash.

EPUB to text: one part a file of the reading order, called after its first heading.

Bytes to text: in the encoding that they are in, and pages as their readers see them.

HTML to readable text: headings as `#` lines, links as `[text](address)`, list items and table rows on lines.

The tree is walked once, since changing it takes longer the more siblings and ancestors there are: each element gives
marks for the breaks that it asks for, and what comes of that is laid out by the marks.

DOCX to text: by way of HTML, which keeps headings, lists, tables and notes.
"""

import re
import warnings
import zlib
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import PurePath
from typing import NamedTuple, Protocol, cast
from urllib.parse import unquote
from xml.parsers.expat import ExpatError
from zipfile import BadZipFile, ZipFile

import mammoth
from bs4 import BeautifulSoup, Tag, XMLParsedAsHTMLWarning
from bs4.dammit import EncodingDetector
from bs4.element import CData, NavigableString, PageElement
from bs4.exceptions import ParserRejectedMarkup
from charset_normalizer import from_bytes

from waystation.adapters.documents.extract import HEAD, DocumentPart, Extract, Kind, Unreadable, check_old_file, kind_of
from waystation.adapters.documents.mail import MailReaders, ReadAttached, mail_extract
from waystation.adapters.documents.office import (
    linked_member,
    local,
    member,
    opened,
    sheets_extract,
    slides_extract,
    xml,
)
from waystation.adapters.documents.pdf import pdf_extract
from waystation.patterns import proven

_SPACES = proven(r"\s+")
_DROPPED = frozenset({"script", "style", "noscript", "template", "svg", "iframe"})
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_BLOCKS = frozenset({
    *("address", "article", "aside", "blockquote", "caption", "dd", "details", "div", "dl", "dt", "fieldset"),
    *("figcaption", "figure", "footer", "form", "header", "hr", "main", "nav", "ol", "p", "pre", "section"),
    *("summary", "table", "title", "ul"),
})  # fmt: skip
_CELLS = frozenset({"td", "th"})
_TIGHT = frozenset({"p", "div"})
"""Blocks that would part a row from its cells."""
_SHOWN = (NavigableString, CData)
"""Comments and readings of rubies are strings of other types."""

# Private-use characters, which no page has a meaning for.
_PARAGRAPH, _LINE, _KEPT_LINE, _KEPT_SPACE = "\ue000", "\ue001", "\ue002", "\ue003"


class _Around(NamedTuple):
    """What an element stands in."""

    cell: bool = False
    """Of a table."""
    preformatted: bool = False


class _Link(NamedTuple):
    """A link that is open."""

    place: int
    """Of its beginning, among the pieces."""
    words_before: int
    address: str


_Step = tuple[PageElement, _Around] | str | _Link
"""An element with what it stands in, what is written, or a link that ends."""


def html_to_text(html: str) -> str:
    """The text that a reader of the page sees. Broken markup gives what text it can."""
    return _laid_out("".join(_Walk(_parsed(html)).pieces))


def _parsed(html: str) -> BeautifulSoup:
    # The parser looks for the end of each comment up to the end of the page.
    end = html.rfind("-->") + 1
    html = html[:end] + html[end:].replace("<!--", "&lt;!--")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XMLParsedAsHTMLWarning)
        try:
            return BeautifulSoup(html, "html.parser")
        except ParserRejectedMarkup:
            # The one kind of markup that the parser refuses: a marked section without a proper name.
            return BeautifulSoup(html.replace("<![", "&lt;!["), "html.parser")


class _Walk:
    """Goes through a page from its beginning, without recursion: a page may be as deep as it is long."""

    def __init__(self, soup: BeautifulSoup) -> None:
        self.pieces: list[str] = []
        """Texts and marks, in order."""
        self._words = 0
        self._ahead: list[_Step] = []
        self._enter(soup, _Around())
        while self._ahead:
            match self._ahead.pop():
                case str() as written:
                    self.pieces.append(written)
                case _Link() as link:
                    self._end(link)
                case Tag() as tag, around:
                    self._enter(tag, around)
                case element, around:
                    self._write(element, around)

    def _enter(self, tag: Tag, around: _Around) -> None:
        address = tag.get("href") if tag.name == "a" else None
        if address is not None:
            self._ahead.append(_Link(len(self.pieces), self._words, str(address)))
            self.pieces.append("")
        inside = _Around(around.cell or tag.name in _CELLS, around.preformatted or tag.name == "pre")
        self._ahead.extend(reversed([*_inside(tag, inside)]))

    def _end(self, link: _Link) -> None:
        if self._words > link.words_before and not link.address.startswith(("#", "javascript:")):
            self.pieces[link.place] = "["
            self.pieces.append(f"]({link.address})")

    def _write(self, element: PageElement, around: _Around) -> None:
        if type(element) not in _SHOWN:
            return
        text = str(element)
        if around.preformatted:
            text = text.expandtabs(4).replace(" ", _KEPT_SPACE).replace("\n", _KEPT_LINE)
        self._words += bool(text.strip())
        self.pieces.append(text)


def _inside(tag: Tag, around: _Around) -> Iterator[_Step]:
    """What is in an element, with the marks around each."""
    children = [child for child in tag.contents if not (isinstance(child, Tag) and child.name in _DROPPED)]
    elements = [child for child in children if isinstance(child, Tag)]
    last_cell = next((child for child in reversed(elements) if child.name in _CELLS), None)
    for child in children:
        if not isinstance(child, Tag):
            yield child, around
        elif child.name == "br":
            yield " " if around.cell else _LINE
        else:
            # It would part an item from its marker.
            tight = tag.name == "li" and child is elements[0] and child.name == "p"
            before, after = ("", " ") if tight else _marks(child.name, around)
            yield from (before, (child, around), after)
            if child.name in _CELLS and child is not last_cell:
                yield " | "


def _marks(name: str, around: _Around) -> tuple[str, str]:
    """The breaks that an element asks for, before and behind it."""
    if around.cell and name in _TIGHT:
        return "", " "
    if name in _BLOCKS or name in _HEADINGS:
        return _PARAGRAPH + _HEADINGS.get(name, ""), _PARAGRAPH
    return {"li": (f"{_LINE}- ", _LINE), "tr": (_LINE, _LINE)}.get(name, ("", ""))


def _laid_out(text: str) -> str:
    collapsed = _SPACES.sub(" ", text)
    paragraphs = ("\n".join(_stripped(part.split(_LINE))) for part in collapsed.split(_PARAGRAPH))
    laid_out = "\n\n".join(_stripped(paragraphs))
    return laid_out.replace(_KEPT_LINE, "\n").replace(_KEPT_SPACE, " ")


def _stripped(parts: Iterable[str]) -> list[str]:
    return [stripped for part in parts if (stripped := part.strip(f" {_KEPT_LINE}"))]


def decoded(content: bytes, encoding: str | None = None) -> str:
    """The text of bytes: in the encoding that they are said to be in, else UTF-8, else what they look like.

    Raises:
        Unreadable: no encoding fits.
    """
    for known in filter(None, (encoding, "utf-8-sig")):
        try:
            return content.decode(known)
        except (ValueError, LookupError):
            # Codecs that are no encoding of text raise either.
            continue
    guess = from_bytes(content).best()
    if guess is None:
        raise Unreadable("in no text encoding that can be recognised; save it as UTF-8")
    return str(guess)


def page_text(content: bytes, encoding: str | None = None) -> str:
    """The text of an HTML page. Raises Unreadable."""
    return html_to_text(decoded(content, encoding))


_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_HEADING = proven(r"^#{1,6} (.+)$", re.MULTILINE)
_LINK, _LINK_TEXT = proven(r"\[([^\]]{0,1000}+)\]\([^)]{0,4000}+\)"), r"\1"


def book_extract(archive: ZipFile) -> Extract:
    """Every text of the reading order. Raises Unreadable: damaged, or protected against copying."""
    protected = _protected(archive)
    parts: list[DocumentPart] = []
    for number, name in enumerate(_reading_order(archive), 1):
        if name in protected:
            raise Unreadable("protected against copying (DRM); only the shop's own program can read it")
        text = page_text(member(archive, name))
        heading = _HEADING.search(text)
        place = f"chapter {_LINK.sub(_LINK_TEXT, heading[1])}" if heading else f"section {number}"
        parts.append(DocumentPart(place, text))
    return Extract(parts)


def _reading_order(archive: ZipFile) -> list[str]:
    package = next(
        (found.get("full-path", "") for found in xml(archive, _CONTAINER).iter() if local(found) == "rootfile"), ""
    )
    root = list(xml(archive, package).iter())
    files = {item.get("id", ""): item.get("href", "") for item in root if local(item) == "item"}
    spine = [files.get(item.get("idref", ""), "") for item in root if local(item) == "itemref"]
    return [linked_member(package, unquote(href)) for href in spine if href]


def _protected(archive: ZipFile) -> set[str]:
    """Members that are encrypted; fonts often are, even in books that anybody may read."""
    if _ENCRYPTION not in archive.NameToInfo:
        return set()
    return {
        unquote(found.get("URI", "")) for found in xml(archive, _ENCRYPTION).iter() if local(found) == "CipherReference"
    }


_STYLES = "p[style-name='Title'] => h1:fresh\np[style-name='Subtitle'] => p:fresh"


class _Result(Protocol):
    """What is used of the library, which comes without types."""

    value: str


def word_extract(content: bytes) -> Extract:
    """The whole text without places: a Word file has no pages before it is printed. Raises Unreadable."""
    try:
        result = cast(
            "_Result",
            mammoth.convert_to_html(  # pyright: ignore[reportUnknownMemberType] untyped library
                BytesIO(content), convert_image=_no_picture, style_map=_STYLES
            ),
        )
    except (BadZipFile, zlib.error, ExpatError, KeyError, OSError) as error:
        raise Unreadable("damaged: no Word file that can be read") from error
    return Extract([DocumentPart("", html_to_text(result.value))])


def _no_picture(_: object) -> list[object]:
    return []


_OPEN_DOCUMENT = "application/vnd.oasis.opendocument."


def extract(content: bytes, name: str, depth: int = 0, attached: ReadAttached | None = None) -> Extract:
    """The parts of a file, whose name only helps where its bytes do not say what it is.

    Args:
        content: its bytes.
        name: its name.
        depth: how many e-mails it is in.
        attached: what reads the attachments of an e-mail; by default this function does.

    Raises:
        Unreadable: it gives no text.
    """
    match kind_of(content[:HEAD], PurePath(name).suffix.lower()):
        case Kind.TEXT:
            return Extract([DocumentPart("", decoded(content))])
        case Kind.HTML:
            return Extract([DocumentPart("", page_text(content))])
        case Kind.MAIL:
            return mail_extract(content, MailReaders(_inline, attached or extract), depth)
        case Kind.PDF:
            return pdf_extract(content)
        case Kind.CONTAINER:
            return _contained(content)
        case Kind.OLD_SHEETS:
            check_old_file(content)
            return sheets_extract(content)


def _inline(content: bytes, kind: str, charset: str | None) -> Extract:
    """Text of an e-mail. Raises Unreadable."""
    if kind != "text/html":
        return Extract([DocumentPart("", decoded(content, charset))])
    charset = charset or EncodingDetector.find_declared_encoding(content, is_html=True)
    return Extract([DocumentPart("", page_text(content, charset))])


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
