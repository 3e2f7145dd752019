"""Notifications of people about a task or a schedule: in words for chats, and in fields for programs."""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from html import unescape

from pydantic import JsonValue

from waystation.agents.agent_run import format_unanswered_call
from waystation.kernel.amount import Amount, Limit, format_amount, format_used_amount
from waystation.kernel.temporal_names import SCHEDULE_ID_PREFIX, make_notification_id_prefix
from waystation.kernel.value import Value
from waystation.security.untrusted import neutralize_markdown, strip_invisible_characters
from waystation.tasks.approvals import describe_plan_request
from waystation.tasks.task import ApprovalRequest, TaskPhase


class NotificationEvent(StrEnum):
    """Kinds of notifications."""

    ASKED = "budget_asked"
    """An agent asks for more budget, or for approval of a tool call."""
    OVERDUE = "budget_overdue"
    """The deadline of a request has passed; it still waits for an answer."""
    EXPIRED = "budget_expired"
    """The deadline of a request has passed; its agent delivers what it has, or goes on without the call."""
    WITHDRAWN = "budget_withdrawn"
    """A request no longer needs an answer: budget was released, and its agent goes on with that."""
    FINISHED = "task_finished"
    """The task has ended with a report: done, partial or cancelled."""
    FAILED = "task_failed"


ENDINGS = {
    TaskPhase.DONE: "is done",
    TaskPhase.PARTIAL: "ended with an incomplete report",
    TaskPhase.CANCELLED: "was cancelled, and its report has the work so far",
}


class TaskNotification(Value):
    """An event of a task: references, numbers and the redacted title. No text from the work."""

    event: NotificationEvent
    task_id: str
    title: str
    """The redacted question, shortened."""
    phase: TaskPhase
    at: datetime
    spent: Amount
    """Spent by the whole task."""
    limit: Limit
    request: ApprovalRequest | None = None
    """The request concerned."""
    reason: str = ""
    """Why the task failed."""

    @property
    def workflow_id(self) -> str:
        """ID of the workflow that it is about."""
        return self.task_id

    @property
    def event_name(self) -> str:
        """Event name for programs.

        `action_asked` instead of `budget_asked` for a tool call, `plan_asked` for a plan.
        """
        if self.request is not None and self.request.about_plan:
            return self.event.replace("budget_", "plan_")
        about_action = self.request is not None and self.request.action is not None
        return self.event.replace("budget_", "action_") if about_action else self.event.value

    @property
    def delivery_id(self) -> str:
        """ID of the delivery: the same for the same event, whenever and however often it is sent."""
        about = self.phase if self.request is None else f"{self.event}-{self.request.request_id}"
        return f"{make_notification_id_prefix(self.task_id)}{about}"

    @property
    def summary(self) -> str:
        """A few plain words for a list."""
        if self.request is None:
            return f"{self.task_id}: {self.phase}"
        if self.event is NotificationEvent.ASKED:
            return f"{self.task_id}: new request {self.request.request_id}"
        return f"{self.task_id}: request {self.request.request_id} {self.event.removeprefix('budget_')}"


class ScheduleEvent(StrEnum):
    """Kinds of notifications about a schedule. Its tasks send their own."""

    RUN_FAILED = "schedule_run_failed"
    """A run failed without a task that could report it: none started, or it was terminated."""
    OVER_BUDGET = "schedule_over_budget"
    """A run started no task, because the monthly budget is used up."""
    PAUSED = "schedule_paused"
    """The schedule has paused after failures in a row, of which the last one just happened."""


class ScheduleNotification(Value):
    """An event of a schedule. The server has all of it in plain text: no word of the question, no path."""

    event: ScheduleEvent
    schedule_id: str
    run_id: str
    """Workflow ID of the run."""
    at: datetime
    reason: str

    @property
    def name(self) -> str:
        """Name of the schedule; before it, its ID has the hash of the tenant."""
        return self.schedule_id.removeprefix(SCHEDULE_ID_PREFIX).partition("-")[2]

    @property
    def workflow_id(self) -> str:
        """ID of the workflow that it is about."""
        return self.run_id

    @property
    def title(self) -> str:
        """What a list shows besides the summary."""
        return self.reason

    @property
    def request(self) -> None:
        """No notification of a schedule is about a request."""
        return

    @property
    def delivery_id(self) -> str:
        """ID of the delivery: one for each run and event."""
        return f"{make_notification_id_prefix(self.run_id)}{self.event}"

    @property
    def summary(self) -> str:
        """A few plain words for a list."""
        return f"schedule {self.name}: {self.event.removeprefix('schedule_').replace('_', ' ')}"


