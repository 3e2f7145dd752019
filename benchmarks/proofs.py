"""Runs all or the named benchmarks of a package, and prints what was run on which machine."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence

from benchmarks.budgets.tables import describe_machine


def run_proofs(package: str, proofs: Mapping[str, Callable[[], None]], names: Sequence[str]) -> None:
    """Each prints its table. Exits for a name that no proof has; AssertionError where one misses what must hold."""
    if unknown := set(names) - set(proofs):
        sys.exit(f"there is no proof {', '.join(sorted(unknown))}: there are {', '.join(proofs)}")
    chosen = names or list(proofs)
    print(f"`python -m {package} {' '.join(chosen)}`: {describe_machine()}")
    for name in chosen:
        start = time.perf_counter()
        proofs[name]()
        print(f"\n({name} took {time.perf_counter() - start:.0f} s)", flush=True)
