"""`waystation report --format`: each format from one stored report, opened by somebody else's library."""

import json
import sys
from collections.abc import Callable
from ctypes import c_int
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element
from zipfile import ZipFile

import pypdfium2
import pytest
from bs4 import BeautifulSoup
from defusedxml.ElementTree import fromstring
from docx import Document
from pypdfium2 import raw

from tests.support.export_report import CODE, HOSTILE_MARKDOWN, STORED_REPORT, make_export_report, store_report_task
from waystation.cli.main import run
from waystation.config.settings import Settings
from waystation.plugins.exports import docx as docx_adapter
from waystation.plugins.exports import pdf
from waystation.plugins.exports.docx import render_docx
from waystation.reports.blocks import UNDECIDED_REASON

Ran = Callable[..., tuple[int, bytes, str]]
REMARK = '"closed" <b>stands</b> nowhere in "lines" 2-3 of docs/a/__init__.py'
"""What the lines of the report's unsupported sentence lack."""


@pytest.fixture
def task_id(without_server: Settings) -> str:
    return store_report_task(without_server)


@pytest.fixture
def ran(capsysbinary: pytest.CaptureFixture[bytes]) -> Ran:
    def run_command(*arguments: str) -> tuple[int, bytes, str]:
        code = run(arguments)
        said = capsysbinary.readouterr()
        return code, said.out, said.err.decode()

    return run_command


def test_without_a_format_the_report_is_printed_as_it_is_stored(task_id: str, ran: Ran) -> None:
    code, out, _ = ran("report", task_id)
    assert (code, out.decode().rstrip("\n")) == (0, STORED_REPORT.rstrip("\n"))


def test_every_citation_of_the_page_leads_to_its_source_and_nothing_on_it_acts(task_id: str, ran: Ran) -> None:
    page = BeautifulSoup(ran("report", task_id, "--format", "html")[1], "html.parser")
    places = {str(found["id"]) for found in page.find_all(id=True)}
    citations = page.find_all("a", class_="cite")
    assert len(citations) == 7 + 5
    assert {str(found["href"]) for found in citations} <= {f"#{place}" for place in places}
    assert [found.get_text() for found in page.select(".sources ol li")][1:3] == [
        "[2]b/__init__.py, line 8",
        "[3]survey.pdf, page 2 of attachment a (1).pdf, lines 12–15",
    ]
    assert not page.find_all(["script", "img", "link", "iframe", "object", "form", "b"])
    led_out = [str(found["href"]) for found in page.find_all("a", href=True) if not str(found["href"]).startswith("#")]
    assert led_out == ["https://ok.example/?a&b=2"]
    assert '#panic("x")' in page.get_text()
    assert "<script>alert(1)</script>" in page.get_text()
    assert page.title is not None
    assert page.title.get_text() == "Häfen & <b>Silt</b>: 港口 مرفأ 🚢"
    assert not [name for found in page.find_all(True) for name in found.attrs if name.startswith("on")]


def test_a_sentence_that_is_not_supported_has_a_mark_that_says_why_and_leads_there_and_back(
    task_id: str, ran: Ran
) -> None:
    page = BeautifulSoup(ran("report", task_id, "--format", "html")[1], "html.parser")
    (mark,) = page.select("sup.verdict a")
    assert (mark.get_text(), mark["href"], mark["id"]) == ("(1)", "#remark-1", "sentence-1")
    assert mark["title"] == mark["aria-label"] == f"The cited lines do not support this sentence: {REMARK}"
    (remark,) = page.select("#remark-1")
    assert remark.get_text() == f"(1) {REMARK}"
    assert [str(link["href"]) for link in remark.find_all("a")] == ["#sentence-1"]
    (undecided,) = page.select(".undecided")
    assert undecided.get_text() == "°"
    assert undecided["title"] == undecided["aria-label"] == UNDECIDED_REASON


