"""Strategy and profiles: from request, preset, environment, config file and model to the terms of an agent."""

from datetime import date
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from tests.support.finished_tasks import make_task_row
from tests.support.prices import PRICES
from waystation.agents.leg import AgentConfig
from waystation.cli.submit import print_task_config
from waystation.config.resolver import build_task_config, collect_adjustments
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.security.untrusted import DEFAULT_SERVERS
from waystation.tasks.task import TaskRequest

WITH_KEY = SecretStr("sk-ant-1")
OPUS, SONNET, HAIKU = "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    return tmp_path / "config.toml"


def asked(**given: object) -> TaskRequest:
    return TaskRequest.model_validate({"question": "What?", "request_id": "r", **given})


def agent(request: TaskRequest, model: str = SONNET, **settings: object) -> AgentConfig:
    given = Settings.model_validate({"anthropic_api_key": WITH_KEY, "agent_model": model, **settings})
    return build_task_config(request, given, PRICES, date(2026, 11, 21)).default


@pytest.mark.parametrize(
    ("model", "percent", "writer"), [(OPUS, 80, OPUS), (SONNET, 75, HAIKU), (HAIKU, 60, HAIKU), ("other-1", 75, HAIKU)]
)
def test_the_model_decides_when_its_context_is_full_and_what_condenses_it(
    model: str, percent: int, writer: str
) -> None:
    terms = agent(asked(window=20_000), model)
    assert (terms.trigger, terms.target) == (200 * percent, 100 * percent)
    assert terms.condense_model == writer


def test_how_many_messages_stay_under_ends_goes_by_the_model() -> None:
    assert [agent(asked(strategy="ends"), model).keep_last for model in (OPUS, SONNET, HAIKU)] == [5, 3, 3]
    assert agent(asked(strategy="ends"), OPUS, keep_last=9).keep_last == 9
    assert agent(asked(strategy="replace"), OPUS).keep_last is None
    assert agent(asked(strategy="replace"), OPUS, keep_last=5).keep_last == 5


