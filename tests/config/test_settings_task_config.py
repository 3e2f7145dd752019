from datetime import date

import pytest
from pydantic import SecretStr

from tests.support.prices import PRICES
from waystation.budgets.budget import BudgetMode
from waystation.config.resolver import build_task_config, collect_config_warnings, describe_budget_in_tokens
from waystation.config.settings import Settings
from waystation.config.validation import PROMPT_TOKENS, TASK_BRIEF_TOKENS
from waystation.kernel.amount import Amount, Limit, parse_limit
from waystation.kernel.errors import BadInput
from waystation.models.profiles import OFFLINE_MODEL
from waystation.tasks.task import Preset, TaskConfig, TaskRequest

WITH_KEY = SecretStr("sk-ant-1")
FIRST_TURN = PROMPT_TOKENS + TASK_BRIEF_TOKENS


def asked(
    budget: int = 600_000,
    agent_budget: int = 100_000,
    mode: BudgetMode = BudgetMode.APPROVAL,
    window: int | None = None,
) -> TaskRequest:
    return TaskRequest(
        question="What?",
        request_id="r",
        budget=Limit(tokens=budget),
        agent_budget=Limit(tokens=agent_budget),
        mode=mode,
        window=window,
    )


def terms_of(request: TaskRequest, settings: Settings) -> TaskConfig:
    return build_task_config(request, settings, PRICES, date(2026, 11, 21))


@pytest.mark.parametrize(
    ("request_", "model", "window"),
    [
        pytest.param(asked(agent_budget=20_000), "claude-sonnet-5-5", 200_000, id="whatever the budget"),
        pytest.param(asked(window=12_000), "claude-sonnet-5-5", 12_000, id="what was asked for"),
        pytest.param(asked(agent_budget=10_000_000), "claude-sonnet-5-5", 200_000, id="the cap"),
        pytest.param(
            asked(agent_budget=10_000_000),
            "claude-haiku-4-5",
            160_000,
            id="the model's window less 20,000 for the reply less a tenth",
        ),
        pytest.param(
            asked(agent_budget=10_000_000, window=900_000), "claude-haiku-4-5", 160_000, id="never over the model's"
        ),
    ],
)
def test_the_window_is_the_smallest_of_what_limits_it(request_: TaskRequest, model: str, window: int) -> None:
    agent = terms_of(request_, Settings(anthropic_api_key=WITH_KEY, agent_model=model)).default
    assert agent.window == window


def test_a_context_is_full_at_three_quarters_and_is_compacted_to_half_of_that() -> None:
    agent = terms_of(asked(window=40_000), Settings()).default
    assert (agent.trigger, agent.target) == (30_000, 15_000)


@pytest.mark.parametrize(
    ("window", "max_output"), [(160_000, 32_000), (100_000, 25_000), (12_000, 3_000), (8_000, 2_000)]
)
def test_a_reply_is_at_most_a_quarter_of_the_window(window: int, max_output: int) -> None:
    assert (
        terms_of(asked(window=window, agent_budget=400_000), Settings(anthropic_api_key=WITH_KEY)).default.max_output
        == max_output
    )


def test_without_a_key_no_model_of_a_provider_is_named() -> None:
    terms = terms_of(asked(), Settings())
    assert terms.offline
    assert {terms.default.model, terms.default.condense_model, terms.plan_model} == {OFFLINE_MODEL}


def test_usual_terms_are_not_warned_about() -> None:
    assert collect_config_warnings(terms_of(asked(), Settings())) == ()


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asked(budget=100_000), "only 25,000 tokens can be reserved for writing, and a full report needs more"),
        (asked(budget=18_000, agent_budget=16_000, mode=BudgetMode.HARD), "In mode hard, 18,000 tokens"),
        (
            asked(budget=90_000, agent_budget=95_000),
            "One agent may spend 95,000 tokens, but the whole task has only 90,000",
        ),
    ],
)
def test_terms_that_will_disappoint_are_warned_about(request_: TaskRequest, words: str) -> None:
    assert words in " ".join(collect_config_warnings(terms_of(request_, Settings())))


def test_a_budget_that_just_allows_the_whole_reserve_is_not_small() -> None:
    warnings = {
        tokens: collect_config_warnings(terms_of(asked(budget=tokens), Settings())) for tokens in (199_000, 200_000)
    }
    assert "A budget of 199,000 tokens is small" in " ".join(warnings[199_000])
    assert warnings[200_000] == ()


def test_a_late_trigger_is_warned_about() -> None:
    words = "full only at 163,217 of 171,808 tokens leaves no room"
    assert words in " ".join(collect_config_warnings(terms_of(asked(), Settings(trigger_percent=95))))
    assert collect_config_warnings(terms_of(asked(), Settings(trigger_percent=94))) == ()


