"""Reads one table or answers one query for its parent, on standard input and output: `python -m …engine_child SECONDS`.

It protects its parent from what it runs: it has limits on time and memory and can write no file. Whatever DuckDB does
that nobody foresaw ends it.
"""

import resource
import signal
import sys
from contextlib import suppress

from waystation.adapters.tables.asked import Answered, Asked, Unusable
from waystation.adapters.tables.grid import read

MEMORY = 2_000_000_000
"""Bytes of address space: DuckDB's own, and the cells of the largest table before they are in it."""


def main() -> None:
    """Read an `Asked` as JSON, write an `Answered`."""
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    _bound()
    asked = Asked.model_validate_json(sys.stdin.buffer.read())
    sys.stdout.buffer.write(_answered(asked).model_dump_json().encode())


def _bound() -> None:
    # A core file would hold the documents.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with suppress(ValueError, OSError):
        # macOS has the limit in name only.
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _answered(asked: Asked) -> Answered:
    try:
        if asked.text is not None:
            return Answered(table=read(asked.text))
        # DuckDB takes longer to load than most tables take to be read.
        from waystation.adapters.tables.database import answer  # noqa: PLC0415

        return Answered(rows=answer(asked))
    except Unusable as unusable:
        return Answered(refused=str(unusable))
    except MemoryError:
        return Answered(refused=f"This needs more than {MEMORY // 1_000_000_000} GB of memory. Query less at once.")


if __name__ == "__main__":
    main()