def test_request_preset_environment_config_file_and_profile_are_heard_in_this_order(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agent(asked(window=20_000), OPUS).trigger == 16_000
    config.write_text("trigger_percent = 70\n[profiles.opus]\nthreshold = 65\n")
    assert agent(asked(window=20_000), OPUS).trigger == 14_000
    monkeypatch.setenv("WAYSTATION_TRIGGER_PERCENT", "55")
    assert agent(asked(window=20_000), OPUS).trigger == 11_000
    assert agent(asked(window=20_000, preset="debugging"), OPUS).trigger == 17_000
    config.write_text('strategy = "ends"')
    assert agent(asked()).strategy == "ends"
    monkeypatch.setenv("WAYSTATION_STRATEGY", "replace")
    assert agent(asked()).strategy == "replace"
    assert agent(asked(strategy="snapshot")).strategy == "snapshot"


def test_the_config_file_changes_profiles_and_adds_some(config: Path) -> None:
    config.write_text(
        '[profiles.sonnet]\nthreshold = 80\ncondense_model = "itself"\n[profiles.other]\nthreshold = 50\nkeep = 4\n'
    )
    changed = agent(asked(window=20_000))
    assert (changed.trigger, changed.condense_model) == (16_000, SONNET)
    added = agent(asked(window=20_000, strategy="ends"), "other-1")
    assert (added.trigger, added.keep_last) == (10_000, 4)


def test_a_condensing_model_that_is_named_beats_the_profiles() -> None:
    assert agent(asked(), OPUS, condense_model=SONNET).condense_model == SONNET


@pytest.mark.parametrize("threshold", ["3", "250", '"high"', "82.5", "true"])
def test_a_threshold_that_is_none_falls_back_to_the_default_and_is_told(config: Path, threshold: str) -> None:
    config.write_text(f"[profiles.sonnet]\nthreshold = {threshold}\n")
    assert agent(asked(window=20_000)).trigger == 15_000
    settings = Settings(anthropic_api_key=WITH_KEY)
    (sentence,) = collect_adjustments(asked(), settings)
    assert sentence.startswith("In profile sonnet, threshold ")
    assert collect_adjustments(asked(), Settings(anthropic_api_key=WITH_KEY, agent_model=OPUS)) == ()


def test_minus_one_inherits_the_default_in_silence(config: Path) -> None:
    config.write_text("[profiles.opus]\nthreshold = -1\n")
    settings = Settings(anthropic_api_key=WITH_KEY, agent_model=OPUS)
    assert agent(asked(window=20_000), OPUS).trigger == 15_000
    assert collect_adjustments(asked(), settings) == ()


def test_a_profile_with_an_unknown_word_in_it_is_refused(config: Path) -> None:
    config.write_text("[profiles.opus]\ntreshold = 80\n")
    with pytest.raises(ValidationError, match="treshold"):
        Settings()


def test_a_window_over_the_models_is_cut_and_told() -> None:
    request = asked(window=900_000, agent_budget=Limit(tokens=10_000_000))
    settings = Settings(anthropic_api_key=WITH_KEY, agent_model="claude-haiku-4-5")
    assert agent(request, "claude-haiku-4-5").window == 160_000
    (sentence,) = collect_adjustments(request, settings)
    assert sentence == (
        "A window of 900,000 tokens leaves claude-haiku-4-5 no room for its reply: the maximum is 160,000."
    )
    assert collect_adjustments(asked(window=160_000), settings) == ()


def test_summaries_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    assert agent(asked()).auto_compact
    monkeypatch.setenv("WAYSTATION_AUTO_COMPACT", "off")
    assert not agent(asked()).auto_compact


def test_terms_of_before_there_were_strategies_mean_what_they_meant() -> None:
    old = AgentConfig(model="m", condense_model="c", window=20_000, trigger=15_000, target=7_500)
    assert (old.strategy, old.keep_last, old.auto_compact) == ("window", None, True)


@pytest.mark.parametrize(
    ("strategy", "keep_last", "words"),
    [
        ("snapshot", None, "the newer messages stay, with a snapshot of the older ones\n"),
        ("replace", None, "one summary replaces all messages, and the files read last are restored\n"),
        ("replace", 5, "the last 5 messages stay, and the files read last are restored\n"),
        ("ends", None, "the first message and the last 3 stay\n"),
    ],
)
def test_what_a_strategy_keeps_is_told_at_submit(
    capsys: pytest.CaptureFixture[str], strategy: str, keep_last: int | None, words: str
) -> None:
    settings = Settings(keep_last=keep_last)
    print_task_config(settings, make_task_row(asked(strategy=strategy), settings))
    assert words in capsys.readouterr().err


def test_what_condenses_and_why_is_told_at_submit(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(anthropic_api_key=WITH_KEY)
    print_task_config(settings, make_task_row(asked(), settings))
    assert f"model {SONNET}, effort medium, summaries by {HAIKU} (profile sonnet); window" in capsys.readouterr().err
    settings = Settings(anthropic_api_key=WITH_KEY, agent_model=OPUS)
    print_task_config(settings, make_task_row(asked(window=20_000), settings))
    assert (
        f"Agents: model {OPUS}, effort medium; window 20,000 tokens, full at 16,000 (profile opus)\n"
        in capsys.readouterr().err
    )


def test_tool_servers_that_this_machine_has_no_list_of_are_told() -> None:
    settings = Settings(anthropic_api_key=WITH_KEY)
    (sentence,) = collect_adjustments(asked(servers=(DEFAULT_SERVERS, "crm")), settings)
    assert sentence.endswith(": crm. The task runs without any of them that the workers do not have.")
    assert collect_adjustments(asked(servers=(DEFAULT_SERVERS,)), settings) == ()
