"""Follows a task until it is over: a live view at a terminal, sentences elsewhere, an answer to every pause, and its
report as a file in the home folder.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from getpass import getuser
from pathlib import Path

from rich.console import Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from waystation.agents.agent_status import format_elapsed
from waystation.cli.approvals import describe_insufficient_grant, describe_previous_answer, print_answer
from waystation.cli.console import (
    OK,
    WORK_FAILED,
    can_ask,
    print_json,
    print_message,
    print_text,
    progress,
    prompt_line,
)
from waystation.cli.options import parse_amount
from waystation.cli.render import format_agent_activity, render_changes, render_task_screen
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, format_amount, format_used_amount
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.files import ensure_private_folder, write_private_file
from waystation.kernel.text import format_count, format_names
from waystation.reports.task_files import get_report_path
from waystation.runtime.temporal.run_file import has_server_in_environment, is_started_by_this_process, read_run_file
from waystation.tasks.task import TaskPhase
from waystation.tasks.view import ApprovalView, ReportVersionView, SubmittedTask, TaskView, select_shown_version

AnswerPause = Callable[[Client, str, ApprovalView], Awaitable[None]]


LOOK_INTERVAL = timedelta(seconds=15)
"""Maximum time between two looks at a task."""
MAX_SILENCE = timedelta(minutes=10)
"""Maximum time without output where the screen is not redrawn. Then the agents' activity is printed."""


def format_liveness(view: TaskView, now: datetime) -> str:
    """Format how long the task has been running, and when one of its agents was last heard from; empty for a finished
    task.
    """
    if view.phase.over:
        return ""
    since = "" if view.submitted_at is None else f", submitted {format_elapsed(view.submitted_at, now)} ago"
    seen = [one.seen for one in view.activity if one.seen is not None]
    heard = f"; last sign of activity {format_elapsed(max(seen), now)} ago" if seen else ""
    return f"{view.phase}{since}{heard}"


