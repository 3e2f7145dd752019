"""Documents of every format, made by code: PDF and archives by hand, the rest by the libraries that write them."""

import base64
import zlib
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from email.message import EmailMessage
from importlib import import_module
from io import BytesIO
from typing import Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

TEXT = "Silt closed the harbour. Порт закрыт. 港口关闭。"
OLD_SHEETS = zlib.decompress(
    base64.b85decode(
        "c-rk)O=uHA6#izrX?|$_YAUos34unfEhr**N!S14!BV{_DroD5Qfd;}=28z@tvL#UC&f#l9=ue&_=6tw=0S+)K@fyQkDdet4{g>r"
        "Z+B^06}q5>%6!Xw^XAQ)nU~DWo7sI+P1a@~cGa;01870R4x_b6Cn$xzLIPB8+fwxM5G7k-T_GHziEItvS@d;K&Y_&|Iy5}cUlIeK"
        "D4oUy43&!c^crFx`!FJ;4>@9iJEV!Blf7zZKF7R)`951dXWqk_>&!W_t%;MU8biIi-Bo--%Wz!`vfszt<^yYXpaZYuD!zO}IJN=o"
        "wZ=!zud|A7y$y4q2_4KA^Oh{faTgI_iqKyu^qXc4DVpp#e7DoUH*Z(JNGtu?>IF#uW4S)~2YrYpai#vIrUTQk&+;azAd09iYXaC`"
        "nk-K)pobzkIFbHvIbYBrvidGPr*GFOVjr;b=Gb^~EFyzD2ZO}2U=Za^(nf3|&T^8sN`kyuxcBw#k<nq}3~Q$O0C0|p9_bZqT#+rP"
        "ag1wPn5Atm^ET$I-0LQmyO>ktJ>}Wq4p%rd!#3BrHcR8|WV|yrH_2N_u6#NAq`UIj*h=#JVEtlh{=G4a3>{l0wU^Hf`b3|&eM{o0"
        ";pM^&DIb|Te+e%kE#dlZyJuk>i*iE|lFUv?{yW087r(I=Y%hDfq(#`DBu;6Ly~gdA?4^Yh>@rmi16n&C$s&cfB}Aa0prD|jprD|j"
        "-~+<Fkh|{(bl-Na{XzG;&LX9T`b_fQ;uuQwl<B4NAc~Y*nDVuLHX<OrzQiiqc;5>pj??HCCNRo=O!!{E^x7txf6uBLCjQ<Q@;iRR"
        "kDvc|{GY_o(AW"
    )
)
"""An Excel file of 1997: `Item`, `Цена`; `Dredging`, 1.5; 2 January 2026."""
PASSWORD_PROTECTED = (
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600 + "EncryptedPackage".encode("utf-16-le") + b"\x00" * 600
)
"""The beginning of a password-protected Office document, as far as our code reads it."""


def make_pdf_file(*pages: str, encrypted: bool = False, maps: Mapping[str, str] = {}, first_glyph: int = 1) -> bytes:
    r"""Make a PDF with a page for each text, lines separated by `\n`; a page of `scan` only has a drawing, an empty one
    nothing.

    The font maps each character to its entry in `maps`, by default itself; an empty entry maps it to nothing.
    """
    characters = sorted(set("".join(pages)) - {"\n"})
    codes = {character: f"{number:04x}" for number, character in enumerate(characters, first_glyph)}
    known = {said: code for character, code in codes.items() if (said := maps.get(character, character))}
    objects = [_stream(_unicode_map(known)), *_FONT]
    parent = len(objects) + 2 * len(pages) + 1
    kids: list[str] = []
    for page in pages:
        shown = " ".join(f"<{''.join(codes[character] for character in line)}> Tj T*" for line in page.split("\n"))
        drawn = {"": "", "scan": "0 0 10 10 re f"}.get(page, f"BT /F 12 Tf 14 TL 50 750 Td {shown} ET")
        objects += [
            _stream(drawn),
            f"<< /Type /Page /Parent {parent} 0 R /MediaBox [0 0 612 792] /Contents {len(objects) + 1} 0 R "
            "/Resources << /Font << /F 4 0 R >> >> >>",
        ]
        kids.append(f"{len(objects)} 0 R")
    objects += [
        f"<< /Type /Pages /Count {len(kids)} /Kids [{' '.join(kids)}] >>",
        f"<< /Type /Catalog /Pages {parent} 0 R >>",
        f"<< /Filter /Standard /V 1 /R 2 /P -4 /O <{'ab' * 32}> /U <{'cd' * 32}> >>",
    ]
    return _pdf(objects, f" /Encrypt {len(objects)} 0 R /ID [<00> <00>]" if encrypted else "")


