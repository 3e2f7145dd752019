"""Models by role, and how hard they work: from the settings to the terms that a task is submitted under."""

from datetime import date
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.finished_tasks import make_task_row
from tests.support.prices import PRICES
from waystation.cli.main import format_error
from waystation.cli.submit import print_task_config
from waystation.config.resolver import build_task_config, collect_adjustments, collect_config_warnings
from waystation.config.settings import Settings, describe_unknown_variables, format_setting_errors
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BadInput
from waystation.models.http_errors import ModelTimeouts
from waystation.models.profiles import DEFAULT_SUMMARY_MODEL, OFFLINE_MODEL
from waystation.tasks.task import TaskConfig, TaskRequest
from waystation.workers.models import get_model_timeouts

SONNET, OPUS, HAIKU, COUNTING = "claude-sonnet-5-5", "claude-opus-5-5", "claude-haiku-5-5", "claude-haiku-4-5"


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WAYSTATION_HOME", str(tmp_path))
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-1")
    return tmp_path


def terms(asked: dict[str, object] | None = None, /, **given: object) -> TaskConfig:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", **(asked or {})})
    return build_task_config(request, Settings.model_validate(given), PRICES, date(2026, 11, 21))


def test_all_roles_work_alike_unless_something_is_set_for_one() -> None:
    under = terms()
    assert (under.default.model, under.default.effort, under.default.thinking) == (SONNET, "medium", None)
    assert (set(under.by_role), under.models) == ({"analysis", "writing"}, {}), "they have another effort"
    same = terms(roles={"writing": {"model": SONNET, "effort": "high"}}, effort="high")
    assert (set(same.by_role), same.get_config("writing").effort) == (set(), "high")


@pytest.mark.parametrize(
    ("given", "efforts"),
    [
        ({}, ("medium", "high", "high")),
        ({"effort": "default"}, (None, None, None)),
        ({"effort": "low"}, ("low", "low", "low")),
        ({"roles": {"research": {"effort": "max"}}}, ("max", "high", "high")),
        ({"roles": {"analysis": {"effort": "default"}}}, ("medium", None, "high")),
        ({"agent_model": COUNTING}, (None, None, None)),
        ({"agent_model": "somebody-elses-1"}, (None, None, None)),
        ({"offline": True}, (None, None, None)),
    ],
    ids=["none", "the provider's", "all", "one", "the provider's for one", "not supported", "not known", "offline"],
)
def test_each_role_has_an_effort_of_its_own_if_its_model_supports_it(
    given: dict[str, object], efforts: tuple[str | None, ...]
) -> None:
    under = terms(**given)
    assert tuple(under.get_config(role).effort for role in ("research", "analysis", "writing")) == efforts


