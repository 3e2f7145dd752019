import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from tests.support.document_files import (
    OLD_SHEETS,
    PASSWORD_PROTECTED,
    make_book_file,
    make_mail_file,
    make_pdf_file,
    make_sheets_file,
    make_slides_file,
    make_word_file,
    make_zip_archive,
)
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import SkippedItem
from waystation.documents.readers.extraction import FileReadRequest
from waystation.documents.readers.reader import ParserCrashError, SubprocessFileReader, read_file
from waystation.kernel.errors import BadInput

GOOD = {
    "a.pdf": make_pdf_file("Text."),
    "b.docx": make_word_file(),
    "c.pptx": make_slides_file(),
    "d.xlsx": make_sheets_file(),
    "e.xls": OLD_SHEETS,
    "f.epub": make_book_file(),
    "g.eml": make_mail_file(),
    "h.html": b"<p>Text.</p>",
    "i.md": b"Text.",
}
SPREADSHEET = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DAMAGED_ZIP = "damaged: not a complete zip archive"
PASSWORD = "protected by a password; save the file without one"


def entity_bomb() -> bytes:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "boom" * 10}">' for n in range(12))
    main = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
    body = f'<w:document xmlns:w="{main}"><w:body><w:p><w:r><w:t>&e11;</w:t></w:r></w:p></w:body></w:document>'
    return make_zip_archive({"word/document.xml": f"<!DOCTYPE d [{entities}]>{body}"})


def memory_bomb() -> bytes:
    """A table with a cell in each of two corners that are far apart: the parser keeps room for all between them."""
    cells = "".join(f'<row r="{row}"><c r="{at}{row}"><v>1</v></c></row>' for at, row in (("A", 1), ("XFD", 8_000)))
    with ZipFile(BytesIO(make_sheets_file())) as book:
        members: dict[str, str | bytes] = {name: book.read(name) for name in book.namelist()}
    sheet = f'<worksheet xmlns="{SPREADSHEET}"><sheetData>{cells}</sheetData></worksheet>'
    return make_zip_archive({**members, "xl/worksheets/sheet1.xml": sheet})


BROKEN = {
    "pdf-cut.pdf": (GOOD["a.pdf"][:300], "damaged: not a readable PDF"),
    "pdf-noise.pdf": (b"%PDF-1.7\n" + b"\x00\xff\x13" * 500, "damaged: not a readable PDF"),
    "pdf-password.pdf": (make_pdf_file("Text.", encrypted=True), PASSWORD),
    "pdf-scanned.pdf": (
        make_pdf_file("scan"),
        "no page has text; the PDF may be a scan (no text was recognised)",
    ),
    "picture-cut.png": (b"\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIHDR", "damaged: not a readable picture"),
    "pdf-empty.pdf": (make_pdf_file(""), "empty"),
    "zip-many.docx": (
        make_zip_archive({f"word/{number}": b"" for number in range(10_001)}),
        "an archive of 10,001 members; the maximum is 10,000",
    ),
    "zip-noise.docx": (b"PK\x03\x04" + b"\x00\xff\x13" * 500, DAMAGED_ZIP),
    "docx-cut.docx": (GOOD["b.docx"][:-300], DAMAGED_ZIP),
    "docx-no-xml.docx": (make_zip_archive({"word/document.xml": b"junk"}), "damaged: not a readable Word file"),
    "docx-entities.docx": (entity_bomb(), "damaged: not a readable Word file"),
    "docx-password.docx": (PASSWORD_PROTECTED, PASSWORD),
    "docx-old.doc": (
        PASSWORD_PROTECTED.replace(b"\0", b"\1")[:8] + "WordDocument".encode("utf-16-le"),
        "an old Word file; save it as .docx",
    ),
    "pptx-cut.pptx": (GOOD["c.pptx"][:-300], DAMAGED_ZIP),
    "pptx-nothing.pptx": (make_zip_archive({"ppt/x": b""}), "damaged: part of the file is missing or broken"),
    "xlsx-cut.xlsx": (GOOD["d.xlsx"][:-300], DAMAGED_ZIP),
    "xlsx-nothing.xlsx": (make_zip_archive({"xl/x": b""}), "damaged: not a readable spreadsheet"),
    "xlsx-memory.xlsx": (memory_bomb(), "the parser crashed; the file may be damaged"),
    "xls-cut.xls": (OLD_SHEETS[:600], "damaged: not a readable spreadsheet"),
    "epub-cut.epub": (GOOD["f.epub"][:-300], DAMAGED_ZIP),
    "epub-drm.epub": (
        make_book_file(protected=True),
        "protected against copying (DRM); only an authorised program can open it",
    ),
    "odt.odt": (
        make_zip_archive({"mimetype": "application/vnd.oasis.opendocument.text"}),
        "an OpenDocument file; save it as .docx, .pptx or PDF",
    ),
    "rtf.rtf": (b"{\\rtf1 x}", "an RTF file; save it as .docx or as text"),
    "zip.zip": (make_zip_archive({"a.txt": "x"}), "an archive; unpack it first"),
}


def make_broken_files() -> dict[str, tuple[bytes, str]]:
    """Each file by its name, with the reason why it is not used.

    With one that takes seconds and half a gigabyte to make, which nobody should pay for who imports this module.
    """
    bomb = make_zip_archive({"word/document.xml": bytes(501_000_000)})
    return {**BROKEN, "zip-bomb.docx": (bomb, "unpacks to 501 MB; the maximum is 500 MB")}


