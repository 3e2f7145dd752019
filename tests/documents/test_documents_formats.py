from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.support.document_files import (
    OLD_SHEETS,
    TEXT,
    make_book_file,
    make_mail_file,
    make_open_sheets_file,
    make_pdf_file,
    make_sheets_file,
    make_slides_file,
    make_word_file,
    make_zip_archive,
)
from waystation.documents.document_loading import load_documents
from waystation.documents.search import split_into_passages


def read_document_file(folder: Path, name: str, content: bytes) -> tuple[str, list[str]]:
    """The text of a file, and what of it was left out."""
    file = folder / name
    file.write_bytes(content)
    loaded = load_documents([file])
    left_out = [f"{one.name.removeprefix(f'{name}, ')}: {one.reason}" for one in loaded.skipped_items]
    return loaded.documents[0].text, left_out


def test_a_pdf_has_its_pages_as_places_and_names_those_without_text(tmp_path: Path) -> None:
    pages = (TEXT, "scan", "", "[page 9]\nThree.", "scan", "scan")
    assert read_document_file(tmp_path, "a.pdf", make_pdf_file(*pages)) == snapshot(
        (
            """\
[page 1]
Silt closed the harbour. Порт закрыт. 港口关闭。

[page 4]
 [page 9]
Three.\
""",
            ["pages 2, 5–6: no text, perhaps a scan (no text was recognised)", "page 3: empty"],
        )
    )


def test_a_word_that_a_pdf_parts_at_the_end_of_a_line_is_whole_if_the_document_has_it(tmp_path: Path) -> None:
    found = read_document_file(tmp_path, "a.pdf", make_pdf_file("It was dred-\nged. Ships dredged it."))[0]
    assert found == "[page 1]\nIt was dredged. Ships dredged it."


def test_a_word_file_keeps_headings_lists_and_tables(tmp_path: Path) -> None:
    assert read_document_file(tmp_path, "a.docx", make_word_file()) == snapshot(
        (
            """\
# The harbour

# Причины

Silt closed the harbour. Порт закрыт. 港口关闭。

- One
- Two

Item of work | Cost in euro
疏浚 | 1,500\
""",
            [],
        )
    )


def test_slides_have_titles_lists_notes_and_tables_and_hidden_ones_are_named(tmp_path: Path) -> None:
    assert read_document_file(tmp_path, "a.pptx", make_slides_file()) == snapshot(
        (
            """\
[slide 1]
# Порт

- Silt closed the harbour. Порт закрыт. 港口关闭。
- Nobody dredged it.

Notes:
Say it slowly.

[slide 3]
# Costs

Item | Cost
疏浚 | 1,500

In a group.\
""",
            ["slide 2: hidden; unhide the slide to include it"],
        )
    )


def test_sheets_show_values_dates_and_the_results_of_formulas_and_hidden_ones_are_named(tmp_path: Path) -> None:
    assert read_document_file(tmp_path, "a.xlsx", make_sheets_file()) == snapshot(
        (
            """\
[sheet Costs 2026]
Item | Цена | 日付
Silt closed the harbour. Порт закрыт. 港口关闭。 Second line | 1.5 | 2026-01-02
3 | TRUE | 2026-01-02 03:04:05
 |  | 0.3\
""",
            ["sheet Lists: hidden; unhide the sheet to include it"],
        )
    )


def test_old_excel_files_and_opendocument_tables_are_read_too(tmp_path: Path) -> None:
    expected = "[sheet Costs]\nItem | Цена\nDredging | 1.5\n2026-01-02"
    assert read_document_file(tmp_path, "a.xls", OLD_SHEETS) == (expected, [])
    assert read_document_file(tmp_path, "a.ods", make_open_sheets_file()) == (f"[sheet Costs]\n{TEXT}", [])


def test_a_book_is_read_in_its_order_with_its_headings_as_places(tmp_path: Path) -> None:
    assert read_document_file(tmp_path, "a.epub", make_book_file()) == snapshot(
        (
            """\
[chapter Beginnings]
## Beginnings

Dug in 1811.

[chapter Порт]
# [Порт](x.html)

Silt closed the harbour. Порт закрыт. 港口关闭。

[section 3]
Printed in Bath.\
""",
            [],
        )
    )


