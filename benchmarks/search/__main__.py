"""Measure document search, or those of its proofs that are named: `python -m benchmarks.search [NAME …]`."""

import sys

from benchmarks.proofs import run_proofs
from benchmarks.search import filings, packages

PROOFS = {"packages": packages.prove, "filings": filings.prove}

if __name__ == "__main__":
    run_proofs("benchmarks.search", PROOFS, sys.argv[1:])
