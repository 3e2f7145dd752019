"""Renders tasks, their cost and prices as text: tables for a terminal, sentences for changes between two looks.

Pure: values in, text out.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date, datetime
from decimal import Decimal
from textwrap import indent, shorten
from typing import NamedTuple, TypeVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from waystation.agents.delegation import get_parent_id
from waystation.cli.options import format_moment, format_short_limit, format_short_spent
from waystation.cli.render_requests import format_request, format_requested
from waystation.context.transcript import Block, Message, OpaqueBlock, RedactedThinking, Thinking, ToolResult, ToolUse
from waystation.context.transcript import Text as TextBlock
from waystation.kernel.amount import format_amount, format_usd, format_used_amount
from waystation.kernel.text import format_count
from waystation.models.profiles import Price, TokenRates
from waystation.security.untrusted import render_claimed_name, sanitize_line
from waystation.tasks.details import (
    UNPRICED,
    format_in_units_of,
    format_privacy,
    format_request_and_answer,
    format_task_cost,
    format_work_totals,
)
from waystation.tasks.progress import CostBreakdown, CostLine, TemporalActionCounts
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import AgentCompactionView, PendingApproval, TaskView, list_pending_approvals

PHASE_STYLES = {
    TaskPhase.DONE: "green",
    TaskPhase.PARTIAL: "yellow",
    TaskPhase.PAUSED: "bold yellow",
    TaskPhase.FAILED: "red",
    TaskPhase.CANCELLED: "red",
    TaskPhase.REFUSED: "red",
}
NOTHING = "-"
ENDED_STEP_STATES = frozenset({"done", "partial", "skipped"})
"""States of a step whose agent's context can no longer be edited."""
MAX_SHOWN_COMPACTIONS = MAX_SHOWN_ANSWERS = 3
"""Number of newest items: a screen that is redrawn in place must not exceed the terminal's height."""
SHORT_ID = 8
"""Characters of the id of a task or compaction: its beginning is enough to name it."""
MESSAGE_CHARACTERS = 120
"""Maximum characters of a message to a task."""
T = TypeVar("T")


SUMMARY_LABEL = 10
"""Columns of the labels of a summary."""


def render_task_summary(view: TaskView) -> RenderableType:
    """Render a task in a few lines: state, progress, cost, what waits, and the next command."""
    style = PHASE_STYLES.get(view.phase, "cyan")
    heading = Text.assemble((view.task_id, "bold"), "  ", (view.phase, style), "  ", view.title)
    heading.no_wrap, heading.overflow = False, "fold"
    rows = [("Progress", format_progress(view)), ("Cost", _cost(view))]
    rows += [("Waits", f"{one.agent}: {format_requested(one)}") for one in view.pending_approvals]
    rows += [("Retries", why) for why in view.waiting_for]
    rows += [("Note", note) for note in (*view.notes, *filter(None, [view.remark]))]
    rows += [("Session", view.session)] if view.session else []
    rows += [("Next", _next_command(view))]
    return Group(heading, *(_labelled(label, text) for label, text in rows))


def format_progress(view: TaskView) -> str:
    """Format how many steps are done, and what became of the others or what they are doing."""
    steps = [step for step in view.steps if get_parent_id(step.id) is None]
    if not steps:
        return "no plan yet" if not view.phase.over else "no step ran"
    states = Counter[str](step.state for step in steps)
    ended = [f"{states[state]} {state}" for state in ("partial", "skipped") if states[state]]
    text = ", ".join([f"{states['done']} of {format_count(len(steps), 'step')} done", *ended])
    by_state: dict[str, list[str]] = {}
    for step in steps:
        if step.state not in ENDED_STEP_STATES and step.state != "waiting":
            by_state.setdefault(step.state, []).append(step.id)
    return "; ".join([text, *(f"{state}: {', '.join(names)}" for state, names in by_state.items())])


def _cost(view: TaskView) -> str:
    return f"{format_task_cost(view)}; {format_used_amount(view.budget.spent, view.budget.limit)} spent"


