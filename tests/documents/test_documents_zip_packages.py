"""Archives that other programs pack otherwise are read, and one bad part costs that part alone."""

from io import BytesIO
from zipfile import ZipFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.document_files import (
    SHEET_NAMESPACE,
    make_book_file,
    make_open_sheets_file,
    make_sheets_file,
    make_slides_file,
    make_word_file,
    make_workbook_file,
    make_worksheet_xml,
    make_zip_archive,
)
from waystation.documents.readers.extraction import ExtractionResult, join_extracted_parts
from waystation.documents.readers.formats import extract_file
from waystation.documents.table_engine.database import answer_query
from waystation.documents.table_engine.engine import EngineRequest
from waystation.documents.table_engine.grid import read_grid
from waystation.documents.tables import QueryResult, TableText

FILES = {
    "a.docx": make_word_file(),
    "a.pptx": make_slides_file(),
    "a.xlsx": make_sheets_file(),
    "a.epub": make_book_file(),
    "a.ods": make_open_sheets_file(),
}


def read_zip_members(content: bytes) -> dict[str, str | bytes]:
    with ZipFile(BytesIO(content)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def extract_text(content: bytes, name: str) -> str:
    return join_extracted_parts(extract_file(content, name)).text


def list_omissions(found: ExtractionResult) -> list[str]:
    return [f"{item.name}: {item.reason}" for item in found.skipped_items]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("before", "slash"), [("", "\\"), ("/", "/"), ("./", "/")])
def test_members_may_be_called_otherwise(name: str, before: str, slash: str) -> None:
    packed = make_zip_archive(
        {before + one.replace("/", slash): content for one, content in read_zip_members(FILES[name]).items()}
    )
    assert extract_text(packed, name) == extract_text(FILES[name], name)


@pytest.mark.parametrize("name", ["a.epub", "a.ods"])
def test_what_says_the_kind_may_be_missing(name: str) -> None:
    found = read_zip_members(FILES[name])
    del found["mimetype"]
    if name == "a.ods":
        entry = 'm:full-path="/" m:media-type="application/vnd.oasis.opendocument.spreadsheet"'
        space = "urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"
        found["META-INF/manifest.xml"] = f'<m:manifest xmlns:m="{space}"><m:file-entry {entry}/></m:manifest>'
    assert extract_text(make_zip_archive(found), name) == extract_text(FILES[name], name)


def test_a_book_without_a_container_is_read() -> None:
    found = read_zip_members(FILES["a.epub"])
    del found["META-INF/container.xml"]
    assert extract_text(make_zip_archive(found), "a.epub") == extract_text(FILES["a.epub"], "a.epub")


@pytest.mark.parametrize(("name", "folder"), [("a.docx", "word/"), ("a.pptx", "ppt/"), ("a.xlsx", "xl/")])
@pytest.mark.parametrize("other", ["", "content/"])
def test_folders_may_be_others_or_none(name: str, folder: str, other: str) -> None:
    def moved(content: str | bytes) -> bytes:
        content = content if isinstance(content, bytes) else content.encode()
        for quote in (b'"/', b'"'):
            content = content.replace(quote + folder.encode(), quote + other.encode())
        return content

    found = {
        one.replace(folder, other, 1) if one.startswith(folder) else one: moved(content)
        for one, content in read_zip_members(FILES[name]).items()
    }
    assert extract_text(make_zip_archive(found), name) == extract_text(FILES[name], name)


def test_a_missing_broken_or_protected_chapter_costs_that_chapter() -> None:
    found = read_zip_members(FILES["a.epub"])
    package = str(found["OEBPS/book.opf"], "utf-8") if isinstance(found["OEBPS/book.opf"], bytes) else ""
    found["OEBPS/book.opf"] = package.replace("</spine>", '<itemref idref="unknown"/></spine>')
    found["META-INF/encryption.xml"] = '<e><CipherReference URI="OEBPS/end.xhtml"/></e>'
    del found["OEBPS/two.xhtml"]
    read = extract_file(make_zip_archive(found), "a.epub")
    assert [part.place for part in read.parts] == ["chapter Beginnings"]
    assert list_omissions(read) == [
        "section 2 (OEBPS/two.xhtml): damaged: part of the file is missing or broken",
        "section 3 (OEBPS/end.xhtml): protected against copying (DRM); only an authorised program can open it",
        "section 4 (file missing in the book): damaged: part of the file is missing or broken",
    ]


def test_a_text_of_a_book_that_is_not_in_its_order_is_named() -> None:
    found = read_zip_members(FILES["a.epub"])
    package = str(found["OEBPS/book.opf"], "utf-8") if isinstance(found["OEBPS/book.opf"], bytes) else ""
    item = '<item id="n" href="notes.xhtml" media-type="application/xhtml+xml"/>'
    found["OEBPS/book.opf"] = package.replace("</manifest>", f"{item}</manifest>")
    read = extract_file(make_zip_archive(found), "a.epub")
    assert list_omissions(read) == ["OEBPS/notes.xhtml: not part of the book's reading order"]


