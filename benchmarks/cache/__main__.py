"""Measure what of the input is read from the prompt cache, and what broke it: `python -m benchmarks.cache`."""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from benchmarks.budgets.tables import print_table
from benchmarks.cache.run import RunVariant, measure_run
from benchmarks.proofs import run_proofs
from waystation.models.prices import load_published_prices
from waystation.models.profiles import find_price

GOAL = 0.85
WAYS = (
    RunVariant("nothing in its way"),
    RunVariant("a small window", window=40_000),
    RunVariant("six minutes without a call", pause=timedelta(minutes=6)),
    RunVariant("a tool more from turn 13 on", delegates_later=True),
)
HEAD = ("a run of 30 turns with", "input", "read from the cache", "written to it", "neither", "compactions", "share")
BROKE = ("a run of 30 turns with", "what broke the prefix", "how often", "tokens not read for it")


MODELS = ("claude-sonnet-5-5", "claude-opus-5")
WAITS = (
    ("a parent that waits 20 minutes for its subagents", timedelta(minutes=20)),
    ("a person who answers after 40 minutes", timedelta(minutes=40)),
)
WAIT_HEAD = (
    "wait",
    "model",
    "run without it",
    "added if the cache is let go",
    "added if it is kept warm",
    "reads",
    "added by marks of an hour",
)
HOUR_FACTOR = 2
"""Price of a cache write for an hour, as a multiple of that of uncached input, as the provider publishes it."""


async def wait_table() -> None:
    """What a wait adds to the cost of the same run without one. Raises AssertionError if keeping warm costs more.

    Tokens are those of one recorded run; each model's prices are applied to them.
    """
    without = await measure_run(RunVariant("no wait"))
    cold = await measure_run(RunVariant("let go", pause=WAITS[0][1]))
    rows: list[tuple[object, ...]] = []
    for name, pause in WAITS:
        warm = await measure_run(RunVariant(name, pause=pause, keeps_warm=True))
        for model in MODELS:
            price = find_price(model, datetime.now(UTC).date(), load_published_prices())
            assert price is not None, model
            rates, hour = price.rates, price.rates.replace(cache_write=HOUR_FACTOR * price.rates.input)
            base = without.compute_dollars(rates)
            costs = [run.compute_dollars(at) - base for run, at in ((cold, rates), (warm, rates), (without, hour))]
            let_go, kept, marked = (f"{cost:.3f}" for cost in costs)
            rows.append((name, model, f"{base:.3f}", let_go, kept, warm.refreshes, marked))
            assert costs[1] < costs[0], (name, model)
    print_table(f"What a wait costs, with a prefix of {cold.prefix:,} tokens, in dollars", WAIT_HEAD, rows)


async def tables() -> None:
    """Raises AssertionError where the run that nothing stands in the way of misses the goal."""
    rows: list[tuple[object, ...]] = []
    broke: list[tuple[object, ...]] = []
    for way in WAYS:
        found = await measure_run(way)
        usage = found.usage
        numbers = (usage.prompt_tokens, usage.cache_read, usage.cache_write, usage.input)
        rows.append((way.name, *(f"{n:,}" for n in numbers), found.compactions, f"{usage.cached_share:.1%}"))
        broke += [(way.name, cause, times, f"{lost:,}") for cause, (times, lost) in found.causes.items()]
        assert way is not WAYS[0] or usage.cached_share > GOAL, usage
    print_table("Input tokens by what the cache made of them", HEAD, rows)
    print_table("What broke the prefix", BROKE, broke)


def prove() -> None:
    """Print the tables."""
    asyncio.run(tables())


def prove_waits() -> None:
    """Print the table of waits."""
    asyncio.run(wait_table())


if __name__ == "__main__":
    run_proofs("benchmarks.cache", {"share": prove, "waits": prove_waits}, sys.argv[1:])
