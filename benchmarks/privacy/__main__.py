"""Measure all proofs about privacy, or those that are named: `python -m benchmarks.privacy [NAME …]`.

`python -m benchmarks.privacy foreign --examples FILE` measures secrets by examples that somebody else made.
"""

import sys

from benchmarks.privacy import foreign, found, leaks, prose, structured, worst
from benchmarks.proofs import run_proofs

PROOFS = {
    "found": found.prove,
    "prose": prose.prove,
    "structured": structured.prove,
    "leaks": leaks.prove,
    "worst": worst.prove,
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["foreign"]:
        foreign.prove(sys.argv[2:])
    else:
        run_proofs("benchmarks.privacy", PROOFS, sys.argv[1:])