@pytest.mark.parametrize(("primers", "recents", "warned"), [(1, 50, True), (2, 50, False), (1, 49, False)])
def test_few_primers_with_many_recents_are_warned_about(primers: int, recents: int, warned: bool) -> None:
    warnings = collect_config_warnings(terms_of(asked(), Settings(primers=primers, recents=recents)))
    assert ("the model does not see how the work began" in " ".join(warnings)) is warned


def preset(name: Preset, **asked_for: object) -> TaskConfig:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", "preset": name, **asked_for})
    return terms_of(request, Settings())


@pytest.mark.parametrize(
    ("name", "window", "trigger", "messages", "kept", "history", "budget"),
    [
        (Preset.QA, 25_000, 18_750, 30, (2, 10), None, 600_000),
        (Preset.DEBUGGING, 75_000, 63_750, 100, (5, 30), None, 600_000),
        (Preset.LONG, 171_808, 128_856, 75, (3, 20), 1_000, 300_000),
    ],
)
def test_the_numbers_of_a_preset_reach_the_agent(
    name: Preset,
    window: int,
    trigger: int,
    messages: int,
    kept: tuple[int, int],
    history: int | None,
    budget: int,
) -> None:
    terms = preset(name)
    agent = terms.default
    assert (agent.window, agent.trigger, agent.target) == (window, trigger, trigger // 2)
    assert (agent.max_view_messages, (agent.primers, agent.recents), agent.max_messages) == (messages, kept, history)
    assert terms.budget == Limit(tokens=budget)
    assert collect_config_warnings(terms) == ()


def test_a_preset_changes_nothing_that_the_request_says() -> None:
    terms = preset(Preset.LONG, budget=Limit(tokens=50_000), window=9_000, mode="soft")
    assert (terms.budget, terms.default.window, terms.mode) == (Limit(tokens=50_000), 9_000, BudgetMode.SOFT)
    assert terms.default.hard_budget


def test_a_budget_of_a_preset_in_tokens_does_not_meet_a_task_in_dollars() -> None:
    request = TaskRequest(question="What?", request_id="r", preset=Preset.DEBUGGING, budget=Limit(micro_usd=6_000_000))
    terms = terms_of(request, Settings(anthropic_api_key=WITH_KEY))
    assert terms.agent_budget == Limit(micro_usd=1_000_000)


def test_a_model_that_nobody_knows_is_warned_about() -> None:
    terms = terms_of(asked(), Settings(anthropic_api_key=WITH_KEY, agent_model="somebody-elses-1"))
    assert "The model somebody-elses-1 is unknown" in " ".join(collect_config_warnings(terms))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "hard", "unattended": {"answer_within": "PT1H"}}, "because mode hard makes no requests"),
        (
            {"budget": {"micro_usd": 2_000_000}, "unattended": {"top_up": {"amount": {"tokens": 50_000}, "times": 3}}},
            r"\$2.00",
        ),
        (
            {"budget": {"tokens": 600_000}, "unattended": {"top_up": {"amount": {"micro_usd": 50_000}, "times": 3}}},
            "--top-up in dollars",
        ),
        (
            {"budget": {"micro_usd": 1_000}},
            "covers a first request of at most 24 tokens.* at least --agent-budget",
        ),
        ({"ceiling": {"tokens": 599_999}}, "--ceiling 599,999 tokens is below the budget of 600,000 tokens"),
        (
            {"budget": {"tokens": 600_000}, "ceiling": {"micro_usd": 9_000_000}},
            "--ceiling in dollars cannot limit a budget of 600,000 tokens",
        ),
        (
            {"budget": {"tokens": 9_000, "micro_usd": 9_000_000}, "ceiling": {"micro_usd": 1}},
            " is below the budget of ",
        ),
        (
            {"window": 3_000},
            "a window of 3,000 tokens is full at 2,250, .* take about 5,3.* at least --window 7,0",
        ),
        (
            {"agent_budget": {"tokens": 4_000}},
            "covers a first request of at most 1,500 tokens.* give at least --agent-budget 14,1.. tokens",
        ),
        ({"window": 9_000, "instructions": "Word by word. " * 2_000}, "take about 13,.* give at least --window 17,"),
    ],
)
def test_terms_without_effect_or_without_room_are_refused(given: dict[str, object], words: str) -> None:
    request = TaskRequest.model_validate({"question": "What?", "request_id": "r", **given})
    with pytest.raises(BadInput, match=words):
        terms_of(request, Settings(anthropic_api_key=WITH_KEY))