@pytest.fixture(autouse=True)
def nothing_reaches_the_terminal(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert capfd.readouterr() == ("", "")


def test_a_folder_of_good_and_broken_files_gives_all_good_ones_and_a_reason_for_each_broken_one(tmp_path: Path) -> None:
    unusable = make_broken_files()
    for name, content in [*GOOD.items(), *((name, content) for name, (content, _) in unusable.items())]:
        (tmp_path / name).write_bytes(content)
    loaded = load_documents([tmp_path])
    assert [document.name for document in loaded.documents] == sorted(GOOD)
    whole = {item.name: item.reason for item in loaded.skipped_items if "," not in item.name}
    assert whole == {name: reason for name, (_, reason) in unusable.items()}


def test_a_page_of_html_that_takes_its_parser_too_long_is_one_file_less(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>Text.</p>" * 1_000_000)
    (tmp_path / "b.md").write_text("Text.")
    loaded = load_documents([tmp_path], seconds_a_file=2)
    assert [item.name for item in loaded.skipped_items] == ["a.html"]
    assert [document.name for document in loaded.documents] == ["b.md"]


def read(reader: SubprocessFileReader, path: Path) -> str:
    return read_file(path, reader).text


def test_a_child_that_hangs_is_killed_and_followed_by_another(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD["a.pdf"])
    with SubprocessFileReader(seconds_a_file=2) as reader:
        read(reader, tmp_path / "a.pdf")
        assert reader.pid is not None
        child = psutil.Process(reader.pid)
        child.suspend()
        with pytest.raises(ParserCrashError, match=r"took longer than 2 s"):
            reader.read(os.open(tmp_path / "a.pdf", os.O_RDONLY), FileReadRequest(name="a.pdf"))
        assert not child.is_running()
        assert read(reader, tmp_path / "a.pdf") == "[page 1]\nText."


def test_a_child_that_was_killed_is_followed_by_another(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD["a.pdf"])
    with SubprocessFileReader() as reader:
        for _ in range(2):
            assert read(reader, tmp_path / "a.pdf") == "[page 1]\nText."
            assert reader.pid is not None
            child = psutil.Process(reader.pid)
            os.kill(reader.pid, signal.SIGKILL)
            child.wait()


def test_one_child_reads_many_files_and_ends_with_its_reader(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD["a.pdf"])
    (tmp_path / "bomb.xlsx").write_bytes(memory_bomb())
    with SubprocessFileReader() as reader:
        read(reader, tmp_path / "a.pdf")
        first = reader.pid
        read(reader, tmp_path / "a.pdf")
        assert reader.pid == first
        with pytest.raises(ParserCrashError):
            read(reader, tmp_path / "bomb.xlsx")
        assert reader.pid is not None
        read(reader, tmp_path / "a.pdf")
        last = reader.pid
    assert first != last
    assert last is not None
    assert not psutil.pid_exists(last)


def test_the_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(GOOD["a.pdf"])
    script = (
        "import sys, time; from pathlib import Path\n"
        "from waystation.documents.readers.reader import SubprocessFileReader\n"
        "from waystation.documents.readers.reader import read_file\n"
        "reader = SubprocessFileReader(); read_file(Path(sys.argv[1]), reader); print(reader.pid, flush=True); "
        "time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.pdf")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    psutil.wait_procs([child], timeout=20)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_an_attachment_that_breaks_its_parser_costs_neither_the_message_nor_the_others(tmp_path: Path) -> None:
    file = tmp_path / "a.eml"
    file.write_bytes(make_mail_file({"a.csv": b"pump,1250", "bomb.xlsx": memory_bomb(), "b.csv": b"valve,310"}))
    loaded = load_documents([file])
    assert "Silt closed the harbour." in loaded.documents[0].text
    assert loaded.documents[0].text.endswith("[attachment a.csv]\npump,1250\n\n[attachment b.csv]\nvalve,310")
    reason = "crashed the parser; the file may be damaged"
    assert loaded.skipped_items == (SkippedItem(name="a.eml, attachment bomb.xlsx", reason=reason),)


def test_an_email_whose_attachments_break_one_parser_after_another_is_its_message(tmp_path: Path) -> None:
    file = tmp_path / "a.eml"
    file.write_bytes(make_mail_file({f"{number}.xlsx": memory_bomb() for number in range(4)}))
    loaded = load_documents([file])
    assert "Silt closed the harbour." in loaded.documents[0].text
    reason = "an attachment of this e-mail crashed the parser, so none was read; submit the attachments separately"
    assert {one.reason for one in loaded.skipped_items} == {reason}


def test_a_broken_file_that_is_named_by_itself_is_refused(tmp_path: Path) -> None:
    good, broken = tmp_path / "a.md", tmp_path / "b.pdf"
    good.write_text("Text.")
    broken.write_bytes(BROKEN["pdf-cut.pdf"][0])
    with pytest.raises(BadInput, match=r"cannot use .*b\.pdf: damaged: not a readable PDF\. Give a file or folder"):
        load_documents([good, broken])


def test_a_folder_of_broken_files_only_is_refused_with_several_reasons(tmp_path: Path) -> None:
    for name in ("a.pdf", "b.pdf", "c.pdf", "d.pdf", "e.pdf"):
        (tmp_path / name).write_bytes(b"%PDF-")
    damaged = "damaged: not a readable PDF"
    named = rf"\(a\.pdf: {damaged}; b\.pdf: {damaged}; c\.pdf: {damaged}; and 2 more\)"
    with pytest.raises(BadInput, match=named):
        load_documents([tmp_path])


def test_a_file_of_hidden_parts_only_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"Subject:\nMIME-Version: 1.0\nContent-Type: image/png\n\n\x00")
    with pytest.raises(BadInput, match=r"nothing in it can be read \(attachment number 1: binary, not text\)"):
        load_documents([tmp_path / "a.eml"])
