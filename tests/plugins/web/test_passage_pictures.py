"""A citation opens its passage: cells of a workbook, a part of an e-mail; of a PDF, the page if its file is chosen."""

from pathlib import Path

import pytest
from bs4 import BeautifulSoup

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, NO_SERVER, open_site_client
from tests.support.cited_pdf import OFFICE_REPORT, store_task_citing, write_cited_files, write_office_files
from waystation.config.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return write_cited_files(tmp_path / "docs")


async def test_the_page_of_a_source_is_drawn_from_the_file_that_was_submitted(settings: Settings, paper: Path) -> None:
    task = await store_task_citing(settings, paper.parent)
    path, content = f"/tasks/{task}/report/picture", paper.read_bytes()
    form = {"mark": ACCESS.csrf_token}
    async with open_site_client(settings) as asking:
        pages = [(await asking.get(f"/tasks/{task}/report?source={one}", headers=BEARER)).text for one in (1, 3, 4)]
        drawn = await asking.post(
            f"{path}?source=1", headers=BEARER, data=form, files={"documents": ("x.pdf", content)}
        )
        by_api = await asking.post(f"/v1{path}?source=2", headers=BEARER, files={"document": ("x.pdf", content)})
        forged = await asking.post(f"{path}?source=1", headers=BEARER, files={"documents": ("x.pdf", content)})
    assert [f'action="{path}?source=' in page for page in pages] == [True, False, False]
    assert "page 1, lines 2–3" in pages[0]
    for answer in (drawn, by_api):
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
        assert answer.content.startswith(b"\x89PNG")
    assert drawn.content != by_api.content
    assert forged.status_code == 403


async def test_another_file_or_a_source_without_a_page_is_refused_with_the_reason(
    settings: Settings, paper: Path
) -> None:
    task = await store_task_citing(settings, paper.parent)
    path, content = f"/v1/tasks/{task}/report/picture", paper.read_bytes()
    async with open_site_client(settings) as asking:
        answers = [
            await asking.post(f"{path}?source={source}", headers=BEARER, files={"document": ("x.pdf", given)})
            for source, given in ((1, content + b"\n"), (3, content), (9, content))
        ]
    assert [one.status_code for one in answers] == [400, 400, 400]
    reasons = (
        "this is not the submitted file",
        "the passage cited from notes.md (line 1) is neither on a page of a PDF nor in a picture",
        "no source 9",
    )
    for answer, reason in zip(answers, reasons, strict=True):
        assert reason in answer.json()["detail"]


async def test_the_source_of_a_workbook_has_its_cells_and_that_of_an_e_mail_its_headers_and_part(
    settings: Settings, tmp_path: Path
) -> None:
    folder = tmp_path / "office"
    folder.mkdir()
    write_office_files(folder)
    task = await store_task_citing(settings, folder, OFFICE_REPORT)
    async with open_site_client(settings) as asking:
        pages = [(await asking.get(f"/tasks/{task}/report?source={one}", headers=BEARER)).text for one in (1, 2, 3)]
        path = f"/v1/tasks/{task}/report/source"
        costs, prices = [(await asking.get(f"{path}?source={one}", headers=BEARER)).json() for one in (1, 2)]
        missing = await asking.get(f"{path}?source=9", headers=BEARER)
    sheet, attachment, message = [BeautifulSoup(page, "html.parser").select("#source")[0] for page in pages]
    assert [cell.get_text() for cell in sheet.select("tr.cited > *")] == ["4", "Dredging", "1840", "1250"]
    assert [cell.get_text() for cell in sheet.select("tr:first-child > th")] == ["2", "Work", "Year", "Cost"]
    assert "alice@example.com" in attachment.get_text()
    assert "attachment prices.csv" in attachment.get_text()
    assert "the message" in message.get_text()
    assert (costs["source"]["document"], costs["passage"]["sheet"]) == ("costs.xlsx", "Costs")
    cited = [line["cells"] for line in costs["passage"]["lines"] if line["is_cited"]]
    assert cited == [["Dredging", "1840", "1250"]]
    assert (prices["passage"]["part"], prices["passage"]["message"][0]["name"]) == ("attachment prices.csv", "From")
    assert (missing.status_code, missing.json()["detail"]) == (400, "the report has no source 9")
