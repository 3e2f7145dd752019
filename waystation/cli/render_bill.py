"""A task's bill as text: a table where the terminal is wide enough for it, else a list; no number is ever cut."""

from collections.abc import Sequence
from typing import NamedTuple

from waystation.domain.amount import amount_text, dollars
from waystation.domain.bill import Bill, BillLine
from waystation.domain.request_text import counted

HEADINGS = (
    ("", "", "", "", "cache", "cache", "", ""),
    ("", "kind", "calls", "input", "write", "read", "output", "cost"),
)
WORDS = 2
"""So many columns are words, at the left; the others are numbers."""
UNPRICED = "price unknown"


class _Section(NamedTuple):
    heading: str
    lines: Sequence[BillLine]


def bill_text(bill: Bill, width: int) -> str:
    """What a task has cost, for a terminal of this many columns."""
    reused = () if bill.reused is None else bill.reused.sentences(bill.reused.agents)
    if not bill.lines:
        return "\n".join(["nothing yet: no model was called", *reused])
    sections = _sections(bill)
    table = _table(sections)
    fits = max(len(line) for line in table) <= width
    return "\n".join([*(table if fits else _list(sections)), *_remarks(bill), *reused])


def _sections(bill: Bill) -> list[_Section]:
    """By model; then what they cost together, and what of it were compactions, numbered."""
    models = dict.fromkeys(line.model for line in bill.lines)
    sections = [_Section(model, [line for line in bill.lines if line.model == model]) for model in models]
    sections.append(_Section("", [bill.total.model_copy(update={"agent": "total"})]))
    if bill.compactions:
        numbered = [line.model_copy(update={"kind": f"no. {n}"}) for n, line in enumerate(bill.compactions, 1)]
        sections.append(_Section("of these, compactions", numbered))
    return sections


def _table(sections: Sequence[_Section]) -> list[str]:
    rows = [_cells(section, line) for section in sections for line in section.lines]
    widths = [max(len(cell) for cell in column) for column in zip(*HEADINGS, *rows, strict=True)]
    lines = [_aligned(heading, widths) for heading in HEADINGS]
    for section in sections:
        lines += [section.heading] if section.heading else []
        lines += [_aligned(_cells(section, line), widths) for line in section.lines]
    return lines


def _cells(section: _Section, line: BillLine) -> tuple[str, ...]:
    usage = line.usage
    numbers = (line.calls, usage.input, usage.cache_write, usage.cache_read, usage.output)
    return _name(section, line), line.kind, *(f"{number:,}" for number in numbers), _price(line)


def _name(section: _Section, line: BillLine) -> str:
    return f"  {line.agent}" if section.heading else line.agent


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.ljust(width) if column < WORDS else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(aligned).rstrip()


def _list(sections: Sequence[_Section]) -> list[str]:
    lines: list[str] = []
    for section in sections:
        lines += [section.heading] if section.heading else []
        for line in section.lines:
            usage = line.usage
            name = " ".join(filter(None, (_name(section, line), line.kind)))
            lines += [
                f"{name}: {counted(line.calls, 'call')}, {_price(line)}",
                f"    {usage.input:,} input, {usage.output:,} output",
                f"    cache: {usage.cache_write:,} written, {usage.cache_read:,} read",
            ]
    return lines


def _price(line: BillLine) -> str:
    return UNPRICED if line.cost_micro_usd is None else dollars(line.cost_micro_usd)


def _remarks(bill: Bill) -> list[str]:
    remarks = [
        f"{call.agent}: {call.intent.key} was never answered; possibly billed, "
        f"{amount_text(call.intent.worst_case)} at most"
        for call in bill.possibly_billed
    ]
    unpriced = dict.fromkeys(line.model for line in bill.lines if line.cost_micro_usd is None)
    if unpriced:
        remarks.append(f"{UNPRICED}: {', '.join(unpriced)}; a file that WAYSTATION_PRICES names can say it")
    usage = bill.total.usage
    if usage.searches:
        remarks.append(f"searches of the web by the provider, which are in this cost: {usage.searches:,}")
    remarks.insert(0, f"{usage.cached_share:.1%} of the input was read from the provider's cache")
    return ["", *remarks]