_FONT = (
    "<< /Type /FontDescriptor /FontName /X /Flags 4 /FontBBox [0 0 1000 1000] /ItalicAngle 0 /Ascent 800 /Descent -200 "
    "/CapHeight 700 /StemV 80 >>",
    "<< /Type /Font /Subtype /CIDFontType2 /BaseFont /X /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) "
    "/Supplement 0 >> /FontDescriptor 2 0 R /DW 600 >>",
    "<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /DescendantFonts [3 0 R] /ToUnicode 1 0 R >>",
)


def _unicode_map(codes: Mapping[str, str]) -> str:
    pairs = [f"<{code}> <{character.encode('utf-16-be').hex()}>" for character, code in codes.items()]
    lots = [pairs[at : at + 100] for at in range(0, len(pairs), 100)]
    mapped = "".join(f"{len(lot)} beginbfchar\n{chr(10).join(lot)}\nendbfchar\n" for lot in lots)
    return (
        "/CIDInit /ProcSet findresource begin 12 dict begin begincmap /CMapName /X def /CMapType 2 def\n"
        f"1 begincodespacerange <0000> <FFFF> endcodespacerange\n{mapped}endcmap end end"
    )


def _stream(content: str) -> str:
    return f"<< /Length {len(content)} >>\nstream\n{content}\nendstream"


def _pdf(objects: Sequence[str], trailer: str) -> bytes:
    written, offsets = "%PDF-1.7\n", list[int]()
    for number, content in enumerate(objects, 1):
        offsets.append(len(written))
        written += f"{number} 0 obj\n{content}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size, root = len(objects) + 1, len(objects) - 1
    return (
        f"{written}xref\n0 {size}\n0000000000 65535 f \n{table}"
        f"trailer << /Size {size} /Root {root} 0 R{trailer} >>\nstartxref\n{len(written)}\n%%EOF"
    ).encode("ascii")


