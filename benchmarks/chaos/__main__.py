"""Kills everything at random moments and says what that cost: `python -m benchmarks.chaos --kills 200 --seed 1`."""

import argparse
import asyncio
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.chaos.platform import SETTINGS
from benchmarks.chaos.run import ChaosConfig, run_chaos
from benchmarks.chaos.table import faults, table

TASKS = 12
"""Open at once: legs whose worker was killed rest for 20 s and more, and something has to be at work at every kill."""


def main() -> int:
    """0: everything held; 1: something did not; 130: Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200, help="how many kills (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of victims, moments and delays (default %(default)s)")
    parser.add_argument("--tasks", type=int, default=TASKS, help="tasks open at once (default %(default)s)")
    parser.add_argument(
        "--faults", type=float, default=0.0, help="share of model calls that fail (default %(default)s)"
    )
    asked = parser.parse_args()
    for name in [name for name in os.environ if name.startswith(SETTINGS)]:
        del os.environ[name]
    home = Path(tempfile.mkdtemp(prefix="waystation-chaos-"))
    order = ChaosConfig(kills=asked.kills, seed=asked.seed, tasks=asked.tasks, home=home, fault_share=asked.faults)
    try:
        outcome = asyncio.run(run_chaos(order, lambda line: print(line, file=sys.stderr)))
    except KeyboardInterrupt:
        print(f"interrupted; logs and store stay in {home}", file=sys.stderr)
        return 130
    print(f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {sys.platform}, Python {sys.version.split()[0]}\n")
    print(table(order, outcome))
    for fault in faults(outcome.verdict):
        print(fault)
    print(f"\nlogs and store: {home}", file=sys.stderr)
    return 1 if outcome.verdict.broken else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # The Temporal SDK's runtime may crash while the interpreter ends, and with it the exit code.
