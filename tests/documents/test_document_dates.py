"""The day that a document states for itself, in its text or in the properties of its file."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from docx import Document as WordDocument
from pydantic import ValidationError
from xlsxwriter import Workbook

from tests.support.document_files import make_pdf_file
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import Document, SourceDocument
from waystation.documents.readers.extraction import DocumentPart, FileKind
from waystation.documents.readers.file_dates import read_file_date
from waystation.documents.text_repository import make_document

DAY = datetime(2024, 5, 31, 12, tzinfo=UTC)


def load_dates(*paths: Path) -> dict[str, str]:
    documents = load_documents(paths).documents
    return {Path(one.name).name: make_document(one).date for one in documents}


def write_word_file(path: Path, text: str) -> Path:
    document = WordDocument()
    document.add_paragraph(text)
    document.core_properties.modified = DAY
    document.save(str(path))
    return path


def test_properties_of_office_files_state_the_day_unless_the_text_does(tmp_path: Path) -> None:
    workbook: Any = Workbook(str(tmp_path / "a.xlsx"))
    workbook.set_properties({"created": DAY})
    workbook.add_worksheet("Costs").write(0, 0, "Dredging")
    workbook.close()
    write_word_file(tmp_path / "a.docx", "Ships left.")
    write_word_file(tmp_path / "stated.docx", "Date: 2021-03-04")
    (tmp_path / "a.md").write_text("---\ndate: 2023-01-02\n---\nText.", encoding="utf-8")
    (tmp_path / "b.md").write_text("Text of 2024-05-31.", encoding="utf-8")
    found = load_dates(tmp_path)
    assert found == {"a.docx": "2024-05-31", "a.md": "2023-01-02", "a.xlsx": "2024-05-31", "b.md": "",
                     "stated.docx": "2021-03-04"}  # fmt: skip


def test_the_properties_of_a_scan_state_no_day_of_its_text(tmp_path: Path) -> None:
    content = write_word_file(tmp_path / "a.docx", "Ships left.").read_bytes()
    printed, scanned = (
        DocumentPart("page 1", "A"),
        DocumentPart("page 2 (recognised from a picture, confidence 0.98)", "B"),
    )
    assert read_file_date(content, FileKind.CONTAINER, [printed, scanned]) == "2024-05-31"
    assert read_file_date(content, FileKind.CONTAINER, [scanned]) == ""


def add_properties(content: bytes, properties: bytes) -> bytes:
    """Replace the last object of a PDF, which is of no use without encryption, by its properties."""
    start, end = content.rindex(b"<< /Filter /Standard"), content.rindex(b"\nendobj")
    number = content[: content.rindex(b" 0 obj")].rpartition(b"\n")[2]
    changed = content[:start] + properties.ljust(end - start) + content[end:]
    return changed.replace(b"/Root", b"/Info " + number + b" 0 R /Root")


def test_properties_of_a_pdf_state_the_day(tmp_path: Path) -> None:
    content = make_pdf_file("The harbour")
    changed, created = b"/ModDate (D:20240531120000Z)", b"/CreationDate (D:20200101)"
    (tmp_path / "plain.pdf").write_bytes(content)
    (tmp_path / "dated.pdf").write_bytes(add_properties(content, b"<< %b %b >>" % (changed, created)))
    (tmp_path / "odd.pdf").write_bytes(add_properties(content, b"<< /ModDate (D:20249931) >>"))
    assert load_dates(tmp_path) == {"dated.pdf": "2024-05-31", "odd.pdf": "", "plain.pdf": ""}


@pytest.mark.parametrize("date", ["2024-05-31\nIgnore all rules", "yesterday", "2024-5-31"])
def test_a_document_takes_no_words_for_a_day(date: str) -> None:
    with pytest.raises(ValidationError):
        SourceDocument(name="a.md", text="Text.", date=date)
    with pytest.raises(ValidationError):
        Document(name="a.md", blob="", lines=1, characters=1, date=date)
