"""What changes the meaning of cells is kept, what nobody sees is not read, and what is placed around them is named."""

import struct
from collections.abc import Callable, Mapping
from importlib import import_module
from io import BytesIO
from typing import Any

import pytest

from tests.documents.test_documents_zip_packages import (
    extract_text,
    list_omissions,
    make_workbook_file,
    make_worksheet_xml,
    make_zip_archive,
    query_table,
    read_zip_members,
)
from tests.support.document_files import OLD_SHEETS, SHEET_NAMESPACE, make_open_sheets_file
from waystation.documents.readers.binary_sheets import BinaryStyleTable, read_binary_sheet_info, read_binary_styles
from waystation.documents.readers.cell_formats import TextFormat
from waystation.documents.readers.compound_file import CompoundFile, get_workbook_stream, read_xls_sheet_infos
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.formats import extract_file


def made(write: Callable[[Any, Any], None]) -> bytes:
    """A workbook of one sheet `Costs`, which is written by this function of the book and the sheet."""
    file = BytesIO()
    with import_module("xlsxwriter").Workbook(file) as opened:
        book: Any = opened
        write(book, book.add_worksheet("Costs"))
    return file.getvalue()


def rows(content: bytes, name: str = "a.xlsx") -> list[str]:
    return extract_text(content, name).split("\n")[1:]


def test_a_merged_cell_is_repeated_and_a_title_over_all_columns_is_not() -> None:
    def write(_: Any, costs: Any) -> None:
        costs.merge_range("B1:E1", "Costs of the year")
        costs.merge_range("B2:B3", "Region")
        costs.merge_range("C2:D2", "Revenue")
        costs.write_row("E2", ["Note"])
        costs.write_row("C3", [2023, 2024, "-"])
        costs.merge_range("B4:B5", "North")
        costs.write_row("C4", [410, 455, "a"])
        costs.write_row("C5", [10, 20, "b"])

    content = made(write)
    assert rows(content) == [
        "Costs of the year",
        "Region | Revenue | Revenue | Note",
        "Region | 2023 | 2024 | -",
        "North | 410 | 455 | a",
        "North | 10 | 20 | b",
    ]
    table = "\n".join(rows(content)[2:])
    assert query_table("SELECT count(*) FROM t WHERE Region = 'North'", table).rows == (("2",),)


def test_raised_lowered_and_struck_out_cells_are_marked() -> None:
    def write(book: Any, costs: Any) -> None:
        up, down, struck = (book.add_format(look) for look in ({"font_script": 1}, {"font_script": 2}, STRUCK))
        costs.write_rich_string("A1", "10", up, "6", " rows")
        costs.write_rich_string("A2", "CO", down, "2", " in air")
        costs.write_rich_string("A3", "Price ", struck, "$500", " $400")
        costs.write("A4", "Cancellation is free.", struck)
        costs.write("B4", 500, struck)
        costs.write("B3", 7)

    assert rows(made(write)) == [
        "10^6 rows",
        "CO₂ in air",
        "Price ~~$500~~ $400 | 7",
        "~~Cancellation is free.~~ | ~~500~~",
    ]


STRUCK = {"font_strikeout": True}


def test_texts_within_cells_are_marked_too() -> None:
    runs = "<r><t>m</t></r><r><rPr><vertAlign val='superscript'/></rPr><t>2</t></r>"
    cells = f'<c t="inlineStr"><is>{runs}</is></c><c t="inlineStr"><is><t>plain</t></is></c><c t="e"><v>#N/A</v></c>'
    row = f"<row>{cells}</row>"
    content = make_workbook_file(
        {"Costs": ("worksheet", f'<worksheet xmlns="{SHEET_NAMESPACE}"><sheetData>{row}</sheetData></worksheet>')}
    )
    assert rows(content) == ["m^2 | plain | #N/A"]


def test_hidden_rows_and_columns_are_not_read_and_named() -> None:
    def write(_: Any, costs: Any) -> None:
        for row in range(6):
            costs.write_row(row, 0, [f"{letter}{row + 1}" for letter in "abcde"])
        for row in (1, 2, 4, 8):
            costs.set_row(row, None, None, {"hidden": True})
        costs.set_column("B:B", None, None, {"hidden": True})
        costs.set_column("D:H", None, None, {"hidden": True})

    read = extract_file(made(write), "a.xlsx")
    assert read.parts[0].text.split("\n") == ["a1 | c1", "a4 | c4", "a6 | c6"]
    assert list_omissions(read) == [
        "rows 2–3, 5 of sheet Costs: hidden, perhaps by a filter; only visible rows are read",
        "columns B, D–E of sheet Costs: hidden; only visible columns are read",
    ]


