"""A citation of a PDF opens the picture of its page, if the submitted file is chosen."""

from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, NO_SERVER, open_site_client
from tests.support.cited_pdf import store_task_citing, write_cited_files
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
    reasons = ("not the file that was submitted", "line 1 of notes.md is not on a page", "no source 9")
    for answer, reason in zip(answers, reasons, strict=True):
        assert reason in answer.json()["detail"]
