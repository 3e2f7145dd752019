import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from waystation.cli.main import COMMANDS, build_command_line_app, run

HEAVY = ("temporalio", "sqlalchemy", "spacy", "presidio_analyzer", "anthropic", "qdrant_client", "pydantic_settings")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(tmp_path / "none.toml"))


@pytest.fixture
def documents(tmp_path: Path) -> str:
    (tmp_path / "a.md").write_text("# A\n\nSomething.\n")
    return str(tmp_path / "a.md")


def test_help_comes_without_loading_what_only_commands_need() -> None:
    script = f"""
import sys
from waystation.cli.main import run
code = run(["--help"])
sys.exit(code or ", ".join(name for name in {HEAVY} if name in sys.modules) or 0)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (told.returncode, told.stderr) == (0, "")
    assert [command for command in COMMANDS if command not in told.stdout] == []


def test_help_fills_the_width_of_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["store", "adopt-key", "--help"]) == 0
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "placeholders, and texts if they are encrypted) stays unreadable without it; if" in shown


def test_every_command_that_is_listed_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    told = {command: (run([command, "--help"]), capsys.readouterr().out) for command in COMMANDS}
    assert {
        command: (code, out) for command, (code, out) in told.items() if code or f"waystation {command}" not in out
    } == {}


def test_the_process_ends_with_the_exit_code_and_one_line(documents: str) -> None:
    command = [sys.executable, "-m", "waystation.cli.main", "submit", "What?", "--docs", documents, "--budget=-5k"]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.returncode == 2
    assert told.stdout == ""
    assert told.stderr == (
        "waystation: --budget takes tokens like 600k, 1.5M or 600_000, dollars like $2.00, or both like 600k+$2.00; "
        "'-5k' is not an amount\n"
    )


BAD_USAGE = [
    (["submit", "What?"], "no documents: name a file or folder with --docs PATH"),
    (["submit", "What?", "--docs", "/nowhere/at/all"], "/nowhere/at/all"),
    (["submit", "", "--docs", "DOCUMENTS"], "question: it is empty"),
    (["submit", "What?", "--docs", "DOCUMENTS", "--window", "100"], "--window takes 2,000 to 1,000,000"),
    (["submit", "What?", "--docs", "DOCUMENTS", "--instructions", "/nowhere.md"], "--instructions /nowhere.md"),
    (["show", ""], "the task id is empty: `waystation list` shows"),
    (["approve", " "], "the task id is empty: `waystation list` shows"),
    (["show", "abc"], "no task in this store has an id that starts with 'abc': `waystation list` shows"),
    (
        ["approve", "abc", "--add", "0"],
        "--add takes 1 to 1,000,000,000 tokens, $0.000001 to $1,000,000.00, or both",
    ),
    (["submit", "What?", "--docs", "DOCUMENTS", "--request-id", ""], "--request-id is empty"),
    (["fork", "abc", "--from", "writing", "--request-id", " "], "--request-id is empty"),
    (["submit", "What?", "--docs", "DOCUMENTS", "--budget", "0"], "--budget takes 2,000 to 1,000,000,000 tokens"),
    (["submit", "What?", "--docs", "DOCUMENTS", "--budget", "$2,50"], "write decimals with a point"),
    (["submit", "What?", "--docs", "DOCUMENTS", "--mode", "nope"], "'hard',"),
    (
        ["session", "set", "s", "--budget", "5"],
        "--budget 5 is 5 tokens, too few to start with: did you mean 5k or '$5'?",
    ),
    (["session", "set", "s", "--budget", "much"], "--budget takes tokens like 600k"),
    (["demo", "--live"], "--live needs a key: set ANTHROPIC_API_KEY"),
    (["submt"], "No such command 'submt'"),
    (["show"], "Missing argument 'TASK'"),
]


def test_bad_usage_is_code_2_with_the_cause(documents: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = dict[str, tuple[int, str]]()
    for arguments, words in BAD_USAGE:
        code = run([documents if argument == "DOCUMENTS" else argument for argument in arguments])
        told = capsys.readouterr().err
        if code != 2 or words not in " ".join(told.split()) or "Traceback" in told:
            wrong[shlex.join(arguments)] = (code, told)
    assert wrong == {}


@pytest.mark.parametrize("command", [["approvals"], ["submit", "What?", "--docs", "DOCUMENTS"], ["status"]])
def test_an_unreachable_server_is_code_3_with_the_next_step(
    command: list[str], documents: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run([documents if argument == "DOCUMENTS" else argument for argument in command]) == 3
    told = capsys.readouterr()
    assert "does not answer at 127.0.0.1:1" in told.out or "no Temporal server answers at 127.0.0.1:1" in told.err
    assert "waystation up" in told.out + told.err


@pytest.mark.parametrize("command", ["dev", "up"])
def test_no_server_is_started_where_the_environment_names_one(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run([command]) == 2
    assert "unset the variable, or run `waystation worker`" in capsys.readouterr().err


def test_debug_shows_where_an_error_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "abc", "--debug"]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_an_empty_store_has_an_empty_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"


def test_nothing_to_stop_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["down"]) == 0
    assert "Nothing is running here." in capsys.readouterr().err


def test_only_the_called_command_is_imported() -> None:
    assert len(build_command_line_app("show").registered_groups) == 1
    assert len(build_command_line_app(None).registered_commands) == len(COMMANDS)