def test_an_email_has_its_headers_its_message_and_its_attachments(tmp_path: Path) -> None:
    attachments = {
        "[1].pdf": make_pdf_file("Dug in 1811.", "scan"),
        "logo.png": b"\x89PNG\x00",
        "costs.csv": b"a,b\n1,2",
    }
    assert read_document_file(tmp_path, "a.eml", make_mail_file(attachments)) == snapshot(
        (
            """\
From: Ада <ada@example.org>
To: keeper@example.org
Date: Mon, 01 Jun 2026 10:00:00 +0200
Subject: Порт 港口

Silt closed the harbour. Порт закрыт. 港口关闭。

[page 1 of attachment (1).pdf]
Dug in 1811.

[attachment costs.csv]
a,b
1,2\
""",
            [
                "page 2 of attachment [1].pdf: no text, perhaps a scan (no text was recognised)",
                "attachment logo.png: binary, not text",
            ],
        )
    )


def test_an_email_without_a_text_part_is_read_as_its_page(tmp_path: Path) -> None:
    content = (
        b"From: a@example.org\r\nSubject: x\r\nContent-Type: text/html; charset=koi8-r\r\n\r\n<p>\xf0\xcf\xd2\xd4</p>"
    )
    assert read_document_file(tmp_path, "a.eml", content)[0] == "From: a@example.org\nSubject: x\n\nПорт"


def test_emails_within_emails_are_read_to_a_depth(tmp_path: Path) -> None:
    mail = make_mail_file({"deep.csv": b"deepest"})
    for depth in range(4):
        mail = make_mail_file({f"{depth}.eml": mail})
    text, left_out = read_document_file(tmp_path, "a.eml", mail)
    inside = "attachment 1.eml of attachment 2.eml of attachment 3.eml"
    assert f"\n[{inside}]\nFrom: " in text
    assert "deepest" not in text
    assert left_out == [f"attachment 0.eml of {inside}: nested more than 3 e-mails deep; submit this e-mail separately"]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.pdf", b"\n<!-- saved --><!DOCTYPE html><p>A page</p>", "A page"),
        ("a.xls", b"<html><table><tr><td>1</td><td>2</td></tr></table>", "1 | 2"),
        ("report", make_pdf_file("A PDF"), "[page 1]\nA PDF"),
        ("a.txt", make_pdf_file("A PDF"), "[page 1]\nA PDF"),
        ("a.pdf", b"\xff junk before it\n" + make_pdf_file("A PDF"), "[page 1]\nA PDF"),
        ("a.zip", make_open_sheets_file(), f"[sheet Costs]\n{TEXT}"),
        ("mail.txt", make_mail_file().replace(b"Subject", b"Message-ID: <1@x>\nSubject"), f"Порт 港口\n\n{TEXT}"),
        ("a.yaml", b"From: a\nTo: b\nSubject: c\n", "From: a\nTo: b\nSubject: c"),
        ("a.vue", b"<!DOCTYPE html><p>source</p>", "<!DOCTYPE html><p>source</p>"),
        ("a.py", b'PDF = b"%PDF-1.7"', 'PDF = b"%PDF-1.7"'),
    ],
)
def test_the_kind_is_what_the_content_says(tmp_path: Path, name: str, content: bytes, expected: str) -> None:
    assert read_document_file(tmp_path, name, content)[0].endswith(expected)


def test_no_passage_spans_two_places(tmp_path: Path) -> None:
    text, _ = read_document_file(tmp_path, "a.pdf", make_pdf_file("One.", "Two."))
    assert [passage.text for passage in split_into_passages("a.pdf", text)] == ["[page 1]\nOne.", "[page 2]\nTwo."]


def test_the_parts_of_a_word_file_that_hold_no_text_are_no_trouble(tmp_path: Path) -> None:
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f'<w:document xmlns:w="{main}"><w:body><w:p><w:r><w:t>Only this.</w:t></w:r></w:p></w:body></w:document>'
    assert read_document_file(tmp_path, "a.docx", make_zip_archive({"word/document.xml": body})) == ("Only this.", [])
