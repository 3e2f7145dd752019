"""`waystation report --pictures`: cited passages on the pages of their PDFs, in an HTML file."""

import asyncio
from base64 import b64decode
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from PIL import Image, ImageDraw, ImageFont

from tests.support.cited_pdf import OFFICE_REPORT, store_task_citing, write_cited_files, write_office_files
from waystation.cli.console import BAD_USAGE, OK
from waystation.cli.main import run
from waystation.client import passage_pictures
from waystation.config.settings import Settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    write_cited_files(folder)
    return folder


@pytest.fixture
def task_id(without_server: Settings, folder: Path) -> str:
    return asyncio.run(store_task_citing(without_server, folder))


def export_html(task_id: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> tuple[BeautifulSoup, str]:
    assert run(["report", task_id, "--format", "html", "--pictures", str(folder)]) == OK
    said = capfd.readouterr()
    return BeautifulSoup(said.out, "html.parser"), said.err


def test_each_source_on_a_page_is_shown_unless_its_page_has_private_values(
    task_id: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    page, said = export_html(task_id, folder, capfd)
    (picture,) = page.find_all("img")
    assert picture["alt"] == "paper.pdf, page 1, lines 2–3: picture of the page"
    assert [one["id"] for one in page.select(".sources li:has(img)")] == ["source-1"]
    kind, _, content = str(picture["src"]).partition(",")
    assert (kind, b64decode(content)[:4]) == ("data:image/png;base64", b"\x89PNG")
    assert "img-src data:" in str(page.find("meta", attrs={"http-equiv": True}))
    assert "no picture for source [2]: page 2 has private values, which a picture would show" in said
    assert "no picture for source [3]: the passage cited from notes.md (line 1) is neither on a page of a PDF" in said
    assert "[4]" not in said


def test_of_a_scanned_page_there_is_a_picture_unless_its_recognised_text_has_private_values(
    without_server: Settings, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    pages = [Image.new("L", (1_240, 400), "white") for _ in range(2)]
    for page, words in zip(pages, ("The harbour silted up.", "Write to alice@example.com."), strict=True):
        ImageDraw.Draw(page).text((90, 90), words, font=ImageFont.load_default(44), fill="black")
    pages[0].save(folder / "scan.pdf", "PDF", save_all=True, append_images=pages[1:], resolution=150)
    report = "# The harbour\n\nIt silted up [scan.pdf:2-2]. Someone wrote [scan.pdf:5-5].\n"
    task_id = asyncio.run(store_task_citing(without_server, folder, report))
    page, said = export_html(task_id, folder, capfd)
    assert [one["id"] for one in page.select(".sources li:has(img)")] == ["source-1"]
    assert "no picture for source [2]: page 2 has private values, which a picture would show" in said


def test_without_the_file_that_was_submitted_there_is_no_picture(
    task_id: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with (folder / "paper.pdf").open("ab") as file:
        file.write(b"\n")
    page, said = export_html(task_id, folder, capfd)
    assert page.find("img") is None
    assert "img-src" not in str(page)
    assert (
        "no picture for source [1]: the file of this source was not given, or has changed since it was submitted"
        in said
    )


def test_there_are_at_most_so_many_pictures(
    task_id: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passage_pictures, "MAX_PICTURES", 0)
    page, said = export_html(task_id, folder, capfd)
    assert page.find("img") is None
    assert "no picture for source [1]: the report already has the maximum of 0 pictures" in said


def test_under_the_strict_policy_no_picture_is_exported_and_only_html_has_them(
    task_id: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["report", task_id, "--format", "pdf", "--pictures", str(folder)]) == BAD_USAGE
    monkeypatch.setenv("WAYSTATION_PRIVACY", "strict")
    assert run(["report", task_id, "--format", "html", "--pictures", str(folder)]) == BAD_USAGE
    assert "the privacy policy is strict" in capfd.readouterr().err


def test_passages_of_workbooks_are_cells_and_those_of_e_mails_have_their_headers_without_private_values(
    without_server: Settings, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write_office_files(folder)
    task_id = asyncio.run(store_task_citing(without_server, folder, OFFICE_REPORT))
    assert run(["report", task_id, "--format", "html", "--passages"]) == OK
    page = BeautifulSoup(capfd.readouterr().out, "html.parser")
    costs, prices, message = page.select(".sources li .passage")
    rows = [[cell.get_text() for cell in row.find_all(["td", "th"])] for row in costs.find_all("tr")]
    assert rows == [
        ["2", "Work", "Year", "Cost"],
        ["3", "Digging", "1811", "410"],
        ["4", "Dredging", "1840", "1250"],
        ["5", "Lamps", "1850", "12"],
    ]
    assert [row.get_text() for row in costs.select("tr.cited")] == ["4Dredging18401250"]
    assert [cell.get_text() for cell in costs.find_all("th")] == ["Work", "Year", "Cost"]
    headers = {row.td.get_text(): row.find_all("td")[1].get_text() for row in prices.select(".message tr") if row.td}
    assert (headers["Subject"], headers["Part"]) == ("Our offer", "attachment prices.csv")
    assert "alice@example.com" not in str(page)
    assert headers["From"].startswith("<EMAIL")
    assert [row.get_text() for row in prices.select("tr.cited")] == ["9pump,900"]
    assert "Partthe message" in message.get_text()
    assert run(["report", task_id, "--format", "html", "--passages", "--restore"]) == OK
    assert "alice@example.com" in capfd.readouterr().out
    assert run(["report", task_id, "--format", "pdf", "--passages"]) == BAD_USAGE
