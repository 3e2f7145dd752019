"""Tasks as text: tables for a terminal, sentences for what happened between two looks. Pure: values in, text out."""

import shlex
from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from waystation.cli.amounts import short_limit, short_spent, written
from waystation.domain.amount import amount_text, dollars, used_text
from waystation.domain.bill import Bill, BillLine
from waystation.domain.compaction.outcome import AgentCompaction
from waystation.domain.details import cost_text
from waystation.domain.messages import Block, Message, Opaque, RedactedThinking, Thinking, ToolResult, ToolUse
from waystation.domain.messages import Text as TextBlock
from waystation.domain.outlook import Outlook
from waystation.domain.request_text import answer_text, counted, denial_text, estimate_text, made_text, steps_text
from waystation.domain.task import Approval, TaskPhase, TaskProgress
from waystation.domain.work import Made
from waystation.seen import PendingApproval, TaskView

PHASE_STYLES = {
    TaskPhase.DONE: "green",
    TaskPhase.PARTIAL: "yellow",
    TaskPhase.PAUSED: "bold yellow",
    TaskPhase.FAILED: "red",
    TaskPhase.CANCELLED: "red",
}
NOTHING = "-"
SHOWN_COMPACTIONS = SHOWN_ANSWERS = 3
"""The newest ones: a screen that is redrawn in place must not grow over the terminal's height."""
TITLE_CHARACTERS = 60
"""Of a question, in a list of tasks."""
T = TypeVar("T")


def approve_command(task_id: str, approval: Approval) -> str:
    """The command that grants what was asked for."""
    add = "" if approval.asked.nothing else f" --add {shlex.quote(written(approval.asked))}"
    return f"waystation approve {task_id} --request {approval.request_id}{add}"


def deny_command(task_id: str, approval: Approval) -> str:
    """The command that refuses it and takes what there is."""
    return f"waystation deny {task_id} --request {approval.request_id} --finish partial"


def pending(progress: TaskProgress) -> tuple[Approval, ...]:
    """Requests without an answer."""
    return tuple(approval for approval in progress.approvals if approval.decision == "pending")


def pause_text(task_id: str, approval: Approval) -> str:
    """What a pause is about, and how to end it."""
    seen = approval.outlook
    lines = [_asking(approval), *_numbers(approval)]
    if seen is not None:
        lines.append(f"so far: {made_text(seen.made)}{_read_it(task_id, seen)}")
        lines.append(f"if denied, {denial_text(seen, approval.agent)}")
    if approval.answer_by is not None:
        lines.append(f"it waits until {approval.answer_by:%Y-%m-%d %H:%M %Z}")
    return "\n  ".join([*lines, *_answers(task_id, approval)])


def _asking(approval: Approval) -> str:
    if approval.reason:
        return f"Paused: {approval.agent} makes no more calls: {approval.reason}."
    return (
        f"Paused: {approval.agent} has spent {used_text(approval.spent, approval.limit)} and asks for "
        f"{amount_text(approval.asked)} more."
    )


def _numbers(approval: Approval) -> list[str]:
    """What the money is for, where it is money that is missing."""
    if approval.reason:
        return []
    estimate = [] if approval.outlook is None else [estimate_text(approval.outlook, approval.asked)]
    return [
        *estimate,
        f"its next call may need up to {amount_text(approval.needed)} more than it has left: a smaller grant pauses "
        "again",
        f"when it asked, {steps_text(approval)}",
    ]


def _read_it(task_id: str, seen: Outlook) -> str:
    return "" if seen.made == Made() and not seen.finished else f"; read it: waystation report {task_id} --draft"


def task_screen(view: TaskView) -> RenderableType:
    """The whole task, for a terminal."""
    progress = view.progress
    style = PHASE_STYLES.get(progress.phase, "cyan")
    heading = Text.assemble((progress.task_id, "bold"), "  ", (progress.phase, style), "  ", progress.title)
    lines: list[RenderableType] = [heading, budget_text(progress)]
    if progress.steps:
        lines.append(steps_table(progress))
    lines += [Text(line, style="dim") for line in _newest_compactions(progress)]
    lines += [Text(f"Note: {note}") for note in progress.notes]
    lines += [Text(line) for line in _answered(view)]
    lines += [Text(pause_text(progress.task_id, approval), style="yellow") for approval in pending(progress)]
    lines += [Text(f"Refused: {refusal.signal}: {refusal.reason}", style="red") for refusal in progress.refusals]
    if view.remark:
        lines.append(Text(view.remark, style="yellow"))
    if view.ui_url:
        lines.append(Text(view.ui_url, style="blue"))
    return Group(*lines)


