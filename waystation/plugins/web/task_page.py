"""Data and rendering of a task's page, and of its whole run as one file: plan, timeline, report, all transcripts.

Text of documents, models and people is escaped by the templates, and control characters are made visible.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from html import unescape
from pathlib import Path
from typing import Literal, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.concurrency import run_in_threadpool

from waystation.agents.agent_run import format_unanswered_call
from waystation.client import Client
from waystation.client.exports import ReportWithImprint
from waystation.client.submission import get_ignored_message_reason
from waystation.context.audit import MessageView, build_transcript_view
from waystation.context.transcript import Text, ToolResult, ToolUse
from waystation.documents.cited_passages import PassageLine
from waystation.documents.documents import Document
from waystation.kernel.amount import format_amount, format_limit, format_usd, format_usd_short, format_used_amount
from waystation.kernel.clock import utc_now
from waystation.kernel.text import format_count
from waystation.plugins.exports.page import render_html_body
from waystation.plugins.web.activity_page import build_work_address
from waystation.plugins.web.amounts import build_amount_choices, describe_next_call, describe_task_budget
from waystation.plugins.web.charts import SpendingChart, build_budget_bar, build_spending_charts
from waystation.plugins.web.diagrams import (
    BOX_HEIGHT,
    BOX_WIDTH,
    PlanDiagram,
    Timeline,
    build_plan_diagram,
    build_time_axis,
    build_timeline,
)
from waystation.plugins.web.event_feed import TaskEventCache
from waystation.privacy.policy import PLACEHOLDER_PATTERN
from waystation.reports.blocks import ExportedReport, NumberedSource, ReportMetadata, parse_stored_report
from waystation.reports.markdown import build_report_export
from waystation.security.untrusted import render_claimed_name, replace_control_characters, sanitize_line
from waystation.tasks.approvals import APPROVE_BUDGET, DELIVER_NOW, DENY_BUDGET, REVIEW_PLAN, describe_plan_request
from waystation.tasks.details import (
    format_budget_forecast,
    format_hidden_call_hint,
    format_minimum_grant,
    format_request_and_answer,
    format_time_span,
    format_utc_minute,
)
from waystation.tasks.events import TaskEvent
from waystation.tasks.progress import CostBreakdown
from waystation.tasks.signals import EDIT_CONTEXT, SEND_MESSAGE, UPDATE_DOCUMENTS
from waystation.tasks.view import ApprovalView, PendingApproval, RejectedMessageView, TaskView

FOLDER = Path(__file__).parent
FILE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

MAX_LISTED_DOCUMENTS = 10
"""Maximum number of documents that a page lists without folding them."""

FORGOTTEN_TASK = (
    "The texts of this task were deleted, also its question and its report; what it cost, when it ran and how it ended "
    "is kept."
)


def _finalized(value: object) -> object:
    """Return a value as a template shows it: control and bidirectional characters are made visible."""
    return replace_control_characters(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def build_approval_rows(one: PendingApproval) -> Sequence[tuple[str, str]]:
    """Return rows with what a person should know before answering."""
    asked = one.approval
    if asked.about_plan:
        steps = tuple((step.role, f"{step.title} (budget: {format_limit(step.limit)})") for step in one.steps)
        return (
            *steps,
            ("if approved", "the steps of the plan begin"),
            ("if denied", describe_plan_request(asked.steps_left, asked.requested)[1]),
        )
    if asked.action is not None:
        return (
            ("if approved", "the tool is called once, with exactly these arguments"),
            ("if denied", f"{asked.agent} continues without the call, and reads your note"),
            ("not shown", format_hidden_call_hint(one.task_id, asked.agent, asked.action)),
        )
    rows = [("spent so far", format_used_amount(asked.spent, asked.limit))]
    if asked.reason:
        rows.append(("why", asked.reason))
    else:
        rows += [("next call", describe_next_call(asked)), ("minimum", format_minimum_grant(asked))]
    if asked.forecast is not None:
        rows.append(("estimate", format_budget_forecast(asked.forecast, asked.requested)))
        rows.append(("if denied", asked.forecast.if_denied))
    return tuple(rows)


def build_page_approval_rows(one: PendingApproval) -> Sequence[tuple[str, str]]:
    """Return the rows for a page, which also shows what the task's budget is held for now."""
    return (("budget of the task", describe_task_budget(one)), *build_approval_rows(one))


