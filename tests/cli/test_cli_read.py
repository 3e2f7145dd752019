"""`waystation read`: what agents will see of files, and everything that they will not."""

import json
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from tests.support.document_files import make_pdf_file
from waystation.cli.console import BAD_USAGE, OK, WORK_FAILED
from waystation.cli.main import run
from waystation.documents.document_loading import load_documents

NOTES = "# Costs\n\nCall Alice Johnson, alice@example.com.\n" + "line\n" * 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "notes.md").write_text(NOTES, encoding="utf-8")
    (docs / "paper.pdf").write_bytes(make_pdf_file("The harbour", ""))
    (docs / "ada@example.org.txt").write_text("one", encoding="utf-8")
    (docs / ".hidden").write_text("x", encoding="utf-8")
    (docs / "failed.pdf").write_text("Error 404: no such paper here.", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return docs


def test_a_document_whose_name_is_not_that_of_its_file_names_the_file(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "a[1].md").write_text("one", encoding="utf-8")
    assert run(["read", "docs/a[1].md", "docs/notes.md"]) == OK
    told = capfd.readouterr().out
    assert told.startswith("docs/a(1).md: 1 line, 3 characters; file docs/a[1].md\n1| one\n\ndocs/notes.md: 11 lines, ")
    assert run(["read", "docs/a[1].md", "--json"]) == OK
    assert json.loads(capfd.readouterr().out)["documents"][0]["file_name"] == "docs/a[1].md"


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "the path is empty; name a file or folder"),
        ("https://example.com/a.pdf", "https://example.com/a.pdf is a web address. Save the page as a file"),
    ],
)
@pytest.mark.parametrize("command", [["read"], ["submit", "Why?", "--docs"], ["documents", "task-1", "--docs"]])
def test_what_is_no_path_is_refused_before_anything_is_read(
    folder: Path, command: list[str], path: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run([*command, path]) == BAD_USAGE
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_folder_is_shown_with_lines_and_with_what_is_left_out(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["read", "docs"]) == OK
    assert capfd.readouterr().out == snapshot("""\
ada@example.org.txt: 1 line, 3 characters
1| one

notes.md: 11 lines, 87 characters
 1| # Costs
 2| \n\
 3| Call Alice Johnson, alice@example.com.
 4| line
 5| line
 6| line
 7| line
 8| line
 9| line
10| line
11| line

paper.pdf: 2 lines, 20 characters
1| [page 1]
2| The harbour

skipped:
  .hidden: hidden
  failed.pdf: plain text, although its name ends in .pdf; rename it to .txt if it is a document
  paper.pdf, page 2: empty
""")


def test_what_is_shown_is_what_submit_hands_in(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["read", "docs", "--json"]) == OK
    found = json.loads(capfd.readouterr().out)
    loaded = load_documents([folder])
    assert [one["name"] for one in found["documents"]] == [one.name for one in loaded.documents]
    assert found["left_out"] == [one.model_dump() for one in loaded.skipped_items]
    assert found["redacted"] is False
    notes = next(one for one in found["documents"] if one["name"] == "notes.md")
    assert "\n".join(notes["lines"]) == NOTES.rstrip()


def test_redacted_it_is_what_a_model_will_see_names_of_files_included(
    folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAYSTATION_PRIVACY", "strict")
    assert run(["read", "docs", "--redacted", "--json"]) == OK
    said = capfd.readouterr().out
    for private in ("Alice Johnson", "alice@example.com", "ada@example.org"):
        assert private not in said
    found = json.loads(said)
    (notes,) = (one for one in found["documents"] if one["name"] == "notes.md")
    assert len(notes["lines"]) == 11
    assert "<EMAIL_" in notes["lines"][2]


def test_a_file_that_cannot_be_used_is_named_and_the_others_are_shown(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["read", "docs/notes.md", "docs/failed.pdf", "docs/none.md"]) == WORK_FAILED
    said = capfd.readouterr().out
    assert "docs/notes.md: 11 lines" in said
    assert "docs/failed.pdf: plain text, although its name ends in .pdf" in said
    assert "docs/none.md" in said
    assert run(["read"]) == BAD_USAGE
