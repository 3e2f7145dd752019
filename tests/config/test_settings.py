from pathlib import Path

import pytest
from pydantic import ValidationError

from waystation.cli.main import run
from waystation.config.settings import Settings, describe_unknown_variables
from waystation.kernel.amount import Limit


def test_the_environment_beats_the_default_and_an_argument_beats_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings().agent_budget == Limit(tokens=100_000)
    monkeypatch.setenv("WAYSTATION_AGENT_BUDGET", "50000")
    assert Settings().agent_budget == Limit(tokens=50_000)
    assert Settings(agent_budget=Limit(tokens=20_000)).agent_budget == Limit(tokens=20_000)


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "")
    assert Settings().anthropic_api_key is None


def test_everything_lies_in_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    settings = Settings()
    assert settings.database_url == f"sqlite+aiosqlite:///{tmp_path}/waystation.db"
    places = (settings.run_file, settings.memory_folder, settings.reports_folder, settings.logs_folder)
    assert {place.parent for place in (*places, settings.key_file, settings.temporal_database)} == {tmp_path}


def test_the_home_folder_is_absolute_wherever_it_was_given_from() -> None:
    assert Settings(home=Path("~/somewhere")).home == Path.home() / "somewhere"
    assert Settings(home=Path("here")).home == Path.cwd() / "here"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql+asyncpg://db/waystation", "postgresql+asyncpg://db/waystation"),
        (
            "postgres://me:a%2Fb@db:5432/waystation?sslmode=require",
            "postgresql+asyncpg://me:a%2Fb@db:5432/waystation?sslmode=require",
        ),
        ("postgresql://db/waystation", "postgresql+asyncpg://db/waystation"),
        ("postgresql+psycopg2://db/waystation", "postgresql+asyncpg://db/waystation"),
        ("sqlite:////folder/waystation.db", "sqlite+aiosqlite:////folder/waystation.db"),
        ("mysql://db/waystation", "mysql://db/waystation"),
    ],
)
def test_a_database_url_replaces_the_file_in_the_home_folder_whichever_driver_it_names(
    monkeypatch: pytest.MonkeyPatch, given: str, used: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", given)
    assert Settings().database_url == used


def test_the_password_of_the_database_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:hush@db/waystation")
    assert "hush" not in repr(Settings())


@pytest.mark.parametrize(
    ("key", "offline", "expected"),
    [
        ("", "", True),
        ("sk-ant-1", "", False),
        ("sk-ant-1", "true", True),
        ("", "false", False),
    ],
)
def test_the_offline_model_works_when_there_is_no_key_or_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, key: str, offline: str, expected: bool
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", key)
    monkeypatch.setenv("WAYSTATION_OFFLINE", offline)
    assert Settings().uses_offline_model is expected


def test_a_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-secret")
    assert "sk-ant-secret" not in repr(Settings())


def test_an_impossible_setting_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_BUDGET", "12")
    with pytest.raises(ValidationError, match="budget"):
        Settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().__setattr__("tenant", "other")


def test_every_setting_says_what_it_is_for() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_variable_that_is_no_setting_is_named_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert describe_unknown_variables() == ()
    for name in ("WAYSTATION_BUGDET", "waystation_zzz", "WAYSTATION_ANTHROPIC_API_KEY"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("WAYSTATION_OFFLINE", "true")
    told = (
        "WAYSTATION_BUGDET is not a setting and has no effect: did you mean WAYSTATION_BUDGET?",
        "WAYSTATION_ZZZ is not a setting and has no effect.",
    )
    assert describe_unknown_variables() == told
    (tmp_path / "note.md").write_text("The bar shifts in autumn.")
    monkeypatch.setenv("TEMPORAL_ADDRESS", "127.0.0.1:1")
    assert run(["submit", "What?", "--docs", str(tmp_path / "note.md")]) == 3
    assert capsys.readouterr().err.startswith("\n".join(told))
    run(["doctor"])
    assert f"--   settings: {' '.join(told)}" in capsys.readouterr().out


def test_approvers_are_named_with_commas_between_and_take_a_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_APPROVERS", "Ada Lovelace, grace@example.org")
    assert run(["list"]) == 2
    assert "WAYSTATION_APPROVERS: it needs WAYSTATION_KEY" in capsys.readouterr().err
    monkeypatch.setenv("WAYSTATION_KEY", "ab" * 32)
    assert Settings().approvers == ("Ada Lovelace", "grace@example.org")
    monkeypatch.setenv("WAYSTATION_ENCRYPT_PAYLOADS", "false")
    with pytest.raises(ValidationError, match="under any name"):
        Settings()
