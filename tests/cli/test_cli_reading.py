"""Commands that read files name the one that takes long, once."""

from pathlib import Path
from threading import Event

import pytest

from waystation.cli import reading
from waystation.cli.reading import ReadingProgress, load_documents_with_progress
from waystation.documents.document_loading import FileReadingEvent


def test_a_file_that_takes_long_is_named_once(monkeypatch: pytest.MonkeyPatch) -> None:
    printed: list[str] = []
    seen = Event()

    def print_message(text: str) -> None:
        printed.append(text)
        seen.set()

    monkeypatch.setattr(reading, "print_message", print_message)
    with ReadingProgress(seconds=0.01) as progress:
        for number, name in enumerate(("scan.pdf", "letter.pdf"), 1):
            seen.clear()
            progress.start_file(FileReadingEvent(Path("docs", name), number, 2))
            assert seen.wait(60)
    assert printed == ["Reading scan.pdf (file 1 of 2) …", "Reading letter.pdf (file 2 of 2) …"]


def test_quick_files_are_read_silently_and_each_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("Text.", encoding="utf-8")
    started: list[FileReadingEvent] = []
    monkeypatch.setattr(reading, "SILENT_SECONDS", 3_600.0)

    def note_start(_: ReadingProgress, file: FileReadingEvent) -> None:
        started.append(file)

    monkeypatch.setattr(ReadingProgress, "start_file", note_start)
    assert [one.name for one in load_documents_with_progress([tmp_path]).documents] == ["a.md", "b.md"]
    assert [(one.path.name, one.number, one.total) for one in started] == [("a.md", 1, 2), ("b.md", 2, 2)]
    assert capfd.readouterr().err == ""
