"""What of a run's usage counts against its budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waystation.budgets.budget import RunUsage, sum_run_usage
from waystation.kernel.amount import Amount
from waystation.kernel.usage import Usage, sum_usage

COUNTS = st.integers(0, 1_000_000)
USAGES = st.builds(Usage, input=COUNTS, cache_write=COUNTS, cache_read=COUNTS, output=COUNTS)
TOTALS = st.builds(
    RunUsage,
    usage=USAGES,
    turns=COUNTS,
    possibly_billed=COUNTS,
    possibly_billed_micro_usd=COUNTS,
    cost_micro_usd=st.none() | COUNTS,
)


@pytest.mark.parametrize(
    ("usage", "fresh", "prompt", "total"),
    [
        (Usage(input=1), 1, 1, 1),
        (Usage(cache_write=2), 2, 2, 2),
        (Usage(cache_read=4), 0, 4, 4),
        (Usage(output=8), 8, 0, 8),
        (Usage(input=1, cache_write=2, cache_read=4, output=8), 11, 7, 15),
    ],
)
def test_all_but_cache_reads_count_against_a_budget_and_all_but_output_is_the_prompt(
    usage: Usage, fresh: int, prompt: int, total: int
) -> None:
    assert (usage.fresh, usage.prompt_tokens, usage.total) == (fresh, prompt, total)


def test_calls_that_were_possibly_billed_count_as_spent_in_both_units() -> None:
    totals = RunUsage(
        usage=Usage(input=100, cache_read=900), cost_micro_usd=30, possibly_billed=7, possibly_billed_micro_usd=5
    )
    assert totals.spent == Amount(tokens=107, micro_usd=35)


def test_what_has_no_known_price_still_counts_in_tokens_and_by_what_was_possibly_billed() -> None:
    totals = RunUsage(usage=Usage(output=100), cost_micro_usd=None, possibly_billed_micro_usd=5)
    assert totals.spent == Amount(tokens=100, micro_usd=5)


@given(st.lists(TOTALS, max_size=6))
def test_what_runs_spent_together_is_the_sum_of_what_each_spent(runs: list[RunUsage]) -> None:
    together = sum_run_usage(tuple(runs))
    tokens = sum(run.spent.tokens for run in runs)
    assert together.spent.tokens == tokens
    assert together.usage == sum((run.usage for run in runs), Usage())
    assert (together.cost_micro_usd is None) == any(run.cost_micro_usd is None for run in runs)
    if together.cost_micro_usd is not None:
        assert together.spent == sum((run.spent for run in runs), Amount())


def test_a_sum_of_usage_has_every_kind_of_token() -> None:
    one = Usage(input=1, cache_write=2, cache_read=3, output=4, searches=5, estimated=6)
    assert sum_usage([one, one, one]) == Usage(
        input=3, cache_write=6, cache_read=9, output=12, searches=15, estimated=18
    )
    assert sum_usage([]) == Usage()
