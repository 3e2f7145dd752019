"""What of thirty turns is read from the prompt cache, by the rules of the provider's, and what breaks its prefix."""

from datetime import date, timedelta

import pytest

from benchmarks.cache.reader import TURNS
from benchmarks.cache.run import MODEL, RunVariant, measure_run
from waystation.models.prices import load_published_prices
from waystation.models.profiles import find_price

GOAL = 0.85


async def test_of_thirty_turns_more_than_85_percent_of_the_input_is_read_from_the_cache() -> None:
    found = await measure_run(RunVariant("nothing in its way"))
    assert (found.turns, found.compactions, found.breaks) == (TURNS, 0, [])
    assert found.usage.cached_share > GOAL


@pytest.mark.parametrize(
    ("way", "causes"),
    [
        (RunVariant("a pause", pause=timedelta(minutes=6)), {"expired": 1}),
        (RunVariant("a tool more, that waits for the next compaction", delegates_later=True), {}),
    ],
)
async def test_what_broke_the_prefix_is_told(way: RunVariant, causes: dict[str, int]) -> None:
    found = await measure_run(way)
    assert {cause: times for cause, (times, _) in found.causes.items()} == causes
    assert found.usage.cached_share > GOAL


async def test_each_compaction_breaks_the_prefix_once() -> None:
    found = await measure_run(RunVariant("a small window", window=40_000))
    assert found.compactions
    assert {cause: times for cause, (times, _) in found.causes.items()} == {"messages changed": found.compactions}


async def test_a_wait_for_subagents_costs_less_if_the_cache_is_kept_warm() -> None:
    without = await measure_run(RunVariant("no wait"))
    cold = await measure_run(RunVariant("let go", pause=timedelta(minutes=20)))
    warm = await measure_run(RunVariant("kept warm", pause=timedelta(minutes=20), keeps_warm=True))
    assert (cold.refreshes, warm.refreshes) == (0, 4)
    assert (len(cold.breaks), len(warm.breaks)) == (1, 0)
    price = find_price(MODEL, date(2026, 11, 21), load_published_prices())
    assert price is not None
    base, let_go, kept = (run.compute_dollars(price.rates) for run in (without, cold, warm))
    assert base < kept < let_go
    assert 4 * (kept - base) < let_go - base
