"""Tasks as text: tables for a terminal, sentences for what happened between two looks. Pure: values in, text out."""

from collections.abc import Iterable, Sequence
from textwrap import shorten
from typing import TypeVar

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from waystation.cli.amounts import short_tokens
from waystation.domain.compaction.outcome import AgentCompaction
from waystation.domain.details import cost_text
from waystation.domain.messages import Block, Message, RedactedThinking, Thinking, ToolResult, ToolUse
from waystation.domain.messages import Text as TextBlock
from waystation.domain.task import Approval, TaskPhase, TaskProgress
from waystation.seen import PendingApproval, TaskView

PHASE_STYLES = {
    TaskPhase.DONE: "green",
    TaskPhase.PARTIAL: "yellow",
    TaskPhase.PAUSED: "bold yellow",
    TaskPhase.FAILED: "red",
    TaskPhase.CANCELLED: "red",
}
NOTHING = "-"
SHOWN_COMPACTIONS = 3
"""The newest ones: a screen that is redrawn in place must not grow over the terminal's height."""
TITLE_CHARACTERS = 60
"""Of a question, in a list of tasks."""
T = TypeVar("T")


def counted(number: int, noun: str) -> str:
    """The number with its noun: 1 leg, 2 legs."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def approve_command(task_id: str, approval: Approval) -> str:
    """The command that grants what was asked for."""
    return f"waystation approve {task_id} --request {approval.request_id} --add {approval.asked_tokens}"


def deny_command(task_id: str, approval: Approval) -> str:
    """The command that refuses it and takes what there is."""
    return f"waystation deny {task_id} --request {approval.request_id} --finish partial"


def pending(progress: TaskProgress) -> tuple[Approval, ...]:
    """Requests without an answer."""
    return tuple(approval for approval in progress.approvals if approval.decision == "pending")


def pause_text(task_id: str, approval: Approval) -> str:
    """What a pause is about, and how to end it."""
    return (
        f"Paused: {approval.agent} has spent {approval.spent:,} of its {approval.limit:,} tokens and asks for "
        f"{approval.asked_tokens:,} more.\n"
        f"  its next call may need up to {approval.needed:,} more than it has left: a smaller grant pauses again\n"
        f"  when it asked, the task had spent {approval.task_spent:,}, with "
        f"{counted(approval.steps_left, 'step')} to finish\n"
        f"  approve: {approve_command(task_id, approval)}\n"
        f"  or end with what there is: {deny_command(task_id, approval)}"
    )


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
    lines += [Text(pause_text(progress.task_id, approval), style="yellow") for approval in pending(progress)]
    lines += [Text(f"Refused: {refusal.signal}: {refusal.reason}", style="red") for refusal in progress.refusals]
    if view.remark:
        lines.append(Text(view.remark, style="yellow"))
    if view.ui_url:
        lines.append(Text(view.ui_url, style="blue"))
    return Group(*lines)


def _newest_compactions(progress: TaskProgress) -> list[str]:
    newest = [compaction_text(compaction) for compaction in progress.compactions[-SHOWN_COMPACTIONS:]]
    earlier = len(progress.compactions) - len(newest)
    return [counted(earlier, "earlier compaction"), *newest] if earlier else newest


def budget_text(progress: TaskProgress) -> str:
    """The task's account in one line."""
    budget = progress.budget
    return (
        f"{budget.spent:,} of {budget.limit:,} tokens spent, {budget.reserved:,} reserved; "
        f"{counted(progress.legs, 'leg')}; {counted(len(progress.compactions), 'compaction')}; "
        f"cost {cost_text(progress)}; model {progress.model}"
    )


def steps_table(progress: TaskProgress) -> Table:
    """One row a step."""
    table = Table("step", "role", "state", "legs", "spent", "limit", "why", box=None, pad_edge=False)
    for step in progress.steps:
        numbers = (str(step.legs), short_tokens(step.spent), short_tokens(step.limit))
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
        f"{step.id} is {step.state}: {counted(step.legs, 'leg')}, {step.spent:,} of {step.limit:,} tokens"
        for step in now.steps
        if step.state != "waiting" and known.get(step.id) != (step.state, step.legs)
    ]


def _approval_line(task_id: str, approval: Approval) -> str:
    match approval.decision:
        case "pending":
            return pause_text(task_id, approval)
        case "approved":
            return (
                f"Approved by {approval.by or 'nobody named'}: {approval.granted_tokens:,} tokens for {approval.agent}"
            )
        case "denied":
            return f"Denied by {approval.by or 'nobody named'}: {approval.agent} ends ({approval.finish})"


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
            short_tokens(progress.budget.spent),
            short_tokens(progress.budget.limit),
            cost_text(progress),
            escape(shorten(progress.title, TITLE_CHARACTERS, placeholder=" …")) or NOTHING,
        )
    return table


def approvals_text(waiting: Sequence[PendingApproval]) -> str:
    """Everything that waits, with the commands that answer it."""
    return "\n".join(f"{one.task_id}  {one.title}\n{pause_text(one.task_id, one.approval)}" for one in waiting)


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
        case ToolUse():
            return f"(calls {block.name}) {block.input}"
        case ToolResult():
            return f"({'error' if block.is_error else 'result'}) {block.content}"
