"""Reads how the cells of Excel and OpenDocument sheets look, and what is placed around them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from xml.etree.ElementTree import Element, ParseError
from zipfile import ZipFile

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import iterparse

from waystation.documents.readers.binary_sheets import (
    BinaryStyleTable,
    count_binary_comments,
    read_binary_sheet_info,
    read_binary_strings,
    read_binary_styles,
)
from waystation.documents.readers.cell_formats import MAX_COLUMNS, CellPosition, SheetInfo, TextFormat
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.office_archive import (
    OFF,
    find_elements_by_name,
    get_local_name,
    parse_whole_number,
    read_member,
    read_relationships,
    read_xml_member,
)
from waystation.documents.readers.text_runs import Height, TextRun, render_text_runs

_TELLING = (b'"e"', b"'e'", b"hidden", b'ht="0"', b'width="0"')
"""Every sheet with errors, or with hidden rows or columns, contains one of these."""
_OBJECT = b"oleObject"
_MARKING = (b"strike", b"vertAlign")


_EMBEDDED = frozenset({"oleObject", "package"})
"""Types of links to files within the file."""


class OfficeSheetInfoReader:
    """Reads the properties of the sheets of an Excel file."""

    def __init__(self, archive: ZipFile, main: str) -> None:
        self._archive, self._main = archive, main

    def read_sheet_info(self, name: str) -> SheetInfo:
        """Read the sheet in a member. Raises UnreadableFileError."""
        content = read_member(self._archive, name)
        if name.endswith(".bin"):
            found = read_binary_sheet_info(content, self._styles, self._binary_strings, self._binary_styles.fonts)
        elif self._styles or self._strings or any(sign in content for sign in (*_TELLING, *_MARKING, _OBJECT)):
            found = self._read(content)
        else:
            found = SheetInfo()
        self._count_others(name, found)
        return found

    @cached_property
    def _parts(self) -> Mapping[str, str]:
        """Members that belong to the whole file, by type."""
        try:
            return {
                kind.rpartition("/")[2]: name for kind, name in read_relationships(self._archive, self._main).values()
            }
        except UnreadableFileError:
            return {}

    @cached_property
    def _styles(self) -> Mapping[int, TextFormat]:
        """Non-default formats of cells, by the number of their style."""
        try:
            content = read_member(self._archive, name := self._parts.get("styles", ""))
            if name.endswith(".bin"):
                looks = self._binary_styles.cells
            elif not any(sign in content for sign in _MARKING):
                return {}
            else:
                looks = _cell_looks(read_xml_member(self._archive, name))
        except UnreadableFileError:
            return {}
        return {at: look for at, look in enumerate(looks) if look != TextFormat()}

    @cached_property
    def _binary_styles(self) -> BinaryStyleTable:
        try:
            return read_binary_styles(read_member(self._archive, self._parts.get("styles", "")))
        except UnreadableFileError:
            return BinaryStyleTable()

    @cached_property
    def _binary_strings(self) -> Mapping[int, str]:
        try:
            content = read_member(self._archive, self._parts.get("sharedStrings", ""))
        except UnreadableFileError:
            return {}
        return read_binary_strings(content, self._binary_styles.fonts)

    @cached_property
    def _strings(self) -> Mapping[str, str]:
        """Texts that are partly marked, by their numbers."""
        try:
            content = read_member(self._archive, self._parts.get("sharedStrings", ""))
        except UnreadableFileError:
            return {}
        if not any(sign in content for sign in _MARKING):
            return {}
        found: dict[str, str] = {}
        for number, item in enumerate(_streamed(content, "si")):
            if text := _marked(item):
                found[str(number)] = text
            item.clear()
        return found

    def _read(self, content: bytes) -> SheetInfo:
        found = SheetInfo()
        row = -1
        shapes: set[str] = set()
        for element in _streamed(content, "row", "col", "oleObject"):
            if get_local_name(element) == "col":
                _column(element, found)
                continue
            if get_local_name(element) == "oleObject":
                # Those with the same shape are one object in several forms.
                shapes.add(element.get("shapeId", ""))
                continue
            row = parse_whole_number(element.get("r"), row + 2) - 1
            if _is_on(element, "hidden") or element.get("ht") == "0":
                found.hidden_rows.add(row)
            self._cells(element, row, found)
            element.clear()
        found.objects = len(shapes)
        return found

    def _cells(self, row: Element, number: int, found: SheetInfo) -> None:
        column = -1
        for cell in row:
            column = _column_number(cell.get("r", ""), column + 1)
            place = number, column
            found.set_format(place, self._styles.get(parse_whole_number(cell.get("s"), 0), TextFormat()))
            match cell.get("t"):
                case "e":
                    found.shown[place] = next((value.text or "" for value in find_elements_by_name(cell, "v")), "")
                case "s":
                    text = next((value.text or "" for value in cell if get_local_name(value) == "v"), "")
                    if text in self._strings:
                        found.shown[place] = self._strings[text]
                case "inlineStr":
                    inline = next((one for one in cell if get_local_name(one) == "is"), None)
                    if inline is not None and (text := _marked(inline)):
                        found.shown[place] = text
                case _:
                    pass

    def _count_others(self, name: str, found: SheetInfo) -> None:
        """Count what is not in cells, as far as it can be read."""
        embedded = 0
        for kind, target in _linked(self._archive, name):
            if kind == "comments":
                found.comments += self._comments(target)
            elif kind == "drawing":
                self._drawing(target, found)
            embedded += kind in _EMBEDDED
        # Objects in separate files have no link, and those of other programs only one.
        found.objects = max(found.objects, embedded)

    def _comments(self, name: str) -> int:
        try:
            if name.endswith(".bin"):
                return count_binary_comments(read_member(self._archive, name))
            return sum(1 for _ in find_elements_by_name(read_xml_member(self._archive, name), "comment"))
        except UnreadableFileError:
            return 1

    def _drawing(self, name: str, found: SheetInfo) -> None:
        try:
            root = read_xml_member(self._archive, name)
        except UnreadableFileError:
            return
        for one in root.iter():
            match get_local_name(one):
                case "sp":
                    text = "\n".join(_paragraphs(one))
                    found.boxes += [text] if text else []
                case "pic":
                    found.pictures += 1
                case "graphicData":
                    found.charts += one.get("uri", "").endswith(("/chart", "/chartex", "/diagram"))
                case _:
                    pass


def _linked(archive: ZipFile, name: str) -> Iterator[tuple[str, str]]:
    try:
        for kind, target in read_relationships(archive, name).values():
            yield kind.rpartition("/")[2], target
    except UnreadableFileError:
        return


def _paragraphs(shape: Element) -> Iterator[str]:
    for paragraph in find_elements_by_name(shape, "p"):
        runs = [
            TextRun(text.text or "")
            for one in paragraph
            if get_local_name(one) in {"r", "fld"}
            for text in one
            if get_local_name(text) == "t"
        ]
        if text := render_text_runs(runs).strip():
            yield text


def _streamed(content: bytes, *names: str) -> Iterator[Element]:
    """Yield elements with these names one after another, without holding more of a large sheet.

    Raises UnreadableFileError.
    """
    try:
        for _, element in iterparse(BytesIO(content)):
            if get_local_name(element) in names:
                yield element
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise UnreadableFileError("damaged: part of the file is not readable XML") from error


def _column(element: Element, found: SheetInfo) -> None:
    first, last = parse_whole_number(element.get("min"), 0), parse_whole_number(element.get("max"), 0)
    if (_is_on(element, "hidden") or element.get("width") == "0") and 0 < first <= last <= MAX_COLUMNS:
        found.hidden_columns.update(range(first - 1, last))


def _is_on(element: Element, name: str) -> bool:
    return element.get(name, "0").lower() not in OFF


def _column_number(reference: str, otherwise: int) -> int:
    """Return the column of `B3`, from 0."""
    column = 0
    for letter in reference.upper():
        if not "A" <= letter <= "Z":
            break
        column = column * 26 + ord(letter) - ord("A") + 1
    return column - 1 if column else otherwise


def _cell_looks(styles: Element) -> list[TextFormat]:
    fonts = [_font(font) for part in styles if get_local_name(part) == "fonts" for font in part]
    formats = [one for part in styles if get_local_name(part) == "cellXfs" for one in part]
    numbers = [parse_whole_number(one.get("fontId"), 0) for one in formats]
    return [fonts[number] if number < len(fonts) else TextFormat() for number in numbers]


_HEIGHTS: Mapping[str, Height] = {"superscript": "raised", "subscript": "lowered"}


def _font(properties: Element | None) -> TextFormat:
    height: Height = ""
    struck = False
    for one in properties if properties is not None else ():
        if get_local_name(one) == "strike":
            struck = one.get("val", "1") not in OFF
        elif get_local_name(one) == "vertAlign":
            height = _HEIGHTS.get(one.get("val", ""), "")
    return TextFormat(height, struck)


def _marked(item: Element) -> str:
    """Return a text of several formats with its marks; empty if it has none."""
    runs: list[TextRun] = []
    for one in item:
        text = "".join(part.text or "" for part in one if get_local_name(part) == "t")
        if get_local_name(one) == "r":
            runs.append(TextRun(text, *_font(next((part for part in one if get_local_name(part) == "rPr"), None))))
        elif get_local_name(one) == "t":
            runs.append(TextRun(one.text or ""))
    if all(run.height == "" and not run.struck for run in runs):
        return ""
    return " ".join(render_text_runs(runs).split())


_OPEN_CONTENT = "content.xml"
_OPEN_TELLING = (b"spanned", b"visibility", b"annotation", b"line-through", b"text-position", b'"error"', b"draw:")
_HIDDEN = frozenset({"collapse", "filter"})
_MAX_REPEATED = 1_048_576


def read_opendocument_sheet_infos(archive: ZipFile) -> dict[str, SheetInfo]:
    """Return the properties of the sheets of an OpenDocument table, by name."""
    try:
        if not any(sign in read_member(archive, _OPEN_CONTENT) for sign in _OPEN_TELLING):
            return {}
        root = read_xml_member(archive, _OPEN_CONTENT)
    except UnreadableFileError:
        return {}
    styles = {
        _said(style, "name"): look
        for style in find_elements_by_name(root, "style")
        if (look := _open_style(style)) != TextFormat()
    }
    tables = (
        table
        for sheet in find_elements_by_name(root, "spreadsheet")
        for table in sheet
        if get_local_name(table) == "table"
    )
    return {_said(table, "name"): _OpenTable(styles).read(table) for table in tables}


def _said(element: Element, name: str) -> str:
    return next((value for key, value in element.items() if key.rpartition("}")[2] == name), "")


def _open_style(style: Element) -> TextFormat:
    height: Height = ""
    struck = False
    for one in find_elements_by_name(style, "text-properties"):
        through = _said(one, "text-line-through-style") or _said(one, "text-line-through-type")
        struck = bool(through) and through not in OFF
        place = _said(one, "text-position")
        if place:
            is_low, is_none = place.startswith(("sub", "-")), place.startswith("0%")
            height = "" if is_none else "lowered" if is_low else "raised"
    return TextFormat(height, struck)


class _OpenTable:
    """Walks the rows and cells of one sheet."""

    def __init__(self, styles: Mapping[str, TextFormat]) -> None:
        self._styles, self._found = styles, SheetInfo()
        self._row = self._column = 0

    def read(self, table: Element) -> SheetInfo:
        """Return what is found."""
        self._below(table)
        return self._found

    def _below(self, element: Element) -> None:
        for child in element:
            match get_local_name(child):
                case "table-row":
                    self._cells(child)
                case "table-column":
                    times = _times(child, "number-columns-repeated")
                    if _said(child, "visibility") in _HIDDEN:
                        self._found.hidden_columns.update(range(self._column, min(self._column + times, MAX_COLUMNS)))
                    self._column += times
                case "shapes":
                    self._shapes(child)
                case "table-header-rows" | "table-rows" | "table-row-group" | "table-header-columns":
                    self._below(child)
                case "table-columns" | "table-column-group":
                    self._below(child)
                case _:
                    pass

    def _cells(self, row: Element) -> None:
        times, column = _times(row, "number-rows-repeated"), 0
        if _said(row, "visibility") in _HIDDEN:
            self._found.hidden_rows.update(range(self._row, self._row + times))
        for cell in row:
            wide = _times(cell, "number-columns-repeated")
            if get_local_name(cell) == "table-cell":
                self._cell(cell, (self._row, column))
            column += wide
        self._row += times

    def _cell(self, cell: Element, place: CellPosition) -> None:
        found = self._found
        last = place[0] + _times(cell, "number-rows-spanned") - 1, place[1] + _times(cell, "number-columns-spanned") - 1
        if last != place:
            found.merged.append((place, last))
        found.set_format(place, self._styles.get(_said(cell, "style-name"), TextFormat()))
        found.comments += sum(1 for one in cell if get_local_name(one) == "annotation")
        boxes = len(found.boxes)
        self._shapes(cell)
        runs = [
            run for one in cell if get_local_name(one) == "p" for run in (*self._runs(one, TextFormat()), TextRun(" "))
        ]
        text = " ".join(render_text_runs(runs).split())
        is_marked = any(run.height or run.struck for run in runs)
        has_error = any(value == "error" for value in cell.attrib.values())
        # The library takes a box in a cell for the cell's text.
        if (text and (is_marked or has_error)) or len(found.boxes) > boxes:
            found.shown[place] = text

    def _runs(self, element: Element, look: TextFormat) -> Iterator[TextRun]:
        yield TextRun(element.text or "", *look)
        for child in element:
            own = (
                self._styles.get(_said(child, "style-name"), TextFormat())
                if get_local_name(child) == "span"
                else TextFormat()
            )
            within = TextFormat(own.height or look.height, own.struck or look.struck)
            if get_local_name(child) in {"s", "tab", "line-break"}:
                yield TextRun(" ", *look)
            elif get_local_name(child) not in {"annotation", "note"}:
                yield from self._runs(child, within)
            yield TextRun(child.tail or "", *look)

    def _shapes(self, element: Element) -> None:
        for one in element.iter():
            if get_local_name(one) in {"text-box", "custom-shape"}:
                lines: Sequence[str] = [
                    " ".join("".join(line.itertext()).split()) for line in find_elements_by_name(one, "p")
                ]
                text = "\n".join(filter(None, lines))
                self._found.boxes += [text] if text else []
            self._found.objects += get_local_name(one) == "object"
            self._found.pictures += get_local_name(one) == "image"


def _times(element: Element, name: str) -> int:
    return min(max(parse_whole_number(_said(element, name) or None, 1), 1), _MAX_REPEATED)
