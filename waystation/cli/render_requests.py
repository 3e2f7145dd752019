"""Renders requests as blocks of text: what each is for, and the commands that answer it, never broken over lines.

A tool's own text is rendered so that it cannot be mistaken for lines of ours.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from textwrap import wrap

from waystation.agents.deliverables import WorkCounts
from waystation.cli.options import format_amount_option
from waystation.kernel.amount import format_amount, format_limit, format_used_amount
from waystation.kernel.text import format_count
from waystation.security.untrusted import sanitize_line
from waystation.tasks.approvals import describe_plan_request
from waystation.tasks.details import (
    format_budget_forecast,
    format_hidden_call_hint,
    format_in_units_of,
    format_minimum_grant,
    format_step_progress,
)
from waystation.tasks.view import (
    ApprovalView,
    BudgetForecastView,
    PendingApproval,
    TaskBudgetView,
    ToolCallView,
    format_work_counts,
)

BAR = "  | "
"""Prefix of every line of the question, however narrow the terminal is."""
MIN_TEXT_COLUMNS = 20


def format_question(one: PendingApproval, question: ToolCallView, width: int) -> list[str]:
    """Format the question, and where to read the rest of it."""
    room = max(width - len(BAR), MIN_TEXT_COLUMNS)
    words = [part for line in question.text.split("\n") for part in wrap(line, room, drop_whitespace=False) or [""]]
    rest = format_hidden_call_hint(one.task_id, one.approval.agent, question)
    return [*(f"{BAR}{part}" for part in words), *([f"  {rest}"] if rest else [])]


def build_action_rows(one: PendingApproval) -> list[tuple[str, str]]:
    """Return label and text of what each answer does."""
    agent = one.approval.agent
    return [
        ("if approved", "the tool is called once, with exactly these arguments"),
        ("if denied", f"{agent} continues without the call, and reads your `--note`"),
    ]


MIN_COLUMNS = 40
"""Minimum columns at which words are still wrapped."""
INDENT = "  "
LABEL = 11
"""Minimum columns of the labels of a block."""
MOMENT = "%Y-%m-%d %H:%M %Z"


def format_approve_command(task_id: str, approval: ApprovalView) -> str:
    """Format the command that grants the request."""
    add = "" if approval.requested.is_zero else f" --add {shlex.quote(format_amount_option(approval.requested))}"
    return f"waystation approve {task_id} --request {approval.request_id}{add}"


def format_deny_command(task_id: str, approval: ApprovalView) -> str:
    """Format the command that denies it and delivers a partial report, or continues without the tool call."""
    finish = " --finish partial" if approval.action is None and not approval.about_plan else ""
    return f"waystation deny {task_id} --request {approval.request_id}{finish}"


def format_requested(approval: ApprovalView) -> str:
    """Format the requested amount or action in a few words."""
    if approval.about_plan:
        return f"plan of {format_count(approval.steps_left, 'step')}"
    if approval.action is not None:
        return f"call {sanitize_line(approval.action.tool)}"
    return "no more calls" if approval.reason else f"{format_amount(approval.requested)} more"


def format_requests_by_task(
    waiting: Sequence[PendingApproval], now: datetime, width: int, *, verbose: bool = False
) -> str:
    """Format pending requests in the given order, under their tasks; consecutive requests share the task's heading."""
    found: list[str] = []
    for (task_id, title), requests in groupby(waiting, key=lambda one: (one.task_id, one.title)):
        first, *others = (format_request(one, now, width, verbose=verbose) for one in requests)
        found += ["\n".join([*_wrapped(f"{task_id}  {title}", width), first]), *others]
    return "\n\n".join(found)


def format_request(one: PendingApproval, now: datetime, width: int, *, verbose: bool = False) -> str:
    """Format who asks for what and why, what the amount buys, what a denial delivers, and the commands that answer it.

    Words are wrapped at `width` columns, commands are not. Times are in the zone of `now`.
    """
    approval = one.approval
    if approval.about_plan:
        what = describe_plan_request(approval.steps_left, approval.requested)[0]
    elif approval.action is not None:
        what = f"{approval.agent} asks to call {approval.action.tool}"
    elif approval.reason:
        what = f"{approval.agent} makes no more calls: {approval.reason}"
    else:
        spent = format_used_amount(approval.spent, approval.limit)
        what = f"{approval.agent} asks for {format_amount(approval.requested)} more: it has spent {spent}"
    lines = _wrapped(what, width)
    if approval.action is not None:
        lines += format_question(one, approval.action, width)
    facts = _facts(one, now, verbose=verbose)
    columns = max([LABEL, *(len(label) + len(INDENT) for label, _ in facts)])
    for label, text in facts:
        lines += _wrapped(text, width, f"{INDENT}{label:<{columns}}")
    return "\n".join([*lines, *(f"{INDENT}{command}" for command in _commands(one))])