def test_each_role_has_its_model_and_what_follows_from_that() -> None:
    under = terms(roles={"research": {"model": HAIKU}, "writing": {"model": OPUS}})
    assert under.models == {"research": HAIKU, "analysis": SONNET, "writing": OPUS}
    shares = {role: under.get_config(role).trigger * 100 // 200_000 for role in under.models}
    assert shares == {"research": 60, "analysis": 75, "writing": 80}
    writers = {role: under.get_config(role).condense_model for role in under.models}
    assert writers == {"research": HAIKU, "analysis": DEFAULT_SUMMARY_MODEL, "writing": OPUS}
    priced = {price.model for role in under.models for price in under.get_config(role).prices}
    assert priced == {SONNET, OPUS, HAIKU}


def test_planning_and_reviews_use_the_agents_model_unless_another_one_is_set() -> None:
    assert (terms().plan_model, terms().review_model) == (SONNET, SONNET)
    chosen = terms(agent_model=OPUS)
    assert (chosen.plan_model, chosen.review_model) == (OPUS, OPUS)
    of_analysts = terms(roles={"analysis": {"model": OPUS}})
    assert (of_analysts.plan_model, of_analysts.review_model) == (OPUS, OPUS)
    other = terms(agent_model=OPUS, plan_model=HAIKU)
    assert (other.plan_model, other.review_model) == (HAIKU, HAIKU)


def test_sentences_are_judged_only_by_a_model_that_is_set() -> None:
    assert (terms().judge_model, terms().judge_effort) == ("", None)
    chosen = terms(judge_model=HAIKU, effort="low")
    assert (chosen.judge_model, chosen.judge_effort) == (HAIKU, "low")
    assert HAIKU in {price.model for price in chosen.default.prices}
    assert terms(judge_model=HAIKU, offline=True).judge_model == ""


@pytest.mark.parametrize("setting", ["plan_model", "review_model", "judge_model"])
def test_an_unknown_model_has_no_limit_in_dollars_whatever_it_does(setting: str) -> None:
    with pytest.raises(BadInput, match="nobodys-1"):
        terms({"budget": {"micro_usd": 2_000_000}}, **{setting: "nobodys-1"})
    assert "nobodys-1" in terms({"budget": {"tokens": 500_000}}, **{setting: "nobodys-1"}).model_dump_json()


@pytest.mark.parametrize("setting", ["agent_model", "condense_model", "plan_model", "review_model", "judge_model"])
@pytest.mark.parametrize("blank", ["", " ", "\t", "\u200b"])
def test_a_blank_name_of_a_model_is_refused(setting: str, blank: str) -> None:
    with pytest.raises(ValidationError, match=setting):
        Settings.model_validate({setting: blank})


@pytest.mark.parametrize(
    ("given", "efforts"),
    [
        ({}, ("high", "high")),
        ({"effort": "low"}, ("low", "low")),
        ({"effort": "default"}, (None, None)),
        ({"effort": "max"}, ("max", "max")),
        # Made to use a tool, Haiku does not think, and then does not support this effort.
        ({"effort": "max", "review_model": HAIKU}, ("max", None)),
        ({"plan_model": "claude-haiku-4-5"}, (None, None)),
        ({"offline": True, "effort": "low"}, (None, None)),
    ],
)
def test_planning_and_reviews_have_the_effort_of_their_role_or_of_all_agents_where_the_model_supports_it(
    given: dict[str, object], efforts: tuple[str | None, str | None]
) -> None:
    under = terms(**given)
    assert (under.plan_effort, under.review_effort) == efforts


def test_a_role_has_the_window_that_its_model_takes() -> None:
    roomy: dict[str, object] = {"agent_budget": {"tokens": 10_000_000}, "budget": {"tokens": 90_000_000}}
    under = terms(roomy, roles={"analysis": {"model": COUNTING}}, window_cap=500_000)
    assert (under.default.window, under.get_config("analysis").window) == (500_000, 160_000)


def test_what_is_set_for_a_role_beats_what_is_set_for_all_also_by_asking_for_nothing() -> None:
    roles = {"writing": {"effort": "max"}, "analysis": {"effort": "default"}}
    under = terms(effort="high", roles=roles, thinking="adaptive")
    efforts = [under.get_config(role).effort for role in ("research", "analysis", "writing")]
    assert efforts == ["high", None, "max"]
    assert {under.get_config(role).thinking for role in ("research", "analysis", "writing")} == {"adaptive"}
    assert (under.default.max_output, under.get_config("writing").max_output) == (32_000, 32_000)


def test_tokens_for_thinking_come_on_top_of_the_reply_and_are_in_its_floor() -> None:
    agent = terms(agent_model=COUNTING, thinking="16k").default
    assert (agent.thinking, agent.max_output, agent.min_reply_tokens) == (16_000, 48_000, 20_000)
    roomy: dict[str, object] = {"agent_budget": {"tokens": 1_000_000}, "budget": {"tokens": 9_000_000}}
    large = terms(roomy, agent_model=COUNTING, thinking=32_000).default
    assert (large.window, large.max_output) == (200_000 - 52_000 - 20_000, 64_000)


def test_the_offline_model_is_asked_for_neither() -> None:
    under = terms(offline=True, roles={"writing": {"model": OPUS}}, effort="max", thinking="off")
    assert (under.default.model, under.default.effort, under.default.thinking) == (OFFLINE_MODEL, None, None)
    assert under.by_role == {}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"roles": {"writing": {"model": COUNTING}}, "effort": "high"},
            f"{COUNTING}, the model of writing, does not support effort high: set WAYSTATION_EFFORT (or, for "
            "writing only, WAYSTATION_ROLES__WRITING__EFFORT) to one of: default. You can also choose another model in "
            "WAYSTATION_ROLES__WRITING__MODEL",
        ),
        (
            {"roles": {"analysis": {"thinking": "off"}}},
            f"{SONNET}, the model of analysis, does not support thinking off: set "
            "WAYSTATION_ROLES__ANALYSIS__THINKING to one of: adaptive, default. You can also choose another model in "
            "WAYSTATION_ROLES__ANALYSIS__MODEL",
        ),
        (
            {"roles": {"research": {"model": HAIKU, "thinking": "off"}}, "effort": "max"},
            f"{HAIKU}, the model of research, does not support effort max with thinking off: set WAYSTATION_EFFORT "
            "(or, for research only, WAYSTATION_ROLES__RESEARCH__EFFORT) to one of: low, medium, high, default. "
            "You can also choose another model in WAYSTATION_ROLES__RESEARCH__MODEL",
        ),
    ],
)
def test_what_a_model_does_not_take_is_refused_at_submit(given: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as refusal:
        terms(**given)
    assert str(refusal.value) == words


def test_nothing_is_refused_of_a_model_that_nobody_knows() -> None:
    agent = terms(agent_model="somebody-elses-1", effort="max", thinking=20_000).default
    assert (agent.effort, agent.thinking) == ("max", 20_000)


@pytest.mark.parametrize(
    ("asked", "thinking", "least"),
    [
        ({}, 32_001, "32000 or less"),
        ({"budget": {"tokens": 600_000}}, 25_001, "25000 or less"),
        ({"agent_budget": {"tokens": 10_000_000}, "budget": {"tokens": 90_000_000}}, 32_001, "32000 or less"),
        ({"budget": {"micro_usd": 600_000}}, 5_001, "5000 or less"),
        ({"agent_budget": {"tokens": 4_000}}, 2_000, "default"),
    ],
    ids=[
        "the default budget",
        "a quarter of the tokens",
        "half of the longest reply",
        "a quarter of the dollars",
        "not even the least",
    ],
)
def test_thinking_that_one_call_could_spend_a_budget_on_is_refused(
    asked: dict[str, object], thinking: int, least: str
) -> None:
    everywhere, larger = (
        r"WAYSTATION_THINKING \(or, for research only, WAYSTATION_ROLES__RESEARCH__THINKING\)",
        "--agent-budget",
    )
    with pytest.raises(BadInput, match=f"Set {everywhere} to {least}, or give a larger {larger}"):
        terms(asked, agent_model=COUNTING, thinking=thinking)
    with pytest.raises(
        BadInput, match=f"Set WAYSTATION_ROLES__RESEARCH__THINKING to {least}, or give a larger {larger}"
    ):
        terms(asked, agent_model=COUNTING, roles={"research": {"thinking": thinking}})
    if least != "default":
        assert terms(asked, agent_model=COUNTING, thinking=thinking - 1).default.thinking == thinking - 1


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("http://localhost:11434", True),
        ("https://anthropic.com.example/api", True),
        ("https://api.anthropic.com", False),
        (None, False),
    ],
)
def test_at_another_endpoint_dollars_need_prices_that_somebody_wrote_down(url: str | None, *, refused: bool) -> None:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", "budget": {"micro_usd": 9_000_000}})
    settings = Settings.model_validate({"anthropic_base_url": url})
    written = tuple(price.replace(source="own price file") for price in PRICES)
    assert build_task_config(request, settings, written, date(2026, 11, 21)).budget.micro_usd == 9_000_000
    under = terms(anthropic_base_url=url)
    assert (under.budget.tokens is not None) is refused
    listed = {price.model for price in under.default.prices} - {OFFLINE_MODEL}
    assert (not listed) is refused, "costs in dollars are shown by prices that do not apply there"
    if refused:
        named = f"{DEFAULT_SUMMARY_MODEL}, {SONNET}" if DEFAULT_SUMMARY_MODEL < SONNET else SONNET
        with pytest.raises(BadInput, match=f"needs your own prices at .*, but there is none for {named}: "):
            build_task_config(request, settings, PRICES, date(2026, 11, 21))
    else:
        build_task_config(request, settings, PRICES, date(2026, 11, 21))


