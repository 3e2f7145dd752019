"""Renders a task for the Temporal UI and for commands: current details, requests, budgets, costs.

No text from the work.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from textwrap import indent

from pydantic import JsonValue

from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE
from waystation.agents.agent_run import format_unanswered_call
from waystation.agents.delegation import get_delegation_depth
from waystation.budgets.budget import MIN_BUDGET_TOKENS
from waystation.kernel.amount import (
    TOO_SMALL_GRANT,
    Amount,
    Limit,
    describe_forgotten_unit,
    format_amount,
    format_limit,
    format_usd,
    format_used_amount,
    parse_bounded_limit,
)
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count
from waystation.planning.plan import PlanVersion
from waystation.security.untrusted import MAX_NOTE_CHARACTERS, neutralize_markdown, render_claimed_name, sanitize_line
from waystation.tasks.approvals import describe_plan_request
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import (
    ApprovalView,
    BudgetForecastView,
    StepView,
    TaskView,
    ToolCallView,
    format_work_counts,
    to_micro_usd,
)

CODE_INDENT = " " * 4
"""Indentation of a Markdown code block: no fence in the text can end it, and links are inert."""


def render_action_details(task_id: str, approval: ApprovalView, question: ToolCallView) -> str:
    """Render the question and the signals that answer it as Markdown."""
    yes = json.dumps({"request_id": approval.request_id, "action": question.tool, "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "note": "why, for the agent", "by": "name"})
    deadline = f"- deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}" if approval.answer_by is not None else ""
    parts = [
        f"**{approval.agent} asks to call {question.tool}.** If the call is allowed, it is made once, with exactly "
        "these arguments:",
        indent(question.text, CODE_INDENT),
        format_hidden_call_hint(task_id, approval.agent, question),
        _format_replaced_hint(task_id, question),
        deadline,
        f"To allow the call, send the signal `approve_budget` with\n\n```json\n{yes}\n```",
        f"To let the agent continue without the call, send `deny_budget` with\n\n```json\n{no}\n```",
    ]
    return "\n\n".join(filter(None, parts))


def format_hidden_call_hint(task_id: str, agent: str, question: ToolCallView) -> str:
    """Return how to read the whole call if it is not shown completely; otherwise empty."""
    if not question.hidden:
        return ""
    command = f"waystation transcript {task_id} --agent {agent}"
    return f"{question.hidden:,} more characters are not shown: `{command}` shows the whole call at the end."


def _format_replaced_hint(task_id: str, question: ToolCallView) -> str:
    """Return where a person can read the values that the question replaces and the call sends; otherwise empty."""
    if not question.replaced:
        return ""
    count = format_count(len(question.replaced), "placeholder")
    return (
        f"The call sends the private values behind {count} above: `waystation approvals {task_id}` shows these values."
    )


UNPRICED = "price unknown"
SIGNIFICANT_DIGITS = 2
"""Significant digits of approximate numbers."""


def format_in_units_of(amount: Amount, limit: Limit) -> str:
    """Format the amount in the units of its limit, including zero: `$0.00` and no tokens for a budget in dollars."""
    if limit.is_unlimited:
        return format_amount(amount)
    tokens, micro_usd = limit.tokens is not None, limit.micro_usd is not None
    return format_limit(
        Limit(tokens=amount.tokens if tokens else None, micro_usd=amount.micro_usd if micro_usd else None)
    )


MIN_CALLS_FOR_AVERAGE = 3
"""Fewer calls say little of the next ones: then their number is shown."""


def format_budget_forecast(forecast: BudgetForecastView, asked: Amount) -> str:
    """Format what the requested amount buys, what finishing may take, and what the ceiling leaves.

    For example `about 7 more calls at an average of 4,200 tokens, with room for the longest reply; at the pace so far,
    the unfinished steps may need about 60,000 tokens more than they have`.
    """
    parts: list[str] = []
    if forecast.unanswered_call:
        parts.append(format_unanswered_call(forecast.unanswered_call))
    if not forecast.can_be_granted:
        room = f"the task's ceiling leaves {format_limit(forecast.grantable)} for grants"
        step = "too little for the agent's next call: deny the request, or cancel the task"
        return "; ".join([*parts, f"{room}, {step}"])
    if forecast.calls and forecast.affordable_calls:
        each = format_amount(round_amount(forecast.average_call))
        calls = format_count(forecast.affordable_calls, "more call")
        # The last call is only made if its worst case fits, so that the amount is more than calls times average.
        few = forecast.calls < MIN_CALLS_FOR_AVERAGE
        basis = f" (from {format_count(forecast.calls, 'call')} so far)" if few else ""
        parts.append(f"about {calls} at an average of {each}{basis}, with room for the longest reply")
    if not forecast.needed_to_finish.subtract_clamped(asked).is_zero:
        needed = format_amount(round_amount(forecast.needed_to_finish))
        parts.append(f"at the pace so far, the unfinished steps may need about {needed} more than they have")
    if not forecast.grantable.can_cover(asked):
        left = format_limit(forecast.grantable)
        parts.append(f"the task's ceiling leaves {left} for grants: approve no more than that")
    return "; ".join(parts) or "none yet"


def format_minimum_grant(approval: ApprovalView) -> str:
    """Format the smallest useful grant, and what a smaller one does; follows `minimum`."""
    return (
        f"{format_amount(approval.needed)}; if you grant less, and the task has no budget to spare, the agent cannot "
        "make its next call and asks again"
    )


def format_step_progress(approval: ApprovalView) -> str:
    """Format how many steps were finished when the agent asked, and what was reserved for later ones."""
    forecast = approval.forecast
    if forecast is None:
        return f"{format_count(approval.steps_left, 'step')} to finish"
    steps = format_count(forecast.steps_finished + approval.steps_left, "step")
    text = f"{forecast.steps_finished} of {steps} finished"
    if not forecast.steps_to_come:
        return text
    reserved = format_in_units_of(forecast.reserved_for_later, approval.limit)
    return f"{text}; {reserved} reserved for {format_count(forecast.steps_to_come, 'later step')}"


def render_plan_request_details(task_id: str, approval: ApprovalView) -> str:
    """Render a plan request and the signals that answer it as Markdown."""
    sent = json.dumps({"request_id": approval.request_id, "by": "name"})
    deadline = f" Deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}." if approval.answer_by is not None else ""
    what = (
        f"**The plan waits for approval.** Its {format_count(approval.steps_left, 'step')} are below, with the "
        f"budget of each. `waystation plan {task_id}` shows what each step does, and `--edit` changes the plan."
    )
    if not approval.requested.is_zero:
        waits, _ = describe_plan_request(approval.steps_left, approval.requested)
        what = f"**A {waits}**: `waystation plan {task_id}` shows what each step does."
    denied = "end the task" if approval.requested.is_zero else "keep the plan as it was"
    return (
        f"{what}{deadline}\nTo approve it, send the signal `approve_budget`. To {denied}, send `deny_budget`. "
        "Send either with"
        f"\n\n```json\n{sent}\n```"
    )


def format_request_and_answer(
    approval: ApprovalView, *, over: bool, origin: str = "", plans: Sequence[PlanVersion] = ()
) -> str:
    """Format a request and its answer for an audit, on one line, so that a name or a note cannot fake another entry.

    `origin`: where the answer came from, if known. `plans`: the versions of the task's plan, if known: a person may
    have approved another plan than the one that waited.
    """
    asked = _asked(approval)
    known = f"verified by {sanitize_line(approval.verified)}" if approval.verified else "name not verified"
    claim = "; ".join(filter(None, (known if approval.by else "", origin)))
    by = f" by {render_claimed_name(approval.by)} ({claim})" if claim else ""
    note = f": {sanitize_line(approval.note, MAX_NOTE_CHARACTERS)}" if approval.note else ""
    granted = "" if approval.granted.is_zero else f"{format_amount(approval.granted)} "
    sent = next(
        (one.plan for one in plans if approval.about_plan and one.made_by.startswith(f"{approval.request_id}/")), None
    )
    if sent is not None:
        granted = f"an edited plan with {format_count(len(sent.steps), 'step')} {granted}"
    match approval.decision:
        case "pending":
            return f"{asked}; {'no one answered' if over else 'not answered yet'}"
        case "approved" if approval.by == AUTHORISED_IN_ADVANCE:
            return f"{asked}; {granted}{AUTHORISED_IN_ADVANCE}{note}"
        case "approved":
            return f"{asked}; {granted}approved{by}{note}"
        case "denied" | "withdrawn" as end:
            return f"{asked}; {end}{by}{note}"
        case "expired" if approval.note:
            return f"{asked}; not answered, because {approval.note}"
        case "expired":
            end = "its deadline" if approval.answer_by is not None else "the task's end"
            return f"{asked}; not answered by {end}"


def _asked(approval: ApprovalView) -> str:
    if approval.about_plan:
        return f"approval was asked for the plan with {format_count(approval.steps_left, 'step')}"
    if approval.action is not None:
        return f"{approval.agent} asked to call {approval.action.tool}"
    after = f" after {format_count(approval.forecast.calls, 'call')}" if approval.forecast is not None else ""
    if approval.reason:
        return f"{approval.agent} made no more calls{after} ({approval.reason})"
    return f"{approval.agent} asked for {format_amount(approval.requested)}{after}"


def round_amount(amount: Amount) -> Amount:
    """Round an estimated amount to its significant digits."""
    return Amount(tokens=_rounded(amount.tokens), micro_usd=_rounded(amount.micro_usd))


def _rounded(number: int) -> int:
    return round(number, min(0, SIGNIFICANT_DIGITS - len(str(number))))


STEP_STATE_MARKS = {
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
MAX_DETAILS_BYTES = 18_000
"""Maximum size of the details; the server accepts 20,000 bytes, encoded."""


def render_task_details(view: TaskView) -> str:
    """Render phase, pending requests with the signals that answer them, steps, budget and notes."""
    requests = [_request(view.task_id, asked) for asked in view.pending_approvals]
    parts = [f"**{_phase(view)}**", *requests, _refusals(view), _edits(view)]
    if view.steps:
        parts.append("\n".join(["**Steps**", "", *map(_step, view.steps)]))
    parts += [_oversight(view), _budget(view), _work(view), format_privacy(view)]
    if view.notes:
        parts.append("\n".join(["**Notes**", "", *(f"- {neutralize_markdown(note)}" for note in view.notes)]))
    if view.reports:
        parts.append(f"Report: `waystation report {view.task_id}`")
    text = "\n\n".join(filter(None, parts))
    return (
        text
        if len(text.encode()) <= MAX_DETAILS_BYTES
        else text.encode()[:MAX_DETAILS_BYTES].decode(errors="ignore") + " …"
    )


def _phase(view: TaskView) -> str:
    if view.phase is TaskPhase.PAUSED:
        only_money = not any(asked.action or asked.about_plan or asked.reason for asked in view.pending_approvals)
        return f"Paused: {'a budget is spent, and ' if only_money else ''}a person has to answer"
    return view.phase.value.capitalize()


def _request(task_id: str, approval: ApprovalView) -> str:
    if approval.action is not None:
        return render_action_details(task_id, approval, approval.action)
    if approval.about_plan:
        return render_plan_request_details(task_id, approval)
    yes = json.dumps({"request_id": approval.request_id, **build_grant_fields(approval.requested), "by": "name"})
    no = json.dumps({"request_id": approval.request_id, "finish": "partial", "by": "name"})
    return (
        f"{_why(approval)}\nTo continue, send the signal `approve_budget` with\n\n```json\n{yes}\n```\n\nTo end this "
        f"step with what it has, send `deny_budget` with\n\n```json\n{no}\n```"
    )


def _why(approval: ApprovalView) -> str:
    seen = approval.forecast
    if approval.reason:
        made = f" So far: {format_work_counts(seen.work)}." if seen is not None else ""
        return f"**{approval.agent} makes no more calls: {approval.reason}.** Fix this first, then approve.{made}"
    lines = [
        f"**{approval.agent} asks for {format_amount(approval.requested)}.** It has spent "
        f"{format_used_amount(approval.spent, approval.limit)}.",
        "",
        *(
            [f"- estimate for the requested amount: {format_budget_forecast(seen, approval.requested)}"]
            if seen is not None
            else []
        ),
        f"- minimum: {format_minimum_grant(approval)}",
        f"- when the agent asked, the task had spent {format_in_units_of(approval.task_spent, approval.limit)}, with "
        f"{format_step_progress(approval)}",
    ]
    if seen is not None:
        lines += [
            f"- so far: {format_work_counts(seen.work)}",
            f"- if denied: {seen.if_denied}",
        ]
    if approval.answer_by is not None:
        lines.append(f"- deadline: {approval.answer_by:%Y-%m-%d %H:%M %Z}")
    return "\n".join([*lines, ""])


def build_grant_fields(amount: Amount) -> dict[str, JsonValue]:
    """Build the fields of the signal `approve_budget` that grant this amount."""
    fields: dict[str, JsonValue] = {"tokens": amount.tokens} if amount.tokens else {}
    return fields | ({"usd": amount.usd} if amount.micro_usd else {})


def validate_grant(amount: Amount | None) -> Amount | None:
    """Return the amount; None grants what was requested.

    Raises BadInput for a zero amount, which a task would read as none.
    """
    if amount is not None and amount.is_zero:
        raise BadInput(
            "an amount of zero grants nothing: leave the amount out to grant the requested one, or deny the request"
        )
    return amount


def parse_grant(written: str) -> Amount:
    """Parse an amount to grant, as people write it.

    Raises BadInput; also for a plain small number, whose unit was probably forgotten.
    """
    if question := describe_forgotten_unit(written, TOO_SMALL_GRANT, MIN_BUDGET_TOKENS):
        raise BadInput(question)
    try:
        amount = parse_bounded_limit(written, Amount()).amount
    except ValueError as error:
        raise BadInput(f"an amount is {error}") from error
    validate_grant(amount)
    return amount


def build_limit_fields(limit: Limit) -> dict[str, JsonValue]:
    """Build the fields of the signal `set_session_limit` that set this limit."""
    return {"tokens": limit.tokens, "usd": limit.usd}


def _refusals(view: TaskView) -> str:
    newest = view.rejected_messages[-_SHOWN_REFUSALS:]
    return "\n".join(
        f"- The message `{refusal.signal}` had no effect: {neutralize_markdown(refusal.reason)}" for refusal in newest
    )


def _edits(view: TaskView) -> str:
    """Render the waiting edits. The results of the others are in the notes."""
    return "\n".join(f"- {edit.text}" for edit in view.context_edits if edit.state == "waiting")


def _step(step: StepView) -> str:
    used = "" if step.limit.is_unlimited else f", {format_used_amount(step.spent, step.limit)}"
    legs = f", {step.legs} leg{'s' if step.legs != 1 else ''}" if step.legs else ""
    reason = f": {neutralize_markdown(step.reason)}" if step.reason else ""
    indent = "  " * get_delegation_depth(step.id)
    title = neutralize_markdown(step.title)
    return (
        f"{indent}- {STEP_STATE_MARKS[step.state]} **{step.id}** {title} ({step.role}): "
        f"{step.state}{legs}{used}{reason}"
    )


def _oversight(view: TaskView) -> str:
    return "\n".join(f"- {one.text}" for one in (*view.revisions, *view.reviews, *view.judgements))


def _budget(view: TaskView) -> str:
    budget = view.budget
    possibly = view.possibly_billed.tokens
    return (
        f"**Budget** {format_used_amount(budget.spent, budget.limit)} spent, "
        f"{format_in_units_of(budget.reserved, budget.limit)} reserved"
        + (f"; {possibly:,} tokens possibly billed without a reply" if possibly else "")
        + f"; cost: {format_task_cost(view)}"
    )


def _work(view: TaskView) -> str:
    made = view.sum_compactions()
    if not made.effective_count:
        return ""
    return f"**Context** {format_count(made.effective_count, 'compaction')}, {made.hidden_tokens:,} tokens saved"


def format_privacy(view: TaskView) -> str:
    """Format the redaction policy, if known."""
    return f"Privacy {view.privacy}: {view.privacy.text}" if view.privacy is not None else ""


def format_work_totals(view: TaskView) -> tuple[str, str]:
    """Format the number of legs and compactions.

    For a fork also how many are by reused agents: they were made and paid for elsewhere, unless such an agent was
    rewound here.
    """
    reused = view.reused_work.agents if view.reused_work is not None else ()
    legs = sum(step.legs for step in view.steps if step.id in reused)
    compactions = view.sum_compactions(reused).count
    return (
        f"{format_count(view.legs, 'leg')}{_by_reused(legs)}",
        f"{format_count(view.sum_compactions().count, 'compaction')}{_by_reused(compactions)}",
    )


def _by_reused(number: int) -> str:
    return f" ({number:,} by reused agents)" if number else ""


def format_task_cost(view: TaskView) -> str:
    """Format what the task has cost. An unknown price is stated, never shown as zero."""
    micro_usd = to_micro_usd(view.cost_usd)
    return UNPRICED if micro_usd is None else format_usd(micro_usd)


def format_time_span(span: timedelta) -> str:
    """Format a duration: `45s`, `12m`, `1h 20m`, `3d 4h`."""
    seconds = max(0, int(span.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60}m"
    return f"{minutes}m" if minutes else f"{seconds}s"


def format_utc_minute(at: datetime) -> str:
    """Format a time to the minute: `2026-11-26 07:45 UTC`."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
