import pytest
from pydantic import ValidationError

from waystation.cli.console import BAD_USAGE, WORK_FAILED, format_error, get_error_exit_code
from waystation.cli.main import run
from waystation.config.settings import Settings

ADDRESS = "https://hooks.example.com/services/T0/B0/hush"


def test_a_webhook_is_kept_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_WEBHOOK", f" {ADDRESS}\n")
    settings = Settings()
    assert settings.webhook is not None
    assert settings.webhook.get_secret_value() == ADDRESS
    assert "hush" not in repr(settings)


@pytest.mark.parametrize(
    "given",
    [
        "hooks.example.com/hush",
        "ftp://hooks.example.com/hush",
        "http://[::hush",
        "hush",
        "https://hooks.example.com/services/hush hush",
        "https://hooks .example.com/hush",
        "https:///hush",
        "https://?hush",
        "https:hooks.example.com/hush",
        "https://hush@/hush",
        "https://:443/hush",
    ],
)
def test_what_is_no_web_address_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("WAYSTATION_WEBHOOK", given)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert get_error_exit_code(refused.value) == BAD_USAGE
    assert format_error(refused.value).startswith("WAYSTATION_WEBHOOK: it must be an http or https address")
    assert "hush" not in f"{format_error(refused.value)}{refused.value}"


@pytest.mark.parametrize("given", ["json://example.com bogus://hush@y", "json://example.com hush", "hush"])
def test_the_doctor_refuses_the_addresses_that_workers_refuse(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    given: str,
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("WAYSTATION_NOTIFY", given)
    assert run(["doctor"]) == WORK_FAILED
    told = capsys.readouterr().out
    assert f"FAIL notifications: address {len(given.split())} of WAYSTATION_NOTIFY is unknown to Apprise" in told
    assert "hush" not in told


def test_the_doctor_says_whether_a_webhook_is_set_and_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path_factory.mktemp("home")))
    run(["doctor"])
    assert "--   notifications: off; set WAYSTATION_WEBHOOK or WAYSTATION_NOTIFY" in capsys.readouterr().out
    monkeypatch.setenv("WAYSTATION_WEBHOOK", ADDRESS)
    run(["doctor"])
    told = capsys.readouterr().out
    needed = "(workers send them, and need the same settings)"
    assert f"ok   notifications: by a webhook at hooks.example.com {needed}\n" in told
    assert "hush" not in told
    monkeypatch.setenv("WAYSTATION_NOTIFY", "slack://hush/hush/hush mailto://ada:hush@example.com")
    run(["doctor"])
    told = capsys.readouterr().out
    ways = "a webhook at hooks.example.com and slack and mailto"
    assert f"ok   notifications: by {ways} {needed}\n" in told
    assert "hush" not in told


def test_a_page_that_is_no_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_PAGE", "waystation.example.org")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert format_error(refused.value).startswith("WAYSTATION_PAGE: it must be an http or https address")