@pytest.mark.parametrize("role", ["research", "analysis", "writing"])
def test_a_model_without_a_price_is_refused_for_each_role_where_dollars_are_limited(role: str) -> None:
    with pytest.raises(BadInput, match="but the price of somebody-elses-1 is unknown"):
        terms({"budget": {"micro_usd": 2_000_000}}, roles={role: {"model": "somebody-elses-1"}})
    priced = {one: {"model": OPUS} for one in ("research", "analysis", "writing")}
    assert terms({"budget": {"micro_usd": 9_000_000}}, agent_model="nobodys", roles=priced).default.model == OPUS


def test_a_model_that_is_not_known_is_warned_about_for_its_role() -> None:
    warnings = " ".join(collect_config_warnings(terms(roles={"writing": {"model": "somebody-elses-1"}})))
    assert warnings.count("The model somebody-elses-1 is unknown") == 1


def test_the_environment_gives_single_values_of_a_role_before_those_of_the_config_file(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own_home / "config.toml").write_text(
        f'[roles.writing]\nmodel = "{OPUS}"\neffort = "max"\n[roles.research]\nmodel = "{COUNTING}"\nthinking = 4096\n'
    )
    monkeypatch.setenv("WAYSTATION_ROLES__WRITING__EFFORT", "low")
    monkeypatch.setenv("WAYSTATION_ROLES__RESEARCH__THINKING", "4k")
    settings = Settings()
    assert settings.get_model_options("writing") == (OPUS, "low", None)
    assert settings.get_model_options("research") == (COUNTING, None, 4_000)
    assert settings.get_model_options("analysis") == (SONNET, "high", None)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("THINKING", "1000", "adaptive, off, default, or a number of tokens (at least 1,024), like 4k"),
        ("ROLES__WRITING__THINKING", "hard", "adaptive, off, default, or a number of tokens (at least 1,024), like 4k"),
        ("ROLES__ANALYSIS__EFFORT", "much", "'low', 'medium', 'high', 'xhigh', 'max' or 'default'"),
    ],
)
def test_what_is_neither_is_refused_with_what_may_be_given(
    name: str, given: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WAYSTATION_{name}", given)
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (its words are asserted)
        Settings()
    assert f"WAYSTATION_{name}: " in format_error(refused.value)
    assert words in format_error(refused.value)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("ROLES__WRITNG__EFFORT", "low", "WAYSTATION_ROLES__WRITNG__EFFORT: it should be 'research', "),
        ("ROLES__WRITING__EFORT", "low", "WAYSTATION_ROLES__WRITING__EFORT: there is no such field"),
        (
            "ROLES__WRITING",
            "low",
            "WAYSTATION_ROLES__WRITING: it should have named values, as a JSON object or a TOML table does",
        ),
        ("ROLES", '{"writing": {"effort": "much"}}', "roles.writing.effort in WAYSTATION_ROLES: it should be 'low', "),
    ],
)
def test_a_wrong_value_of_a_table_is_named_where_it_was_given(
    name: str, given: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"WAYSTATION_{name}", given)
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert format_setting_errors(refused.value).startswith(words)