class TaskScreen:
    """Shows a task as it changes, and signs of activity in between."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._shown: TaskView | None = None
        self._said_at = utc_now()
        self._alive = Spinner("dots")

    def show(self, view: TaskView) -> None:
        """Show the task as it is now."""
        before, self._shown, now = self._shown, view, utc_now()
        if self._live is not None:
            self._live.refresh()
            return
        lines = render_changes(before, view, now, progress.width)
        if not lines and now - self._said_at >= MAX_SILENCE and not view.phase.over:
            spent = format_used_amount(view.budget.spent, view.budget.limit)
            lines = (f"{format_liveness(view, now)}; {spent} spent", *format_agent_activity(view, now))
        for line in lines:
            print_message(line)
        self._said_at = now if lines else self._said_at

    def _screen(self) -> RenderableType:
        """Render the screen, at every refresh, since it says how long the task has been waiting."""
        if self._shown is None:
            return ""
        now = utc_now()
        whole = render_task_screen(self._shown, now, progress.width)
        if not (life := format_liveness(self._shown, now)):
            return whole
        self._alive.update(text=Text(life, style="dim"))
        return Group(whole, self._alive)

    @contextmanager
    def live_display(self) -> Generator[None]:
        """Redraw in place until the block ends, if the output is a terminal."""
        if not progress.is_terminal:
            yield
            return
        with Live(console=progress, refresh_per_second=4, get_renderable=self._screen) as self._live:
            yield
        self._live = None

    @contextmanager
    def pause_live_display(self) -> Generator[None]:
        """Stop redrawing while a person types."""
        if self._live is None:
            yield
            return
        self._live.stop()
        yield
        self._live.start(refresh=True)


async def watch_task(client: Client, task_id: str, answer_pause: AnswerPause) -> TaskView:
    """Show the task until it is over, and answer each of its budget requests once. Returns how it ended.

    Raises:
        Unreachable: The server ended meanwhile. The task did not, and the message says how to continue.
    """
    lost = _what_is_lost(Settings(), task_id)
    try:
        return await _follow(client, task_id, answer_pause)
    except asyncio.CancelledError:
        if is_started_by_this_process(Settings().run_file):
            print_message(
                "The demo's server ended with this command. `waystation up` starts it again, and the task continues."
            )
        else:
            print_message(f"The task continues: `waystation watch {task_id}` follows it again.")
        raise
    except Unreachable as error:
        raise Unreachable(lost(error)) from error


async def _follow(client: Client, task_id: str, answer_pause: AnswerPause) -> TaskView:
    screen = TaskScreen()
    answered: set[str] = set()
    view = await client.get_task(task_id)
    with screen.live_display():
        async for view in client.watch(task_id, LOOK_INTERVAL.total_seconds()):
            screen.show(view)
            for approval in view.pending_approvals:
                if approval.request_id not in answered:
                    answered.add(approval.request_id)
                    with screen.pause_live_display():
                        await answer_pause(client, task_id, approval)
    return view


def _what_is_lost(settings: Settings, task_id: str) -> Callable[[Unreachable], str]:
    """Return the message for a server that has gone: only one of ours is started again by `up`."""
    run = None if has_server_in_environment() else read_run_file(settings.run_file)
    ours = run if run is not None and run.is_server_alive else None

    def lost(error: Unreachable) -> str:
        if ours is not None and not ours.is_server_alive:
            return (
                f"the platform was stopped; {task_id} is safe and continues after `waystation up`. Then follow it with "
                f"`waystation watch {task_id}`"
            )
        return f"{error}. {task_id} is safe: follow it with `waystation watch {task_id}` when the server answers again"

    return lost


async def ask_at_terminal(client: Client, task_id: str, approval: ApprovalView) -> None:
    """Ask at the terminal, below the displayed pause; elsewhere the task waits for the printed commands."""
    if not can_ask():
        return
    if approval.about_plan:
        denied = "and end the task" if approval.requested.is_zero else "and keep the plan as it was"
        await _ask_yes_or_no(client, task_id, approval, f"Approve this plan? [y]es, [d]eny {denied}, [l]ater:")
    elif approval.action is not None:
        asks = f"Let {approval.agent} call {approval.action.tool}?"
        await _ask_yes_or_no(client, task_id, approval, f"{asks} [y]es, [d]eny and continue without the call, [l]ater:")
    else:
        await _ask_for_money(client, task_id, approval)


async def _ask_for_money(client: Client, task_id: str, approval: ApprovalView) -> None:
    asks = f"Grant {approval.agent} {format_amount(approval.requested)}? [y]es, an amount, "
    if approval.reason:
        asks = f"Let {approval.agent} continue? [y]es, "
    while True:
        typed = await _typed(client, task_id, approval, f"{asks}[d]eny and deliver what the agent has, [l]ater:")
        match typed.lower():
            case "l" | "later" | "":
                return
            case "d" | "deny" | "n" | "no":
                print_answer(await client.deny(task_id, request_id=approval.request_id, by=getuser()), approval)
                return
            case _:
                try:
                    yes = typed.lower() in {"y", "yes"}
                    amount = approval.requested if yes else parse_amount(typed, "a grant")
                except BadInput as error:
                    print_message(str(error))
                    continue
                answer = await client.approve(task_id, request_id=approval.request_id, amount=amount, by=getuser())
                print_answer(answer, approval)
                if short := describe_insufficient_grant(amount, approval, answer):
                    print_message(short)
                return


async def _typed(client: Client, task_id: str, approval: ApprovalView, question: str) -> str:
    """Return what a person typed; empty if the request was settled otherwise meanwhile, which is reported."""
    typing = asyncio.create_task(prompt_line(question))
    watching = asyncio.create_task(_settled(client, task_id, approval.request_id))
    try:
        await asyncio.wait({typing, watching}, return_when=asyncio.FIRST_COMPLETED)
        if typing.done():
            return typing.result()
        print_message("")
        print_message(f"Request {approval.request_id} no longer needs an answer: {watching.result()}")
        return ""
    finally:
        typing.cancel()
        watching.cancel()
        await asyncio.gather(typing, watching, return_exceptions=True)


async def _settled(client: Client, task_id: str, request_id: str) -> str:
    """Wait until a request can no longer be answered, and return how it was settled. Raises Unreachable."""
    view = await client.get_task(task_id)
    async for view in client.watch(task_id):
        if all(one.request_id != request_id for one in view.pending_approvals):
            break
    return describe_previous_answer(view, request_id) or f"{task_id} is {view.phase}"


async def _ask_yes_or_no(client: Client, task_id: str, approval: ApprovalView, question: str) -> None:
    while True:
        typed = await _typed(client, task_id, approval, question)
        match typed.lower():
            case "l" | "later" | "":
                return
            case "d" | "deny" | "n" | "no":
                print_answer(await client.deny(task_id, request_id=approval.request_id, by=getuser()), approval)
                return
            case "y" | "yes":
                print_answer(await client.approve(task_id, request_id=approval.request_id, by=getuser()), approval)
                return
            case _:
                continue


class DemoApprovalResponder:
    """Grants what is asked for as a person would, where there is nobody to ask."""

    def __init__(self, room: Amount | None = None) -> None:
        """Build the approver. `room`: total amount that it may grant; None: unlimited."""
        self._room = room

    async def __call__(self, client: Client, task_id: str, approval: ApprovalView) -> None:
        """Approve the request or, if the amount is used up, deny it with a partial report.

        Requests that a person must see are denied.
        """
        if approval.about_plan:
            print_message("No terminal for questions: the demo approves the plan itself.")
            print_answer(await client.approve(task_id, request_id=approval.request_id, by="demo"), approval)
            return
        if approval.action is not None:
            print_message(f"No terminal for questions: the demo denies the call of {approval.action.tool}.")
            print_answer(
                await client.deny(
                    task_id, request_id=approval.request_id, by="demo", note="no person looked at the call"
                ),
                approval,
            )
            return
        asked, room = approval.requested, self._room
        amount = asked if room is None else asked.min_with(room)
        if amount.is_zero:
            why = "" if approval.reason else ", and the demo may grant no more"
            print_message(f"No terminal for questions{why}: {approval.agent} delivers what it has.")
            print_answer(await client.deny(task_id, request_id=approval.request_id, by="demo"), approval)
            return
        print_message(
            f"No terminal for questions: the demo grants {format_amount(amount)}, as `waystation approve` would."
        )
        print_answer(
            await client.approve(
                task_id, request_id=approval.request_id, amount=amount, by="demo", note="approved by the demo itself"
            ),
            approval,
        )
        if room is not None:
            self._room = room.subtract_clamped(amount)


def get_exit_code(view: TaskView) -> int:
    """Return the exit code of a finished task: a partial report is a report."""
    return OK if view.phase in {TaskPhase.DONE, TaskPhase.PARTIAL} else WORK_FAILED


async def write_report_versions(client: Client, settings: Settings, view: TaskView) -> Path | None:
    """Write each version of the task's report to a file of its own. Returns the path of the one that is shown, None if
    there is none.

    An existing file is rewritten only if a person was erased from its version, so the result of a cancelled rewind
    overwrites no finished report.
    """
    task_id, readable = view.task_id, view.shown_report
    for version in view.reports:
        path = get_report_path(settings.reports_folder, task_id, version.number)
        ensure_private_folder(path.parent)
        text = await client.get_report(task_id, version.number)
        if not path.exists() or path.read_text(encoding="utf-8") != text:  # a person was erased from it
            write_private_file(path, text.encode())
    return None if readable is None else get_report_path(settings.reports_folder, task_id, readable.number)


def describe_shown_version(task_id: str, phase: TaskPhase, versions: Sequence[ReportVersionView]) -> str:
    """Return why the version that is shown is not the task's final one; empty if it is."""
    shown = select_shown_version(versions)
    if shown is None or (phase.over and shown == versions[-1]):
        return ""
    this = f"this is version {shown.number} of its report ({shown.phase}), from before the rewind"
    if not phase.over:
        return f"{task_id} was rewound and is {phase}: {this}"
    last = versions[-1]
    how = "cancelled" if last.phase is TaskPhase.CANCELLED else "failed"
    there = f"version {last.number}, in {task_id}.v{last.number}.md, has the work from after the rewind"
    return f"{task_id} was rewound and then {how}: {this}; {there}"


