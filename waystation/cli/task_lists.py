"""`waystation list`, `session` and `spending`: lists of tasks and sessions, budgets of sessions, and costs."""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.text import Text

from waystation.cli.console import print_json, print_message, result
from waystation.cli.options import (
    JsonOption,
    format_moment,
    parse_budget,
    parse_past_moment,
)
from waystation.cli.render import NOTHING, PHASE_STYLES, format_columns, format_count, shorten_task_id
from waystation.client import connect_client
from waystation.client.store_queries import DEFAULT_TASK_LIMIT
from waystation.config.settings import Settings
from waystation.kernel.amount import (
    UNLIMITED,
    Amount,
    Limit,
    format_amount,
    format_limit,
    format_tokens_short,
    format_usd_short,
)
from waystation.kernel.clock import local_now, utc_now
from waystation.security.untrusted import sanitize_line
from waystation.tasks.details import STEP_STATE_MARKS, format_task_cost, format_time_span
from waystation.tasks.progress import (
    DayRange,
    SessionSummary,
    SpendingGrouping,
    SpendingLine,
    SpendingReport,
    list_spending_groups,
)
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import SessionLimitView, SessionView, SpendingView, TaskFilter, TaskView

app = typer.Typer()


PHASE_MARKS = {
    TaskPhase.SUBMITTED: STEP_STATE_MARKS["waiting"],
    TaskPhase.PLANNING: STEP_STATE_MARKS["working"],
    TaskPhase.WORKING: STEP_STATE_MARKS["working"],
    TaskPhase.PAUSED: STEP_STATE_MARKS["paused"],
    TaskPhase.REPORTING: STEP_STATE_MARKS["working"],
    TaskPhase.DONE: STEP_STATE_MARKS["done"],
    TaskPhase.PARTIAL: STEP_STATE_MARKS["partial"],
    TaskPhase.CANCELLED: STEP_STATE_MARKS["skipped"],
    TaskPhase.FAILED: "✗",
    TaskPhase.REFUSED: "✗",
}
WIDE_LIST_COLUMNS = 100
"""Minimum columns at which a list spells out states and shows costs."""


def format_task_lines(views: Sequence[TaskView], now: datetime, width: int) -> list[Text]:
    """Format one line per task, with the question cut to fit: state, short id, time of submission (in the zone of
    `now`), duration of work, spending and budget.
    """
    return format_columns([_listed(view, now, wide=width >= WIDE_LIST_COLUMNS) for view in views], width)


def _listed(view: TaskView, now: datetime, *, wide: bool) -> tuple[str | Text, ...]:
    style = PHASE_STYLES.get(view.phase, "cyan")
    begun, end = view.submitted_at, view.ended_at or (None if view.phase.over else now)
    mark = PHASE_MARKS[view.phase]
    return (
        Text(f"{mark} {view.phase}" if wide else mark, style=style),
        shorten_task_id(view.task_id),
        NOTHING if begun is None else format_moment(begun, now),
        NOTHING if begun is None or end is None else format_time_span(end - begun),
        format_short_usage(view.budget.spent, view.budget.limit),
        *((format_task_cost(view),) if wide else ()),
        sanitize_line("; ".join([view.title, *(view.notes if view.phase is TaskPhase.REFUSED else ())])) or NOTHING,
    )


def format_short_usage(spent: Amount, limit: Limit) -> str:
    """Format `41.2k/200k` or `$0.12/$2.00`: of two units the one that is closer to its limit; less than a cent is
    `$0.00`.
    """
    in_dollars = limit.micro_usd is not None and (
        limit.tokens is None
        or Limit(micro_usd=limit.micro_usd).compute_used_share(spent)
        > Limit(tokens=limit.tokens).compute_used_share(spent)
    )
    if in_dollars:
        return f"${spent.usd:.2f}/${limit.usd:.2f}"
    return (
        f"{format_tokens_short(spent.tokens)}/{format_tokens_short(limit.tokens)}"
        if limit.tokens is not None
        else format_tokens_short(spent.tokens)
    )