def test_only_tables_are_given_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAYSTATION_ROLES__WRITING__EFFORT", "low")
    assert describe_unknown_variables() == ()
    monkeypatch.setenv("WAYSTATION_MODE__WRITING", "hard")
    assert describe_unknown_variables() == ("WAYSTATION_MODE__WRITING is not a setting and has no effect.",)


def told(capsys: pytest.CaptureFixture[str], **given: object) -> list[str]:
    request = TaskRequest(question="What?", request_id="r", budget=Limit(tokens=600_000))
    print_task_config(Settings.model_validate(given), make_task_row(request, Settings.model_validate(given)))
    return capsys.readouterr().err.splitlines()


def test_submit_tells_the_models_by_role_where_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, effort="high")[1].startswith(
        f"Agents: model {SONNET}, effort high, summaries by {DEFAULT_SUMMARY_MODEL} (profile sonnet); window "
    )
    roles = {"writing": {"model": OPUS, "effort": "max"}, "analysis": {"model": COUNTING, "thinking": "4k"}}
    lines = told(capsys, roles=roles)
    assert [line for line in lines if line.startswith("Agents for")] == [
        f"Agents for analysis: model {COUNTING}, thinking up to 4,000 tokens a reply; window 156,000 tokens, "
        "full at 93,600 (profile haiku)",
        f"Agents for writing: model {OPUS}, effort max; window 200,000 tokens, full at 160,000 (profile opus)",
    ]


