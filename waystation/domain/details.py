"""What a person reads in the Temporal UI: a task's current details as Markdown lists. No text from the work."""

import json

from waystation.domain.models import OFFLINE_MODEL
from waystation.domain.pricing import dollars
from waystation.domain.task import Approval, StepProgress, TaskPhase, TaskProgress

MARKS = {
    "waiting": "○",
    "working": "●",
    "compacting": "●",
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
    parts = [f"**{_phase(progress)}**", *map(_request, _pending(progress)), _refusals(progress)]
    if progress.steps:
        parts.append("\n".join(["**Steps**", "", *map(_step, progress.steps)]))
    parts += [_budget(progress), _work(progress)]
    if progress.notes:
        parts.append("\n".join(["**Notes**", "", *(f"- {note}" for note in progress.notes)]))
    if progress.report:
        parts.append(f"Report: `waystation report {progress.task_id}`")
    text = "\n\n".join(filter(None, parts))
    return text if len(text.encode()) <= MAX_BYTES else text.encode()[:MAX_BYTES].decode(errors="ignore") + " …"


def _pending(progress: TaskProgress) -> list[Approval]:
    if progress.phase.over:
        return []
    return [approval for approval in progress.approvals if approval.decision == "pending"]


def _phase(progress: TaskProgress) -> str:
    if progress.phase is TaskPhase.PAUSED:
        return "Paused: a budget is spent and a person has to answer"
    return progress.phase.value.capitalize()


def _request(approval: Approval) -> str:
    yes = json.dumps({"request_id": approval.request_id, "tokens": approval.asked_tokens, "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "finish": "partial", "by": "name"})
    return (
        f"**{approval.agent} asks for {approval.asked_tokens:,} tokens.** It has spent {approval.spent:,} of "
        f"{approval.limit:,}, and its next call may need {approval.needed:,} more than it has left. The task had spent "
        f"{approval.task_spent:,}, with {approval.steps_left} steps to finish. To grant it, send the signal "
        f"`approve_budget` with\n\n```json\n{yes}\n```\n\nTo end this step with what it has, send `deny_budget` with"
        f"\n\n```json\n{no}\n```"
    )


def _refusals(progress: TaskProgress) -> str:
    newest = progress.refusals[-SHOWN_REFUSALS:]
    return "\n".join(f"- `{refusal.signal}` had no effect: {refusal.reason}" for refusal in newest)


def _step(step: StepProgress) -> str:
    used = f", {step.spent:,} of {step.limit:,} tokens" if step.limit else ""
    legs = f", {step.legs} leg{'s' if step.legs != 1 else ''}" if step.legs else ""
    reason = f": {step.reason}" if step.reason else ""
    return f"- {MARKS[step.state]} **{step.id}** {step.title} ({step.role}): {step.state}{legs}{used}{reason}"


def _budget(progress: TaskProgress) -> str:
    budget = progress.budget
    possibly = progress.totals.possibly_billed
    return (
        f"**Budget** {budget.spent:,} of {budget.limit:,} tokens spent, {budget.reserved:,} reserved"
        + (f"; {possibly:,} possibly billed without a reply" if possibly else "")
        + f"; {cost_text(progress)}"
    )


def _work(progress: TaskProgress) -> str:
    made = [item for item in progress.compactions if item.status.made_room]
    hidden = sum(item.tokens_before - item.tokens_after for item in made)
    count = f"{len(made)} compaction{'s' if len(made) != 1 else ''}"
    return f"**Context** {count}, {hidden:,} tokens compressed away" if made else ""


def cost_text(progress: TaskProgress) -> str:
    """What the task has cost. An unknown price is said, never shown as zero."""
    if progress.model == OFFLINE_MODEL:
        return "nothing, offline"
    micro_usd = progress.totals.cost_micro_usd
    return "price unknown" if micro_usd is None else dollars(micro_usd)