def _facts(one: PendingApproval, now: datetime, *, verbose: bool) -> list[tuple[str, str]]:
    approval, forecast = one.approval, one.approval.forecast
    facts: list[tuple[str, str]] = []
    if approval.about_plan:
        facts += [(step.role, f"{step.title} (budget: {format_limit(step.limit)})") for step in one.steps]
        facts += [
            ("if approved", "the steps of the plan begin"),
            ("if denied", describe_plan_request(approval.steps_left, approval.requested)[1]),
        ]
    elif approval.action is not None:
        facts += build_action_rows(one)
    elif approval.reason:
        facts += [("next", "fix this, then approve")]
    elif forecast is not None:
        facts += [("estimate", format_budget_forecast(forecast, approval.requested))]
    if forecast is not None:
        facts += [("if denied", forecast.if_denied)]
    if approval.answer_by is not None:
        facts.append(_deadline(one, approval.answer_by, now))
    if verbose:
        facts += _details(one, now)
    return facts


def _details(one: PendingApproval, now: datetime) -> list[tuple[str, str]]:
    """Return what is shown on request: when it asked, what the task has, and the minimum."""
    approval, forecast = one.approval, one.approval.forecast
    facts: list[tuple[str, str]] = []
    if approval.requested_at is not None:
        facts.append(("since", f"{approval.requested_at.astimezone(now.tzinfo):{MOMENT}}"))
    if approval.about_plan or approval.action is not None:
        return facts
    facts.append(("task", f"{_task_spent(one)}; {format_step_progress(approval)}"))
    rest = _rest(approval, one.task_budget) if one.task_budget is not None else ""
    if rest:
        facts.append(("left", rest))
    if not approval.reason:
        facts.append(("minimum", format_minimum_grant(approval)))
    if forecast is not None:
        facts.append(("so far", _so_far(forecast)))
    return facts


def _task_spent(one: PendingApproval) -> str:
    if one.task_budget is None:
        spent = format_in_units_of(one.approval.task_spent, one.approval.limit)
        return f"had spent {spent} when the agent asked"
    return f"spent {format_used_amount(one.task_budget.spent, one.task_budget.limit)}"


def _rest(approval: ApprovalView, budget: TaskBudgetView) -> str:
    """Describe where the task's unspent budget is, which this agent cannot use."""
    left = budget.limit.remaining_after(budget.spent).amount
    own = budget.limit.restrict_to_limited_units(approval.limit.remaining_after(approval.spent).amount).min_with(
        budget.reserved
    )
    others, free = budget.reserved.subtract_clamped(own), left.subtract_clamped(budget.reserved)
    parts = (
        (others, "reserved for other steps"),
        (own, "for this agent"),
        (free, "unreserved"),
    )
    where = ", ".join(f"{format_amount(amount)} {what}" for amount, what in parts if not amount.is_zero)
    return f"{format_amount(left)} unspent in the task: {where}" if where else ""


def _deadline(one: PendingApproval, answer_by: datetime, now: datetime) -> tuple[str, str]:
    """Describe what a deadline does. A running task ends its requests itself, if configured to."""
    agent, moment = one.approval.agent, f"{answer_by.astimezone(now.tzinfo):{MOMENT}}"
    if one.approval.about_plan:
        effect = "the task ends" if one.approval.requested.is_zero else "the revised plan is discarded"
    elif one.approval.action is not None:
        effect = f"{agent} continues without the call"
    else:
        effect = f"{agent} delivers what it has"
    if answer_by > now:
        match one.at_deadline:
            case "partial":
                return "until", f"{moment}; then {effect}"
            case "wait":
                return "until", f"{moment}; after that, the request is overdue and keeps waiting"
            case None:
                return "until", moment
    if one.at_deadline == "partial":
        return "overdue", f"since {moment}: as soon as a worker runs, {effect}"
    return "overdue", f"since {moment}: the request keeps waiting until someone answers"


def _so_far(forecast: BudgetForecastView) -> str:
    if forecast.work != WorkCounts():
        return f"{format_work_counts(forecast.work)}, which the draft contains"
    return "nothing; the draft contains the findings of other steps" if forecast.steps_finished else "nothing"


def _commands(one: PendingApproval) -> list[str]:
    forecast = one.approval.forecast
    readable = forecast is not None and (forecast.work != WorkCounts() or forecast.steps_finished > 0)
    draft = [f"waystation report {one.task_id} --draft"] if readable else []
    if one.approval.about_plan:
        edit = [f"waystation plan {one.task_id} --edit"] if one.approval.requested.is_zero else []
        draft = [f"waystation plan {one.task_id}", *edit]
    return [*draft, format_approve_command(one.task_id, one.approval), format_deny_command(one.task_id, one.approval)]


def _wrapped(text: str, width: int, lead: str = "") -> list[str]:
    return wrap(
        text,
        max(width, MIN_COLUMNS),
        initial_indent=lead,
        subsequent_indent=" " * len(lead) or INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )
