"""How long `up` and `list` take, and what an idle platform holds in memory: `python -m benchmarks.startup`.

`--checkout PATH` measures another checkout of the project in the same run, in turns with this one.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.budgets.tables import describe_machine, print_table
from benchmarks.checkout import Checkout

OFFLINE = {"WAYSTATION_OFFLINE": "true"}
IDLE_AFTER_S = 10.0
LISTS = 5
COMMAND_S = 120


@dataclass
class Figures:
    """What was measured of one checkout: seconds and bytes."""

    up: list[float] = field(default_factory=list[float])
    lists: list[float] = field(default_factory=list[float])
    memory: list[dict[str, int]] = field(default_factory=list[dict[str, int]])
    """Proportional set size by process, so that shared pages count once."""


def command(checkout: Checkout, home: Path, *arguments: str) -> float:
    """Seconds that it takes."""
    began = time.perf_counter()
    subprocess.run(
        [*checkout.command, *arguments], cwd=checkout.root, env=checkout.environment(home, OFFLINE), check=True,
        capture_output=True, timeout=COMMAND_S, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return time.perf_counter() - began


def idle_memory(home: Path) -> dict[str, int]:
    """Bytes of every process of the platform that runs on this home folder."""
    workers = psutil.Process(json.loads((home / "run.json").read_text())["workers"]["pid"])
    return {
        f"{number}. {' '.join(process.cmdline())[-40:]}": process.memory_full_info().pss
        for number, process in enumerate([workers, *workers.children(recursive=True)], 1)
    }


def measure(checkout: Checkout, figures: Figures) -> None:
    """One start, some lists, and memory; then it is stopped."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        try:
            figures.up.append(command(checkout, home, "up"))
            figures.lists += [command(checkout, home, "list") for _ in range(LISTS)]
            time.sleep(IDLE_AFTER_S)
            figures.memory.append(idle_memory(home))
        finally:
            command(checkout, home, "down")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--checkout", action="append", default=[], type=Path, metavar="PATH")
    parser.add_argument("--times", type=int, default=3)
    chosen = parser.parse_args(arguments)
    checkouts = [Checkout(path.resolve().name, path.resolve()) for path in chosen.checkout]
    every = {checkout: Figures() for checkout in [*checkouts, Checkout("this checkout")]}
    print(f"`python -m benchmarks.startup`: {describe_machine()}", flush=True)
    for _ in range(chosen.times):
        for checkout, figures in every.items():
            measure(checkout, figures)
    rows = [
        (
            checkout.name,
            f"{statistics.median(figures.up):.2f} s",
            f"{statistics.median(figures.lists):.2f} s",
            f"{statistics.median(sum(one.values()) for one in figures.memory) / 1e6:.0f} MB",
        )
        for checkout, figures in every.items()
    ]
    print_table(
        "Start-up, and memory of all processes when idle (medians)", ("checkout", "`up`", "`list`", "memory"), rows
    )
    for checkout, figures in every.items():
        parts = [(name, f"{size / 1e6:.0f} MB") for name, size in figures.memory[-1].items()]
        print_table(f"Processes of {checkout.name}", ("process", "memory"), parts)


if __name__ == "__main__":
    main()