def words_and_links(content: bytes) -> tuple[str, int]:
    """Of a PDF, and how many links lead to a place in it."""
    words, links = list[str](), 0
    with pypdfium2.PdfDocument(content) as document:
        for page in document:
            words.append(page.get_textpage().get_text_range())
            place, link = c_int(0), raw.FPDF_LINK()
            while raw.FPDFLink_Enumerate(page, place, link):
                links += bool(raw.FPDFLink_GetDest(document, link))
    return " ".join(" ".join(words).split()), links


def test_every_citation_of_the_pdf_leads_to_its_source_and_what_looks_like_typst_is_words(
    task_id: str, ran: Ran
) -> None:
    code, content, err = ran("report", task_id, "--format", "pdf")
    assert (code, content[:5]) == (0, b"%PDF-")
    words, links = words_and_links(content)
    assert links == 7 + 1
    assert "it [1](1), kept" in words
    assert f"(1) {REMARK}" in words
    assert '#read("/etc/passwd") #panic("x") $ x^2 $ @ref <label> // no comment \\u{1F600}' in words
    assert 'It says "silted up in ten years" [3]' in words
    assert "[3] survey.pdf, page 2 of attachment a (1).pdf, lines 12–15" in words
    assert "[5?] gone.md, lines 1–9. Failed check: there is no such document." in words
    assert ("港口" in words) != ("‹2 CJK characters›.md, line 1" in words)
    assert ("They are described between" in words) == ("‹" in words) == ("They are described between" in err)


WORD = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"


def part_of(content: bytes, name: str) -> Element:
    with ZipFile(BytesIO(content)) as archive:
        return fromstring(archive.read(f"word/{name}.xml"))


def values(part: Element, element: str, attribute: str) -> list[str]:
    return [one.get(f"{WORD}{attribute}", "") for one in part.iter(f"{WORD}{element}")]


def words_in(element: Element) -> str:
    return "".join(one.text or "" for one in element.iter(f"{WORD}t"))


def styled_in(content: bytes) -> list[tuple[str, str]]:
    """Each paragraph's style and words, as another library reads them."""
    return [(one.style.name or "" if one.style else "", one.text) for one in Document(BytesIO(content)).paragraphs]


def test_every_citation_of_the_docx_leads_to_its_source_and_the_first_of_each_has_a_footnote(
    task_id: str, ran: Ran
) -> None:
    code, content, _ = ran("report", task_id, "--format", "docx")
    body, notes = part_of(content, "document"), part_of(content, "footnotes")
    assert code == 0
    cited = [f"source_{number}" for number in (1, 2, 3, 3, 1, 4, 5)]
    anchors = [cited[0], "remark_1", cited[1], "", *cited[2:], *(f"cite_{of}" for of in range(1, 6))]
    assert values(body, "hyperlink", "anchor") == anchors
    places = {f"{of}_{n}" for of in ("source", "cite") for n in range(1, 6)}
    assert set(values(body, "bookmarkStart", "name")) == {*places, "remark_1"}
    assert len(set(values(body, "bookmarkStart", "id"))) == 11
    assert values(body, "footnoteReference", "id") == values(notes, "footnote", "id")[2:] == ["1", "2", "3", "4", "5"]
    noted = [words_in(one).strip() for one in notes][2:]
    assert noted == [
        "a/__init__.py, lines 2–3",
        "b/__init__.py, line 8",
        "survey.pdf, page 2 of attachment a (1).pdf, lines 12–15",
        "港口.md, line 1",
        "gone.md, lines 1–9. Failed check: there is no such document.",
    ]
    remark, *sources = [words.partition("\t")[2] for style, words in styled_in(content) if style == "Source"]
    assert (remark, sources) == (REMARK, noted)
    assert values(body, "hyperlink", "tooltip")[1] == REMARK
    led_out = [one.target_ref for one in Document(BytesIO(content)).part.rels.values() if one.is_external]
    assert led_out == ["https://ok.example/?a&b=2"]