def test_the_least_budget_in_dollars_that_the_refusal_names_is_taken() -> None:
    def task(dollars: int) -> TaskConfig:
        request = {"question": "What?", "request_id": "r", "budget": {"micro_usd": dollars}}
        return terms_of(TaskRequest.model_validate(request), Settings(anthropic_api_key=WITH_KEY))

    with pytest.raises(BadInput) as refusal:
        task(1_000)
    least = parse_limit(str(refusal.value).rpartition("--budget ")[2])
    assert task(least.amount.micro_usd).default.trigger > FIRST_TURN
    with pytest.raises(BadInput, match="covers a first request of"):
        task(least.amount.micro_usd * 99 // 100)


@pytest.mark.parametrize(
    "given",
    [{"window": 3_000}, {"agent_budget": {"tokens": 4_000}}, {"budget": {"tokens": 600_000, "micro_usd": 1_000}}],
)
def test_the_least_that_a_refusal_of_a_window_names_is_taken(given: dict[str, object]) -> None:
    def task(**asked_for: object) -> TaskConfig:
        request = TaskRequest.model_validate({"question": "What?", "request_id": "r", **given, **asked_for})
        return terms_of(request, Settings(anthropic_api_key=WITH_KEY))

    with pytest.raises(BadInput) as refusal:
        task()
    option, least = str(refusal.value).rpartition("--")[2].split(" ", 1)
    limit = parse_limit(least.replace(" tokens", "").replace(" and ", "+"))
    assert (
        task(**{option.replace("-", "_"): limit.tokens if option == "window" else limit}).default.trigger > FIRST_TURN
    )


@pytest.mark.parametrize(("window", "warned"), [(8_000, True), (10_999, True), (11_000, False)])
def test_a_narrow_window_is_warned_about(window: int, warned: bool) -> None:
    warnings = " ".join(collect_config_warnings(terms_of(asked(window=window), Settings())))
    assert (f"A window of {window:,} tokens is small: below 11,000, " in warnings) is warned


def test_a_small_budget_in_dollars_is_warned_about_for_what_is_kept_for_the_report() -> None:
    request = TaskRequest(question="What?", request_id="r", budget=Limit(micro_usd=480_000))
    warnings = " ".join(
        collect_config_warnings(terms_of(request, Settings(anthropic_api_key=WITH_KEY, agent_model="claude-opus-5-5")))
    )
    assert "only $0.12 can be reserved for writing" in warnings


def test_a_ceiling_at_the_budget_or_above_in_a_unit_of_it_is_taken() -> None:
    for ceiling in (Limit(tokens=600_000), Limit(tokens=2_000_000)):
        assert terms_of(asked().replace(ceiling=ceiling), Settings()).ceiling == ceiling


def test_a_budget_that_nobody_gave_is_in_dollars_where_every_price_is_known_and_else_in_tokens() -> None:
    nothing = TaskRequest(question="What?", request_id="r")
    priced = terms_of(nothing, Settings(anthropic_api_key=WITH_KEY))
    assert (priced.budget, priced.agent_budget.tokens) == (Limit(micro_usd=10_000_000), None)
    assert terms_of(nothing, Settings()).budget == Limit(tokens=600_000)
    unknown = terms_of(nothing, Settings(anthropic_api_key=WITH_KEY, agent_model="a-model-without-a-price"))
    assert unknown.budget == Limit(tokens=600_000)
    given = TaskRequest(question="What?", request_id="r", agent_budget=Limit(tokens=90_000))
    assert terms_of(given, Settings(anthropic_api_key=WITH_KEY)).budget == Limit(tokens=600_000)


def test_what_a_budget_in_dollars_buys_is_told_and_how_tokens_of_several_models_count() -> None:
    settings = Settings(anthropic_api_key=WITH_KEY, agent_model="claude-opus-5-5", condense_model="claude-haiku-5-5")
    today = date(2026, 11, 21)
    in_dollars = describe_budget_in_tokens(terms_of(TaskRequest(question="What?", request_id="r"), settings), today)
    assert "$10.00 pays for about" in in_dollars
    in_tokens = TaskRequest(question="What?", request_id="r", budget=Limit(tokens=600_000))
    assert "Tokens of all models count equally" in describe_budget_in_tokens(
        terms_of(in_tokens, Settings(anthropic_api_key=WITH_KEY)), today
    )


def test_replies_worth_a_call_have_four_thousand_tokens_and_every_role_has_room_for_thinking() -> None:
    settings = Settings(anthropic_api_key=WITH_KEY)
    terms = terms_of(TaskRequest(question="What?", request_id="r", budget=Limit(tokens=600_000)), settings)
    assert {terms.get_config(role).min_reply_tokens for role in ("research", "analysis", "writing")} == {4_000}
    assert {terms.get_config(role).max_output for role in ("research", "analysis", "writing")} == {32_000}
    assert terms.minimum_reserves == {"analysis": Amount(tokens=25_000), "writing": Amount(tokens=90_000)}