Notification = TaskNotification | ScheduleNotification


def render_mrkdwn(notice: Notification, link: str | None) -> str:
    """Render one or two sentences in Slack's mrkdwn: what happened, and what a person can do.

    `link`: the page of the task or schedule.
    """
    page = "" if link is None else f" · <{sanitize_mrkdwn_line(link)}|details>"
    if isinstance(notice, ScheduleNotification):
        return f"{_schedule_event(notice)}{page}"
    return f"{_event(notice)} {_next_step(notice)}{page}"


def render_plain_text(notice: Notification) -> str:
    """Render the same without markup."""
    first, _, rest = render_mrkdwn(notice, None).removeprefix("*").partition("*")
    return neutralise_markup(unescape(first + rest))


def neutralise_markup(told: str) -> str:
    """Neutralise Markdown and mentions, so that the text makes no links and notifies no one."""
    return neutralize_markdown(told).replace("@", "＠")


MAX_NOTIFICATIONS_PER_MESSAGE = 40


def render_digest(told: Sequence[tuple[Notification, str | None]], inbox: str | None) -> tuple[str, str]:
    """Render title and text of one message about several notifications, one line each if there are many.

    Args:
        told: Notifications, each with the page of its task.
        inbox: Page where requests are answered.
    """
    where = [f"Answer at {inbox}"] if inbox is not None and any(one.request is not None for one, _ in told) else []
    if len(told) == 1:
        ((one, link),) = told
        return one.summary, "\n\n".join([render_plain_text(one), *([link] if link is not None else []), *where])
    shown = told[:MAX_NOTIFICATIONS_PER_MESSAGE]
    lines = [f"- {one.summary}: “{neutralise_markup(one.title)}”{f' {link}' if link else ''}" for one, link in shown]
    more = [f"and {len(told) - len(lines)} more"] if len(told) > len(lines) else []
    return f"{len(told)} notices", "\n".join([*lines, *more, "", *(where or ["Answer with `waystation approvals`"])])


def build_webhook_fields(notice: Notification, link: str | None) -> dict[str, JsonValue]:
    """Build the fields for programs: flat, without nulls, amounts in tokens and dollars, times in ISO 8601."""
    if isinstance(notice, ScheduleNotification):
        seen: dict[str, JsonValue] = {
            "event": notice.event.value,
            "delivery_id": notice.delivery_id,
            "schedule": notice.name,
            "at": notice.at.isoformat(),
            "reason": strip_invisible_characters(notice.reason),
        }
        return seen | ({"link": link} if link is not None else {})
    told: dict[str, JsonValue] = {
        "event": notice.event_name,
        "delivery_id": notice.delivery_id,
        "task_id": notice.task_id,
        "title": strip_invisible_characters(notice.title),
        "phase": notice.phase.value,
        "at": notice.at.isoformat(),
        **_units("spent", notice.spent),
    }
    if notice.request is not None:
        told |= {
            "request_id": notice.request.request_id,
            "agent": notice.request.agent,
            **_units("asked", notice.request.requested),
        }
        if notice.request.action is not None:
            told["tool"] = strip_invisible_characters(notice.request.action.tool)
        if notice.request.answer_by is not None:
            told["answer_by"] = notice.request.answer_by.isoformat()
    reason = strip_invisible_characters(notice.request.reason if notice.request is not None else notice.reason)
    return told | ({"reason": reason} if reason else {}) | ({"link": link} if link is not None else {})


def sanitize_mrkdwn_line(words: str) -> str:
    """Return the text on one line, without Slack mentions, links or entities, and without invisible characters."""
    return strip_invisible_characters(words).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _no_code(words: str) -> str:
    """Replace backticks, which would end a code span, or start one that ends at the next command."""
    return sanitize_mrkdwn_line(words).replace("`", "｀")