_NO_QUOTES = str.maketrans(dict.fromkeys('“”„‟«»"', "'"))
"""A title that closed its quotation would continue as text of ours."""


def format_approval_request(one: PendingApproval) -> str:
    """Format a request as text, always the same: an answer applies to what the person has read."""
    request = one.approval
    about = f"in {one.task_id}, “{sanitize_line(one.title).translate(_NO_QUOTES)}”"
    told = "\n".join(f"{name}: {sanitize_line(words)}" for name, words in build_approval_rows(one) if words)
    if request.about_plan:
        return f"A {describe_plan_request(request.steps_left, request.requested)[0]} {about}.\n{told}"
    if request.action is not None:
        called = f"{request.agent} {about}, asks to call {sanitize_line(request.action.tool)}"
        return f"{called}:\n{replace_control_characters(request.action.text)}\n{told}"
    if request.reason:
        reason = sanitize_line(request.reason)
        return f"{request.agent} {about}, makes no more calls: {reason}. Fix this first, then approve."
    cause = request.forecast.unanswered_call if request.forecast is not None else ""
    why = f"; {sanitize_line(format_unanswered_call(cause))}" if cause else ""
    return (
        f"{request.agent} asks for {format_amount(request.requested)} more {about}. The agent has spent "
        f"{format_used_amount(request.spent, request.limit)}{why}. To go on, the agent needs at "
        f"least {format_amount(request.needed)} more."
    )


def find_placeholders(page: str) -> tuple[str, ...]:
    """Return the placeholders on a page, each once."""
    return tuple(dict.fromkeys(PLACEHOLDER_PATTERN.findall(unescape(str(page)))))


MAX_GIST_CHARACTERS = 200


def describe_message(message: MessageView) -> str:
    """Describe a message in one line: its words, the tools that it calls, and how many results it brings."""
    said = [" ".join(block.text.split()) for block in message.blocks if isinstance(block, Text)]
    called = Counter(block.name for block in message.blocks if isinstance(block, ToolUse))
    results = [block for block in message.blocks if isinstance(block, ToolResult)]
    errors = sum(block.is_error for block in results)
    parts = [*said, *(f"calls {name}{f' {count} times' if count > 1 else ''}" for name, count in called.items())]
    parts += [format_count(len(results) - errors, "result")] if len(results) > errors else []
    parts += [format_count(errors, "error")] if errors else []
    return " · ".join(filter(None, parts))[:MAX_GIST_CHARACTERS]


_SIGNAL_WORDS: Mapping[str, str] = {
    APPROVE_BUDGET: "An approval",
    DENY_BUDGET: "A denial",
    DELIVER_NOW: "An order to deliver now",
    REVIEW_PLAN: "An edited plan",
    EDIT_CONTEXT: "A change of an agent’s context",
    SEND_MESSAGE: "A message to the agents",
    UPDATE_DOCUMENTS: "A change of the documents",
}
"""What a person calls a message to a task, by the name of its signal."""


def describe_rejected_message(rejected: RejectedMessageView, approvals: Sequence[ApprovalView]) -> str:
    """Describe a message without effect and the reason. Its request is named by what it asks for, not by its id."""
    sent, reason = _SIGNAL_WORDS.get(rejected.signal, f"The message {rejected.signal}"), rejected.reason
    # Longer ids first: the id of one request may be the beginning of another's.
    for one in sorted(approvals, key=lambda approval: -len(approval.request_id)):
        reason = reason.replace(f"the request {one.request_id}", _name_request(one))
    return f"{sent} had no effect: {reason}"


def _name_request(approval: ApprovalView) -> str:
    if approval.about_plan:
        return "the request about the plan"
    if approval.action is not None:
        return f"the request of {approval.agent} to call {approval.action.tool}"
    return f"the request of {approval.agent} for {format_amount(approval.requested)}"


