from pathlib import Path

import pytest

from waystation.cli.console import UNREACHABLE
from waystation.cli.main import run
from waystation.config.settings import Settings


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (None, "cannot be read: no such file or directory. Give a text file that you may read."),
        (b"\xff\xfe\x00", "is not UTF-8 text. Save it as plain text in UTF-8."),
    ],
)
def test_instructions_that_cannot_be_read_are_refused_with_cause_and_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, cause: str
) -> None:
    file = tmp_path / "how.md"
    if content is not None:
        file.write_bytes(content)
    assert run(["submit", "Why?", "--instructions", str(file)]) == 2
    assert f"--instructions {file} {cause}" in " ".join(capsys.readouterr().err.split())


def test_a_file_that_is_cited_under_another_name_is_named_with_it(
    tmp_path: Path, without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert without_server
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a[1].md").write_text("# A")
    (tmp_path / "docs" / "b.md").write_text("# B")
    assert run(["submit", "Why?", "--docs", str(tmp_path / "docs")]) == UNREACHABLE
    told = capsys.readouterr().err
    assert "a[1].md is cited as a(1).md\n" in told
    assert "b.md is cited" not in told