def test_the_offline_model_says_which_settings_of_models_it_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = TaskRequest(question="What?", session="s", request_id="r")
    assert collect_adjustments(asked, Settings(offline=True)) == ()
    monkeypatch.setenv("WAYSTATION_EFFORT", "max")
    monkeypatch.setenv("WAYSTATION_ROLES__WRITING__MODEL", OPUS)
    assert collect_adjustments(asked, Settings(offline=True)) == (
        "The task uses the built-in offline model, so these settings have no effect: WAYSTATION_ROLES__WRITING__MODEL, "
        "WAYSTATION_EFFORT.",
    )
    assert collect_adjustments(asked, Settings(offline=False)) == ()


def test_how_long_a_model_may_be_silent_is_set_apart_for_thinking_and_for_a_reply_that_has_begun() -> None:
    assert get_model_timeouts(Settings()) == ModelTimeouts(first_byte=180, thinking=600, stream=90)
    given = Settings(model_patience=20, model_patience_thinking=900, model_stream_patience=15)
    assert get_model_timeouts(given) == ModelTimeouts(first_byte=20, thinking=900, stream=15)


AT_ANOTHER: dict[str, object] = {"anthropic_base_url": "http://model.test"}


def test_a_model_that_takes_no_tools_where_it_is_is_refused_with_the_next_step() -> None:
    rows = {"http://model.test": {SONNET: {"tools": False, "probed": "2026-11-20"}}}
    with pytest.raises(BadInput, match="does not accept tools") as refused:
        terms(endpoints=rows, **AT_ANOTHER)
    assert f"waystation doctor --model {SONNET}" in str(refused.value)
    assert terms(endpoints=rows).default.model == SONNET, "it is refused where it is, and nowhere else"


def test_an_endpoint_that_nobody_probed_is_warned_of_and_the_providers_own_is_not() -> None:
    def said(**given: object) -> str:
        request = TaskRequest.model_validate({"question": "What?", "request_id": "r"})
        return " ".join(collect_adjustments(request, Settings.model_validate(given)))

    assert f"waystation doctor --model {SONNET} --save" in said(**AT_ANOTHER)
    rows = {"http://model.test": {name: {"tools": True} for name in (SONNET, DEFAULT_SUMMARY_MODEL)}}
    assert "capabilities" not in said(endpoints=rows, **AT_ANOTHER)
    assert "capabilities" not in said()
    assert "capabilities" not in said(offline=True, **AT_ANOTHER)


@pytest.mark.parametrize(
    "variable",
    [
        "WAYSTATION_AGENT_MODEL",
        "WAYSTATION_CONDENSE_MODEL",
        "WAYSTATION_PLAN_MODEL",
        "WAYSTATION_REVIEW_MODEL",
        "WAYSTATION_JUDGE_MODEL",
        "WAYSTATION_ROLES__WRITING__MODEL",
    ],
)
def test_a_blank_name_of_a_model_is_refused_and_spaces_around_one_are_left_out(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "  ")
    with pytest.raises(ValidationError) as refused:
        Settings()
    assert f"{variable}: the name of the model is blank" in format_setting_errors(refused.value)
    monkeypatch.setenv(variable, f" {HAIKU} ")
    settings = Settings()
    writing = settings.roles["writing"].model if "writing" in settings.roles else None
    names = (
        settings.agent_model,
        settings.condense_model,
        settings.plan_model,
        settings.review_model,
        settings.judge_model,
        writing,
    )
    assert names.count(HAIKU) >= 1
    assert f" {HAIKU} " not in names