def print_submission(submitted: SubmittedTask) -> None:
    """Print a submitted task's procedures, warnings, id and web page."""
    for one in submitted.procedures:
        skill = f"skill {one.display_name}, {format_count(len(one.files), 'file')}"
        what = skill if one.files else f"procedure {one.name}"
        print_message(f"Agents follow the {what} (sha256 {one.sha256}).")
    for warning in submitted.warnings:
        print_message(f"Warning: {warning}")
    print_message(f"{submitted.task_id}  {submitted.ui_url or ''}".rstrip())


async def warn_if_unattended(client: Client) -> None:
    """Warn if no worker would take up a task. Raises Unreachable."""
    if unattended := await client.list_unattended_queues():
        print_message(
            f"No worker polls the {format_names('queue', unattended)}: the task waits until a worker runs "
            "(`waystation worker`)."
        )


async def require_workers(client: Client) -> None:
    """Raise Unreachable if no worker would carry out an order, or there is no server."""
    if unattended := await client.list_unattended_queues():
        raise Unreachable(
            f"no worker polls the {format_names('queue', unattended)}: start a worker (`waystation up`), then try again"
        )


async def watch_and_print_result(
    client: Client, settings: Settings, task_id: str, *, detach: bool, as_json: bool
) -> int:
    """Follow the task until it is over, unless `detach`, and print the result. Returns the exit code."""
    view = await client.get_task(task_id) if detach else await watch_task(client, task_id, ask_at_terminal)
    path = await write_report_versions(client, settings, view)
    if as_json:
        print_json(view.with_report_path(path))
    elif detach:
        print_text(task_id)
    elif path is not None:
        print_text(str(path))
    return 0 if detach else get_exit_code(view)
