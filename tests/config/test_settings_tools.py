"""Settings of which tools agents see, and within which limits in production."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from waystation.agents.tool_visibility import ParameterLimit, ToolPolicy
from waystation.cli.console import format_error
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput


def test_in_development_nothing_is_limited() -> None:
    assert Settings(parameters={"web_search": {"limit": ParameterLimit(max=2)}}).tool_policy == ToolPolicy()


def test_production_limits_searches_and_asks_nobody_for_other_domains() -> None:
    limits = Settings(environment="production", web_allow=("python.org",)).tool_policy.limits
    assert limits == {
        "web_search": {"limit": ParameterLimit(max=5)},
        "fetch_page": {"url": ParameterLimit(domains=("python.org",))},
    }


def test_the_config_file_says_limits_by_tool_and_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(
        'environment = "production"\ntool_tokens = 3_000\ntools_denied = ["tickets__*", "compute"]\n'
        "[parameters.web_search]\nlimit = {max = 2}\n[parameters.files__read]\nroot = {one_of = ['docs']}\n"
    )
    policy = Settings().tool_policy
    assert (policy.added_tool_tokens, policy.denied) == (3_000, ("tickets__*", "compute"))
    assert policy.limits["web_search"] == {"limit": ParameterLimit(max=2)}
    assert policy.limits["files__read"] == {"root": ParameterLimit(one_of=("docs",))}
    assert "fetch_page" in policy.limits


def test_a_limit_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="most"):
        Settings.model_validate({"parameters": {"web_search": {"limit": {"most": 2}}}})


@pytest.mark.parametrize("written", ["10.1.0.0/16, fd00::/8", "10.1.0.0/16,fd00::/8,"])
def test_networks_are_written_with_commas(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_WEB_REACHABLE", written)
    assert list(map(str, Settings().web_reachable)) == ["10.1.0.0/16", "fd00::/8"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("WEB_REACHABLE", "is not a network: write it like 10.1.0.0/16 or fd00::/8"),
        ("PARAMETERS", "it is not valid JSON: correct it, or write it as a table in the config file"),
        ("PROFILES", "it is not valid JSON: correct it, or write it as a table in the config file"),
    ],
)
def test_what_cannot_be_read_is_refused_under_the_name_of_its_setting(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WAYSTATION_{name}", "10.1.2.3/16")
    with pytest.raises(ValidationError) as refused:
        Settings()
    told = format_error(refused.value)
    assert f"WAYSTATION_{name}" in told
    assert said in told


def test_no_setting_of_the_environment_has_to_be_json(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        with monkeypatch.context() as patched:
            patched.setenv(f"WAYSTATION_{name.upper()}", "nonsense, {")
            try:
                Settings()
            except (ValidationError, BadInput) as refused:
                told = format_error(refused)
            else:
                continue  # any text will do
            assert f"WAYSTATION_{name.upper()}" in told or name == "config"
