"""Workbooks and slides to text; zip archives are opened safely.

Zip archives that documents come in: opened only if they unpack to a bounded size, and their members read safely.

Excel files and OpenDocument tables to text: one part a sheet, one line a row, the values that the cells show.

PPTX to text: one part a slide, with its title as a heading, its lists, tables and notes.
"""

import zlib
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from io import BytesIO
from posixpath import dirname, join, normpath
from xml.etree.ElementTree import Element, ParseError
from zipfile import BadZipFile, ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from python_calamine import CalamineError, CalamineSheet, CalamineWorkbook, PasswordError, SheetVisibleEnum

from waystation.adapters.documents.extract import DocumentPart, Extract, Unreadable
from waystation.domain.documents import LeftOut

MOST_MEMBERS = 10_000
MOST_UNPACKED = 500_000_000
"""Bytes of all members together."""
_ENCRYPTED = 0x1
"""The bit of a member's flags."""


def opened(content: bytes) -> ZipFile:
    """The archive. Raises Unreadable: damaged, with a password, or of too many or too large members."""
    try:
        archive = ZipFile(BytesIO(content))
    except (BadZipFile, ValueError, NotImplementedError) as error:
        raise Unreadable("damaged: no whole zip archive") from error
    members = archive.infolist()
    if len(members) > MOST_MEMBERS:
        raise Unreadable(f"an archive of {len(members):,} members, and {MOST_MEMBERS:,} is the most")
    unpacked = sum(member.file_size for member in members)
    if unpacked > MOST_UNPACKED:
        limit = MOST_UNPACKED // 1_000_000
        raise Unreadable(f"unpacks to {unpacked / 1e6:,.0f} MB, and {limit} MB is the most")
    if any(member.flag_bits & _ENCRYPTED for member in members):
        raise Unreadable("protected by a password; save it without one")
    return archive


def member(archive: ZipFile, name: str) -> bytes:
    """The bytes of a member. Raises Unreadable: missing or damaged."""
    try:
        return archive.read(name)
    except (KeyError, BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Unreadable("damaged: a part of it is missing or broken") from error


def xml(archive: ZipFile, name: str) -> Element:
    """The root of an XML member, without any entities of its own. Raises Unreadable."""
    try:
        return fromstring(member(archive, name))
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise Unreadable("damaged: a part of it is no XML that can be read") from error


def local(element: Element) -> str:
    """The element's name without its namespace: the strict and the usual kind of office files differ only there."""
    return element.tag.rpartition("}")[2]


def linked_member(base: str, target: str) -> str:
    """The member that a link of another member leads to."""
    return target.lstrip("/") if target.startswith("/") else normpath(join(dirname(base), target))


_Cell = int | float | str | bool | time | date | datetime | timedelta


def sheets_extract(content: bytes) -> Extract:
    """The visible sheets; hidden ones are left out and named. Raises Unreadable."""
    try:
        with CalamineWorkbook.from_filelike(BytesIO(content)) as book:
            sheets = book.sheets_metadata
            parts = [
                DocumentPart(f"sheet {sheet.name}", "\n".join(_rows(book.get_sheet_by_name(sheet.name))))
                for sheet in sheets
                if sheet.visible == SheetVisibleEnum.Visible
            ]
    except PasswordError as error:
        raise Unreadable("protected by a password; save it without one") from error
    except CalamineError as error:
        raise Unreadable("damaged: no table that can be read") from error
    hidden = [sheet.name for sheet in sheets if sheet.visible != SheetVisibleEnum.Visible]
    return Extract(parts, [LeftOut(name=f"sheet {name}", reason="hidden; show it to have it read") for name in hidden])


def _rows(sheet: CalamineSheet) -> Iterator[str]:
    for row in sheet.iter_rows():
        if line := _line(row):
            yield line


def _line(row: Sequence[_Cell]) -> str:
    cells = [_shown(cell) for cell in row]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells)


def _shown(cell: _Cell) -> str:
    match cell:
        case bool():
            return str(cell).upper()
        case float():
            # As many digits as the program itself shows: 0.1 + 0.2 is 0.3 there, and 3.0 is 3.
            return f"{cell:.15g}"
        case datetime():
            return cell.isoformat(" ", "minutes" if not cell.second else "seconds")
        case date() | time():
            return cell.isoformat()
        case int() | timedelta():
            return str(cell)
        case str():
            return " ".join(cell.split())


_PRESENTATION = "ppt/presentation.xml"
_FURNITURE = frozenset({"sldNum", "dt", "ftr", "hdr", "sldImg"})
"""Placeholders that stand on every slide alike."""


def slides_extract(archive: ZipFile) -> Extract:
    """The slides in the order in which they are shown; hidden ones are left out and named. Raises Unreadable."""
    targets = _links(archive, _PRESENTATION)
    parts: list[DocumentPart] = []
    hidden: list[LeftOut] = []
    for number, entry in enumerate(_all(xml(archive, _PRESENTATION), "sldId"), 1):
        _, name = targets[_link_id(entry)]
        slide = xml(archive, name)
        if slide.get("show") in {"0", "false"}:
            hidden.append(LeftOut(name=f"slide {number}", reason="hidden; show it to have it read"))
        else:
            parts.append(DocumentPart(f"slide {number}", "\n\n".join([*_blocks(slide), *_notes(archive, name)])))
    return Extract(parts, hidden)


def _notes(archive: ZipFile, slide: str) -> Iterator[str]:
    for kind, name in _links(archive, slide).values():
        if kind.endswith("/notesSlide") and (said := "\n\n".join(_blocks(xml(archive, name)))):
            yield f"Notes:\n{said}"


def _links(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Kind and target of each link of a member, by its id."""
    folder, _, file = name.rpartition("/")
    listed = f"{folder}/_rels/{file}.rels"
    if listed not in archive.NameToInfo:
        return {}
    return {
        link.get("Id", ""): (link.get("Type", ""), linked_member(name, link.get("Target", "")))
        for link in xml(archive, listed)
        if link.get("TargetMode") != "External"
    }


def _link_id(entry: Element) -> str:
    return next((value for key, value in entry.items() if key.endswith("relationships}id")), "")


def _blocks(element: Element) -> Iterator[str]:
    """The texts of shapes and tables below an element, in the order of the file."""
    for child in element:
        match local(child):
            case "Fallback":
                # The same again, for programs that do not know the kind of shape before it.
                continue
            case "sp":
                yield from filter(None, [_shape(child)])
            case "tbl":
                yield "\n".join(" | ".join(_cell(cell) for cell in _all(row, "tc")) for row in _all(child, "tr"))
            case _:
                yield from _blocks(child)


def _shape(shape: Element) -> str:
    kind = next((holder.get("type", "body") for holder in _all(shape, "ph")), "")
    paragraphs = [text for paragraph in _all(shape, "p") if (text := _text(paragraph))]
    if kind in _FURNITURE or not paragraphs:
        return ""
    if kind in {"title", "ctrTitle"}:
        return f"# {' '.join(' '.join(paragraphs).split())}"
    return "\n".join(f"- {text}" for text in paragraphs) if len(paragraphs) > 1 else paragraphs[0]


def _cell(cell: Element) -> str:
    return " ".join(" ".join(_text(paragraph) for paragraph in _all(cell, "p")).split())


def _text(paragraph: Element) -> str:
    pieces = [
        "\n" if local(piece) == "br" else piece.text or "" for piece in paragraph.iter() if local(piece) in {"t", "br"}
    ]
    return "".join(pieces).strip()


def _all(element: Element, name: str) -> Iterator[Element]:
    return (found for found in element.iter() if local(found) == name)