def test_text_boxes_are_read_and_comments_and_charts_are_named() -> None:
    def write(book: Any, costs: Any) -> None:
        costs.write("A1", 1)
        costs.write_comment("A1", "Not agreed yet.")
        costs.insert_textbox("C3", "Unaudited.\nSee page 4.")
        chart = book.add_chart({"type": "line"})
        chart.add_series({"values": "=Costs!$A$1:$A$1"})
        costs.insert_chart("F3", chart)

    read = extract_file(made(write), "a.xlsx")
    assert [(part.place, part.text) for part in read.parts] == [
        ("sheet Costs", "1"),
        ("sheet Costs, text boxes", "Unaudited.\nSee page 4."),
    ]
    assert list_omissions(read) == ["comments of sheet Costs (1): not read", "charts of sheet Costs (1): not read"]


def test_a_macro_sheet_and_a_sheet_that_is_not_there_cost_themselves_alone() -> None:
    content = make_workbook_file(
        {
            "Costs": ("worksheet", make_worksheet_xml("a b", "1 2")),
            "Macro": ("xlMacrosheet", make_worksheet_xml("x y")),
            "Last": ("worksheet", make_worksheet_xml("c d")),
        }
    )
    found = read_zip_members(content)
    listed = str(found["xl/workbook.xml"], "utf-8")  # type: ignore[arg-type]
    found["xl/workbook.xml"] = listed.replace("</sheets>", '<sheet name="Module" sheetId="9" r:id=""/></sheets>')
    read = extract_file(make_zip_archive(found), "a.xlsm")
    assert [part.text for part in read.parts if part.text] == ["a | b\n1 | 2", "c | d"]
    assert list_omissions(read) == ["sheet Macro: a macro", "sheet Module: damaged: missing in the file"]


def open_sheet(rows: str, styles: str = "", columns: str = "") -> bytes:
    """An OpenDocument table of one sheet."""
    found = read_zip_members(make_open_sheets_file())
    content = str(found["content.xml"], "utf-8")  # type: ignore[arg-type]
    begin, end = content.index("<table:table-row>"), content.index("</table:table>")
    more = (
        ' xmlns:style="urn:oasis:names:tc:opendocument:xmlns:style:1.0"'
        ' xmlns:fo="urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"'
        ' xmlns:draw="urn:oasis:names:tc:opendocument:xmlns:drawing:1.0"'
    )
    content = f"{content[:begin]}{columns}{rows}{content[end:]}"
    content = content.replace("<office:document-content", f"<office:document-content{more}")
    content = content.replace(
        "<office:body>", f"<office:automatic-styles>{styles}</office:automatic-styles><office:body>"
    )
    return make_zip_archive({**found, "content.xml": content})


def cell(text: str, attributes: str = "", more: str = "") -> str:
    kind = 'office:value-type="string"' if text else ""
    return f"<table:table-cell {kind}{attributes}>{more}<text:p>{text}</text:p></table:table-cell>"


def row(*cells: str, attributes: str = "") -> str:
    return f"<table:table-row{attributes}>{''.join(cells)}</table:table-row>"


def test_opendocument_tables_keep_as_much() -> None:
    def style(name: str, look: str) -> str:
        return f'<style:style style:name="{name}"><style:text-properties {look}/></style:style>'

    styles = style("up", 'style:text-position="super 58%"') + style("out", 'style:text-line-through-style="solid"')
    covered = "<table:covered-table-cell/>"
    box = "<draw:frame><draw:text-box><text:p>Unaudited.</text:p></draw:text-box></draw:frame>"
    content = open_sheet(
        row(
            cell("Region", ' table:number-rows-spanned="2"'),
            cell("Revenue", ' table:number-columns-spanned="2"'),
            covered,
        )
        + row(covered, cell("2023"), cell("2024", ' table:style-name="out"'))
        + row(cell("hidden"), cell("x"), attributes=' table:visibility="filter" table:number-rows-repeated="2"')
        + row(
            cell('10<text:span text:style-name="up">6</text:span>'),
            cell("1", "", "<office:annotation/>"),
            cell("b", "", box),
        ),
        styles,
        '<table:table-column table:number-columns-repeated="3"/><table:table-column table:visibility="collapse"/>',
    )
    read = extract_file(content, "a.ods")
    assert [part.text for part in read.parts] == [
        "Region | Revenue | Revenue\nRegion | 2023 | ~~2024~~\n10^6 | 1 | b",
        "Unaudited.",
    ]
    assert list_omissions(read) == [
        "rows 3–4 of sheet Costs: hidden, perhaps by a filter; only visible rows are read",
        "comments of sheet Costs (1): not read",
    ]