def _units(name: str, amount: Amount) -> dict[str, JsonValue]:
    return {f"{name}_tokens": amount.tokens, f"{name}_usd": amount.micro_usd / 1_000_000}


def _schedule_event(notice: ScheduleNotification) -> str:
    which, reason = f"the schedule `{notice.name}`", sanitize_mrkdwn_line(notice.reason)
    match notice.event:
        case ScheduleEvent.RUN_FAILED:
            return f"*A run of {which} failed:* {reason}. State of the schedule: `waystation schedule list`"
        case ScheduleEvent.OVER_BUDGET:
            return f"*A run of {which} started no task, because the task could exceed the monthly budget:* {reason}."
        case ScheduleEvent.PAUSED:
            return (
                f"*{which[0].upper()}{which[1:]} is paused, because its runs failed:* {reason}. Continue with "
                f"`waystation schedule resume {notice.name}`"
            )


def _event(notice: TaskNotification) -> str:
    task, request = f"`{notice.task_id}`, “{_no_code(notice.title)}”", notice.request
    if request is None:
        ending = ENDINGS.get(notice.phase, "failed")
        because = f" ({sanitize_mrkdwn_line(notice.reason)})" if notice.reason else ""
        return f"*A task {ending}*{because}: {task}. It spent {format_used_amount(notice.spent, notice.limit)}."
    if notice.event is NotificationEvent.ASKED:
        return (
            f"{_asking(request)} The task is {task}, which has spent {format_used_amount(notice.spent, notice.limit)}."
        )
    if notice.event is NotificationEvent.WITHDRAWN:
        return (
            f"*The request `{request.request_id}` no longer needs an answer: {sanitize_mrkdwn_line(request.note)}.* "
            f"Its task is {task}."
        )
    if request.about_plan and notice.event is NotificationEvent.EXPIRED:
        first = request.requested.is_zero
        what, then = ("plan", "the task ends") if first else ("revision of the plan", "the plan stays as it was")
        return f"*The {what} `{request.request_id}` was not approved by its deadline: {then}.* Its task is {task}."
    expired = "the agent delivers what it has" if request.action is None else "the agent continues without the call"
    outcome = "it still waits" if notice.event is NotificationEvent.OVERDUE else expired
    return f"*The request `{request.request_id}` was not answered by its deadline: {outcome}.* Its task is {task}."


def _asking(request: ApprovalRequest) -> str:
    if request.reason:
        return (
            f"*`{request.agent}` makes no more calls until someone resolves this:* "
            f"{sanitize_mrkdwn_line(request.reason)}."
        )
    until = f" The deadline is {request.answer_by:%Y-%m-%d %H:%M %Z}." if request.answer_by else ""
    if request.action is not None:
        return f"*`{request.agent}` asks to call `{_no_code(request.action.tool)}`.*{until}"
    if request.about_plan:
        return f"*A {describe_plan_request(request.steps_left, request.requested)[0]}.*{until}"
    cause = request.forecast.no_reply_reason if request.forecast is not None else ""
    call = sanitize_mrkdwn_line(format_unanswered_call(cause)) if cause else ""
    why = f" {call[0].upper()}{call[1:]}." if call else ""
    return f"*`{request.agent}` asks for {format_amount(request.requested)}.*{why}{until}"


def _next_step(notice: TaskNotification) -> str:
    if notice.event is NotificationEvent.FINISHED:
        return f"Its report: `waystation report {notice.task_id}`"
    if (
        notice.event in {NotificationEvent.FAILED, NotificationEvent.EXPIRED, NotificationEvent.WITHDRAWN}
        or notice.request is None
    ):
        return f"Its state: `waystation show {notice.task_id}`"
    which, seen = f"{notice.task_id} --request {notice.request.request_id}", notice.request.forecast
    if seen is not None and not seen.covers_next_call:
        return (
            f"No grant under the task's ceiling is enough for the agent's next call. Deny the request with "
            f"`waystation deny {which}`, or cancel the task with `waystation cancel {notice.task_id}`"
        )
    look = f"See the call with `waystation show {notice.task_id}`. " if notice.request.action is not None else ""
    return f"{look}Answer with `waystation approve {which}` or `waystation deny {which}`"