def _next_command(view: TaskView) -> str:
    if view.pending_approvals:
        return f"waystation approvals {view.task_id}"
    if not view.phase.over:
        return f"waystation watch {view.task_id}"
    return f"waystation report {view.task_id}" if view.reports else f"waystation show {view.task_id} --verbose"


def _labelled(label: str, text: str) -> Table:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(min_width=SUMMARY_LABEL)
    table.add_column(overflow="fold")
    table.add_row(Text(label, style="dim"), Text(text))
    return table


def render_task_screen(view: TaskView, now: datetime, width: int) -> RenderableType:
    """Render the whole task for a terminal of this many columns.

    With `soft_wrap` only words are wrapped, so that commands and addresses can be copied. A live view, which must know
    its height, wraps those too.
    """
    style = PHASE_STYLES.get(view.phase, "cyan")
    heading = Text.assemble((view.task_id, "bold"), "  ", (view.phase, style), "  ", view.title)
    heading.no_wrap, heading.overflow = False, "fold"
    lines: list[RenderableType] = [
        heading,
        *map(_words, filter(None, (format_budget(view), format_privacy(view)))),
    ]
    if view.steps:
        lines.append(build_steps_table(view))
        lines += [_words(text, "dim") for text in filter(None, [view.format_drawable_budget()])]
    lines += [_words(line, "cyan") for line in format_agent_activity(view, now)]
    lines += [_words(line) for line in _oversight(view)]
    lines += [_words(line, "dim") for line in _newest_compactions(view)]
    lines += [_words(f"Note: {note}") for note in view.notes]
    lines += [_words(why, "yellow") for why in view.waiting_for]
    lines += [_words(line) for line in (*_answered(view), *_not_in_memory(view))]
    lines += [Text(format_request(one, now, width), style="yellow") for one in list_pending_approvals(view)]
    lines += [_words(line) for line in _messages(view)]
    lines += [_words(edit.text, "yellow") for edit in view.context_edits if edit.state == "waiting"]
    lines += [_words(f"Rejected `{rejected.signal}`: {rejected.reason}", "red") for rejected in view.rejected_messages]
    if view.session:
        lines.append(_words(f"Session {view.session}", "dim"))
    if view.remark:
        lines.append(_words(view.remark, "yellow"))
    if view.ui_url:
        lines.append(Text(view.ui_url, style="blue"))
    return Group(*lines)


def format_agent_activity(view: TaskView, now: datetime) -> list[str]:
    """Format what each running agent is doing, and what it has spent so far."""
    steps, heard = view.steps, {one.agent for one in view.activity}
    spent = {step.id: f"; {format_used_amount(step.spent, step.limit)} spent so far" for step in steps}
    quiet = [
        f"{step.id}: compacting its context" for step in steps if step.state == "compacting" and step.id not in heard
    ]
    return [*(f"{one.text(now)}{spent.get(one.agent, '')}" for one in view.activity), *quiet]


def _messages(view: TaskView) -> list[str]:
    """Format messages to the task and who has received them, changes of its documents, and originals that tools
    received from the vault.
    """
    updates = [
        f"Documents updated by {render_claimed_name(one.by)}: {one.text}" for one in view.document_updates if one.stored
    ]
    given = [
        f"{one.agent}: {one.tool} received the originals of {', '.join(one.placeholders)}"
        for one in view.resolved_placeholders
    ]
    return [*updates, *given] + [
        f"Message {one.number} by {render_claimed_name(one.by)}: "
        f"{shorten(one.text, MESSAGE_CHARACTERS, placeholder=' …')} "
        f"(received by {', '.join(one.received_by) or 'no agent yet'})"
        for one in view.messages
    ]


def _oversight(view: TaskView) -> list[str]:
    """Format the outcome of the plan and the reasons, and the findings of reviews."""
    reasons = {plan.number: plan.reason for plan in view.plans}
    revisions = [f"{one.text} {reasons.get(one.version or 0, '')}".strip() for one in view.revisions]
    return [*revisions, *(made.text for made in (*view.reviews, *view.judgements))]


def _not_in_memory(view: TaskView) -> list[str]:
    waiting = (
        [f"Waiting to be added to memory: {format_count(view.passages_pending, 'passage')}."]
        if view.passages_pending
        else []
    )
    refused = [f"Memory rejects passage {passage_id}." for passage_id in view.passages_rejected]
    beyond = view.unindexed_characters
    left_out = [f"The last {beyond:,} characters of the task's documents are not in memory."] if beyond else []
    return waiting + refused + left_out