@given(
    st.lists(st.sampled_from(["there", "missing", "broken"]), min_size=1, max_size=6).filter(lambda one: "there" in one)
)
def test_every_chapter_is_in_the_text_or_named(chapters: list[str]) -> None:
    items = "".join(f'<item id="i{at}" href="{at}.xhtml"/>' for at in range(len(chapters)))
    order = "".join(f'<itemref idref="i{at}"/>' for at in range(len(chapters)))
    texts = {f"{at}.xhtml": f"<p>word{at}x</p>" for at, kind in enumerate(chapters) if kind != "missing"}
    whole = make_zip_archive({"a.opf": f"<package>{items}{order}</package>", **texts})
    content = whole
    for at, kind in enumerate(chapters):
        if kind == "broken":
            with ZipFile(BytesIO(whole)) as opened:
                begin = opened.getinfo(f"{at}.xhtml").header_offset + 30 + len(f"{at}.xhtml")
            content = content[:begin] + b"\xff\xff" + content[begin + 2 :]
    read = extract_file(content, "a.epub")
    text = join_extracted_parts(read).text
    for at, kind in enumerate(chapters):
        assert (f"word{at}x" in text) == (kind == "there")
        assert any(f"{at}.xhtml" in item.name for item in read.skipped_items) == (kind != "there")


def test_a_bad_sheet_and_a_chart_cost_themselves_alone() -> None:
    content = make_workbook_file(
        {
            "Costs": ("worksheet", make_worksheet_xml("a b", "1 2")),
            "Chart": ("chartsheet", f'<chartsheet xmlns="{SHEET_NAMESPACE}"/>'),
            "Gone": ("worksheet", None),
            "Broken": ("worksheet", "<worksheet"),
            "Last": ("worksheet", make_worksheet_xml("c d")),
        }
    )
    read = extract_file(content, "a.xlsx")
    assert join_extracted_parts(read).text == "[sheet Costs]\na | b\n1 | 2\n\n[sheet Last]\nc | d"
    assert list_omissions(read) == [
        "sheet Chart: a chart without text",
        "sheet Gone: damaged: part of the file is missing or broken",
        "sheet Broken: damaged: not a readable spreadsheet",
    ]


def test_a_bad_slide_costs_itself_alone() -> None:
    found = read_zip_members(FILES["a.pptx"])
    found["ppt/slides/slide1.xml"] = "<broken"
    read = extract_file(make_zip_archive(found), "a.pptx")
    assert [part.place for part in read.parts] == ["slide 3"]
    assert list_omissions(read) == [
        "slide 1: damaged: part of the file is not readable XML",
        "slide 2: hidden; unhide the slide to include it",
    ]


def test_errors_in_cells_are_shown_where_they_are() -> None:
    content = make_workbook_file(
        {"Costs": ("worksheet", make_worksheet_xml("Region Revenue Margin", "North 410 #DIV/0!", "- #N/A 0.5"))}
    )
    assert (
        extract_text(content, "a.xlsx")
        == "[sheet Costs]\nRegion | Revenue | Margin\nNorth | 410 | #DIV/0!\n | #N/A | 0.5"
    )


def query_table(sql: str, text: str) -> QueryResult:
    table = read_grid(TableText(name="t", text=text, first_line=2, sheet=True))
    return answer_query(EngineRequest(sql=sql, tables=(table,), max_rows=9))


def test_a_sum_says_that_a_cell_was_an_error() -> None:
    rows = query_table(
        "SELECT sum(Revenue) FROM t", "Region | Revenue\nNorth | 410\nSouth | #N/A\nEast | 90\nWest | #BEZUG!"
    )
    assert rows.rows == (("500",),)
    assert rows.cautions == (
        "t: 2 rows (lines 4, 6) have an error (#N/A, #BEZUG!) instead of a value in column Revenue; if the other "
        "cells of the column are numbers or dates, the errors are NULL, and sums, counts and averages ignore them",
    )


def test_errors_among_texts_stay_texts() -> None:
    assert query_table("SELECT b FROM t", "a | b\n1 | x\n2 | #N/A").rows == (("x",), ("#N/A",))
    assert query_table("SELECT b FROM t", "a | b\n1 | #1\n2 | #note").cautions == ()


def test_an_opendocument_table_with_a_password_is_said_to_have_one() -> None:
    found = read_zip_members(FILES["a.ods"])
    found["META-INF/manifest.xml"] = "<m><encryption-data/></m>"
    with pytest.raises(Exception, match="protected by a password"):
        extract_file(make_zip_archive(found), "a.ods")
