"""Measure all proofs about privacy, or those that are named: `python -m benchmarks.privacy [NAME …]`."""

import sys

from benchmarks.privacy import found, leaks, worst
from benchmarks.proofs import run_proofs

PROOFS = {"found": found.prove, "leaks": leaks.prove, "worst": worst.prove}

if __name__ == "__main__":
    run_proofs("benchmarks.privacy", PROOFS, sys.argv[1:])