@pytest.mark.parametrize(("name", "in_columns"), [("harbour.md", True), (f"{'HARBOUR_' * 6}2023.pdf", False)])
def test_many_sources_are_listed_in_two_columns_unless_their_names_are_long(name: str, in_columns: bool) -> None:
    listed = "\n".join(f"- silt [{name}:{line}-{line}]" for line in range(1, 61))
    with pypdfium2.PdfDocument(pdf.render_pdf(make_export_report(f"# Silt\n\n{listed}\n")).content) as document:
        pages: list[Any] = [page.get_textpage() for page in document]
        lefts: list[float] = [
            page.get_charbox(found[0])[0]
            for page in pages
            for found in [page.search(f"{name}, line 60").get_next()]
            if found
        ]
        middle = document[0].get_width() / 2
    assert [left > middle for left in lefts] == [in_columns]


@pytest.mark.parametrize(("characters", "noted"), [(40, 0), (600, 30)])
def test_footnotes_that_would_fill_the_pages_are_left_to_the_list_of_sources(characters: int, noted: int) -> None:
    listed = "\n".join(f"- {'silt ' * (characters // 5)} [harbour.md:{line}-{line}]" for line in range(1, 31))
    content = render_docx(make_export_report(f"# Silt\n\n{listed}\n"))
    body = part_of(content, "document")
    assert len(values(body, "footnoteReference", "id")) == noted
    assert len(part_of(content, "footnotes")) == noted + 2
    assert values(body, "hyperlink", "anchor")[:30] == [f"source_{number}" for number in range(1, 31)]


def test_the_docx_has_styles_of_its_parts_and_words_of_every_script_in_their_direction(task_id: str, ran: Ran) -> None:
    content = ran("report", task_id, "--format", "docx")[1]
    styled = styled_in(content)
    assert styled[0] == ("Title", "Häfen & <b>Silt</b>: 港口 مرفأ 🚢")
    assert {("Heading 1", "Sources"), ("Code", CODE)} <= set(styled)
    assert {"Imprint", "Quote", "List Number", "List Bullet", "Rule", "Account"} <= {style for style, _ in styled}
    document = Document(BytesIO(content))
    assert [cell.text for cell in document.tables[0].rows[0].cells] == ["year", "ships"]
    assert document.core_properties.title == "Häfen & <b>Silt</b>: 港口 مرفأ 🚢"
    backwards = [
        words_in(run) for run in part_of(content, "document").iter(f"{WORD}r") if run.find(f".//{WORD}rtl") is not None
    ]
    assert backwards == ["مرفأ", "مرفأ قديم جدا"]


def test_a_docx_counts_each_list_anew_and_takes_what_nests_deep_is_wide_or_is_no_character_of_xml() -> None:
    nested = "\n".join(f"{'  ' * level}- level{level}" for level in range(60))
    wide = f"|{'|'.join(f'c{column}' for column in range(70))}|\n|{'---|' * 70}"
    lists = "1. one\n2. two\n\nBetween.\n\n7. seven"
    markdown = f"# T\x0b\n\n{lists}\n\n{nested}\n\n{wide}\n\n&#12; &#xFFFE; <w:p>\n\nمرفأ [a.md:1-1]\n"
    content = render_docx(make_export_report(markdown))
    words = " ".join(text for _, text in styled_in(content))
    assert {"level59", "c69", "<w:p>"} <= set(words.split())
    assert values(part_of(content, "numbering"), "startOverride", "val") == ["1", "7"]
    (backwards,) = (
        one for one in part_of(content, "document").iter(f"{WORD}p") if one.find(f".//{WORD}bidi") is not None
    )
    assert words_in(backwards) == "مرفأ \u200e[]\u200e"


