"""Measure all proofs about memory, or those that are named: `python -m benchmarks.memory [NAME …]`."""

import sys

from benchmarks.memory import kinds, recall, relevance, speed
from benchmarks.proofs import run_proofs

PROOFS = {"kinds": kinds.prove, "recall": recall.prove, "relevance": relevance.prove, "speed": speed.prove}

if __name__ == "__main__":
    run_proofs("benchmarks.memory", PROOFS, sys.argv[1:])
