from datetime import date
from decimal import Decimal
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.prices import PRICES
from waystation.budgets.budget import WorstCaseRates
from waystation.kernel.usage import Usage
from waystation.models.profiles import LongPromptTier, Price, filter_prices, find_worst_rates
from waystation.models.profiles import compute_cost_micro_usd as priced_cost

TODAY = date(2026, 11, 21)


def cost_micro_usd(model: str, usage: Usage, at: date) -> int | None:
    return priced_cost(model, usage, at, PRICES)


tokens = st.integers(min_value=0, max_value=1_000_000)
usages = st.builds(Usage, input=tokens, cache_write=tokens, cache_read=tokens, output=tokens)
priced_models = st.sampled_from(sorted({price.model for price in PRICES}))


def test_each_kind_of_token_is_priced_by_its_own_rate() -> None:
    million = 1_000_000
    assert cost_micro_usd("claude-opus-5-5", Usage(input=million), TODAY) == 4_000_000
    assert cost_micro_usd("claude-opus-5-5", Usage(output=million), TODAY) == 20_000_000
    assert cost_micro_usd("claude-opus-5-5", Usage(cache_write=million), TODAY) == 5_000_000
    assert cost_micro_usd("claude-opus-5-5", Usage(cache_read=million), TODAY) == 200_000


def test_a_cost_is_rounded_up_to_the_next_millionth_of_a_dollar() -> None:
    assert cost_micro_usd("claude-haiku-5-5", Usage(cache_read=1), TODAY) == 1
    assert cost_micro_usd("claude-haiku-5-5", Usage(cache_read=101), TODAY) == 2
    assert cost_micro_usd("claude-haiku-5-5", Usage(), TODAY) == 0


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        (Usage(input=100_000, output=1_000), 10_500),
        (Usage(input=100_001, output=1_000), 52_501),
        (Usage(cache_read=90_000, cache_write=10_000), 2_150),
        (Usage(cache_read=90_000, cache_write=10_000, input=1), 10_751),
    ],
)
def test_a_long_prompt_cached_or_not_raises_the_rates_of_the_whole_call(usage: Usage, cost: int) -> None:
    assert cost_micro_usd("claude-haiku-5-5", usage, TODAY) == cost


def test_a_price_holds_from_its_day_on() -> None:
    read = Usage(cache_read=1_000_000)
    assert cost_micro_usd("claude-sonnet-5-5", read, date(2026, 10, 6)) == 200_000
    assert cost_micro_usd("claude-sonnet-5-5", read, date(2026, 10, 7)) == 100_000


def test_a_dated_snapshot_costs_what_its_model_costs() -> None:
    assert cost_micro_usd("claude-haiku-4-5-20251001", Usage(output=1_000_000), TODAY) == 5_000_000


@pytest.mark.parametrize("model", ["claude-sonnet-9", "gpt", "", "claude-haiku-5-5-fast"])
def test_a_model_that_is_not_in_the_table_has_no_price(model: str) -> None:
    assert cost_micro_usd(model, Usage(input=1), TODAY) is None
    assert find_worst_rates(model, 0, TODAY, PRICES) is None


def test_the_worst_rates_are_those_of_the_dearest_kind_of_token() -> None:
    assert find_worst_rates("claude-opus-5-5", 0, TODAY, PRICES) == WorstCaseRates(input=Decimal(5), output=Decimal(20))
    assert find_worst_rates("claude-sonnet-5-5", 0, TODAY, PRICES) == WorstCaseRates(
        input=Decimal("2.50"), output=Decimal(10)
    )


def test_where_long_prompts_are_cheaper_the_worst_rates_stay_those_of_short_ones() -> None:
    dear, cheap = PRICES[0].rates, PRICES[3].rates
    price = Price(model="m", rates=dear, long_prompts=LongPromptTier(over=1_000, rates=cheap))
    assert find_worst_rates("m", 5_000, TODAY, (price,)) == dear.worst_case_rates


@given(priced_models, usages, st.integers(0, 500_000))
def test_no_call_costs_more_than_all_its_tokens_at_the_worst_rates(model: str, usage: Usage, more: int) -> None:
    cost, worst = (
        cost_micro_usd(model, usage, TODAY),
        find_worst_rates(model, usage.prompt_tokens + more, TODAY, PRICES),
    )
    assert cost is not None
    assert worst is not None
    assert cost <= ceil(usage.prompt_tokens * worst.input + usage.output * worst.output)


def test_a_task_takes_along_what_its_models_cost_cost_before_and_will_cost() -> None:
    taken = filter_prices(("claude-sonnet-5-5", "claude-haiku-4-5-20251001", "somebody-elses-1"), PRICES)
    assert [(price.model, price.since) for price in taken] == [
        ("claude-sonnet-5-5", date.min),
        ("claude-sonnet-5-5", date(2026, 10, 7)),
        ("claude-haiku-4-5", date.min),
    ]


@given(priced_models, usages, usages)
def test_more_tokens_never_cost_less(model: str, usage: Usage, more: Usage) -> None:
    little, much = cost_micro_usd(model, usage, TODAY), cost_micro_usd(model, usage + more, TODAY)
    assert little is not None
    assert much is not None
    assert little <= much


def test_searches_cost_ten_dollars_a_thousand_beside_their_tokens() -> None:
    assert cost_micro_usd("claude-haiku-5-5", Usage(searches=1_000), TODAY) == 10_000_000
    assert cost_micro_usd("claude-haiku-5-5", Usage(input=10, searches=1), TODAY) == 10_001
    assert (
        Price.model_validate({"model": "own", "rates": PRICES[0].rates, "searches": 5}).compute_search_cost(2) == 10_000
    )