def _words(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=False, overflow="fold")


def _answered(view: TaskView) -> list[str]:
    """Format answered requests, with who answered."""
    answered = [approval for approval in view.approvals if approval.decision != "pending"]
    newest = [
        format_request_and_answer(
            approval,
            over=True,
            origin=approval.sent_from.text if approval.sent_from is not None else "",
            plans=view.plans,
        )
        for approval in answered[-MAX_SHOWN_ANSWERS:]
    ]
    earlier = len(answered) - len(newest)
    return [format_count(earlier, "earlier answer"), *newest] if earlier else newest


def _newest_compactions(view: TaskView) -> list[str]:
    newest = [format_compaction(compaction) for compaction in view.compactions[-MAX_SHOWN_COMPACTIONS:]]
    earlier = view.sum_compactions().count - len(newest)
    shown = [format_count(earlier, "earlier compaction"), *newest] if earlier else newest
    at_work = (
        {step.id for step in view.steps if step.state not in ENDED_STEP_STATES} if not view.phase.over else set[str]()
    )
    if undoable := [made for made in view.compactions if made.agent in at_work and made.status.made_room]:
        shown.append(f"To undo a compaction: {format_restore_command(view.task_id, undoable[-1])}")
    return shown


def format_restore_command(task_id: str, compaction: AgentCompactionView) -> str:
    """Format the command that undoes a compaction of a running agent."""
    return f"waystation restore {task_id} --agent {compaction.agent} --compaction {compaction.id[:SHORT_ID]}"


def format_budget(view: TaskView) -> str:
    """Format the task's account in one line."""
    budget = view.budget
    return (
        f"{format_used_amount(budget.spent, budget.limit)} spent, "
        f"{format_in_units_of(budget.reserved, budget.limit)} reserved; "
        f"{'; '.join(format_work_totals(view))}; "
        f"cost: {format_task_cost(view)}; {view.usage.cached_share:.0%} of the input cached; "
        f"{_models(view)}"
    )


def _models(view: TaskView) -> str:
    if not view.models:
        return f"model {view.model}"
    return "models " + ", ".join(f"{model} ({role})" for role, model in view.models.items())


