"""Uploaded files as agents would see them, from the API and on the page."""

from pathlib import Path

import pytest

from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, NO_SERVER, open_site_client
from tests.support.document_files import make_pdf_file
from waystation.config.settings import Settings
from waystation.documents.document_loading import load_documents
from waystation.plugins.web import pages, uploads
from waystation.runtime.store_setup import find_placeholder_key

NOTES = b"# Costs\n\nWrite to alice@example.com about <b>four</b> pumps.\n"
FILES = [
    ("documents", ("notes.md", NOTES)),
    ("documents", ("paper.pdf", make_pdf_file("The harbour", ""))),
    ("documents", ("scan.xyz", bytes(range(256)))),
]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return Settings(home=tmp_path / "home", offline=True)


async def test_uploads_are_shown_as_submit_reads_them_with_all_that_is_left_out(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "notes.md").write_bytes(NOTES)
    async with open_site_client(settings) as asking:
        answer = await asking.post("/v1/documents/read", headers=BEARER, files=FILES)
        listed = (await asking.get("/v1/tasks", headers=BEARER)).json()
    found = answer.json()
    assert (answer.status_code, listed) == (200, [])
    assert [one["name"] for one in found["documents"]] == ["notes.md", "paper.pdf"]
    (submitted,) = load_documents([tmp_path / "notes.md"]).documents
    assert "\n".join(found["documents"][0]["lines"]) == submitted.text
    assert found["documents"][1]["lines"] == ["[page 1]", "The harbour"]
    assert found["left_out"] == [{"name": "paper.pdf, page 2", "reason": "empty"}]
    assert found["refused"] == [{"path": "scan.xyz", "reason": "binary, not text"}]
    assert found["redacted"] is False


async def test_a_document_whose_name_is_not_that_of_its_file_names_the_file(settings: Settings) -> None:
    files = [("documents", ("docs/a[1].md", b"one")), ("documents", ("docs/b.md", b"two"))]
    async with open_site_client(settings) as asking:
        found = (await asking.post("/v1/documents/read", headers=BEARER, files=files)).json()
        page = await asking.post("/documents/read", headers=BEARER, data={"mark": ACCESS.csrf_token}, files=files)
    names = [(one["name"], one["file_name"]) for one in found["documents"]]
    assert names == [("a(1).md", "a[1].md"), ("b.md", "")]
    assert '<h2>a(1).md</h2>\n<p class="small">1 line, 3 characters; file a[1].md</p>' in page.text


async def test_with_redaction_private_values_of_texts_and_names_are_replaced(settings: Settings) -> None:
    settings.home.mkdir()
    await find_placeholder_key(settings)
    files = [FILES[0], ("documents", ("ada@example.org.txt", b"one"))]
    async with open_site_client(settings) as asking:
        answer = await asking.post("/v1/documents/read?redacted=true", headers=BEARER, files=files)
    assert answer.status_code == 200, answer.text
    assert "alice@example.com" not in answer.text
    assert "ada@example.org" not in answer.text
    assert answer.json()["redacted"] is True
    assert "<EMAIL_" in answer.json()["documents"][0]["lines"][2]


async def test_files_of_which_none_can_be_used_are_each_named_with_the_reason(settings: Settings) -> None:
    given = [("documents", (name, content)) for name, content in (("a.bin", b"\0\1"), ("b.md", b""))]
    async with open_site_client(settings) as asking:
        found = (await asking.post("/v1/documents/read", headers=BEARER, files=given)).json()
    assert [one["path"] for one in found["refused"]] == ["a.bin", "b.md"]
    assert ["binary, not text" in found["refused"][0]["reason"], "empty" in found["refused"][1]["reason"]] == [True] * 2


async def test_each_file_is_checked_before_a_task_starts_also_if_none_can_be_used(settings: Settings) -> None:
    locked = make_pdf_file("one", encrypted=True)
    unusable = (("a.bin", b"\0\1"), ("notes/b.md", b""), ("c.pdf", locked))
    useless = [("documents", (name, content)) for name, content in unusable]
    async with open_site_client(settings) as asking:
        found = (await asking.post("/v1/documents/check", headers=BEARER, files=[*FILES[:2], *useless])).json()
        none = (await asking.post("/v1/documents/check", headers=BEARER, files=useless)).json()
    states = [(one["path"], one["state"]) for one in found["files"]]
    expected = [("a.bin", "unreadable"), ("notes/b.md", "unreadable"), ("c.pdf", "locked")]
    assert states == [("notes.md", "ready"), ("paper.pdf", "ready"), *expected]
    assert [one["tokens"] > 0 for one in found["files"]] == [True, True, False, False, False]
    assert found["files"][1]["left_out"] == [{"name": "page 2", "reason": "empty"}]
    assert [(one["path"], one["state"]) for one in none["files"]] == expected


async def test_too_many_files_or_too_much_text_are_refused(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_PREVIEW_CHARACTERS", 50)
    many = [("documents", (f"{number}.md", b"a")) for number in range(uploads.MAX_FILES + 1)]
    async with open_site_client(settings) as asking:
        none = await asking.post("/v1/documents/read", headers=BEARER)
        too_many = await asking.post("/v1/documents/read", headers=BEARER, files=many)
        too_long = await asking.post("/v1/documents/read", headers=BEARER, files=FILES[:1])
    assert (none.status_code, too_many.status_code, too_long.status_code) == (422, 422, 400)
    assert "send fewer files in one request" in too_long.json()["detail"]


async def test_the_page_shows_numbered_lines_and_what_is_left_out_and_escapes_both(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "MAX_PREVIEW_LINES", 2)
    form = {"mark": ACCESS.csrf_token}
    async with open_site_client(settings) as asking:
        empty = await asking.get("/documents", headers=BEARER)
        shown = await asking.post("/documents/read", headers=BEARER, data=form, files=FILES)
        nothing = await asking.post("/documents/read", headers=BEARER, data=form, files=[("documents", ("", b""))])
        forged = await asking.post("/documents/read", headers=BEARER, files=FILES)
    assert 'action="/documents/read"' in empty.text
    assert "<h2>notes.md</h2>" in shown.text
    assert "<tr><th>1</th><td># Costs</td></tr>" in shown.text
    assert "And 1 more line" in shown.text
    assert "paper.pdf, page 2: empty" in shown.text
    assert "scan.xyz: binary, not text" in shown.text
    assert "<b>four" not in shown.text
    assert (nothing.status_code, "0 files: send 1 to" in nothing.text) == (400, True)
    assert forged.status_code == 403
