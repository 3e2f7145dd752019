"""An agent's next request as text: a table of its layers, and what the numbers are of."""

from waystation.client.context import AgentContext
from waystation.domain.layers import RULES, Row

HEADINGS = ("layer", "share", "asked", "got", "gave way", "gives way first")
WORDS = {0, 5}
"""Columns of words, at the left; the others are numbers."""


def context_text(context: AgentContext) -> str:
    """The table under a line that says what it is of."""
    allocation = context.allocation
    rows = [HEADINGS, *map(_cells, allocation.rows)]
    total = sum(row.asked for row in allocation.rows)
    rows.append(
        ("all", f"{allocation.limit:,}", f"{total:,}", f"{allocation.got:,}", _lost(total - allocation.got), "")
    )
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if column in WORDS else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*_heading(context), *lines])


def _heading(context: AgentContext) -> list[str]:
    said = [
        f"{context.agent}, turn {context.turn}: {context.model}, a window of {context.window:,} tokens",
        f"full from {context.trigger:,} on; {context.cached_share:.1%} of its input so far was read from the cache",
    ]
    if not context.system_known:
        said.append(
            "System prompt and tools are estimated, without tools of the web and of servers, until a leg has ended."
        )
    return said


def _cells(row: Row) -> tuple[str, ...]:
    lost = _lost(row.asked - row.got)
    return row.layer.value, f"{row.share:,}", f"{row.asked:,}", f"{row.got:,}", lost, RULES[row.layer].words


def _lost(tokens: int) -> str:
    return f"{tokens:,}" if tokens else "-"