_TEMPLATES = Environment(
    loader=PackageLoader("waystation.plugins.web"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalized,
    trim_blocks=True,
    lstrip_blocks=True,
)
_SHOWN: Mapping[str, object] = {
    "bar": build_budget_bar,
    "for_what": build_page_approval_rows,
    "amount_choices": build_amount_choices,
    "answered": partial(format_request_and_answer, over=True),
    "rejected": describe_rejected_message,
    "written": partial(json.dumps, ensure_ascii=False, indent=1),
    "moment": format_utc_minute,
    "span": format_time_span,
    "name": render_claimed_name,
    "amount": format_amount,
    "limit": format_limit,
    "money": format_usd_short,
    "exact": format_usd,
    "counted": format_count,
    "FORGOTTEN_TASK": FORGOTTEN_TASK,
    "unheeded": get_ignored_message_reason,
    "placeholders": find_placeholders,
    "most_listed": MAX_LISTED_DOCUMENTS,
    "gist": describe_message,
    "size": {"width": BOX_WIDTH, "height": BOX_HEIGHT},
}
"""Functions for every template."""


def render_template(name: str, /, **shown_there: object) -> str:
    """Render a template with these values."""
    return _TEMPLATES.get_template(name, globals=dict(_SHOWN)).render(**shown_there)


class ClosedRequest(NamedTuple):
    """What became of a request before an answer to it arrived."""

    text: str
    """Who did what, as a part of a sentence."""
    at: datetime | None


def describe_closed_request(approval: ApprovalView) -> ClosedRequest:
    """Describe what became of a request that was answered or withdrawn, for a person who answers too late."""
    by = render_claimed_name(approval.by) if approval.by else "another person"
    asked = "the plan" if approval.about_plan else f"this request of {approval.agent}"
    match approval.decision:
        case "approved" if not approval.granted.is_zero:
            text = f"{by} granted {approval.agent} {format_amount(approval.granted)}"
        case "approved" | "denied" as decision:
            text = f"{by} {decision} {asked}"
        case "expired":
            text = f"{asked} was not answered in time"
        case "pending" | "withdrawn":
            text = f"{asked} no longer needs an answer"
    return ClosedRequest(text, approval.answered_at)


class LinkBuilder(NamedTuple):
    """Builds the links of agents and marks: to their pages, or to places in the same file."""

    task_id: str
    kind: Literal["pages", "file"]

    def agent(self, agent: str) -> str:
        """Return the link to the beginning of an agent's transcript."""
        return f"/tasks/{self.task_id}/agents/{agent}" if self.kind == "pages" else f"#{agent}"

    def message(self, agent: str, place: str) -> str:
        """Return the link to a message of an agent, or a compaction, by its id."""
        return f"{self.agent(agent)}#{place}" if self.kind == "pages" else f"#{self.build_anchor_id(agent, place)}"

    def build_anchor_id(self, agent: str, place: str) -> str:
        """Return the HTML id of that place."""
        return place if self.kind == "pages" else f"{agent}--{place}"


class TaskPageView(NamedTuple):
    """A task as its page shows it."""

    view: TaskView
    now: datetime
    bill: CostBreakdown
    lanes: Timeline | None
    curves: tuple[SpendingChart, ...]
    graph: PlanDiagram | None
    report: Markup | None
    titled: bool
    """Whether the page's title is the report's, too."""
    links: LinkBuilder
    agents: tuple[str, ...]
    """Agents that have done anything, in the order in which they began."""
    documents: tuple["UsedDocument", ...]
    has_draft: bool
    """Whether an agent has noted or delivered anything that a draft would show."""
    newest: int
    """Number of the newest event that the page shows."""
    work: str
    """Address of the timeline without the longest waits for a person; empty if there are none."""
    progress: str
    """What the task has done and does now, in a sentence; empty if it is over or waits for a person."""


async def build_task_page_view(
    client: Client, task_id: str, events: Sequence[TaskEvent], kind: Literal["pages", "file"] = "pages"
) -> TaskPageView:
    """Build the view of a task as it is now; if no server answers, as the store has it. Raises UnknownTask."""
    view = await client.get_last_known_task(task_id, details=True)
    now = utc_now()
    states = {step.id: str(step.state) for step in view.steps}
    exported = await load_exported_report(client, view)
    payments = await client.get_payments(task_id)
    until = None if view.over else now
    return TaskPageView(
        view=view,
        now=now,
        bill=payments.cost_breakdown,
        lanes=build_timeline(events, until),
        curves=build_spending_charts(payments, view, build_time_axis(events, until)) if events else (),
        graph=build_plan_diagram(view.plans[-1], states) if view.plans else None,
        report=None if exported is None else await render_report_markup(exported, task_id, kind),
        titled=exported is not None and exported.title == view.title,
        links=LinkBuilder(task_id, kind),
        agents=tuple(dict.fromkeys(one.agent for one in events if one.agent)),
        documents=list_used_documents(await client.list_documents(task_id), exported),
        has_draft=any(one.kind in {"noted", "delivered"} for one in events),
        newest=events[-1].number if events else 0,
        work=build_work_address(task_id, events, until),
        progress=describe_progress(view),
    )


class UsedDocument(NamedTuple):
    """A document of a task, with the places of it that its report cites."""

    name: str
    file_name: str
    """Path of its file as given, if the name differs; otherwise empty."""
    citations: tuple[NumberedSource, ...]


def list_used_documents(documents: Sequence[Document], report: ExportedReport | None) -> tuple[UsedDocument, ...]:
    """Return the documents by name, each with the citations of it that passed the check."""
    sources = () if report is None else [one for one in report.sources if not one.fault]
    return tuple(
        UsedDocument(one.name, one.file_name, tuple(source for source in sources if source.document == one.name))
        for one in sorted(documents, key=lambda one: one.name)
    )


FINISHED_STATES = frozenset({"done", "partial", "skipped"})
RUNNING_STATES = frozenset({"working", "compacting", "delegating"})


def describe_progress(view: TaskView) -> str:
    """Describe what a running task has finished and does now, in a sentence; empty if it is over."""
    if view.over:
        return ""
    if not view.steps:
        return "The plan is being made."
    finished = sum(1 for step in view.steps if step.state in FINISHED_STATES)
    running = [
        f"{step.id} ({step.title})" if step.title else step.id for step in view.steps if step.state in RUNNING_STATES
    ]
    now = f"; now {', '.join(running)}" if running else ""
    return f"{finished} of {format_count(len(view.steps), 'step')} finished{now}."


async def load_exported_report(client: Client, view: TaskView, version: int | None = None) -> ExportedReport | None:
    """Load the shown report, or this version of it, for export; None if there is none."""
    if view.shown_report is None:
        return None
    version = version or view.shown_report.number
    text = await client.get_report(view.task_id, version)
    imprint = ReportMetadata(task_id=view.task_id, phase=view.phase, version=version)
    return await run_in_threadpool(lambda: build_report_export(parse_stored_report(text), imprint))


def build_exported_report(found: ReportWithImprint) -> ExportedReport:
    """Build the export of a loaded report or draft. Call it in a thread: it may be long."""
    return build_report_export(parse_stored_report(found.report.markdown), found.imprint)


async def render_report_markup(
    exported: ExportedReport, task_id: str, kind: Literal["pages", "file"] = "pages"
) -> Markup:
    """Render the report. Call it in a thread: a report may be long, or crafted to be slow.

    The renderer escapes all text.
    """
    return await render_linked_markup(exported, f"/tasks/{task_id}/report" if kind == "pages" else "")


async def render_linked_markup(exported: ExportedReport, page: str) -> Markup:
    """Render a report whose citations link to `page` with their number; empty: to the list of sources below it."""
    return Markup(await run_in_threadpool(render_html_body, exported, page))


MAX_DOCUMENT_LINES = 20_000
"""Maximum lines of a document on its own page."""


def mark_cited_lines(text: str, citations: Sequence[NumberedSource]) -> tuple[PassageLine, ...]:
    """Return the first lines of a document, with those marked that a report cites."""
    cited = {number for one in citations for number in range(one.first_line, one.last_line + 1)}
    lines = enumerate(text.split("\n")[:MAX_DOCUMENT_LINES], 1)
    return tuple(PassageLine(number=number, text=line, is_cited=number in cited) for number, line in lines)


async def render_run_file(client: Client, task_id: str) -> str:
    """Render the whole run as one HTML file that loads nothing: the task's page, its cost, and all transcripts, with
    placeholders for redacted text.

    Raises UnknownTask; BadInput if it was forgotten.
    """
    parts = await build_task_page_view(client, task_id, await TaskEventCache(client).list_events(task_id), "file")
    logs = {agent: build_transcript_view(await client.get_transcript(task_id, agent)) for agent in parts.agents}
    style = Markup((FOLDER / "static" / "style.css").read_text(encoding="utf-8"))
    return await run_in_threadpool(
        lambda: render_template(
            "run.html",
            **parts._asdict(),
            policy=FILE_POLICY,
            style=style,
            logs={agent: log for agent, log in logs.items() if log.messages},
            waiting=(),
        )
    )


def restore_originals(page: str, originals: Mapping[str, str]) -> str:
    """Replace the placeholders on a page by these originals, as escaped text."""
    for placeholder, original in originals.items():
        page = page.replace(str(escape(placeholder)), str(escape(replace_control_characters(original))))
    return page