def _answered(view: TaskView) -> list[str]:
    """Requests that have their answer, and who gave it."""
    answered = [approval for approval in view.progress.approvals if approval.decision != "pending"]
    origins = {request_id: origin.text for request_id, origin in view.origins.items()}
    newest = [
        answer_text(approval, over=True, origin=origins.get(approval.request_id, ""))
        for approval in answered[-SHOWN_ANSWERS:]
    ]
    earlier = len(answered) - len(newest)
    return [counted(earlier, "earlier answer"), *newest] if earlier else newest


def _newest_compactions(progress: TaskProgress) -> list[str]:
    newest = [compaction_text(compaction) for compaction in progress.compactions[-SHOWN_COMPACTIONS:]]
    earlier = len(progress.compactions) - len(newest)
    return [counted(earlier, "earlier compaction"), *newest] if earlier else newest


def budget_text(progress: TaskProgress) -> str:
    """The task's account in one line."""
    budget = progress.budget
    return (
        f"{used_text(budget.spent, budget.limit)} spent, {amount_text(budget.reserved)} reserved; "
        f"{counted(progress.legs, 'leg')}; {counted(len(progress.compactions), 'compaction')}; "
        f"cost {cost_text(progress)}; model {progress.model}"
    )


def steps_table(progress: TaskProgress) -> Table:
    """One row a step."""
    table = Table("step", "role", "state", "legs", "spent", "limit", "why", box=None, pad_edge=False)
    for step in progress.steps:
        numbers = (str(step.legs), short_spent(step.spent, step.limit), short_limit(step.limit))
        table.add_row(step.id, step.role, step.state, *numbers, escape(step.reason))
    return table


def compaction_text(compaction: AgentCompaction) -> str:
    """One compaction in one line."""
    waiting = f" ({compaction.passages_waiting} still waiting)" if compaction.passages_waiting else ""
    return (
        f"{compaction.agent} compacted: {compaction.status}, {compaction.tokens_before:,} to "
        f"{compaction.tokens_after:,} tokens, {counted(compaction.passages, 'passage')} kept{waiting}, "
        f"{counted(compaction.redactions, 'redaction')}"
    )


def happened(before: TaskView | None, now: TaskView) -> tuple[str, ...]:
    """What changed between two looks, a sentence each, for output that cannot be redrawn."""
    then = before.progress if before is not None else None
    progress = now.progress
    lines = _steps(then, progress)
    lines += [compaction_text(made) for made in _new(then.compactions if then else (), progress.compactions)]
    lines += [f"Note: {note}" for note in _new(then.notes if then else (), progress.notes)]
    if then is None or then.phase != progress.phase:
        lines.append(f"{progress.task_id} is {progress.phase}")
    for approval in _new(then.approvals if then else (), progress.approvals):
        lines.append(_approval_line(progress.task_id, approval))
    for refusal in _new(then.refusals if then else (), progress.refusals):
        lines.append(f"Refused: {refusal.signal}: {refusal.reason}")
    if now.remark and (before is None or before.remark != now.remark):
        lines.append(now.remark)
    return tuple(lines)


def _steps(then: TaskProgress | None, now: TaskProgress) -> list[str]:
    known = {step.id: (step.state, step.legs) for step in then.steps} if then else {}
    return [
        f"{step.id} is {step.state}: {counted(step.legs, 'leg')}, {used_text(step.spent, step.limit)}"
        for step in now.steps
        if step.state != "waiting" and known.get(step.id) != (step.state, step.legs)
    ]


def _approval_line(task_id: str, approval: Approval) -> str:
    if approval.decision == "pending":
        return pause_text(task_id, approval)
    return answer_text(approval, over=False)


