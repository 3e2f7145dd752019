"""What a person reads in the Temporal UI: a task's current details as Markdown lists. No text from the work."""

import json

from pydantic import JsonValue

from waystation.domain.action_text import action_details
from waystation.domain.amount import Amount, Limit, amount_text, dollars, used_text
from waystation.domain.delegation import depth_of
from waystation.domain.foreign_text import plain_words
from waystation.domain.request_text import counted, denial_text, estimate_text, in_units, made_text, steps_text
from waystation.domain.task import Approval, StepProgress, TaskPhase, TaskProgress

MARKS = {
    "waiting": "○",
    "working": "●",
    "compacting": "●",
    "delegating": "◌",
    "paused": "‖",
    "done": "✓",
    "partial": "◐",
    "skipped": "–",
}
SHOWN_REFUSALS = 3
MAX_BYTES = 18_000
"""The server takes 20,000 bytes of details, encoded."""


def details(progress: TaskProgress) -> str:
    """Phase, pending approvals with the signal to send, steps, budget, notes."""
    requests = [_request(progress.task_id, asked) for asked in _pending(progress)]
    parts = [f"**{_phase(progress)}**", *requests, _refusals(progress), _edits(progress)]
    if progress.steps:
        parts.append("\n".join(["**Steps**", "", *map(_step, progress.steps)]))
    parts += [_oversight(progress), _budget(progress), _work(progress), privacy_text(progress)]
    if progress.notes:
        parts.append("\n".join(["**Notes**", "", *(f"- {plain_words(note)}" for note in progress.notes)]))
    if progress.versions:
        parts.append(f"Report: `waystation report {progress.task_id}`")
    text = "\n\n".join(filter(None, parts))
    return text if len(text.encode()) <= MAX_BYTES else text.encode()[:MAX_BYTES].decode(errors="ignore") + " …"


def _pending(progress: TaskProgress) -> list[Approval]:
    if progress.phase.over:
        return []
    return [approval for approval in progress.approvals if approval.decision == "pending"]


def _phase(progress: TaskProgress) -> str:
    if progress.phase is TaskPhase.PAUSED:
        only_money = all(asked.action is None for asked in _pending(progress))
        return f"Paused: {'a budget is spent and ' if only_money else ''}a person has to answer"
    return progress.phase.value.capitalize()


def _request(task_id: str, approval: Approval) -> str:
    if approval.action is not None:
        return action_details(task_id, approval, approval.action)
    yes = json.dumps({"request_id": approval.request_id, **grant_fields(approval.asked), "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "finish": "partial", "by": "name"})
    return (
        f"{_why(approval)}\nTo go on, send the signal `approve_budget` with\n\n```json\n{yes}\n```\n\nTo end this step "
        f"with what it has, send `deny_budget` with\n\n```json\n{no}\n```"
    )


def _why(approval: Approval) -> str:
    seen = approval.outlook
    if approval.reason:
        made = f" So far: {made_text(seen.made)}." if seen is not None else ""
        return f"**{approval.agent} makes no more calls: {approval.reason}.** See to it there first.{made}"
    lines = [
        f"**{approval.agent} asks for {amount_text(approval.asked)}.** It has spent "
        f"{used_text(approval.spent, approval.limit)}.",
        "",
        *([f"- {estimate_text(seen, approval.asked)}"] if seen is not None else []),
        f"- its next call may need {amount_text(approval.needed)} more than it has left",
        f"- when it asked, {steps_text(approval)}",
    ]
    if seen is not None:
        lines += [f"- so far: {made_text(seen.made)}", f"- if denied, {denial_text(seen, approval.agent)}"]
    if approval.answer_by is not None:
        lines.append(f"- its deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}")
    return "\n".join([*lines, ""])


def grant_fields(amount: Amount) -> dict[str, JsonValue]:
    """The fields of the signal `approve_budget` that grant so much."""
    fields: dict[str, JsonValue] = {"tokens": amount.tokens} if amount.tokens else {}
    return fields | ({"usd": amount.usd} if amount.micro_usd else {})


def limit_fields(limit: Limit) -> dict[str, JsonValue]:
    """The fields of the signal `set_session_limit` that set this limit."""
    return {"tokens": limit.tokens, "usd": limit.usd}


def _refusals(progress: TaskProgress) -> str:
    newest = progress.refusals[-SHOWN_REFUSALS:]
    return "\n".join(f"- `{refusal.signal}` had no effect: {refusal.reason}" for refusal in newest)


def _edits(progress: TaskProgress) -> str:
    """Those that wait. What became of the others is noted."""
    return "\n".join(f"- {edit.text}" for edit in progress.edits if edit.state == "waiting")


def _step(step: StepProgress) -> str:
    used = "" if step.limit.unlimited else f", {used_text(step.spent, step.limit)}"
    legs = f", {step.legs} leg{'s' if step.legs != 1 else ''}" if step.legs else ""
    reason = f": {plain_words(step.reason)}" if step.reason else ""
    indent = "  " * depth_of(step.id)
    title = plain_words(step.title)
    return f"{indent}- {MARKS[step.state]} **{step.id}** {title} ({step.role}): {step.state}{legs}{used}{reason}"


def _oversight(progress: TaskProgress) -> str:
    return "\n".join(f"- {one.text}" for one in (*progress.revisions, *progress.reviews))


def _budget(progress: TaskProgress) -> str:
    budget = progress.budget
    possibly = progress.totals.possibly_billed
    return (
        f"**Budget** {used_text(budget.spent, budget.limit)} spent, {in_units(budget.reserved, budget.limit)} reserved"
        + (f"; {possibly:,} possibly billed without a reply" if possibly else "")
        + f"; {cost_text(progress)}"
    )


def _work(progress: TaskProgress) -> str:
    made = [item for item in progress.compactions if item.status.made_room]
    hidden = sum(item.tokens_before - item.tokens_after for item in made)
    count = f"{len(made)} compaction{'s' if len(made) != 1 else ''}"
    return f"**Context** {count}, {hidden:,} tokens compressed away" if made else ""


def privacy_text(progress: TaskProgress) -> str:
    """Under which policy text is redacted, where that is known."""
    return f"Privacy {progress.privacy}: {progress.privacy.text}" if progress.privacy is not None else ""


def work_text(progress: TaskProgress) -> tuple[str, str]:
    """Its legs and its compactions, counted. Of a fork also how many are of agents that it reuses: they were made, and
    paid, elsewhere, unless such an agent was taken back here.
    """
    reused = progress.reused.agents if progress.reused is not None else ()
    legs = sum(step.legs for step in progress.steps if step.id in reused)
    compactions = sum(made.agent in reused for made in progress.compactions)
    return (
        f"{counted(progress.legs, 'leg')}{_by_reused(legs)}",
        f"{counted(len(progress.compactions), 'compaction')}{_by_reused(compactions)}",
    )


def _by_reused(number: int) -> str:
    return f" ({number:,} by reused agents)" if number else ""


def cost_text(progress: TaskProgress) -> str:
    """What the task has cost. An unknown price is said, never shown as zero."""
    micro_usd = progress.totals.cost_micro_usd
    return "price unknown" if micro_usd is None else dollars(micro_usd)
