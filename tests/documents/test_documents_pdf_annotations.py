"""Form fields of PDFs and texts added to pages are read; comments, stamps, files and hidden ones are named."""

from tests.documents.test_documents_zip_packages import extract_text, list_omissions
from waystation.documents.readers.formats import extract_file


def pdf(*notes: str, fields: str = "", text: str = "Application", names: str = "") -> bytes:
    """One page with a line of text, unless that is empty, and these notes, from object 10 on."""
    shown = f"BT /F 12 Tf 50 750 Td ({text}) Tj ET" if text else ""
    listed = " ".join(f"{number} 0 R" for number in range(10, 10 + len(notes)))
    objects = {
        1: f"<< /Type /Catalog /Pages 2 0 R {names} /AcroForm << /Fields [{fields}] >> >>",
        2: "<< /Type /Pages /Count 1 /Kids [3 0 R] >>",
        3: f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Annots [{listed}] "
        "/Resources << /Font << /F << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> >> >> >>",
        4: f"<< /Length {len(shown)} >>\nstream\n{shown}\nendstream",
        **{number: f"<< /Type /Annot /Rect [9 9 99 99] {note} >>" for number, note in enumerate(notes, 10)},
    }
    body = "".join(f"{number} 0 obj\n{content}\nendobj\n" for number, content in objects.items())
    return f"%PDF-1.7\n{body}trailer << /Size 99 /Root 1 0 R >>\n%%EOF".encode("latin-1")


NAME = "/Subtype /Widget /FT /Tx /T (name) /TU (Full name) /V (Ada Example)"
EMPTY = "/Subtype /Widget /FT /Tx /T (town)"
YES = "/Subtype /Widget /FT /Btn /T (agrees) /V /Yes /AS /Yes /AP << /N << /Yes 4 0 R /Off 4 0 R >> >>"
NO = "/Subtype /Widget /FT /Btn /T (declines) /V /Off /AS /Off /AP << /N << /Yes 4 0 R /Off 4 0 R >> >>"


def test_what_was_filled_into_a_form_is_read_by_the_names_of_its_fields() -> None:
    content = pdf(NAME, EMPTY, YES, NO, fields="10 0 R 11 0 R 12 0 R 13 0 R")
    assert extract_text(content, "a.pdf") == (
        "[page 1]\nApplication\n\nForm fields:\nFull name: Ada Example\nagrees: Yes"
    )
    assert list_omissions(extract_file(content, "a.pdf")) == []


def test_texts_that_were_added_to_a_page_are_read() -> None:
    assert extract_text(pdf("/Subtype /FreeText /Contents (Void since May.)"), "a.pdf").endswith(
        "Application\n\nAdded to the page:\nVoid since May."
    )
    read = extract_file(pdf("/Subtype /FreeText /Contents (Void since May.)", text=""), "a.pdf")
    assert [part.text for part in read.parts] == ["Added to the page:\nVoid since May."]
    assert list_omissions(read) == []


def test_comments_stamps_files_and_hidden_fields_are_named() -> None:
    files = "/Names << /EmbeddedFiles << /Names [(offer.csv) << /Type /Filespec /F (offer.csv) /UF (offer.csv) "
    files += "/EF << /F 4 0 R >> >>] >> >>"
    content = pdf(
        "/Subtype /Text /Contents (Not agreed.)",
        "/Subtype /StrikeOut /QuadPoints [9 9 99 9 9 99 99 99]",
        "/Subtype /Stamp /Name /Draft",
        "/Subtype /FileAttachment /Contents (offer)",
        f"{NAME} /F 2",
        "/Subtype /Link /Contents (a link)",
        fields="14 0 R",
        names=files,
    )
    read = extract_file(content, "a.pdf")
    assert [part.text for part in read.parts] == ["Application"]
    assert list_omissions(read) == [
        "comments of page 1: not read",
        "struck-out text of page 1: a comment strikes out words, but agents see them as normal text",
        "stamps of page 1: not read",
        "attachments of page 1: not read",
        "hidden text of page 1: invisible to readers of the pages",
        "attachment offer.csv: a file inside the PDF; submit it separately",
    ]
