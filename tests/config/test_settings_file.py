import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from waystation.budgets.budget import BudgetMode
from waystation.cli.console import BAD_USAGE, format_error, get_error_exit_code
from waystation.config.resolver import resolve_config
from waystation.config.setting_types import NOT_IN_A_FILE
from waystation.config.settings import Settings
from waystation.kernel.amount import LIMIT_FORMAT_HINT, Limit
from waystation.kernel.errors import BadInput
from waystation.tasks.task import Preset, TaskRequest


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.delenv("WAYSTATION_CONFIG", raising=False)
    return tmp_path / "config.toml"


def refusal() -> str:
    """What a person reads when the settings cannot be used."""
    try:
        Settings()
    except (ValidationError, BadInput) as refused:
        code = get_error_exit_code(refused)
        return format_error(refused) if code == BAD_USAGE else f"exit code {code}"
    return "nothing was refused"


def refusals(config: Path, files: Iterable[str]) -> dict[str, str]:
    """The same for each of these files."""
    read = dict[str, str]()
    for text in files:
        config.write_text(text)
        read[text] = refusal()
    return read


def test_the_file_in_the_home_folder_gives_settings_by_their_names(config: Path) -> None:
    config.write_text(
        'budget = "300k+$2.00"\nagent_budget = 50_000\nwindow = "20k"\nmode = "soft"\npreset = "qa"\n'
        'offline = true\nqdrant_url = "http://memory"\n'
    )
    settings = Settings()
    assert settings.budget == Limit(tokens=300_000, micro_usd=2_000_000)
    assert settings.agent_budget == Limit(tokens=50_000)
    assert (settings.window, settings.mode, settings.preset) == (20_000, BudgetMode.SOFT, Preset.QA)
    assert (settings.offline, settings.qdrant_url) == (True, "http://memory")


def test_without_a_file_the_defaults_hold(config: Path) -> None:
    assert Settings().mode is BudgetMode.APPROVAL


def test_the_home_folder_that_is_given_in_code_has_its_own_file(config: Path, tmp_path: Path) -> None:
    config.write_text('tenant = "another"')
    assert Settings(home=tmp_path / "elsewhere").tenant == "local"