def build_steps_table(view: TaskView) -> Table:
    """Build a table with one row per step."""
    rows = [
        (
            step.id,
            step.role,
            step.state,
            str(step.legs),
            format_short_spent(step.spent, step.limit),
            format_short_limit(step.limit),
            step.reason,
        )
        for step in view.steps
    ]
    return _table(("step", "role", "state", "legs", "spent", "limit", "why"), rows)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """Build a table in which only the last column is shortened on a narrow terminal: a cut number is a different
    number, and a cut id cannot be copied.
    """
    table = Table(box=None, pad_edge=False)
    for place, heading in enumerate(headings[:-1]):
        widest = max(len(heading), *(len(row[place]) for row in rows)) if rows else 0
        table.add_column(heading, no_wrap=True, min_width=widest)
    table.add_column(headings[-1], min_width=len(headings[-1]), overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def format_compaction(compaction: AgentCompactionView) -> str:
    """Format one compaction in one line."""
    waiting = f" ({compaction.passages_waiting} still waiting)" if compaction.passages_waiting else ""
    # A compaction that freed nothing has no id to name.
    name = f" {compaction.id[:SHORT_ID]}" if compaction.status.made_room else ""
    return (
        f"{compaction.agent}: compaction{name} {compaction.status}, {compaction.tokens_before:,} to "
        f"{compaction.tokens_after:,} tokens, {format_count(compaction.passages, 'passage')} for memory{waiting}, "
        f"{format_count(compaction.redactions, 'redaction')}"
    )


def render_changes(before: TaskView | None, view: TaskView, now: datetime, width: int) -> tuple[str, ...]:
    """Return a sentence or block for each change between two looks, for output that cannot be redrawn.

    Compactions, answers and refusals that existed at the first look are only counted: they did not happen now.
    """
    lines = _steps(before, view)
    lines += _compacted(before, view)
    lines += [f"Note: {note}" for note in _new(before.notes if before else (), view.notes)]
    if before is None or before.phase != view.phase:
        lines.append(f"{view.task_id} is {view.phase}")
    known = before.approvals if before else ()
    lines += [format_request(one, now, width) for one in list_pending_approvals(view) if one.approval not in known]
    answered = [one for one in _new(known, view.approvals) if one.decision != "pending"]
    refused = _new(before.rejected_messages if before else (), view.rejected_messages)
    if before is None:
        lines += _earlier(len(answered), "answer") + _earlier(len(refused), "rejected message")
    else:
        lines += [format_request_and_answer(one, over=False) for one in answered]
        lines += [f"Rejected `{rejected.signal}`: {rejected.reason}" for rejected in refused]
    lines += _new(before.waiting_for if before is not None else (), view.waiting_for)
    if view.remark and (before is None or before.remark != view.remark):
        lines.append(view.remark)
    return tuple(lines)


def _compacted(then: TaskView | None, now: TaskView) -> list[str]:
    """Format new compactions, and in one line the number of others that became visible."""
    found = _new(then.compactions if then else (), now.compactions)
    # A forked task may be shown before it has the agents that it reuses: those were compacted in another task.
    reused = (
        now.reused_work.agents if now.reused_work is not None and (then is None or then.reused_work is None) else ()
    )
    new = [made for made in found if then is not None and made.agent not in reused]
    count = now.sum_compactions().count - (then.sum_compactions().count if then is not None else 0)
    return _earlier(count - len(new), "compaction") + [format_compaction(made) for made in new]


def _earlier(count: int, what: str) -> list[str]:
    return [format_count(count, f"earlier {what}")] if count else []


def _steps(then: TaskView | None, now: TaskView) -> list[str]:
    known = {step.id: (step.state, step.legs) for step in then.steps} if then else {}
    return [
        f"{step.id} is {step.state}: {format_used_amount(step.spent, step.limit)} spent"
        for step in now.steps
        if step.state != "waiting" and known.get(step.id) != (step.state, step.legs)
    ]


def _new(before: Sequence[T], now: Iterable[T]) -> list[T]:
    return [thing for thing in now if thing not in before]


MIN_CUT_COLUMNS = 10
"""Minimum columns of the last cell of a cut line, however narrow the terminal is."""


def format_columns(rows: Sequence[Sequence[str | Text]], width: int) -> list[Text]:
    """Format one line per row, in columns; the last one is cut if the terminal is too narrow."""
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    widths = [max(cell.cell_len for cell in column) for column in zip(*cells, strict=True)]
    room = max(width - sum(widths[:-1]) - 2 * (len(widths) - 1), MIN_CUT_COLUMNS)
    for row in cells:
        for cell, wide in zip(row[:-1], widths, strict=False):
            cell.pad_right(wide - cell.cell_len)
        row[-1].truncate(room, overflow="ellipsis")
    return [Text("  ").join(row) for row in cells]


def shorten_task_id(task_id: str) -> str:
    """Return the beginning of a task's id, which is enough to name it."""
    return task_id.removeprefix("task-")[:SHORT_ID]


def format_request_rows(waiting: Sequence[PendingApproval], now: datetime, width: int) -> list[Text]:
    """Format pending requests in the given order, one line each: task, request, deadline, subject, question."""
    return format_columns(
        [
            (
                shorten_task_id(one.task_id),
                one.approval.request_id,
                _until(one.approval.answer_by, now),
                format_requested(one.approval),
                sanitize_line(one.title) or NOTHING,
            )
            for one in waiting
        ],
        width,
    )


def _until(answer_by: datetime | None, now: datetime) -> Text:
    if answer_by is None:
        return Text(NOTHING)
    return Text(f"until {format_moment(answer_by, now)}") if answer_by > now else Text("overdue", style="bold yellow")


def format_message(message: Message, remarks: Sequence[str] = ()) -> str:
    """Format one message of a transcript, with remarks in its heading.

    Only headings and labels of ours begin a line: every other line is indented, so that no text looks like one.
    """
    declined = f"declined ({message.refusal}), not sent to the model again" if message.refusal else ""
    return "\n".join(
        [
            " · ".join([f"[{message.id}] {message.role}", *filter(None, [message.fallback_model, declined]), *remarks]),
            *(_block_text(block) for block in message.blocks),
            "",
        ]
    )


def _block_text(block: Block) -> str:
    match block:
        case TextBlock():
            return format_indented_text(block.text)
        case Thinking():
            return f"(thinks) {_continued(block.thinking)}"
        case RedactedThinking():
            return "(thinking, encrypted by the provider)"
        case OpaqueBlock():
            return f"({block.kind.replace('_', ' ')})"
        case ToolUse():
            return f"(calls {block.name}) {block.input}"
        case ToolResult():
            return f"({'error' if block.is_error else 'result'}) {_continued(block.content)}"


_INDENT = "  "


def format_indented_text(text: str) -> str:
    """Indent every line of a text that has characters."""
    return indent(text, _INDENT)


def _continued(text: str) -> str:
    """Indent the lines after the first one, which stands behind a label."""
    first, newline, rest = text.partition("\n")
    return first + newline + format_indented_text(rest)


_HEADINGS = (
    ("", "", "", "", "cache", "cache", "", ""),
    ("", "kind", "calls", "input", "write", "read", "output", "cost"),
)
_WORDS = 2
"""Number of text columns, at the left; the others are numbers."""


class _Section(NamedTuple):
    heading: str
    lines: Sequence[CostLine]


def format_cost_report(bill: CostBreakdown, width: int) -> str:
    """Format a task's cost for a terminal of this many columns: as a table if it fits, else as a list.

    Numbers are never cut.
    """
    reused = () if bill.reused is None else bill.reused.format_sentences(bill.reused.agents)
    if not bill.lines:
        silent = ["no model call has a reply yet", *_open(bill)]
        return "\n".join([*(silent if bill.possibly_billed else ["no cost yet: no model was called"]), *reused])
    sections = _sections(bill)
    table = _bill_table(sections)
    fits = max(len(line) for line in table) <= width
    return "\n".join([*(table if fits else _list(sections)), *_remarks(bill), *reused])


def format_temporal_actions(counted: TemporalActionCounts | None) -> str:
    """Format the number of Temporal actions, and what they are."""
    if counted is None:
        return "Temporal actions: unknown, because the Temporal server no longer has the task's history"
    kinds = (
        (counted.workflows, "start of a workflow", "starts of workflows (each child workflow is two actions)"),
        (counted.activities, "attempt of an activity", "attempts of activities"),
        (counted.updates, "Update", "Updates"),
        (counted.signals, "signal", "signals"),
        (counted.timers, "timer", "timers"),
        (counted.search_attribute_updates, "update of search attributes", "updates of search attributes"),
    )
    parts = [f"  {number:,} {one if number == 1 else several}" for number, one, several in kinds if number]
    least = "" if counted.complete else "at least "
    return "\n".join(
        [
            f"Temporal actions of the task and its child workflows: {least}{counted.total:,}",
            *parts,
            "  not included: queries, heartbeats, and the session's workflow",
        ]
    )


def _sections(bill: CostBreakdown) -> list[_Section]:
    """Return the sections: by model, then the total, and the share of compactions, numbered."""
    models = dict.fromkeys(line.model for line in bill.lines)
    sections = [_Section(model, [line for line in bill.lines if line.model == model]) for model in models]
    sections.append(_Section("", [bill.total.replace(agent="total")]))
    if bill.compactions:
        numbered = [line.replace(kind=f"no. {n}") for n, line in enumerate(bill.compactions, 1)]
        sections.append(_Section("of these, compactions", numbered))
    return sections


def _bill_table(sections: Sequence[_Section]) -> list[str]:
    rows = [_cells(section, line) for section in sections for line in section.lines]
    widths = [max(len(cell) for cell in column) for column in zip(*_HEADINGS, *rows, strict=True)]
    lines = [_aligned(heading, widths) for heading in _HEADINGS]
    for section in sections:
        lines += [section.heading] if section.heading else []
        lines += [_aligned(_cells(section, line), widths) for line in section.lines]
    return lines


def _cells(section: _Section, line: CostLine) -> tuple[str, ...]:
    usage = line.usage
    numbers = (line.calls, usage.input, usage.cache_write, usage.cache_read, usage.output)
    return _name(section, line), line.kind, *(f"{number:,}" for number in numbers), _price(line)


def _name(section: _Section, line: CostLine) -> str:
    return f"  {line.agent}" if section.heading else line.agent


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    aligned = [
        cell.ljust(width) if column < _WORDS else cell.rjust(width)
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
                f"{name}: {format_count(line.calls, 'call')}, {_price(line)}",
                f"    {usage.input:,} input, {usage.output:,} output",
                f"    cache: {usage.cache_write:,} written, {usage.cache_read:,} read",
            ]
    return lines


def _price(line: CostLine) -> str:
    return UNPRICED if line.cost_micro_usd is None else format_usd(line.cost_micro_usd)


def _remarks(bill: CostBreakdown) -> list[str]:
    remarks = _open(bill)
    usage = bill.total.usage
    if bill.possibly_billed:
        remarks.insert(
            0,
            "counts as spent, including calls that may have been billed without a reply: "
            f"{format_amount(bill.counted)}",
        )
    remarks.insert(0, f"counts as spent: {usage.fresh:,} tokens (uncached input, cache writes and output)")
    if usage.searches:
        remarks.append(f"web searches by the provider, included in the cost: {usage.searches:,}")
    if usage.estimated:
        remarks.append(
            f"estimated upper bound, because the endpoint did not report the usage: {usage.estimated:,} tokens"
        )
    remarks += bill.model_substitutions
    if waited := bill.total.waited_ms:
        remarks.append(f"waited for the provider's rate limit, all calls together: {waited / 1000:,.1f} s")
    if dropped := bill.total.dropped_thinking:
        remarks.append(
            f"blocks of thinking that the provider left out, because the text before them had changed: {dropped:,}"
        )
    remarks += [
        "beginning of a request not read from the cache, according to the provider: "
        f"{reason} ({format_count(times, 'time')})"
        for reason, times in bill.total.cache_misses.items()
    ]
    remarks.insert(0, f"{usage.cached_share:.1%} of the input was read from the provider's cache")
    return ["", *remarks]


def _open(bill: CostBreakdown) -> list[str]:
    """Format calls without a reply, which are in progress or will never have one, and models without a price."""
    named = f"{UNPRICED}: {', '.join(bill.unpriced_models)}; add prices to a file and set WAYSTATION_PRICES to its path"
    return [
        f"{call.agent}: call {call.intent.key} has no reply so far; possibly billed, "
        f"{format_amount(call.intent.worst_case)} at most"
        for call in bill.possibly_billed
    ] + ([named] if bill.unpriced_models else [])


def format_prices(known: Sequence[Price]) -> str:
    """Format each price in one line, by source, model and day."""
    sources = dict.fromkeys(price.source for price in known)
    ordered = sorted(known, key=lambda price: (price.model, price.since))
    return "\n\n".join(
        "\n".join(
            [
                f"Prices for a million tokens. Source: {source}",
                *(_price_text(price) for price in ordered if price.source == source),
            ]
        )
        for source in sources
    )


def _price_text(price: Price) -> str:
    since = "" if price.since == date.min else f" from {price.since} on"
    rates, longer = price.rates, price.long_prompts
    cached = f"{_rate(rates.cache_write)} cache write, {_rate(rates.cache_read)} cache read"
    dearer = (
        "" if longer is None else f"; if the prompt has more than {longer.over:,} tokens, {_in_and_out(longer.rates)}"
    )
    return f"{price.model}{since}: {_in_and_out(rates)}, {cached}{dearer}"


def _in_and_out(rates: TokenRates) -> str:
    return f"{_rate(rates.input)} in, {_rate(rates.output)} out"


def _rate(rate: Decimal) -> str:
    """Format a rate exactly, with cents unless it is in whole dollars."""
    whole, point, cents = f"{rate.normalize():f}".partition(".")
    return f"${whole}{point}{cents.ljust(2, '0') if point else ''}"
