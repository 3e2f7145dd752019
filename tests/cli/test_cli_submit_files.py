from pathlib import Path

import pytest

from waystation.cli.main import run


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