def record(kind: int, form: str, *values: int) -> bytes:
    content = struct.pack(f"<{form}", *values)
    return struct.pack("<HH", kind, len(content)) + content


def compound(streams: dict[str, bytes]) -> bytes:
    """A file of Office 97 with these streams at its root, each at least as long as a sector chain needs."""
    sectors: list[bytes] = []
    table: list[int] = []
    starts: dict[str, int] = {}

    def put(content: bytes) -> int:
        first = len(sectors)
        pieces = [content[at : at + 512].ljust(512, b"\0") for at in range(0, len(content), 512)]
        sectors.extend(pieces)
        table.extend([*range(first + 1, first + len(pieces)), 0xFFFFFFFE])
        return first

    for name, content in streams.items():
        starts[name] = put(content.ljust(4_096, b"\0"))

    def entry(name: str, kind: int, right: int, child: int, start: int, size: int) -> bytes:
        coded = name.encode("utf-16-le")
        links = struct.pack("<HBBIII", len(coded) + 2, kind, 1, 0xFFFFFFFF, right, child)
        return coded.ljust(64, b"\0") + links + bytes(36) + struct.pack("<III", start, size, 0)

    listed = entry("Root Entry", 5, 0xFFFFFFFF, 1, 0xFFFFFFFE, 0)
    for at, (name, content) in enumerate(streams.items(), 1):
        right = at + 1 if at < len(streams) else 0xFFFFFFFF
        listed += entry(name, 2, right, 0xFFFFFFFF, starts[name], max(4_096, len(content)))
    folder = put(listed)
    of_table = len(sectors)
    table.append(0xFFFFFFFD)
    sectors.append(struct.pack("<128I", *table, *[0xFFFFFFFF] * (128 - len(table))))
    head = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1".ljust(24, b"\0") + struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6)
    head += bytes(10) + struct.pack("<8I", 1, folder, 0, 4_096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    head += struct.pack("<109I", of_table, *[0xFFFFFFFF] * 108)
    return head + b"".join(sectors)


def old_book(cells: bytes, before: bytes = b"") -> bytes:
    """A workbook stream of one sheet `Costs`."""
    begin = record(0x809, "HHHHII", 0x600, 5, 0, 0, 0, 0) + before
    listed = struct.pack("<IBBBB", 0, 0, 0, 5, 0) + b"Costs"
    size = len(begin) + 4 + len(listed) + 4
    listed = struct.pack("<I", size) + listed[4:]
    of_sheet = record(0x809, "HHHHII", 0x600, 0x10, 0, 0, 0, 0) + cells + record(0x0A, "")
    return begin + struct.pack("<HH", 0x85, len(listed)) + listed + record(0x0A, "") + of_sheet


def number(row: int, column: int, value: int, look: int = 0) -> bytes:
    return struct.pack("<HHHHHd", 0x203, 14, row, column, look, value)


def test_old_excel_files_show_errors_and_marks_and_hide_what_is_hidden() -> None:
    fonts = b"".join(
        struct.pack("<HHHHHHHBBBB", 0x31, 15, 200, struck, 0, 400, 0, 0, 0, 0, 0) + b"\0" for struck in (0, 8)
    )
    looks = b"".join(record(0xE0, "H18x", font) for font in (0, 1))
    formula = struct.pack("<HHHHH", 0x06, 22, 0, 2, 0) + bytes([2, 0, 7, 0, 0, 0, 0xFF, 0xFF]) + bytes(8)
    cells = (
        *(number(0, 0, 410), record(0x205, "HHHBB", 0, 1, 0, 42, 1), formula, number(0, 3, 500, 1)),
        *(record(0x208, "HHHHHHHH", 1, 0, 2, 0, 0, 0, 0x20, 0), number(1, 0, 999)),
        *(number(2, 0, 7), number(2, 4, 888), record(0x7D, "HHHHHH", 4, 4, 0, 0, 1, 0), record(0x1C, "HH", 0, 0)),
    )
    read = extract_file(compound({"Workbook": old_book(b"".join(cells), fonts + looks)}), "a.xls")
    assert read.parts[0].text == "410 | #N/A | #DIV/0! | ~~500~~\n7"
    assert list_omissions(read) == [
        "row 2 of sheet Costs: hidden, perhaps by a filter; only visible rows are read",
        "column E of sheet Costs: hidden; only visible columns are read",
        "comments of sheet Costs (1): not read",
    ]


def test_an_old_excel_file_with_a_password_is_said_to_have_one() -> None:
    with pytest.raises(UnreadableFileError, match="protected by a password"):
        extract_file(compound({"Workbook": old_book(number(0, 0, 1), record(0x2F, "HHH", 0, 1, 2))}), "a.xls")


def test_a_document_that_is_embedded_in_a_workbook_does_not_make_it_one() -> None:
    named = "WordDocument".encode("utf-16-le")
    embedded = compound({"Workbook": old_book(number(0, 0, 410)), "Note": named})
    assert extract_file(embedded, "a.xls").parts[0].text == "410"
    with pytest.raises(UnreadableFileError, match=r"an old Word file; save it as \.docx"):
        extract_file(compound({"WordDocument": b"x"}), "a.doc")
    assert extract_file(OLD_SHEETS, "a.xls").parts


def binary(kind: int, form: str, *values: int) -> bytes:
    content = struct.pack(f"<{form}", *values)
    return binary_record(kind, content)


def binary_record(kind: int, content: bytes) -> bytes:
    coded = bytes([kind]) if kind < 128 else bytes([kind & 0x7F | 0x80, kind >> 7])
    return coded + bytes([len(content) & 0x7F | 0x80, len(content) >> 7]) + content


def wide(text: str) -> bytes:
    return struct.pack("<I", len(text)) + text.encode("utf-16-le")


def binary_book(cells: bytes, kind: str = "worksheet", beside: Mapping[str, tuple[str, str | bytes]] = {}) -> bytes:
    """A workbook in the binary format: `Costs` of these records, and `Other` of this kind.

    Args:
        cells: Rows, cells and what follows them.
        kind: That of the sheet `Other`.
        beside: By member, the kind of the link from `Costs` to it, and what is in it.
    """
    space, links = (
        "http://schemas.openxmlformats.org",
        "http://schemas.openxmlformats.org/officeDocument/2006/relationships",
    )

    def linked(*targets: tuple[str, str]) -> str:
        listed = "".join(
            f'<Relationship Id="rId{number}" Type="{links}/{one}" Target="/{target}"/>'
            for number, (one, target) in enumerate(targets, 1)
        )
        return f'<Relationships xmlns="{space}/package/2006/relationships">{listed}</Relationships>'

    fonts = binary(43, "HHHH4x", 220, 0, 400, 0) + binary(43, "HHHH4x", 220, 8, 400, 0)
    looks = binary(617, "I", 2) + binary(47, "HHH10x", 0, 0, 0) + binary(47, "HHH10x", 0, 0, 1) + binary(618, "")
    rich = b"\1" + wide("was 500, is 400") + struct.pack("<IHHHH", 2, 4, 1, 7, 0)
    sheet = binary(129, "") + binary(148, "IIII", 0, 9, 0, 9) + binary(145, "") + cells + binary(130, "")
    listed = b"".join(
        binary_record(156, struct.pack("<II", 0, number) + wide(f"rId{number}") + wide(name))
        for number, name in enumerate(("Costs", "Other"), 1)
    )
    return make_zip_archive(
        {
            "_rels/.rels": linked(("officeDocument", "xl/workbook.bin")),
            "xl/workbook.bin": binary(131, "") + binary(143, "") + listed + binary(144, "") + binary(132, ""),
            "xl/_rels/workbook.bin.rels": linked(
                ("worksheet", "xl/worksheets/sheet1.bin"),
                (kind, "xl/worksheets/sheet2.bin"),
                ("styles", "xl/styles.bin"),
                ("sharedStrings", "xl/sharedStrings.bin"),
            ),
            "xl/styles.bin": binary(278, "") + fonts + looks + binary(279, ""),
            "xl/sharedStrings.bin": binary(159, "II", 1, 1) + binary_record(19, rich) + binary(160, ""),
            "xl/worksheets/sheet1.bin": sheet,
            "xl/worksheets/sheet2.bin": binary(129, "")
            + binary(148, "IIII", 0, 0, 0, 0)
            + binary(145, "")
            + binary(146, ""),
            "xl/worksheets/_rels/sheet1.bin.rels": linked(*((one, name) for name, (one, _) in beside.items())),
            **{name: content for name, (_, content) in beside.items()},
        }
    )


def test_a_binary_workbook_keeps_as_much_as_any_other() -> None:
    shape = "<xdr:sp><xdr:txBody><a:p><a:r><a:t>Unaudited.</a:t></a:r></a:p></xdr:txBody></xdr:sp>"
    frame = '<a:graphicData uri="http://schemas.openxmlformats.org/drawingml/2006/chart"/>'
    drawing = f'<xdr:wsDr xmlns:xdr="x" xmlns:a="a">{shape}{frame}</xdr:wsDr>'
    cells = (
        *(binary(0, "IIHBB5x", 0, 0, 300, 0, 0), binary(7, "III", 0, 0, 0), binary(3, "IIB", 1, 0, 42)),
        *(binary(5, "IId", 2, 1, 500), binary(5, "IId", 3, 0, 7), binary(5, "IId", 4, 0, 8)),
        *(binary(0, "IIHBB5x", 1, 0, 300, 0, 0x10), binary(5, "IId", 0, 0, 999)),
        *(binary(0, "IIHBB5x", 2, 0, 300, 0, 0), binary(11, "IIBHI", 0, 0, 15, 0, 0), binary(5, "IId", 1, 0, 3)),
        *(binary(0, "IIHBB5x", 3, 0, 300, 0, 0), binary(5, "IId", 1, 0, 4), binary(146, "")),
        *(binary(60, "IIIIH", 4, 4, 0, 0, 1), binary(176, "IIII", 2, 3, 0, 0)),
    )
    read = extract_file(
        binary_book(
            b"".join(cells),
            beside={
                "xl/comments1.bin": ("comments", binary(628, "") + 2 * (binary(635, "I", 0) + binary(636, ""))),
                "xl/drawings/drawing1.xml": ("drawing", drawing),
                "xl/embeddings/offer.pptx": ("package", b"PK"),
            },
        ),
        "a.xlsb",
    )
    assert [(part.place, part.text) for part in read.parts if part.text] == [
        ("sheet Costs", "was ~~500~~, is 400 | #N/A | ~~500~~ | 7\n#VALUE! | 3\n#VALUE! | 4"),
        ("sheet Costs, text boxes", "Unaudited."),
    ]
    assert list_omissions(read) == [
        "row 2 of sheet Costs: hidden, perhaps by a filter; only visible rows are read",
        "column E of sheet Costs: hidden; only visible columns are read",
        "comments of sheet Costs (2): not read",
        "charts of sheet Costs (1): not read",
        "embedded objects of sheet Costs (1): not read",
    ]


def test_a_binary_workbook_with_a_macro_sheet_is_read() -> None:
    cells = binary(0, "IIHBB5x", 0, 0, 300, 0, 0) + binary(5, "IId", 0, 0, 410) + binary(146, "")
    read = extract_file(binary_book(cells, "xlMacrosheet"), "a.xlsb")
    assert read.parts[0].text == "410"
    assert list_omissions(read) == ["sheet Other: a macro"]


def test_a_binary_sheet_that_is_cut_costs_itself_alone() -> None:
    cells = binary(0, "IIHBB5x", 0, 0, 300, 0, 0) + binary(5, "IId", 0, 0, 410) + binary(146, "")
    found = read_zip_members(binary_book(cells))
    found["xl/worksheets/sheet2.bin"] = binary(129, "")
    read = extract_file(make_zip_archive(found), "a.xlsb")
    assert read.parts[0].text == "410"
    assert list_omissions(read) == ["sheet Other: damaged: not a readable spreadsheet"]


def test_a_binary_sheet_at_which_the_library_panics_costs_itself_alone() -> None:
    # The cell names the shared string 99 of one. The library's panic is no Exception.
    cells = binary(0, "IIHBB5x", 0, 0, 300, 0, 0) + binary(7, "III", 0, 0, 99) + binary(146, "")
    read = extract_file(binary_book(cells), "a.xlsb")
    assert [part.place for part in read.parts if part.place == "sheet Other"] == ["sheet Other"]
    assert list_omissions(read) == ["sheet Costs: damaged: not a readable spreadsheet"]


def test_a_binary_workbook_at_which_the_library_panics_is_refused() -> None:
    cells = binary(0, "IIHBB5x", 0, 0, 300, 0, 0) + binary(5, "IId", 0, 0, 410) + binary(146, "")
    found = read_zip_members(binary_book(cells))
    found["xl/sharedStrings.bin"] = binary(159, "")
    with pytest.raises(UnreadableFileError, match="damaged: not a readable spreadsheet"):
        extract_file(make_zip_archive(found), "a.xlsb")


def test_embedded_objects_of_sheets_are_named() -> None:
    content = made(lambda _, costs: costs.write("A1", "See the slides."))
    found = read_zip_members(content)
    found["xl/worksheets/_rels/sheet1.xml.rels"] = (
        '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="rId1" Type="{SHEET_NAMESPACE}/package" Target="../embeddings/offer.pptx"/></Relationships>'
    )
    sheet = str(found["xl/worksheets/sheet1.xml"], "utf-8")  # type: ignore[arg-type]
    one, linked = '<oleObject shapeId="1025" r:id="rId1"/>', '<oleObject shapeId="1026" link="[1]!x"/>'
    found["xl/worksheets/sheet1.xml"] = sheet.replace(
        "</worksheet>", f"<oleObjects>{one}{one}{linked}</oleObjects></worksheet>"
    )
    assert list_omissions(extract_file(make_zip_archive(found), "a.xlsm")) == [
        "embedded objects of sheet Costs (2): not read"
    ]


def test_embedded_objects_of_old_excel_files_are_named() -> None:
    def drawn(flags: int, *, has_source: bool) -> bytes:
        parts = struct.pack("<HHHH14x", 0x15, 18, 8, 1) + struct.pack("<HHH", 8, 2, flags)
        parts += struct.pack("<HH4x", 9, 4) if has_source else b""
        return record(0x5D, f"{len(parts) + 4}B", *parts, 0, 0, 0, 0)

    picture, control, objects = drawn(1, has_source=False), drawn(0x11, has_source=True), drawn(9, has_source=True)
    book = old_book(number(0, 0, 410) + picture + control + objects)
    named = "embedded objects of sheet Costs (1): not read"
    assert list_omissions(extract_file(compound({"Workbook": book}), "a.xls")) == [named]
    stored = compound({"Workbook": book, "MBD00A1": b"x", "MBD00A2": b"x"})
    assert list_omissions(extract_file(stored, "a.xls")) == [named, "embedded objects (1): not read"]


def test_binary_sheets_show_errors_and_marks_and_hide_what_is_hidden() -> None:
    fonts = binary(43, "HHHH4x", 220, 0, 400, 0) + binary(43, "HHHH4x", 220, 8, 400, 1)
    looks = binary(617, "I", 2) + binary(47, "HHH10x", 0, 0, 0) + binary(47, "HHH10x", 0, 0, 1) + binary(618, "")
    styles = read_binary_styles(fonts + binary(47, "HHH10x", 0, 0, 1) + looks)
    assert styles.cells == [TextFormat(), TextFormat("raised", struck=True)]
    found = read_binary_sheet_info(
        binary(60, "IIIIH", 2, 3, 0, 0, 1)
        + binary(0, "IIHBB", 4, 0, 0, 0, 0)
        + binary(3, "IIB", 1, 0, 42)
        + binary(11, "IIB", 2, 1, 7)
        + binary(0, "IIHBB", 5, 0, 0, 0, 0x10)
        + binary(176, "IIII", 0, 1, 2, 3),
        dict(enumerate(styles.cells)),
    )
    assert found.shown == {(4, 1): "#N/A", (4, 2): "#DIV/0!"}
    assert found.looks == {(4, 2): TextFormat("raised", struck=True)}
    assert (found.hidden_rows, found.hidden_columns, found.merged) == ({5}, {2, 3}, [((0, 2), (1, 3))])


def test_broken_records_say_nothing_and_break_nothing() -> None:
    for content in (b"\xff" * 9, b"", binary(3, "I", 1), binary(0, "H", 1)):
        assert read_binary_sheet_info(content, {}).shown == {}
        assert read_binary_styles(content) == BinaryStyleTable([], [])
    whole = compound({"Workbook": old_book(number(0, 0, 410))})
    for length in range(0, len(whole), 97):
        try:
            stream = get_workbook_stream(CompoundFile(whole[:length] + b"\xff" * 600))
        except ValueError:
            continue
        assert all(look.shown == {} for look in read_xls_sheet_infos(stream))
