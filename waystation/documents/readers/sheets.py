"""Converts Excel files and OpenDocument tables to text: one part for each sheet, one line for each row.

Values are written as the cells show them.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, time, timedelta
from io import BytesIO
from typing import NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring
from zipfile import ZipFile

from python_calamine import (
    CalamineError,
    CalamineSheet,
    CalamineWorkbook,
    PasswordError,
    SheetMetadata,
    SheetTypeEnum,
    SheetVisibleEnum,
)

from waystation.documents.documents import CELL_SEPARATOR, SkippedItem
from waystation.documents.readers.binary_sheets import read_binary_sheet_ids, remove_binary_sheets
from waystation.documents.readers.cell_formats import CellPosition, SheetInfo
from waystation.documents.readers.compound_file import (
    CompoundFile,
    get_workbook_stream,
    has_password,
    read_xls_sheet_infos,
)
from waystation.documents.readers.extraction import (
    DocumentPart,
    ExtractionResult,
    UnreadableFileError,
    build_skipped_pages,
    group_consecutive,
)
from waystation.documents.readers.office_archive import (
    find_elements_by_name,
    get_local_name,
    get_relationship_id,
    read_member,
    read_relationships,
    read_xml_member,
    repack_archive,
)
from waystation.documents.readers.sheet_formats import OfficeSheetInfoReader, read_opendocument_sheet_infos
from waystation.documents.readers.text_runs import TextRun, render_text_runs

_Cell = int | float | str | bool | time | date | datetime | timedelta
_PASSWORD = "protected by a password; save the file without one"
_DAMAGED = "damaged: not a readable spreadsheet"


def extract_spreadsheet(content: bytes, archive: ZipFile | None = None, main: str | None = None) -> ExtractionResult:
    """Extract the visible sheets; hidden and unreadable ones are listed.

    Args:
        content: content of the file.
        archive: the file as an archive, if it is one.
        main: the member that lists the sheets of an Excel file.

    Raises:
        UnreadableFileError: the file cannot be read.
    """
    book = _Book(content, archive, main)
    parts: list[DocumentPart] = []
    left_out: list[SkippedItem] = []
    try:
        with book.open_workbook() as opened:
            for at, sheet in enumerate(opened.sheets_metadata):
                place = f"sheet {sheet.name}"
                if reason := book.why_not(sheet):
                    left_out.append(SkippedItem(name=place, reason=reason))
                    continue
                try:
                    with _translate_panics():
                        found = opened.get_sheet_by_name(sheet.name)
                    read = _Rows(found, book.look(at, sheet.name))
                except (CalamineError, OSError, UnreadableFileError):
                    left_out.append(SkippedItem(name=place, reason=_DAMAGED))
                    continue
                parts.append(DocumentPart(place, "\n".join(read.lines())))
                parts += [DocumentPart(f"{place}, text boxes", "\n".join(read.look.boxes))]
                left_out += read.list_skipped_items(place)
    except PasswordError as error:
        raise UnreadableFileError(_PASSWORD) from error
    except CalamineError as error:
        raise UnreadableFileError(_DAMAGED) from error
    left_out += book.lost
    if left_out and not parts and all(item.reason.startswith("damaged") for item in left_out):
        raise UnreadableFileError(_DAMAGED)
    return ExtractionResult(parts, left_out)


_NO_TABLES = (
    (SheetTypeEnum.ChartSheet, "a chart without text"),
    (SheetTypeEnum.DialogSheet, "a dialogue from an old version of Excel"),
    (SheetTypeEnum.MacroSheet, "a macro"),
    (SheetTypeEnum.Vba, "a macro"),
)
_STORED_OBJECT = "MBD"
"""Prefix of the folders of embedded objects in a compound file."""
_SHEETS = ("/worksheet", "/chartsheet", "/dialogsheet")
"""Ends of the link types of sheets that the library knows."""


class _Book:
    """A file, with what the spreadsheet library does not report about it."""

    def __init__(self, content: bytes, archive: ZipFile | None, main: str | None) -> None:
        self.lost: list[SkippedItem] = []
        """Sheets that the library does not even list."""
        self._archive = archive
        self._main = main if archive else None
        if archive and not main and "mimetype" not in archive.NameToInfo:
            content = repack_archive(archive, {"mimetype": b"application/vnd.oasis.opendocument.spreadsheet"})
        elif archive and any(found.filename != found.orig_filename for found in archive.infolist()):
            content = repack_archive(archive)
        self._content = content
        self._members = _sheet_members(archive, main) if archive and main else {}
        self._looks: Mapping[str, SheetInfo] = read_opendocument_sheet_infos(archive) if archive and not main else {}
        self._office = OfficeSheetInfoReader(archive, main) if archive and main else None
        self._in_order = self._old(content) if archive is None else []

    def _old(self, content: bytes) -> list[SheetInfo]:
        """Read the sheets of a compound file. Raises UnreadableFileError if it has a password."""
        try:
            file = CompoundFile(content)
        except ValueError:
            return []
        stream = get_workbook_stream(file)
        if has_password(stream):
            raise UnreadableFileError(_PASSWORD)
        found = read_xls_sheet_infos(stream)
        # Sheets of Excel 5 describe their objects in a form that is not read here.
        stored = sum(name.startswith(_STORED_OBJECT) for name in file.stream_names) - sum(
            look.objects for look in found
        )
        self.lost += [SkippedItem(name=f"embedded objects ({stored:,})", reason="not read")] if stored > 0 else []
        return found

    def open_workbook(self) -> CalamineWorkbook:
        """Open the workbook. Raises CalamineError, PasswordError."""
        try:
            return _open_workbook(self._content)
        except PasswordError:
            raise
        except CalamineError:
            again = self._without_unknown()
            if again is None:
                raise
            return _open_workbook(again)

    def _without_unknown(self) -> bytes | None:
        """Return the file as the library expects it: it fails at any unknown sheet in the list.

        The members of a binary one must have their usual names, too.
        """
        if self._archive is None or not self._main:
            return None
        archive, main = self._archive, self._main
        try:
            targets = read_relationships(archive, main)
            if main.endswith(".bin"):
                return self._usual_binary(archive, main, targets)
            again = self._list(archive, main, targets)
        except UnreadableFileError:
            return None
        return repack_archive(archive, {main: again}) if self.lost else None

    def _list(self, archive: ZipFile, main: str, targets: Mapping[str, tuple[str, str]]) -> bytes:
        root = read_xml_member(archive, main)
        for parent in [*root.iter()]:
            for sheet in [child for child in parent if get_local_name(child) == "sheet"]:
                if self._is_unknown(sheet.get("name", ""), targets.get(get_relationship_id(sheet), ("", ""))[0]):
                    parent.remove(sheet)
        return tostring(root)

    def _usual_binary(self, archive: ZipFile, main: str, targets: Mapping[str, tuple[str, str]]) -> bytes:
        content = read_member(archive, main)
        listed = read_binary_sheet_ids(content).items()
        unknown = {name for name, link in listed if self._is_unknown(name, targets.get(link, ("", ""))[0])}
        folder = f"{main.rpartition('/')[0]}/"
        linked = Element("Relationships", xmlns="http://schemas.openxmlformats.org/package/2006/relationships")
        moved: dict[str, bytes] = {"xl/workbook.bin": remove_binary_sheets(content, unknown)}
        for link, (kind, name) in targets.items():
            short = name.removeprefix(folder)
            SubElement(linked, "Relationship", Id=link, Type=kind, Target=short)
            with suppress(UnreadableFileError):
                moved[f"xl/{short}"] = read_member(archive, name)
        return repack_archive(archive, {**moved, "xl/_rels/workbook.bin.rels": tostring(linked)})

    def _is_unknown(self, name: str, kind: str) -> bool:
        if kind.endswith(_SHEETS):
            return False
        reason = "a macro" if kind.lower().endswith("macrosheet") else "damaged: missing in the file"
        self.lost.append(SkippedItem(name=f"sheet {name}", reason=reason))
        return True

    def why_not(self, sheet: SheetMetadata) -> str:
        """Return why a sheet is not read; empty if it is."""
        if sheet.visible != SheetVisibleEnum.Visible:
            return "hidden; unhide the sheet to include it"
        if reason := next((reason for kind, reason in _NO_TABLES if sheet.typ == kind), ""):
            return reason
        if self._archive and self._members and self._members.get(sheet.name, "") not in self._archive.NameToInfo:
            return "damaged: part of the file is missing or broken"
        return ""

    def look(self, at: int, name: str) -> SheetInfo:
        """Return the properties of the sheet at this position in the list. Raises UnreadableFileError."""
        if self._office:
            member = self._members.get(name, "")
            return self._office.read_sheet_info(member) if member else SheetInfo()
        if self._in_order:
            return self._in_order[at] if at < len(self._in_order) else SheetInfo()
        return self._looks.get(name, SheetInfo())


def _sheet_members(archive: ZipFile, main: str) -> dict[str, str]:
    """Return the members by sheet name; empty if the list cannot be read."""
    try:
        targets = {key: name for key, (_, name) in read_relationships(archive, main).items()}
        if main.endswith(".bin"):
            listed = read_binary_sheet_ids(read_member(archive, main))
            return {name: targets.get(link, "") for name, link in listed.items()}
        sheets = [*find_elements_by_name(read_xml_member(archive, main), "sheet")]
    except UnreadableFileError:
        return {}
    return {sheet.get("name", ""): targets.get(get_relationship_id(sheet), "") for sheet in sheets}


@contextmanager
def _translate_panics() -> Generator[None]:
    """Raise a CalamineError if the library breaks off where it thinks that it cannot fail."""
    try:
        yield
    except BaseException as error:
        # The class of such errors cannot be imported.
        if type(error).__name__ == "PanicException":
            raise CalamineError(str(error)) from error
        raise


def _open_workbook(content: bytes) -> CalamineWorkbook:
    with _translate_panics():
        return CalamineWorkbook.from_filelike(BytesIO(content))


class _Merged(NamedTuple):
    first: CellPosition
    last: CellPosition
    text: str = ""


class _Rows:
    """The visible rows of one sheet."""

    def __init__(self, sheet: CalamineSheet, look: SheetInfo) -> None:
        self.look = look
        self._sheet = sheet
        # The library begins with the first row, but with the first column that has any content.
        _, self._first_column = sheet.start or (0, 0)
        self._begins: dict[int, list[_Merged]] = {}
        for first, last in [*look.merged, *(sheet.merged_cell_ranges or ())]:
            self._begins.setdefault(first[0], []).append(_Merged(first, last))
        self._is_hidden = False
        self._hidden_rows: list[int] = []
        self._hidden_columns: set[int] = set()

    def lines(self) -> Iterator[str]:
        """Yield one line for each visible row with any content."""
        open_cells: list[_Merged] = []
        for number, row in enumerate(self._sheet.iter_rows()):
            cells = [self._shown((number, self._first_column + at), cell) for at, cell in enumerate(row)]
            open_cells = [cell for cell in open_cells if cell.last[0] >= number]
            open_cells += [
                cell._replace(text=cells[at])
                for cell in self._begins.get(number, ())
                if 0 <= (at := cell.first[1] - self._first_column) < len(cells)
            ]
            _repeat(cells, open_cells, self._first_column)
            if number in self.look.hidden_rows:
                self._hidden_rows += [number + 1] if any(cells) else []
                continue
            if line := _line(self._seen(cells)):
                yield line

    def _seen(self, cells: list[str]) -> list[str]:
        hidden = {at for at in range(len(cells)) if self._first_column + at in self.look.hidden_columns}
        self._hidden_columns |= {self._first_column + at for at in hidden if cells[at]}
        return [cell for at, cell in enumerate(cells) if at not in hidden] if hidden else cells

    def _shown(self, place: CellPosition, cell: _Cell) -> str:
        if not self.look.shown and not self.look.looks:
            return _shown(cell)
        text = self.look.shown[place] if place in self.look.shown else _shown(cell)
        look = self.look.looks.get(place)
        return render_text_runs([TextRun(text, look.height, look.struck)]) if look and text else text

    def list_skipped_items(self, place: str) -> Iterator[SkippedItem]:
        """Yield what is not in the lines, after they were read."""
        reason = "hidden, perhaps by a filter; only visible rows are read"
        for item in build_skipped_pages("row", self._hidden_rows, reason):
            yield SkippedItem(name=f"{item.name} of {place}", reason=item.reason)
        if self._hidden_columns:
            ranges = [
                (_letters(first), _letters(last)) for first, last in group_consecutive(sorted(self._hidden_columns))
            ]
            letters = ", ".join(first if first == last else f"{first}–{last}" for first, last in ranges)
            noun = "column" if len(self._hidden_columns) == 1 else "columns"
            yield SkippedItem(name=f"{noun} {letters} of {place}", reason="hidden; only visible columns are read")
        look = self.look
        not_read = {
            "comments": look.comments,
            "charts": look.charts,
            "text boxes": look.text_boxes,
            "embedded objects": look.objects,
        }
        for name, count in not_read.items():
            if count:
                yield SkippedItem(name=f"{name} of {place} ({count:,})", reason="not read")
        if look.pictures and not self._sheet.height and not look.boxes:
            yield SkippedItem(name=place, reason="no text, only pictures")


def _repeat(cells: list[str], merged: Sequence[_Merged], first_column: int) -> None:
    """Repeat merged cells in the cells that they cover if other cells of the row have content too.

    A title that spans all columns says nothing about them.
    """
    for cell in merged:
        begin, end = max(0, cell.first[1] - first_column), cell.last[1] - first_column + 1
        if cell.text and (any(cells[:begin]) or any(cells[end:])):
            for at in range(begin, min(end, len(cells))):
                cells[at] = cells[at] or cell.text


def _letters(column: int) -> str:
    """Return the letters of a column, numbered from 0."""
    letters = ""
    column += 1
    while column:
        column, place = divmod(column - 1, 26)
        letters = chr(ord("A") + place) + letters
    return letters


def _line(cells: list[str]) -> str:
    while cells and not cells[-1]:
        cells.pop()
    return CELL_SEPARATOR.join(cells)


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