def make_word_file() -> bytes:
    """Make a title, a heading, text, a list, and a table with several paragraphs and lines in a cell."""
    document: Any = import_module("docx").Document()
    document.add_heading("The harbour", 0)
    document.add_heading("Причины", 1)
    document.add_paragraph(TEXT)
    for item in ("One", "Two"):
        document.add_paragraph(item, style="List Bullet")
    table = document.add_table(2, 2)
    for row, texts in zip(table.rows, (("Item", "Cost\nin euro"), ("疏浚", "1,500")), strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    table.cell(0, 0).add_paragraph("of work")
    return _saved(document)


def make_slides_file() -> bytes:
    """Make a slide with a list and notes, a hidden one, and one with a table and a shape in a group."""
    slides: Any = import_module("pptx").Presentation()
    first, hidden, last = (slides.slides.add_slide(slides.slide_layouts[layout]) for layout in (1, 5, 5))
    for slide, title in ((first, "Порт"), (hidden, "Draft"), (last, "Costs")):
        slide.shapes.title.text = title
    first.placeholders[1].text = f"{TEXT}\nNobody dredged it."
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    hidden._element.set("show", "0")
    table = last.shapes.add_table(2, 2, 0, 0, 1_000_000, 1_000_000).table
    for number, text in enumerate(("Item", "Cost", "疏浚", "1,500")):
        table.cell(number // 2, number % 2).text = text
    last.shapes.add_group_shape().shapes.add_textbox(0, 0, 100, 100).text_frame.text = "In a group."
    return _saved(slides)


def _saved(document: Any) -> bytes:
    file = BytesIO()
    document.save(file)
    return file.getvalue()


def make_sheets_file() -> bytes:
    """Make values of every type, a formula with its value, a hidden and an empty sheet."""
    file = BytesIO()
    # None of the libraries that write these files has complete types.
    with import_module("xlsxwriter").Workbook(file) as opened:
        book: Any = opened
        costs = book.add_worksheet("Costs 2026")
        costs.write_row(0, 0, ["Item", "Цена", "日付"])
        costs.write_row(1, 0, [f"{TEXT}\nSecond line", 1.5])
        costs.write_datetime(1, 2, date(2026, 1, 2), book.add_format({"num_format": "yyyy-mm-dd"}))
        costs.write_formula(3, 0, "=1+2", None, 3)
        costs.write_boolean(3, 1, boolean=True)
        costs.write_datetime(
            3, 2, datetime.fromisoformat("2026-01-02 03:04:05"), book.add_format({"num_format": "yyyy-mm-dd hh:mm"})
        )
        costs.write_number(4, 2, 0.1 + 0.2)
        hidden = book.add_worksheet("Lists")
        hidden.write(0, 0, "secret")
        hidden.hide()
        book.add_worksheet("Empty")
    return file.getvalue()


def make_zip_archive(members: Mapping[str, str | bytes]) -> bytes:
    """Make a zip archive; a member `mimetype` is stored uncompressed, as its formats require."""
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as written:
        for name, content in members.items():
            written.writestr(name, content, ZIP_STORED if name == "mimetype" else None)
    return file.getvalue()


SHEET_NAMESPACE = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_RELATIONSHIP = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def make_workbook_file(sheets: Mapping[str, tuple[str, str | None]]) -> bytes:
    """Make an Excel file of sheets by name: what each is, and its content (None: it is missing)."""
    listed = "".join(f'<sheet name="{name}" sheetId="{at}" r:id="r{at}"/>' for at, name in enumerate(sheets, 1))
    links = "".join(
        f'<Relationship Id="r{at}" Type="{_RELATIONSHIP}/{kind}" Target="{kind}s/s{at}.xml"/>'
        for at, (kind, _) in enumerate(sheets.values(), 1)
    )
    relations = 'xmlns="http://schemas.openxmlformats.org/package/2006/relationships"'
    office = f'<Relationship Id="r" Type="{_RELATIONSHIP}/officeDocument" Target="xl/workbook.xml"/>'
    contents = {f"xl/{kind}s/s{at}.xml": content for at, (kind, content) in enumerate(sheets.values(), 1)}
    return make_zip_archive(
        {
            "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>',
            "_rels/.rels": f"<Relationships {relations}>{office}</Relationships>",
            "xl/workbook.xml": (
                f'<workbook xmlns="{SHEET_NAMESPACE}" xmlns:r="{_RELATIONSHIP}"><sheets>{listed}</sheets></workbook>'
            ),
            "xl/_rels/workbook.xml.rels": f"<Relationships {relations}>{links}</Relationships>",
            **{name: content for name, content in contents.items() if content is not None},
        }
    )


def make_worksheet_xml(*rows: str, begin: str = "B") -> str:
    """Make a worksheet of rows, whose cells are separated by blanks and begin in that column and the third row."""
    written = ""
    for number, row in enumerate(rows, 3):
        cells = ""
        for at, value in enumerate(row.split()):
            reference = f"{chr(ord(begin) + at)}{number}"
            kind = "e" if value.startswith("#") else "n" if value.replace(".", "").isdigit() else "str"
            cells += f'<c r="{reference}" t="{kind}"><v>{value}</v></c>' if value != "-" else ""
        written += f'<row r="{number}">{cells}</row>'
    return f'<worksheet xmlns="{SHEET_NAMESPACE}"><sheetData>{written}</sheetData></worksheet>'


def make_open_sheets_file() -> bytes:
    """Make an OpenDocument spreadsheet."""
    office = "urn:oasis:names:tc:opendocument:xmlns:office:1.0"
    cells = f'<table:table-cell office:value-type="string"><text:p>{TEXT}</text:p></table:table-cell>'
    content = (
        f'<office:document-content xmlns:office="{office}" '
        'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
        'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>'
        f'<table:table table:name="Costs"><table:table-row>{cells}</table:table-row></table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    return make_zip_archive(
        {
            "mimetype": "application/vnd.oasis.opendocument.spreadsheet",
            "META-INF/manifest.xml": '<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"/>',
            "content.xml": content,
        }
    )


def make_book_file(*, protected: bool = False) -> bytes:
    """Make an EPUB of two chapters in another order than the archive's, and a text without a heading."""
    texts = {
        "two.xhtml": f"<html><body><h1><a href='x.html'>Порт</a></h1><p>{TEXT}</p></body></html>",
        "one 1.xhtml": "<html><body><h2>Beginnings</h2><p>Dug in 1811.</p></body></html>",
        "end.xhtml": "<html><body><p>Printed in Bath.</p></body></html>",
    }
    spine = ("one 1.xhtml", "two.xhtml", "end.xhtml")
    items = "".join(f'<item id="i{at}" href="{name.replace(" ", "%20")}"/>' for at, name in enumerate(spine))
    order = "".join(f'<itemref idref="i{at}"/>' for at in range(len(spine)))
    package = (
        f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{order}</spine></package>'
    )
    encrypted = ["font.otf", *(name.replace(" ", "%20") for name in spine)] if protected else ["font.otf", "other.otf"]
    references = [f'<CipherReference URI="OEBPS/{name}"/>' for name in encrypted]
    encryption = f"<e>{''.join(references)}</e>"
    return make_zip_archive(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<c><rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></c>',
            "META-INF/encryption.xml": encryption,
            "OEBPS/book.opf": package,
            **{f"OEBPS/{name}": text for name, text in texts.items()},
        }
    )


def make_mail_file(attachments: Mapping[str, bytes] = {}, inner: EmailMessage | None = None) -> bytes:
    """Make an e-mail with its message as text and as HTML."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Ада <ada@example.org>", "keeper@example.org", "Порт 港口"
    mail["Date"] = "Mon, 01 Jun 2026 10:00:00 +0200"
    mail.set_content(TEXT)
    mail.add_alternative(f"<p>{TEXT}</p>", subtype="html")
    for name, content in attachments.items():
        mail.add_attachment(content, maintype="application", subtype="octet-stream", filename=name)
    if inner is not None:
        mail.add_attachment(inner)
    return bytes(mail)
