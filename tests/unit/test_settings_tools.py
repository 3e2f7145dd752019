"""Settings of which tools agents see, and within which limits in production."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from waystation.domain.parameters import ParameterLimit
from waystation.domain.projection import ToolPolicy
from waystation.settings import Settings


def test_in_development_nothing_is_limited() -> None:
    assert Settings(parameters={"web_search": {"limit": ParameterLimit(max=2)}}).tool_policy == ToolPolicy()


def test_production_limits_searches_and_asks_nobody_for_other_domains() -> None:
    limits = Settings(environment="production", web_allow=("python.org",)).tool_policy.limits
    assert limits == {
        "web_search": {"limit": ParameterLimit(max=5)},
        "fetch_page": {"url": ParameterLimit(domains=("python.org",))},
    }


@pytest.mark.parametrize("given", [{"web": True}, {"tool_servers": "mcp.json"}])
def test_the_web_and_tool_servers_bring_room_for_their_tools(given: dict[str, object]) -> None:
    assert not Settings().tool_policy.more
    assert Settings.model_validate(given).tool_policy.more


def test_the_config_file_says_limits_by_tool_and_parameter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    (tmp_path / "config.toml").write_text(
        'environment = "production"\ntool_tokens = 3_000\ntools_denied = ["tickets__*", "compute"]\n'
        "[parameters.web_search]\nlimit = {max = 2}\n[parameters.files__read]\nroot = {one_of = ['docs']}\n"
    )
    policy = Settings().tool_policy
    assert (policy.tokens, policy.denied) == (3_000, ("tickets__*", "compute"))
    assert policy.limits["web_search"] == {"limit": ParameterLimit(max=2)}
    assert policy.limits["files__read"] == {"root": ParameterLimit(one_of=("docs",))}
    assert "fetch_page" in policy.limits


def test_a_limit_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ValidationError, match="most"):
        Settings.model_validate({"parameters": {"web_search": {"limit": {"most": 2}}}})
