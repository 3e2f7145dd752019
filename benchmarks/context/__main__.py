"""Measure all proofs about the context engine, or those that are named: `python -m benchmarks.context [NAME …]`."""

import sys

from benchmarks.context import cost, facts, figures, planning, survival
from benchmarks.proofs import run_proofs

PROOFS = {
    "planning": planning.prove,
    "survival": survival.prove,
    "facts": facts.prove,
    "cost": cost.prove,
    "figures": figures.prove,
}

if __name__ == "__main__":
    run_proofs("benchmarks.context", PROOFS, sys.argv[1:])
