"""Renders an agent's next request as a table of its sections, its transcript with compactions in place, the
capabilities of its endpoint, and counts of restored placeholders.
"""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

from waystation.agents.prompt_sections import SECTION_RULES, SectionAllocation
from waystation.cli.render import SHORT_ID, format_indented_text, format_message
from waystation.context.audit import AnnotatedTranscript, CompactionView, MessageView
from waystation.context.summary import MARKER_ID_PREFIX, SUMMARY_ID_PREFIX
from waystation.models.probe import ProbeResult, ProbeVerdict
from waystation.privacy.policy import RestoredText
from waystation.tasks.view import NextPromptView

_HEADINGS = ("layer", "share", "asked", "got", "gave way", "gives way first")
_WORDS = {0, 5}
"""Indices of the text columns; the others are numbers."""


def format_context(context: NextPromptView) -> str:
    """Format the table, under a line that says what it shows."""
    allocation = context.allocation
    rows = [_HEADINGS, *map(_cells, allocation.rows)]
    total = sum(row.requested for row in allocation.rows)
    rows.append(
        (
            "all",
            f"{allocation.limit:,}",
            f"{total:,}",
            f"{allocation.allocated_tokens:,}",
            _lost(total - allocation.allocated_tokens),
            "",
        )
    )
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if column in _WORDS else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*_heading(context), *lines])


def _heading(context: NextPromptView) -> list[str]:
    said = [
        f"{context.agent}, turn {context.turn}: {context.model}, a window of {context.window:,} tokens",
        f"a compaction starts at {context.trigger:,} tokens; so far, "
        f"{context.cached_share:.1%} of the input was read from the cache",
    ]
    if not context.system_known:
        said += [
            "The sizes of system prompt and tools are estimates until the agent's first turns are stored.",
            "The estimates leave out web tools and the tools of tool servers.",
        ]
    return said


def _cells(row: SectionAllocation) -> tuple[str, ...]:
    lost = _lost(row.requested - row.allocated)
    return (
        row.section.value,
        f"{row.share:,}",
        f"{row.requested:,}",
        f"{row.allocated:,}",
        lost,
        SECTION_RULES[row.section].description,
    )


def _lost(tokens: int) -> str:
    return f"{tokens:,}" if tokens else "-"


NAMED_IDS = 6
_KINDS = {"summarised": "summary", "masked": "mask", "truncated": "marker"}


def format_transcript(log: AnnotatedTranscript) -> Iterator[str]:
    """Yield one text per message, and one per compaction, before the first message that it affects."""
    kinds = {compaction.id: _KINDS[compaction.type] for compaction in log.compactions}
    # The latest first: it encloses the earlier ones.
    newest_first = log.compactions[::-1]
    for message in log.messages:
        yield from (_compaction(one, kinds) for one in newest_first if one.originals[:1] == (message.id,))
        yield format_message(message, tuple(_remarks(message, kinds)))


def _compaction(one: CompactionView, kinds: dict[str, str]) -> str:
    strategy = f" ({one.strategy})" if one.strategy else ""
    does = "hides tool results in" if one.type == "masked" else "stands for"
    parts = [f"── {kinds[one.id]} {one.id[:SHORT_ID]}{strategy} {does} {_count(one)}: {_names(one.covered)}"]
    if one.undone:
        parts.append(f"undone: {one.undone}")
    if one.hidden_by:
        parts.append(_by("hidden", one.hidden_by, kinds))
    if what := [*(f"added {what}" for what in one.added), *(f"removed {what}" for what in one.removed)]:
        parts.append(f"the check of the summary {', '.join(what)}")
    return "\n".join([" · ".join(parts), *([format_indented_text(one.text)] if one.text else []), ""])


def _count(one: CompactionView) -> str:
    count = len(one.originals)
    return f"{count:,} message{'' if count == 1 else 's'}"


def _names(covered: Sequence[str]) -> str:
    names = [_short(name) for name in covered]
    half = NAMED_IDS // 2
    return ", ".join(names) if len(names) <= NAMED_IDS else f"{', '.join(names[:half])} … {', '.join(names[-half:])}"


def _short(name: str) -> str:
    for prefix, kind in ((SUMMARY_ID_PREFIX, "summary"), (MARKER_ID_PREFIX, "marker")):
        if name.startswith(prefix):
            return f"{kind} {name.removeprefix(prefix)[:SHORT_ID]}"
    return name


def _remarks(message: MessageView, kinds: dict[str, str]) -> Iterator[str]:
    if message.rewound:
        yield "rewound"
    if message.hidden_by:
        yield _by("hidden", message.hidden_by, kinds)
    for call, mask in message.masked_by.items():
        yield f"result of call {call} {_by('masked', mask, kinds)}"
    if message.pinned:
        yield "pinned"


def _by(what: str, compaction: str, kinds: dict[str, str]) -> str:
    return f"{what} by {kinds[compaction]} {compaction[:SHORT_ID]}"


def format_restored_counts(restored: RestoredText) -> str:
    """Format how many placeholders were replaced, and how many remain."""
    said = f"{_placeholders(restored.replaced)} replaced by original text"
    if restored.replaced:
        said += ": the output is private"
    if restored.unknown:
        said += f"; no original is stored for {_placeholders(restored.unknown)} (credentials are never stored)"
    return said


def _placeholders(count: int) -> str:
    return "1 placeholder" if count == 1 else f"{count} placeholders"


TABLE_COLUMNS = 80
FIT_MARKS: Mapping[ProbeVerdict, str] = {
    "fits": "ok",
    "worked around": "around",
    "will not work": "FAIL",
    "not asked": "--",
}


def format_probe_table(probed: ProbeResult) -> Iterator[str]:
    """Yield the findings in lines of at most 80 columns."""
    yield from wrap(f"{probed.model} at {probed.endpoint}", TABLE_COLUMNS)
    for line in probed.lines:
        head = f"{FIT_MARKS[line.fit]:<7}{line.name:<15}"
        yield from wrap(line.finding, TABLE_COLUMNS, initial_indent=head, subsequent_indent=" " * len(head))
    yield from wrap(_verdict(probed), TABLE_COLUMNS)


def _verdict(probed: ProbeResult) -> str:
    if not probed.is_conclusive:
        return "It is not known whether this model can run tasks: test again when the endpoint answers."
    cause = probed.capabilities.unfit_reason
    return f"This model cannot run tasks: {cause}." if cause else "This model can run tasks."
