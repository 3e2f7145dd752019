"""What a person reads in the Temporal UI: a task's current details as Markdown lists. No text from the work.

A request to call a tool in words, for the Temporal UI: the question, redacted, and the signals that answer.

A request in words: what it is for, what a denial delivers, who answered. No text from the work.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from textwrap import indent

from pydantic import JsonValue

from waystation.agents.agent_run import BudgetForecast, format_unanswered_call
from waystation.agents.decisions import IN_ADVANCE, ActionQuestion
from waystation.agents.delegation import get_delegation_depth, get_parent_id
from waystation.agents.deliverables import WorkCounts
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, format_usd, format_used_amount
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count
from waystation.models.profiles import OFFLINE_MODEL
from waystation.security.untrusted import LONGEST_NOTE, plain_words, render_claimed_name, sanitize_line
from waystation.tasks.approvals import plan_waits
from waystation.tasks.task import Approval, StepProgress, TaskPhase, TaskProgress

CODE = " " * 4
"""Markdown shows what is indented by so much as it is: no fence that the words hold ends it, and no link works."""


def action_details(task_id: str, approval: Approval, question: ActionQuestion) -> str:
    """What is asked, and what to send; Markdown."""
    yes = json.dumps({"request_id": approval.request_id, "action": question.tool, "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "note": "why, for the agent", "by": "name"})
    deadline = f"- its deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}" if approval.answer_by is not None else ""
    parts = [
        f"**{approval.agent} asks to call {question.tool}.** It is called once, with exactly what is said here:",
        indent(question.text, CODE),
        hidden_text(task_id, approval.agent, question),
        deadline,
        f"To have it called, send the signal `approve_budget` with\n\n```json\n{yes}\n```",
        f"To have the agent go on without it, send `deny_budget` with\n\n```json\n{no}\n```",
    ]
    return "\n\n".join(filter(None, parts))


def hidden_text(task_id: str, agent: str, question: ActionQuestion) -> str:
    """Where the whole call is read, if not all of it is shown; else empty."""
    if not question.hidden:
        return ""
    command = f"waystation transcript {task_id} --agent {agent}"
    return f"{question.hidden:,} more characters are not shown: `{command}` ends with the whole call."


UNPRICED = "price unknown"
ABOUT_DIGITS = 2
"""Figures of a number that is said to be about right."""


def in_units(amount: Amount, limit: Limit) -> str:
    """The amount in the units of its limit, also where it is nothing: `$0.00` and no tokens of a budget in dollars."""
    if limit.unlimited:
        return format_amount(amount)
    tokens, micro_usd = limit.tokens is not None, limit.micro_usd is not None
    return format_limit(
        Limit(tokens=amount.tokens if tokens else None, micro_usd=amount.micro_usd if micro_usd else None)
    )


def estimate_line(seen: BudgetForecast, asked: Amount) -> str:
    """`7 calls so far, about 4,200 tokens each: 30,000 tokens more are worth about 7`; and what a ceiling leaves."""
    text = "no call so far"
    if seen.calls:
        text = f"{format_count(seen.calls, 'call')} so far, about {format_amount(_about(seen.each))} each"
    if seen.unanswered:
        text = f"{text}; {format_unanswered_call(seen.unanswered)}"
    if not seen.grantable:
        room = f"the task's ceiling leaves {format_limit(seen.room)} for grants, too little for its next call"
        return f"{text}; {room}: deny it, or cancel the task"
    if seen.calls and seen.worth:
        text = f"{text}: {format_amount(asked)} more are worth about {seen.worth:,}"
    if not seen.finishing.subtract_clamped(asked).nothing:
        text = (
            f"{text}; finishing the task may take about {format_amount(_about(seen.finishing))} more at the pace so far"
        )
    if not seen.room.can_cover(asked):
        text = f"{text}; the task's ceiling leaves {format_limit(seen.room)} for grants: approve no more than that"
    return text


def least_text(approval: Approval) -> str:
    """The smallest grant that helps, and why it is so much more than the mean: it follows on `at least`."""
    worst = approval.limit.counted(approval.limit.after(approval.spent).amount + approval.needed)
    return (
        f"{format_amount(approval.needed)}: its next call is made when {in_units(worst, approval.limit)} are there, "
        "the "
        "most that request and longest reply can come to, though most cost far less; a smaller grant pauses again"
    )


def steps_text(approval: Approval) -> str:
    """What the task had spent, how many of its steps were finished, and what stays reserved for those to come."""
    spent, seen = f"the task had spent {in_units(approval.task_spent, approval.limit)}", approval.outlook
    if seen is None:
        return f"{spent}, with {format_count(approval.steps_left, 'step')} to finish"
    text = f"{spent}, with {seen.finished} of {format_count(seen.finished + approval.steps_left, 'step')} finished"
    keep = "keeps its" if seen.to_come == 1 else "keep their"
    return f"{text}; {seen.to_come} to come {keep} {in_units(seen.kept, approval.limit)}" if seen.to_come else text


def made_text(made: WorkCounts) -> str:
    """`3 notes and 1 section`; `nothing`."""
    counts = ((made.notes, "note"), (made.findings, "finding"), (made.sections, "section"))
    return _listed([format_count(number, noun) for number, noun in counts if number]) or "nothing"


def plan_details(task_id: str, approval: Approval) -> str:
    """What the plan is, and what to send; Markdown."""
    sent = json.dumps({"request_id": approval.request_id, "by": "name"})
    deadline = f" Its deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}." if approval.answer_by is not None else ""
    what = (
        f"**The plan waits to be agreed to**: its {format_count(approval.steps_left, 'step')} are below, with what "
        "each may "
        f"spend; `waystation plan {task_id}` has what each is to do, and `--edit` changes it."
    )
    if not approval.asked.nothing:
        what = f"**A {plan_waits(approval)[0]}**: `waystation plan {task_id}` has what each is to do."
    denied = "end the task" if approval.asked.nothing else "keep the plan as it was"
    return (
        f"{what}{deadline}\nTo work by it, send the signal `approve_budget`, to {denied} `deny_budget`, with"
        f"\n\n```json\n{sent}\n```"
    )


def denial_text(seen: BudgetForecast, agent: str) -> str:
    """What a denial delivers that does not cancel the task: it follows on `if denied`."""
    has = made_text(seen.made)
    if (parent := get_parent_id(agent)) is not None:
        return f"{agent} hands {has} back to {parent}, which goes on with that, and the task ends partial"
    if seen.needed_by:
        goes_on = "goes" if len(seen.needed_by) == 1 else "go"
        return f"{agent} ends with {has}, {_listed(seen.needed_by)} {goes_on} on with that, and the task ends partial"
    return f"{agent} ends with {has}, and the report is partial: what other steps found stands in for the rest"


def answer_text(approval: Approval, *, over: bool, origin: str = "") -> str:
    """A request and its answer, for an audit, on one line: a name or a note could else go on with an answer of its own.

    `origin`: where the answer came from, where that is known.
    """
    asked = _asked(approval)
    known = f"verified by {sanitize_line(approval.verified)}" if approval.verified else "a name as given"
    claim = "; ".join(filter(None, (known if approval.by else "", origin)))
    by = f" by {render_claimed_name(approval.by)} ({claim})" if claim else ""
    note = f": {sanitize_line(approval.note, LONGEST_NOTE)}" if approval.note else ""
    granted = "" if approval.granted.nothing else f"{format_amount(approval.granted)} "
    match approval.decision:
        case "pending":
            return f"{asked}; {'nobody answered' if over else 'not answered yet'}"
        case "approved" if approval.by == IN_ADVANCE:
            return f"{asked}; {granted}were {IN_ADVANCE}{note}"
        case "approved":
            return f"{asked}; {granted}approved{by}{note}"
        case "denied" | "withdrawn" as end:
            return f"{asked}; {end}{by}{note}"
        case "expired" if approval.action is not None and approval.note:
            return f"{asked}; not answered, since {approval.note}"
        case "expired":
            end = "its deadline" if approval.answer_by is not None else "the task's end"
            return f"{asked}; nobody answered until {end}"


def _asked(approval: Approval) -> str:
    if approval.about_plan:
        return f"the plan, of {format_count(approval.steps_left, 'step')}, was to be agreed to"
    if approval.action is not None:
        return f"{approval.agent} asked to call {approval.action.tool}"
    after = f" after {format_count(approval.outlook.calls, 'call')}" if approval.outlook is not None else ""
    if approval.reason:
        return f"{approval.agent} made no more calls{after} ({approval.reason})"
    return f"{approval.agent} asked for {format_amount(approval.asked)}{after}"


def _about(amount: Amount) -> Amount:
    return Amount(tokens=_rounded(amount.tokens), micro_usd=_rounded(amount.micro_usd))


def _rounded(number: int) -> int:
    return round(number, min(0, ABOUT_DIGITS - len(str(number))))


def _listed(items: Sequence[str]) -> str:
    return " and ".join([", ".join(items[:-1]), items[-1]]) if len(items) > 1 else "".join(items)


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
_SHOWN_REFUSALS = 3
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
        only_money = all(asked.action is None and not asked.about_plan for asked in _pending(progress))
        return f"Paused: {'a budget is spent and ' if only_money else ''}a person has to answer"
    return progress.phase.value.capitalize()


def _request(task_id: str, approval: Approval) -> str:
    if approval.action is not None:
        return action_details(task_id, approval, approval.action)
    if approval.about_plan:
        return plan_details(task_id, approval)
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
        f"**{approval.agent} asks for {format_amount(approval.asked)}.** It has spent "
        f"{format_used_amount(approval.spent, approval.limit)}.",
        "",
        *([f"- {estimate_line(seen, approval.asked)}"] if seen is not None else []),
        f"- at least {least_text(approval)}",
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


def fields_of_grant(amount: Amount | None) -> dict[str, JsonValue]:
    """The same of what was given, and none without it: then what was asked for is granted. Raises BadInput for an
    amount of nothing, which to a task would be none.
    """
    if amount is not None and amount.nothing:
        raise BadInput("an amount of nothing grants nothing: leave it out to grant what was asked for, or deny")
    return grant_fields(amount or Amount())


def limit_fields(limit: Limit) -> dict[str, JsonValue]:
    """The fields of the signal `set_session_limit` that set this limit."""
    return {"tokens": limit.tokens, "usd": limit.usd}


def _refusals(progress: TaskProgress) -> str:
    newest = progress.refusals[-_SHOWN_REFUSALS:]
    return "\n".join(f"- `{refusal.signal}` had no effect: {refusal.reason}" for refusal in newest)


def _edits(progress: TaskProgress) -> str:
    """Those that wait. What became of the others is noted."""
    return "\n".join(f"- {edit.text}" for edit in progress.edits if edit.state == "waiting")


def _step(step: StepProgress) -> str:
    used = "" if step.limit.unlimited else f", {format_used_amount(step.spent, step.limit)}"
    legs = f", {step.legs} leg{'s' if step.legs != 1 else ''}" if step.legs else ""
    reason = f": {plain_words(step.reason)}" if step.reason else ""
    indent = "  " * get_delegation_depth(step.id)
    title = plain_words(step.title)
    return f"{indent}- {MARKS[step.state]} **{step.id}** {title} ({step.role}): {step.state}{legs}{used}{reason}"


def _oversight(progress: TaskProgress) -> str:
    return "\n".join(f"- {one.text}" for one in (*progress.revisions, *progress.reviews))


def _budget(progress: TaskProgress) -> str:
    budget = progress.budget
    possibly = progress.totals.possibly_billed
    return (
        f"**Budget** {format_used_amount(budget.spent, budget.limit)} spent, "
        f"{in_units(budget.reserved, budget.limit)} reserved"
        + (f"; {possibly:,} possibly billed without a reply" if possibly else "")
        + f"; {cost_text(progress)}"
    )


def _work(progress: TaskProgress) -> str:
    made = progress.all_compactions
    if not made.made_room:
        return ""
    return f"**Context** {format_count(made.made_room, 'compaction')}, {made.hidden_tokens:,} tokens compressed away"


def privacy_text(progress: TaskProgress) -> str:
    """Under which policy text is redacted, where that is known."""
    return f"Privacy {progress.privacy}: {progress.privacy.text}" if progress.privacy is not None else ""


def work_text(progress: TaskProgress) -> tuple[str, str]:
    """Its legs and its compactions, counted. Of a fork also how many are of agents that it reuses: they were made, and
    paid, elsewhere, unless such an agent was taken back here.
    """
    reused = progress.reused.agents if progress.reused is not None else ()
    legs = sum(step.legs for step in progress.steps if step.id in reused)
    compactions = progress.compactions_of(reused).count
    return (
        f"{format_count(progress.legs, 'leg')}{_by_reused(legs)}",
        f"{format_count(progress.all_compactions.count, 'compaction')}{_by_reused(compactions)}",
    )


def _by_reused(number: int) -> str:
    return f" ({number:,} by reused agents)" if number else ""


def cost_text(progress: TaskProgress) -> str:
    """What the task has cost. An unknown price is said, never shown as zero."""
    micro_usd = known_cost(progress)
    return UNPRICED if micro_usd is None else format_usd(micro_usd)


def known_cost(progress: TaskProgress) -> int | None:
    """Millionths of a dollar; None where a model without a known price was used.

    So it was also where no call has its reply, and those that were possibly billed have no price. Under a budget in
    dollars all models have one, and replies that cost nothing say that their models are free.
    """
    totals, budgeted = progress.totals, progress.budget.limit.micro_usd is not None
    silent = totals.possibly_billed > 0 and not totals.possibly_billed_micro_usd and not totals.usage.total
    unpriced = silent and not budgeted and progress.model != OFFLINE_MODEL
    return None if unpriced else totals.cost_micro_usd


def span_text(span: timedelta) -> str:
    """How long something took, at a glance: `45s`, `12m`, `1h 20m`, `3d 4h`."""
    seconds = max(0, int(span.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60}m"
    return f"{minutes}m" if minutes else f"{seconds}s"


def moment_text(at: datetime) -> str:
    """When something was, to the minute: `2026-11-26 07:45 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
