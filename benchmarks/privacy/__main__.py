"""Measure all proofs about privacy, or those that are named: `python -m benchmarks.privacy [NAME …]`."""

import sys
import time
from collections.abc import Callable

from benchmarks.budgets.tables import machine
from benchmarks.privacy import found, leaks

PROOFS: dict[str, Callable[[], None]] = {"found": found.prove, "leaks": leaks.prove}


def main(names: list[str]) -> None:
    """Raises AssertionError where a proof misses what must hold."""
    print(f"`python -m benchmarks.privacy {' '.join(names)}`: {machine()}")
    for name in names:
        start = time.perf_counter()
        PROOFS[name]()
        print(f"\n({name} took {time.perf_counter() - start:.0f} s)", flush=True)


if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(PROOFS):
        sys.exit(f"there is no proof {', '.join(sorted(unknown))}: there are {', '.join(PROOFS)}")
    main(sys.argv[1:] or list(PROOFS))
