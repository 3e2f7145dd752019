"""Measure all proofs about the context engine, or those that are named: `python -m benchmarks.context [NAME …]`."""

import sys
import time
from collections.abc import Callable

from benchmarks.budgets.tables import machine
from benchmarks.context import cost, figures, planning, survival

PROOFS: dict[str, Callable[[], None]] = {
    "planning": planning.prove,
    "survival": survival.prove,
    "cost": cost.prove,
    "figures": figures.prove,
}


def main(names: list[str]) -> None:
    """Raises AssertionError where a proof misses what must hold."""
    print(f"`python -m benchmarks.context {' '.join(names)}`: {machine()}")
    for name in names:
        start = time.perf_counter()
        PROOFS[name]()
        print(f"\n({name} took {time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(PROOFS):
        sys.exit(f"there is no proof {', '.join(sorted(unknown))}: there are {', '.join(PROOFS)}")
    main(sys.argv[1:] or list(PROOFS))
