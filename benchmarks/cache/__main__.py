"""Measure what of the input is read from the prompt cache, and what broke it: `python -m benchmarks.cache`."""

import asyncio
import sys
from datetime import timedelta

from benchmarks.budgets.tables import print_table
from benchmarks.cache.run import RunVariant, measure_run
from benchmarks.proofs import run_proofs

GOAL = 0.85
WAYS = (
    RunVariant("nothing in its way"),
    RunVariant("a small window", window=40_000),
    RunVariant("six minutes without a call", pause=timedelta(minutes=6)),
    RunVariant("a tool more from turn 13 on", delegates_later=True),
)
HEAD = ("a run of 30 turns with", "input", "read from the cache", "written to it", "neither", "compactions", "share")
BROKE = ("a run of 30 turns with", "what broke the prefix", "how often", "tokens not read for it")


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


if __name__ == "__main__":
    run_proofs("benchmarks.cache", {"share": prove}, sys.argv[1:])
