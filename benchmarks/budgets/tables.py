"""Formats results as Markdown tables, with the machine that they were measured on."""

import os
import platform
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime


def describe_machine() -> str:
    """What the numbers are of."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    today = datetime.now(UTC).date()
    return f"{cores} cores, {platform.system()}, Python {platform.python_version()}, {today}"


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table."""
    lines = [f"\n### {title}\n", _line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]
    print("\n".join(lines), flush=True)


def _line(cells: Sequence[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def format_spread(seconds: Sequence[float]) -> tuple[str, str]:
    """Median and 95th percentile, in milliseconds."""
    ranked = sorted(seconds)
    p95 = ranked[min(len(ranked) - 1, int(len(ranked) * 0.95))]
    return f"{statistics.median(ranked) * 1000:,.0f} ms", f"{p95 * 1000:,.0f} ms"