def test_another_file_can_be_named_and_the_empty_one_too(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('tenant = "here"')
    named = config.with_name("team.toml")
    named.write_text('tenant = "team"')
    monkeypatch.setenv("WAYSTATION_CONFIG", str(named))
    assert Settings().tenant == "team"
    monkeypatch.setenv("WAYSTATION_CONFIG", os.devnull)
    assert Settings().tenant == "local"


def test_the_environment_beats_the_file_under_each_of_its_names(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('tenant = "file"\nqdrant_url = "http://file"\nanthropic_base_url = "http://file"')
    monkeypatch.setenv("WAYSTATION_TENANT", "environment")
    monkeypatch.setenv("QDRANT_URL", "http://environment")
    monkeypatch.setenv("WAYSTATION_ANTHROPIC_BASE_URL", "http://environment")
    settings = Settings()
    assert settings.tenant == "environment"
    assert (settings.qdrant_url, settings.anthropic_base_url) == ("http://environment",) * 2


FAULTS = {
    'budget = "300"': "budget in {}: it should be from 2,000 to 1,000,000,000 tokens",
    "window = 100": "window in {}: it must be from 2,000 to 1,000,000",
    'window = "wide"': "window in {}: it must be from 2,000 to 1,000,000; 'wide' is not an amount of tokens: {tokens}",
    'window = "2,5k"': (
        "window in {}: it must be from 2,000 to 1,000,000; '2,5k' is not an amount of tokens: {tokens}{commas}"
    ),
    'budget = "$2,50"': "budget in {}: '$2,50' is not an amount: write {amounts}{commas}",
    'budget = ["1"]': "budget in {}: write {amounts}",
    "budget = true": "budget in {}: write {amounts}",
    "budget = 300000.5": "budget in {}: write {amounts}",
    "backpressure = 7": "backpressure in {}: it should be true or false",
    'offline = "perhaps"': "offline in {}: it should be true or false",
    "profiles = 3": "profiles in {}: it should have named values, as a JSON object or a TOML table does",
    "[profiles.sonnet]\nkeep = -1": "profiles.sonnet.keep in {}: it should be at least 0",
    'mode = "harsh"': "mode in {}: it should be 'hard', 'soft' or 'approval'",
    'preset = "all"': "preset in {}: it should be 'qa', 'debugging', 'long' or 'web'",
    "trigger_percent = 100": "trigger_percent in {}: it must be from 50 to 99",
    "agents_at_once = 0": "agents_at_once in {}: it must be 1 or more",
    "target_cpu = 2": "target_cpu in {}: it must be more than 0 and at most 1",
    "anthropic_base_url = 3": "anthropic_base_url in {}: it should be text",
    'anthropic_base_url = "localhost:11434"': "anthropic_base_url in {}: {endpoint}",
    'anthropic_base_url = "http://"': "anthropic_base_url in {}: {endpoint}",
    'anthropic_base_url = "http://a b"': "anthropic_base_url in {}: {endpoint}",
    'anthropic_base_url = "http://a/?b=c"': "anthropic_base_url in {}: {endpoint}",
    'anthropic_base_url = "http://a:port"': "anthropic_base_url in {}: {endpoint}",
    'anthropic_base_url = "http://a/v1"': "anthropic_base_url in {}: {adds}",
    'anthropic_base_url = "http://a/v1/messages/"': "anthropic_base_url in {}: {adds}",
    "budget = $2": "the config file {} is not valid TOML: Invalid value (at line 1, column 10)",
}


def test_what_a_file_cannot_give_is_refused_with_file_name_and_range(config: Path) -> None:
    assert refusals(config, FAULTS) == {
        line: words.format(
            config,
            amounts=LIMIT_FORMAT_HINT,
            endpoint="it must be the http or https address of an endpoint, like http://localhost:11434",
            adds="remove /v1 or /v1/messages from the end of the address: the client adds it",
            tokens="write it like 600k, 1.5M or 600_000",
            commas="; a comma only separates thousands, as in $1,250.50: write decimals with a point",
        )
        for line, words in FAULTS.items()
    }


NO_NAMES = {
    'ANTHROPIC_API_KEY = "hush"': "the value is a secret; set ANTHROPIC_API_KEY in the environment instead",
    'waystation_anthropic_api_key = "hush"': "the value is a secret; set ANTHROPIC_API_KEY in the environment instead",
    'WEBHOOK = "https://hush"': "the value contains a secret; set WAYSTATION_WEBHOOK in the environment instead",
    'DATABASE_URL = "sqlite:///hush"': "the value may contain a password; set WAYSTATION_STORE_URL in the environment "
    "instead",
    'Store-Url = "sqlite:///hush"': "the value may contain a password; set WAYSTATION_STORE_URL in the environment "
    "instead",
    'BUDGET = "hush"': "use the name budget in the file",
    'WAYSTATION_MODE = "hush"': "use the name mode in the file",
    'QDRANT_URL = "hush"': "use the name qdrant_url in the file",
    'bugdet = "hush"': "there is no such setting; did you mean budget?",
    'SMTP_PASSWORD = "hush"': "there is no such setting",
}


def test_only_the_lower_case_names_of_settings_are_taken_and_no_value_is_shown(config: Path) -> None:
    assert refusals(config, NO_NAMES) == {
        line: f"the config file {config} cannot contain {line.partition(' ')[0]}: {words}"
        for line, words in NO_NAMES.items()
    }


def test_what_a_variable_cannot_give_is_refused_by_its_name(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("window = 20_000")
    monkeypatch.setenv("WAYSTATION_WINDOW", "10")
    assert refusal() == "WAYSTATION_WINDOW: it must be from 2,000 to 1,000,000"


def test_secrets_and_the_place_of_the_file_are_refused_with_the_variable_to_set(config: Path) -> None:
    told = {name: refusals(config, [f'{name} = "hush"']).popitem()[1] for name in NOT_IN_A_FILE}
    assert {
        name: words
        for name, words in told.items()
        if f"the config file {config} cannot contain {name}: the value " not in words
        or name.upper() not in words.rpartition("; set ")[2]
        or "hush" in words
    } == {}


def test_every_secret_is_among_them() -> None:
    secrets = {name for name, field in Settings.model_fields.items() if field.annotation == SecretStr | None}
    assert secrets <= NOT_IN_A_FILE.keys()
    assert len(secrets) == 11


@pytest.mark.parametrize("place", ["team.toml", "."])
def test_a_file_that_is_named_and_cannot_be_read_is_refused(
    config: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setenv("WAYSTATION_CONFIG", str(config.parent / place))
    assert f"the config file {config.parent / place} cannot be read: " in refusal()


@pytest.mark.parametrize(
    ("asked", "variable", "line", "window", "origin"),
    [
        ({"window": 7_000, "preset": "qa"}, "8k", "window = 9_000", 7_000, "request"),
        ({"preset": "qa"}, "8k", "window = 9_000", 25_000, "preset qa"),
        ({"preset": "qa"}, "", "preset = 'debugging'", 25_000, "preset qa"),
        ({}, "8k", "preset = 'debugging'", 75_000, "preset debugging of config file"),
        ({"preset": "long"}, "8k", "window = 9_000", 8_000, "WAYSTATION_WINDOW"),
        ({}, "8k", "window = 9_000", 8_000, "WAYSTATION_WINDOW"),
        ({}, "", "window = 9_000", 9_000, "config file"),
        ({}, "", "", None, None),
    ],
)
def test_the_request_beats_the_preset_that_the_environment_and_that_the_file(
    config: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, object],
    variable: str,
    line: str,
    window: int | None,
    origin: str | None,
) -> None:
    config.write_text(line)
    monkeypatch.setenv("WAYSTATION_WINDOW", variable)
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", **asked})
    chosen = resolve_config(request, Settings())
    assert (chosen.window, chosen.origins.get("window")) == (window, origin)


def test_the_request_is_heard_on_everything_that_it_says(config: Path) -> None:
    config.write_text('budget = "300k"\nagent_budget = "50k"\nwindow = "20k"\nmode = "soft"')
    silent = TaskRequest(question="What?", request_id="r")
    budget, agent_budget = Limit(tokens=5_000), Limit(tokens=6_000)
    said = silent.replace(budget=budget, agent_budget=agent_budget, window=7_000, mode=BudgetMode.HARD)
    asked = resolve_config(said, Settings())
    assert (asked.budget, asked.agent_budget, asked.window, asked.mode) == (
        budget,
        agent_budget,
        7_000,
        BudgetMode.HARD,
    )
    left = resolve_config(silent, Settings())
    assert (left.budget, left.agent_budget) == (Limit(tokens=300_000), Limit(tokens=50_000))
    assert (left.window, left.mode) == (20_000, BudgetMode.SOFT)