def _new(before: Sequence[T], now: Iterable[T]) -> list[T]:
    return [thing for thing in now if thing not in before]


def tasks_table(views: Sequence[TaskView]) -> Table:
    """One row a task."""
    table = Table(box=None, pad_edge=False)
    for heading in ("task", "phase", "spent", "budget", "cost"):
        # Only the question gives way on a narrow terminal: an id that is cut cannot be copied.
        table.add_column(heading, no_wrap=True)
    table.add_column("question")
    for view in views:
        progress = view.progress
        table.add_row(
            progress.task_id,
            Text(progress.phase, style=PHASE_STYLES.get(progress.phase, "cyan")),
            short_spent(progress.budget.spent, progress.budget.limit),
            short_limit(progress.budget.limit),
            cost_text(progress),
            escape(shorten(progress.title, TITLE_CHARACTERS, placeholder=" …")) or NOTHING,
        )
    return table


def approvals_text(waiting: Sequence[PendingApproval]) -> str:
    """Everything that waits, the most urgent first, with the commands that answer it."""
    return "\n\n".join(_waiting_text(one) for one in waiting)


def _waiting_text(one: PendingApproval) -> str:
    """In brief: all of it is in `waystation show`."""
    approval, seen = one.approval, one.approval.outlook
    asks = f"asks for {amount_text(approval.asked)} more"
    what = f"makes no more calls: {approval.reason}" if approval.reason else asks
    since = f", since {approval.requested_at:%Y-%m-%d %H:%M %Z}" if approval.requested_at else ""
    until = f"; it waits until {approval.answer_by:%Y-%m-%d %H:%M %Z}" if approval.answer_by else ""
    lines = [f"{one.task_id}  {one.title}", f"{approval.agent} {what}{since}{until}"]
    if seen is not None:
        lines += [estimate_text(seen, approval.asked), f"if denied, {denial_text(seen, approval.agent)}"]
    return "\n  ".join([*lines, *_answers(one.task_id, approval)])


def _answers(task_id: str, approval: Approval) -> tuple[str, str]:
    go_on = "when that is mended, go on" if approval.reason else "approve"
    return (
        f"{go_on}: {approve_command(task_id, approval)}",
        f"or end with what there is: {deny_command(task_id, approval)}",
    )


def bill_screen(bill: Bill) -> RenderableType:
    """What a task has cost, for a terminal."""
    if not bill.lines:
        return Text("nothing yet: no model was called")
    parts: list[RenderableType] = [_bill_table("kind", (*bill.lines, bill.total.model_copy(update={"agent": "total"})))]
    if bill.compactions:
        parts += ["", _bill_table("compaction", bill.compactions)]
    for call in bill.possibly_billed:
        at_most = amount_text(call.intent.worst_case)
        parts.append(Text(f"{call.agent}: {call.intent.key} was never answered; possibly billed, {at_most} at most"))
    return Group(*parts)


def _bill_table(kind: str, lines: Sequence[BillLine]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("agent", "model", kind):
        table.add_column(heading, no_wrap=True)
    for heading in ("calls", "input", "cache write", "cache read", "output", "cost"):
        table.add_column(heading, justify="right")
    for line in lines:
        usage = line.usage
        numbers = (line.calls, usage.input, usage.cache_write, usage.cache_read, usage.output)
        price = "price unknown" if line.cost_micro_usd is None else dollars(line.cost_micro_usd)
        table.add_row(line.agent, line.model, line.kind, *(f"{number:,}" for number in numbers), price)
    return table


def message_text(message: Message) -> str:
    """One message of a transcript."""
    return "\n".join([f"[{message.id}] {message.role}", *(_block_text(block) for block in message.blocks), ""])


def _block_text(block: Block) -> str:
    match block:
        case TextBlock():
            return block.text
        case Thinking():
            return f"(thinks) {block.thinking}"
        case RedactedThinking():
            return "(thinks, sealed by the provider)"
        case Opaque():
            return f"({block.kind.replace('_', ' ')})"
        case ToolUse():
            return f"(calls {block.name}) {block.input}"
        case ToolResult():
            return f"({'error' if block.is_error else 'result'}) {block.content}"
