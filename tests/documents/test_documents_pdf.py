"""PDFs: what their fonts say of signs, and what is said where they do not."""

from pathlib import Path

import pytest

from tests.documents.test_documents_formats import read_document_file
from tests.support.document_files import make_pdf_file
from waystation.documents.readers.extraction import UnreadableFileError
from waystation.documents.readers.formats import extract_file

CONTRACT = "The retention period is thirty days and the liability cap is 250,000 euros."
WITHOUT_MAP = dict.fromkeys(CONTRACT, "")
UNREADABLE = "the PDF's fonts do not say which letters they draw"


@pytest.mark.parametrize("first_glyph", [1, 3, 29, 36, 65, 97, 300])
def test_a_font_without_a_map_gives_no_text(first_glyph: int) -> None:
    # Its glyphs are numbered, and some of the numbers are those of controls, of punctuation or of letters.
    with pytest.raises(UnreadableFileError, match=f"no page can be read, because {UNREADABLE}"):
        extract_file(make_pdf_file(CONTRACT, maps=WITHOUT_MAP, first_glyph=first_glyph), "a.pdf")


def test_a_font_without_a_map_whose_numbers_might_be_letters_is_doubted(tmp_path: Path) -> None:
    content = make_pdf_file(CONTRACT, maps=WITHOUT_MAP, first_glyph=0x4E00)
    assert read_document_file(tmp_path, "a.pdf", content)[1] == [
        f"page 1: {len(CONTRACT)} characters that may be wrong, because {UNREADABLE}"
    ]


def test_a_font_without_a_map_that_is_coded_as_text_is_read(tmp_path: Path) -> None:
    # All characters from the space to z, so that the number of each is its code.
    every = "".join(map(chr, range(32, 123)))
    content = make_pdf_file(CONTRACT, every, maps=dict.fromkeys(every, ""), first_glyph=32)
    assert read_document_file(tmp_path, "a.pdf", content)[0].startswith(f"[page 1]\n{CONTRACT}")


def test_a_page_without_letters_is_named(tmp_path: Path) -> None:
    maps = dict.fromkeys("xyz", "")
    assert read_document_file(tmp_path, "a.pdf", make_pdf_file("One.", "xyz zyx", "Two.", maps=maps)) == (
        "[page 1]\nOne.\n\n[page 3]\nTwo.",
        [f"page 2: cannot be read, because {UNREADABLE} (no text was recognised)"],
    )


@pytest.mark.parametrize("first_glyph", [1, 40])
@pytest.mark.parametrize("said", ["", "\0", "\x0c", "\ue123", "\ufffd"])
def test_ligatures_without_a_map_are_counted_and_told(tmp_path: Path, said: str, first_glyph: int) -> None:
    pages = ("An o#ce and an a#liate.", "The end.", "Another o#ce.")
    text, left_out = read_document_file(
        tmp_path, "a.pdf", make_pdf_file(*pages, maps={"#": said}, first_glyph=first_glyph)
    )
    assert text == "[page 1]\nAn o�ce and an a�liate.\n\n[page 2]\nThe end.\n\n[page 3]\nAnother o�ce."
    assert left_out == [f"pages 1, 3: 3 characters shown as �, because {UNREADABLE} (often ligatures such as fi)"]


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        # Nothing shows whether these words are divided, or they are compounds whatever the document shows.
        ("cash and non-\nGAAP income", "cash and non-GAAP income"),
        ("the twenty-six-\nweek period", "the twenty-six-week period"),
        ("rated A-\n2 by them", "rated A-2 by them"),
        ("an enterprise-\nwide change", "an enterprise-wide change"),
        # The document has the word in one of its forms.
        ("its infor-\nmation, and information", "its information, and information"),
        ("Information on infor-\nmation", "Information on information"),
        ("a well-\nknown and well-known one", "a well-known and well-known one"),
        ("a well-\nmade one is made well", "a well-made one is made well"),
        # It divides other words.
        ("of the docu-\nment and infor-\nmation, a document", "of the document and information, a document"),
        ("SHARE-\nHOLDERS are shareholders", "SHAREHOLDERS are shareholders"),
    ],
)
def test_a_hyphen_at_the_end_of_a_line_is_kept_unless_it_only_divides_a_word(page: str, expected: str) -> None:
    assert [part.text for part in extract_file(make_pdf_file(page), "a.pdf").parts] == [expected]


def test_a_word_on_another_page_shows_that_a_hyphen_divides_it() -> None:
    read = extract_file(make_pdf_file("its infor-\nmation", "All information is here."), "a.pdf")
    assert [part.text for part in read.parts] == ["its information", "All information is here."]


def test_bullets_of_a_font_of_symbols_are_bullets(tmp_path: Path) -> None:
    assert read_document_file(tmp_path, "a.pdf", make_pdf_file("# One\n# Two", maps={"#": "\uf0b7"})) == (
        "[page 1]\n• One\n• Two",
        [],
    )


@pytest.mark.parametrize(
    ("drawn", "glyph", "expected"),
    [
        ("م#س", "لا", "سلام"),
        ("م#س", "ﻻ", "سلام"),
        ("ءاشن#ا", "لإ", "الإنشاء"),
        ("نوث#ث", "لا", "ثلاثون"),
        ("# دبع", "الله", "عبد الله"),
        ("# دبع", "ﷲ", "عبد الله"),
    ],
)
def test_letters_that_are_one_glyph_come_in_the_order_in_which_they_are_read(
    tmp_path: Path, drawn: str, glyph: str, expected: str
) -> None:
    assert read_document_file(tmp_path, "a.pdf", make_pdf_file(drawn, maps={"#": glyph})) == (
        f"[page 1]\n{expected}",
        [],
    )
