"""Workbooks to text; zip archives are opened safely.

Zip archives that documents come in: opened only if they unpack to a bounded size, and their members read safely.

Excel files and OpenDocument tables to text: one part a sheet, one line a row, the values that the cells show.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta
from io import BytesIO
from posixpath import dirname, join, normpath
from typing import Literal, NamedTuple
from xml.etree.ElementTree import Element, ParseError
from zipfile import BadZipFile, ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import fromstring
from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetMetadata,
    SheetTypeEnum,
    SheetVisibleEnum,
)

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
    for found in members:
        # Some programs write backslashes, or begin at the root. What is stored is looked up by its original name.
        name = found.filename.replace("\\", "/").removeprefix("./").lstrip("/")
        if name not in archive.NameToInfo:
            found.filename = name
            archive.NameToInfo[name] = found
    return archive


def repacked(archive: ZipFile, more: Mapping[str, bytes] = {}) -> bytes:
    """The archive with its members by their usual names, and some more; what cannot be read is not in it."""
    file = BytesIO()
    with ZipFile(file, "w") as written:
        for name, content in more.items():
            written.writestr(name, content)
        for name in archive.namelist():
            with suppress(Unreadable):
                written.writestr(name, member(archive, name))
    return file.getvalue()


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


def links(archive: ZipFile, name: str) -> dict[str, tuple[str, str]]:
    """Kind and target of each link of a member (of the archive: of an empty name), by its id. Raises Unreadable."""
    folder, _, file = name.rpartition("/")
    listed = join(folder, "_rels", f"{file}.rels")
    if listed not in archive.NameToInfo:
        return {}
    return {
        link.get("Id", ""): (link.get("Type", ""), linked_member(name, link.get("Target", "").replace("\\", "/")))
        for link in xml(archive, listed)
        if link.get("TargetMode") != "External"
    }


_OFFICE_LINK = "/officeDocument"
_OfficeKind = Literal["document", "presentation", "workbook"]
_KINDS: dict[str, _OfficeKind] = {"word": "document", "ppt": "presentation", "xl": "workbook"}
"""By folder, where the file does not say it."""
_MAIN_NAMES: dict[str, _OfficeKind] = {
    "document.xml": "document",
    "presentation.xml": "presentation",
    "workbook.xml": "workbook",
}


class OfficeFile(NamedTuple):
    """What an archive is that Office wrote, or a program like it."""

    kind: _OfficeKind
    main: str
    """The member that it begins with."""


def office_file(archive: ZipFile) -> OfficeFile | None:
    """By what the archive says that it begins with, whatever its folders are called; else by its folders."""
    try:
        targets = [name for kind, name in links(archive, "").values() if kind.endswith(_OFFICE_LINK)]
    except Unreadable:
        targets = []
    usual = {f"{folder}/{kind}.xml": kind for folder, kind in _KINDS.items()}
    loose = [name for name in archive.namelist() if name.rpartition("/")[2] in _MAIN_NAMES]
    for main in (*targets, *usual, *loose):
        if main in archive.NameToInfo and (kind := _kind(archive, main)):
            return OfficeFile(kind, main)
    folders = {name.partition("/")[0] for name in archive.namelist()}
    return next(
        (OfficeFile(kind, f"{folder}/{kind}.xml") for folder, kind in _KINDS.items() if folder in folders), None
    )


def _kind(archive: ZipFile, main: str) -> _OfficeKind | None:
    folder, _, file = main.rpartition("/")
    if folder in _KINDS:
        return _KINDS[folder]
    if file.endswith(".bin"):
        return "workbook"
    try:
        found = local(xml(archive, main))
    except Unreadable:
        return _MAIN_NAMES.get(file)
    return next((kind for kind in _KINDS.values() if kind == found), None)


_Cell = int | float | str | bool | time | date | datetime | timedelta


_Errors = Mapping[tuple[int, int], str]
"""By row and column, from 0."""


def sheets_extract(content: bytes, archive: ZipFile | None = None, main: str | None = None) -> Extract:
    """The visible sheets; hidden ones and those that cannot be read are left out and named. Raises Unreadable.

    Args:
        content: The file.
        archive: The same, if it is one.
        main: The member of it that lists the sheets of an Excel file.
    """
    parts: list[DocumentPart] = []
    left_out: list[LeftOut] = []
    if archive and not main and "mimetype" not in archive.NameToInfo:
        content = repacked(archive, {"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"})
    elif archive and any(found.filename != found.orig_filename for found in archive.infolist()):
        content = repacked(archive)
    members = _sheet_members(archive, main) if archive and main else {}
    try:
        with CalamineWorkbook.from_filelike(BytesIO(content)) as book:
            for sheet in book.sheets_metadata:
                place, member_name = f"sheet {sheet.name}", members.get(sheet.name, "")
                if reason := _not_read(sheet, archive, member_name if members else None):
                    left_out.append(LeftOut(name=place, reason=reason))
                    continue
                try:
                    errors = _errors(archive, member_name)
                    parts.append(DocumentPart(place, "\n".join(_rows(book.get_sheet_by_name(sheet.name), errors))))
                except (CalamineError, Unreadable):
                    left_out.append(LeftOut(name=place, reason="damaged: no table that can be read"))
    except PasswordError as error:
        raise Unreadable("protected by a password; save it without one") from error
    except CalamineError as error:
        raise Unreadable("damaged: no table that can be read") from error
    if left_out and not parts and all(item.reason.startswith("damaged") for item in left_out):
        raise Unreadable("damaged: no table that can be read")
    return Extract(parts, left_out)


_NO_TABLES = (
    (SheetTypeEnum.ChartSheet, "a chart, which has no text to be read"),
    (SheetTypeEnum.DialogSheet, "a dialogue of an old version of Excel"),
    (SheetTypeEnum.MacroSheet, "a macro"),
    (SheetTypeEnum.Vba, "a macro"),
)


def _not_read(sheet: SheetMetadata, archive: ZipFile | None, member_name: str | None) -> str:
    if sheet.visible != SheetVisibleEnum.Visible:
        return "hidden; show it to have it read"
    if reason := next((reason for kind, reason in _NO_TABLES if sheet.typ == kind), ""):
        return reason
    if archive and member_name is not None and member_name not in archive.NameToInfo:
        return "damaged: a part of it is missing or broken"
    return ""


def _sheet_members(archive: ZipFile, main: str) -> dict[str, str]:
    """By name of the sheet; empty where the list is in no XML that can be read."""
    try:
        targets = {key: name for key, (_, name) in links(archive, main).items()}
        sheets = [*all_called(xml(archive, main), "sheet")]
    except Unreadable:
        return {}
    return {sheet.get("name", ""): targets.get(link_id(sheet), "") for sheet in sheets}


def _errors(archive: ZipFile | None, name: str) -> _Errors:
    """What the library takes for empty: cells whose formulas have no result. Raises Unreadable."""
    if archive is None or not name:
        return {}
    if b't="e"' not in (content := member(archive, name)) and b"t='e'" not in content:
        return {}
    return {
        _position(cell.get("r", "")): next((value.text or "" for value in all_called(cell, "v")), "")
        for cell in all_called(xml(archive, name), "c")
        if cell.get("t") == "e"
    }


def _position(reference: str) -> tuple[int, int]:
    """Row and column of `B3`, from 0."""
    letters = "".join(filter(str.isalpha, reference)).upper()
    column = 0
    for letter in letters:
        column = column * 26 + ord(letter) - ord("A") + 1
    digits = reference[len(letters) :]
    return (int(digits) if digits.isdecimal() else 0) - 1, column - 1


def _rows(sheet: CalamineSheet, errors: _Errors) -> Iterator[str]:
    # The library begins with the first row, but with the first column that has anything in it.
    _, first_column = sheet.start or (0, 0)
    by_row: dict[int, dict[int, str]] = {}
    for (row, column), error in errors.items():
        by_row.setdefault(row, {})[column - first_column] = error
    for number, row in enumerate(sheet.iter_rows()):
        broken = by_row.get(number, {})
        if line := _line([broken.get(column, cell) for column, cell in enumerate(row)] if broken else row):
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


def link_id(entry: Element) -> str:
    """The id of the link that an element of a list stands for."""
    return next((value for key, value in entry.items() if key.endswith("relationships}id")), "")


def all_called(element: Element, name: str) -> Iterator[Element]:
    """Every element below, by its name without the namespace."""
    return (found for found in element.iter() if local(found) == name)