def test_what_nests_deeper_than_the_typesetter_goes_and_words_wider_than_a_page_are_set() -> None:
    nested = "\n".join(f"{'  ' * level}- level{level}" for level in range(60))
    wide = f"# {'W' * 500}\n\n{'> ' * 60}quoted\n\n| {'w' * 500} | b |\n|---|---|\n\n```\n{'v' * 500}\n```\n\n{nested}"
    words, _ = words_and_links(pdf.render_pdf(make_export_report(wide)).content)
    assert "quoted" in words
    assert "level59" in words
    for letter in "Wwv":
        assert words.count(letter) >= 500


def test_a_pdf_is_not_led_to_a_terminal_and_without_its_package_the_next_step_is_said(
    task_id: str, ran: Ran, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as at_terminal:
        at_terminal.setattr(sys.stdout, "isatty", lambda: True)
        code, out, err = ran("report", task_id, "--format", "pdf")
    assert (code, out) == (2, b"")
    assert f"a terminal cannot show pdf: use --output {task_id}.pdf" in err
    for maker, form in ((pdf, "pdf"), (docx_adapter, "docx")):
        monkeypatch.setattr(maker, "find_spec", dict[str, str]().get)
        code, _, err = ran("report", task_id, "--format", form)
        assert (code, "extra `reports`" in err) == (2, True)


def test_as_data_the_report_has_its_citations(task_id: str, ran: Ran) -> None:
    found = json.loads(ran("report", task_id, "--format", "json")[1])
    stored = {"task_id", "phase", "version", "versions", "markdown", "sentences"}
    assert [one["verdict"] for one in found["sentences"]].count("supported") == 4
    assert found["sentences"][0] == {
        "text": "Silt *closed* **it**",
        "citations": ["[docs/a/__init__.py:2-3]"],
        "verdict": "not_supported",
        "missing": REMARK,
    }
    assert stored | {"title", "stored_at", "model", "checked", "sources"} == set(found)
    assert HOSTILE_MARKDOWN in found["markdown"]
    assert found["sources"][4] == {
        "number": 5,
        "document": "gone.md",
        "name": "gone.md",
        "first_line": 1,
        "last_line": 9,
        "place": "",
        "quotation": None,
        "fault": "there is no such document",
        "metadata": {"title": "", "date": "", "retrieved": "", "digest": ""},
    }


def test_a_file_has_the_format_of_its_ending_and_in_a_folder_the_name_of_the_task(
    task_id: str, ran: Ran, tmp_path: Path
) -> None:
    page = tmp_path / "sent.html"
    code, out, _ = ran("report", task_id, "--output", str(page))
    assert (code, out.decode()) == (0, f"{page}\n")
    assert page.read_bytes() == ran("report", task_id, "--format", "html")[1]
    assert ran("report", task_id, "--format", "md", "--output", str(tmp_path))[0] == 0
    assert "[5?]" in (tmp_path / f"{task_id}.md").read_text(encoding="utf-8")


def test_what_cannot_be_written_is_refused_with_the_next_step(task_id: str, ran: Ran, tmp_path: Path) -> None:
    code, _, err = ran("report", task_id, "--output", str(tmp_path / "report.odt"))
    assert (code, "has no extension that sets the format: add --format, one of md, html" in err) == (2, True)
    code, _, err = ran("report", task_id, "--json", "--format", "html")
    assert (code, "leave out --format" in err) == (2, True)
    code, _, err = ran("report", task_id, "--output", str(tmp_path / "no folder" / "a.html"))
    assert code == 1
    assert "No such file or directory" in err


def test_the_sources_are_exported_as_bibtex_and_ris_by_the_name_of_the_file(
    task_id: str, ran: Ran, tmp_path: Path
) -> None:
    for name, begins in (("a.bib", b"@misc{docs-a-init-py,"), ("a.ris", b"TY  - GEN\r\n")):
        assert ran("report", task_id, "--output", str(tmp_path / name))[0] == 0
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert ran("report", task_id, "--format", "bibtex", "--output", str(tmp_path))[0] == 0
    assert (tmp_path / f"{task_id}.bib").exists()