def format_phase_legend(views: Iterable[TaskView]) -> str:
    """Return the legend of these tasks' marks, in the order of a task's life."""
    seen = {view.phase for view in views}
    meant: dict[str, list[str]] = {}
    for phase in TaskPhase:
        if phase in seen:
            meant.setdefault(PHASE_MARKS[phase], []).append(phase)
    return "   ".join(f"{mark} {', '.join(phases)}" for mark, phases in meant.items())


@app.command("list")
def list_tasks(
    session: Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this session.")] = None,
    state: Annotated[
        list[TaskPhase] | None,
        typer.Option(metavar="STATE", help="Only tasks in this state, like paused or failed; repeatable."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="Only tasks submitted after this: a date (2026-11-01) or an age (12h)."),
    ] = None,
    text: Annotated[
        str,
        typer.Option(metavar="TEXT", help="Only tasks with this text in the first 120 characters of the question."),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List the newest 50 tasks, including those that Temporal has deleted.

    With --state, --since or --text, list all tasks that match.
    """
    now = local_now()
    submitted = parse_past_moment(since, "--since", now)
    wanted = TaskFilter(session=session, phases=frozenset(state or ()), since=submitted, text=text)
    views = asyncio.run(_tasks(wanted))
    if as_json:
        _print_remarks(views, wanted)
        print_json(list(views))
        return
    for line in format_task_lines(views, now, result.width):
        result.print(line, soft_wrap=True)
    _print_remarks(views, wanted)
    if result.width < WIDE_LIST_COLUMNS and views:
        print_message(format_phase_legend(views))
    elif not views:
        print_message(
            "No such task" if state or since or text or session else "No tasks yet: `waystation submit` creates one"
        )


def _print_remarks(views: Sequence[TaskView], wanted: TaskFilter) -> None:
    """Print whether the list ends early, and each remark once; of tasks that do not answer, with what the list shows of
    them.
    """
    if len(views) == DEFAULT_TASK_LIMIT and not wanted.narrows:
        print_message(
            f"These are the newest {DEFAULT_TASK_LIMIT}. Find older tasks with --since, --state or --text, "
            "as in `waystation list --since 30d`"
        )
    for remark in sorted({view.remark for view in views if view.remark}):
        stored = sum(view.remark == remark and not view.phase.over for view in views)
        shown = f" ({format_count(stored, 'unfinished task')} shown as last stored)" if stored else ""
        print_message(f"{remark}{shown}")


async def _tasks(task_filter: TaskFilter) -> tuple[TaskView, ...]:
    async with await connect_client(Settings()) as client:
        return await client.list_tasks(task_filter)


MAX_SESSIONS = 1_000


session = typer.Typer(name="session", help="List sessions, or set the budget of a session.", no_args_is_help=True)
app.add_typer(session)


@session.callback()
def _session() -> None:
    """List sessions, or set the budget of a session."""


@session.command("list")
def list_sessions(as_json: JsonOption = False) -> None:
    """List sessions, the most recently used first.

    Each line shows what the session's tasks have spent, what is reserved for running tasks, and the session's budget.
    """
    found = asyncio.run(_sessions())
    if as_json:
        print_json(tuple(map(SessionView.from_summary, found)))
        return
    now = local_now()
    rows = [
        (
            format_moment(one.last_at, now),
            format_count(one.tasks, "task"),
            format_usd_short(one.spent.micro_usd),
            f"{format_tokens_short(one.spent.tokens)} spent",
            f"{_short_amount(one.held)} reserved",
            "no limit" if one.limit.is_unlimited else f"limit {_short_amount(one.limit.amount)}",
            sanitize_line(one.session),
        )
        for one in found
    ]
    for line in format_columns(rows, result.width):
        result.print(line, soft_wrap=True)
    if not found:
        print_message("No sessions yet: `waystation submit --session NAME` creates one")


def _short_amount(amount: Amount) -> str:
    """Format an amount briefly: `200k`, `$1.50`, `200k+$1.50`."""
    parts = [format_tokens_short(amount.tokens)] if amount.tokens or not amount.micro_usd else []
    return "+".join([*parts, *([format_usd_short(amount.micro_usd)] if amount.micro_usd else [])])


async def _sessions() -> tuple[SessionSummary, ...]:
    async with await connect_client(Settings()) as client:
        return await client.list_sessions(count=MAX_SESSIONS)


@session.command("set")
def set_session_budget(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")],
    budget: Annotated[
        str,
        typer.Option(metavar="AMOUNT", help=f"Budget of the session: 2M (tokens), '$50', '2M+$50' or {UNLIMITED}."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Set how much all tasks of a session may spend together."""
    limit = Limit() if budget == UNLIMITED else parse_budget(budget, "--budget")
    asyncio.run(_set(name, limit))
    print_message(f"Budget of session {name}: {format_limit(limit)}")
    if as_json:
        print_json(SessionLimitView(session=name, limit=limit))


async def _set(name: str, limit: Limit) -> None:
    async with await connect_client(Settings()) as client:
        await client.set_session_limit(name, limit)


@app.command()
def spending(
    since: Annotated[
        str, typer.Option(metavar="DATE", help="First day, in UTC: a date (2026-11-01) or an age (7d).")
    ] = "29d",
    until: Annotated[str | None, typer.Option(metavar="DATE", help="Last day; default: today.")] = None,
    session: Annotated[str | None, typer.Option(metavar="NAME", help="Only tasks of this session.")] = None,
    by: Annotated[
        SpendingGrouping,
        typer.Option(
            metavar="GROUP", help="What each line sums up: task, session, agent (all agents of a role) or model."
        ),
    ] = "model",
    as_json: JsonOption = False,
) -> None:
    """Show what all tasks have spent, the highest cost first. `--json` also groups the spending by day."""
    now = local_now()
    first, last = (parse_past_moment(text, name, now) for text, name in ((since, "--since"), (until, "--until")))
    days = DayRange.resolve(
        *(one.astimezone(UTC).date() if one else None for one in (first, last)), today=utc_now().date()
    )
    found = asyncio.run(_spending(days, session))
    if as_json:
        print_json(SpendingView.from_report(found, by))
        return
    for line in format_columns(build_spending_rows(found, by), result.width):
        result.print(line, soft_wrap=True)
    print_message(
        f"{days.since} to {days.until}: {format_spending_line(found.total)} in "
        f"{format_count(found.total.calls, 'call')}"
    )
    if not found.total.possibly_billed.is_zero:
        print_message(
            f"Calls without a reply may also have been billed: at most {format_amount(found.total.possibly_billed)}"
        )


def build_spending_rows(found: SpendingReport, by: SpendingGrouping) -> list[tuple[str | Text, ...]]:
    """Build one row per task, session, role or model: cost, fresh tokens, calls, name."""
    return [
        (
            format_usd_short(line.cost_micro_usd),
            format_tokens_short(line.usage.fresh),
            format_count(line.calls, "call"),
            f"{shorten_task_id(name)} {sanitize_line(found.titles.get(name, ''))}".strip()
            if by == "task"
            else sanitize_line(name),
        )
        for name, line in list_spending_groups(found.lines, by)
    ]


def format_spending_line(line: SpendingLine) -> str:
    """Format the line as a sentence."""
    calls = format_count(line.unpriced_calls, "call")
    unpriced = f" (not including {calls} without a known price)" if line.unpriced_calls else ""
    return f"{format_usd_short(line.cost_micro_usd)}{unpriced}, {line.usage.fresh:,} fresh tokens"


async def _spending(days: DayRange, session: str | None) -> SpendingReport:
    async with await connect_client(Settings()) as client:
        return await client.get_spending(days, session)
