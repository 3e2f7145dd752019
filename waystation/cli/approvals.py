"""`waystation approvals`, `approve`, `deny` and `deliver`: list pending requests and answer one or several, with a line
on the outcome of each.

Answers to several requests are one signal, so that none of them uses the budget that another leaves or received. A tool
call is only approved if its request is named.
"""

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from getpass import getuser
from typing import Annotated, Literal, NamedTuple, NoReturn

import typer

from waystation.cli import console
from waystation.cli.console import OK, WORK_FAILED, print_json, print_message, print_text, result
from waystation.cli.options import (
    AllOption,
    ByOption,
    DeliveryNoteOption,
    DenialNoteOption,
    JsonOption,
    NoteOption,
    RequestsOption,
    TaskArgument,
    parse_amount,
)
from waystation.cli.render import format_request_rows
from waystation.cli.render_requests import (
    MOMENT,
    format_approve_command,
    format_deny_command,
    format_request,
    format_requests_by_task,
)
from waystation.client import Client, connect_client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, format_amount
from waystation.kernel.clock import local_now
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count
from waystation.tasks.details import format_request_and_answer
from waystation.tasks.signals import AnswerOutcome, AnswerResult
from waystation.tasks.view import ApprovalView, PendingApproval, TaskView, list_pending_approvals

app = typer.Typer()


@app.command()
def approvals(
    task: Annotated[
        str | None,
        typer.Argument(metavar="TASK", help="Show only this task's requests, with the commands that answer them."),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show every request with all amounts and times, and the commands that answer it."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the requests that wait for an answer, one line each. With TASK, explain each request of that task."""
    waiting = asyncio.run(_approvals(task))
    now = local_now()
    if as_json:
        print_json(waiting)
    elif not waiting:
        print_message("Nothing waits for an answer.")
    elif verbose or task is not None:
        print_text(format_requests_by_task(waiting, now, result.width, verbose=verbose))
    else:
        for line in format_request_rows(waiting, now, result.width):
            result.print(line, soft_wrap=True)
        print_message("Details and how to answer: `waystation approvals TASK`")


async def _approvals(task: str | None) -> list[PendingApproval]:
    async with await connect_client(Settings()) as client:
        meant = None if task is None else await client.resolve_task_id(task)
        return [one for one in await client.list_approvals() if meant in {None, one.task_id}]


Send = Callable[[str, str | None], Awaitable[AnswerResult]]
"""Sends an answer to a task, by its id, for a request, by its id."""


class AnswerCommand(NamedTuple):
    """An answer as a person typed it."""

    command: Literal["approve", "deny"]
    task: str
    request_ids: tuple[str, ...]
    """The named requests; empty for the only open one, or for all."""
    options: Mapping[str, str | None]
    """Values by option name; None or empty if not given."""
    amount: Amount | None = None
    """Amount granted to each request; None: the requested amount."""
    all_requests: bool = False
    """Whether all open budget requests are answered."""

    @property
    def is_multiple(self) -> bool:
        """Whether the outcome is reported per request id, as for more than one request."""
        return self.all_requests or len(self.request_ids) > 1

    def render_command_for(self, task_id: str, request_id: str) -> str:
        """Return the same command for this request."""
        return self._render_command(task_id, "--request", request_id)

    def render_command_for_all(self, task_id: str) -> str:
        """Return the same command for all open budget requests."""
        return self._render_command(task_id, "--all")

    def _render_command(self, task_id: str, *chosen: str) -> str:
        options = [word for name, value in self.options.items() if value for word in (name, value)]
        return shlex.join(["waystation", self.command, task_id, *chosen, *options])


async def answer_request(client: Client, typed: AnswerCommand, send: Send) -> AnswerResult:
    """Send the answer to the named request, or to the only open one. A refusal names who answered before.

    Raises:
        BadInput: The task is over; or several requests are open and none is named; or the one to approve is a tool
            call, which no one may approve unseen. Nothing was sent.
    """
    view = await load_answerable_task(client, typed)
    meant = typed.request_ids[0] if typed.request_ids else _only_one(typed, view)
    answer = await send_answer(client, typed, view.task_id, meant, send)
    asked = next((one for one in view.pending_approvals if one.request_id == meant), None)
    print_answer(answer, asked)
    if asked is not None and (short := describe_insufficient_grant(typed.amount, asked, answer)):
        print_message(short)
    return answer


async def load_answerable_task(client: Client, typed: AnswerCommand) -> TaskView:
    """Load a task that can still be answered. Raises BadInput, UnknownTask."""
    task_id = await client.resolve_task_id(typed.task)
    view = await client.get_task(task_id)
    if view.phase.over:
        raise BadInput(f"{task_id} has ended: {view.phase}; there is nothing left to {typed.command}")
    return view


async def _refused_late(
    client: Client, typed: AnswerCommand, task_id: str, request_id: str | None, answer: AnswerResult
) -> AnswerResult:
    if answer.outcome != "refused":
        return answer
    return describe_late_answer(typed, answer, await client.get_task(task_id, details=True), request_id)


async def send_answer(
    client: Client, typed: AnswerCommand, task_id: str, request_id: str | None, send: Send
) -> AnswerResult:
    """Send one answer; a refusal names who answered before."""
    return await _refused_late(client, typed, task_id, request_id, await send(task_id, request_id))


def describe_late_answer(
    typed: AnswerCommand, refused: AnswerResult, view: TaskView, request_id: str | None
) -> AnswerResult:
    """Add to a refusal who answered before.

    If all open requests are answered, one that was withdrawn meanwhile is no error: the budget that an earlier answer
    freed was enough for it.
    """
    before = describe_previous_answer(view, request_id)
    found = (asked.decision for asked in view.approvals if asked.request_id == request_id)
    if typed.all_requests and "withdrawn" in found:
        return AnswerResult(outcome="not_needed", reason=before)
    return refused.replace(reason=f"{refused.reason}: {before}") if before else refused


def _only_one(typed: AnswerCommand, view: TaskView) -> str | None:
    """Return the only open request if none is named; None if none is open. Raises BadInput."""
    task_id, waiting = view.task_id, list_pending_approvals(view)
    if len(waiting) > 1:
        for one in waiting:
            print_message(typed.render_command_for(task_id, one.approval.request_id))
        together = f", or answer all budget requests with `{typed.render_command_for_all(task_id)}`"
        raise BadInput(
            f"{task_id} has {len(waiting)} open requests: run one of the commands above"
            f"{'' if typed.options.get('--finish') == 'cancel' else together}"
        )
    if waiting and waiting[0].approval.action is not None and typed.command == "approve":
        print_message(format_request(waiting[0], local_now(), console.progress.width))
        raise BadInput(
            f"{waiting[0].approval.agent} asks to call a tool: to approve the call, give this request's id to --request"
        )
    return waiting[0].approval.request_id if waiting else None


def describe_insufficient_grant(amount: Amount | None, asked: ApprovalView, answer: AnswerResult) -> str:
    """Return a remark on a grant that is too small for its agent to continue; empty if it is enough, or was not
    given.
    """
    if amount is None or answer.outcome not in {"approved", "unseen"} or asked.needed.subtract_clamped(amount).is_zero:
        return ""
    return (
        f"{format_amount(amount)} may not be enough: the next call of {asked.agent} may need "
        f"{format_amount(asked.needed)}. If the task has no budget to spare, the agent asks again"
    )


def describe_previous_answer(view: TaskView, request_id: str | None) -> str:
    """Return who answered the request, when, and how; empty while it is open. None: the request answered last."""
    answered = [
        approval
        for approval in view.approvals
        if approval.decision != "pending" and request_id in {None, approval.request_id}
    ]
    last = max(answered, key=lambda approval: approval.answered_at or datetime.min.replace(tzinfo=UTC), default=None)
    return _answered_line(last) if last is not None else ""


def _answered_line(approval: ApprovalView) -> str:
    origin = approval.sent_from
    line = format_request_and_answer(approval, over=True, origin=origin.text if origin is not None else "")
    return f"{line} ({approval.answered_at:{MOMENT}})" if approval.answered_at is not None else line


def print_answer(answer: AnswerResult, asked: ApprovalView | None = None) -> None:
    """Print the outcome of an answer; with the request that it answers, if it is one."""
    outcome = format_answer_outcome(answer)
    print_message(f"{_format_request_name(asked)}: {outcome}" if asked is not None else outcome)


def _format_request_name(asked: ApprovalView) -> str:
    return f"{asked.request_id} ({asked.agent})"


def format_answer_outcome(answer: AnswerResult) -> str:
    """Format the outcome of an answer in one line."""
    match answer.outcome:
        case "approved" | "denied" as decided:
            return decided
        case "done":
            return f"done: {answer.reason}" if answer.reason else "done"
        case "waiting":
            return "waiting until the agent's current leg (a series of turns) ends; `waystation show` shows the result"
        case "refused":
            return f"refused: {answer.reason}"
        case "not_needed":
            return f"no longer needed: {answer.reason}"
        case "unseen":
            return f"sent; {answer.reason}"


def report_and_exit(answer: AnswerResult, *failing: AnswerOutcome, as_json: bool) -> NoReturn:
    """Report the outcome of an order, as JSON if requested, and exit: with 1 if the outcome is one of `failing`."""
    print_answer(answer)
    if as_json:
        print_json(answer)
    raise typer.Exit(WORK_FAILED if answer.outcome in failing else OK)


SendWith = Callable[[Client, str, str | None], Awaitable[AnswerResult]]
"""Sends an answer through a client to a task, by its id, for a request, by its id."""
SendSeveral = Callable[[Client, str, Sequence[str]], Awaitable[Mapping[str, AnswerResult]]]
"""Sends an answer to several requests; returns each outcome by request id."""
FAILING: dict[str, tuple[AnswerOutcome, ...]] = {"approve": ("refused", "denied"), "deny": ("refused", "approved")}
"""Outcomes that count as failure, by command."""


class _Answered(AnswerResult):
    """The outcome of the answer to one of several requests."""

    request_id: str


class RequestSelection(NamedTuple):
    """The requests that are answered together, and remarks on the others."""

    request_ids: tuple[str, ...]
    open_requests: dict[str, ApprovalView]
    """Those that are open."""
    skipped: tuple[str, ...] = ()


def send_answers_and_exit(typed: AnswerCommand, send: SendWith, together: SendSeveral, *, as_json: bool) -> NoReturn:
    """Answer the selected requests, print the outcomes as JSON if requested, and exit: with 1 if any answer failed.

    Raises:
        BadInput: Nothing was sent, or the options contradict each other.
    """
    if typed.all_requests and typed.request_ids:
        raise BadInput("--request and --all cannot be combined: name the requests, or answer all budget requests")
    answers = asyncio.run(_answered(typed, send, together))
    if as_json:
        print_json(answers if typed.is_multiple else answers[0])
    raise typer.Exit(WORK_FAILED if any(one.outcome in FAILING[typed.command] for one in answers) else OK)


async def _answered(typed: AnswerCommand, send: SendWith, together: SendSeveral) -> Sequence[AnswerResult]:
    async with await connect_client(Settings()) as client:

        async def by_client(task_id: str, request_id: str | None) -> AnswerResult:
            return await send(client, task_id, request_id)

        if typed.is_multiple:
            return await answer_several(client, typed, together)
        return [await answer_request(client, typed, by_client)]


async def answer_several(client: Client, typed: AnswerCommand, send: SendSeveral) -> list[_Answered]:
    """Answer several requests, and report each outcome.

    Raises:
        BadInput: None of the selected requests is open; nothing was sent.
    """
    view = await load_answerable_task(client, typed)
    meant = select_requests(typed, view)
    for line in meant.skipped:
        print_message(line)
    if not meant.request_ids:
        raise BadInput(f"{view.task_id} has no open budget request: `waystation approvals` lists all open requests")
    print_message(f"{view.task_id}: {format_announcement(typed, meant)}")
    answers: list[_Answered] = []
    for request_id, sent in (await send(client, view.task_id, meant.request_ids)).items():
        answer = await _refused_late(client, typed, view.task_id, request_id, sent)
        asked = meant.open_requests.get(request_id)
        short = describe_insufficient_grant(typed.amount, asked, answer) if asked is not None else ""
        name = _format_request_name(asked) if asked is not None else request_id
        print_message(f"{name}: {'; '.join(filter(None, (format_answer_outcome(answer), short)))}")
        answers.append(_Answered(request_id=request_id, **answer.model_dump()))
    return answers


def select_requests(typed: AnswerCommand, view: TaskView) -> RequestSelection:
    """Return the named requests, each once; or all budget requests, with a line for each open request of
    another kind.
    """
    waiting = view.pending_approvals
    if not typed.all_requests:
        named = tuple(dict.fromkeys(typed.request_ids))
        return RequestSelection(named, {asked.request_id: asked for asked in waiting if asked.request_id in named})
    for_budget = {asked.request_id: asked for asked in waiting if asked.about_budget}
    others = (asked for asked in waiting if not asked.about_budget)
    return RequestSelection(
        tuple(for_budget), for_budget, tuple(_left_out(typed, view.task_id, asked) for asked in others)
    )


def format_announcement(typed: AnswerCommand, meant: RequestSelection) -> str:
    """Format what is about to happen: the number of answers, and the total amount."""
    requests = format_count(len(meant.request_ids), "request")
    if typed.command == "deny":
        return f"denying {requests}"
    total = Amount()
    for request in meant.open_requests.values():
        total += typed.amount or request.requested
    if total.is_zero:
        return f"approving {requests}"
    if len(meant.request_ids) == 1:
        return f"approving {requests} with {format_amount(total)}"
    each = f"{format_amount(typed.amount)} each" if typed.amount is not None else "the requested amounts"
    return f"approving {requests} with {each}, {format_amount(total)} in all"


def _left_out(typed: AnswerCommand, task_id: str, asked: ApprovalView) -> str:
    wants = f"asks to call {asked.action.tool}" if asked.action is not None else "is not a budget request"
    command = (format_approve_command if typed.command == "approve" else format_deny_command)(task_id, asked)
    look = f"look at the request (`waystation approvals {task_id}`), then run `{command}`"
    return f"request {asked.request_id} {wants}, so --all skips it: {look}"


@app.command()
def approve(
    task: TaskArgument,
    add: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT", help="Amount for each request, like 50k or '$1'; default: the requested amount."
        ),
    ] = None,
    request: RequestsOption = None,
    every: AllOption = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Approve a request for more budget, for a tool call or for a plan.

    A granted amount is added to the task's budget. To approve a tool call, name its request with
    `--request`; the approval is for that one call.
    """
    amount = parse_amount(add, "--add") if add is not None else None
    options = {"--add": add, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> AnswerResult:
        return await client.approve(task_id, request_id=request_id, amount=amount, by=by or getuser(), note=note)

    async def together(client: Client, task_id: str, request_ids: Sequence[str]) -> Mapping[str, AnswerResult]:
        return await client.approve_many(task_id, request_ids, amount, by=by or getuser(), note=note)

    typed = AnswerCommand("approve", task, tuple(request or ()), options, amount=amount, all_requests=every)
    send_answers_and_exit(typed, send, together, as_json=as_json)


_Finish = Literal["partial", "cancel"]


@app.command()
def deny(
    task: TaskArgument,
    finish: Annotated[
        _Finish, typer.Option(help="partial (deliver what the agent has) or cancel (stop the task).")
    ] = "partial",
    request: RequestsOption = None,
    every: AllOption = False,
    note: DenialNoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny a request for more budget, for a tool call or for a plan.

    An agent without more budget delivers what it has. After a denied tool call, it continues without the call.
    """
    options = {"--finish": finish, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> AnswerResult:
        return await client.deny(task_id, request_id=request_id, finish=finish, by=by or getuser(), note=note)

    async def together(client: Client, task_id: str, request_ids: Sequence[str]) -> Mapping[str, AnswerResult]:
        return await client.deny_many(task_id, request_ids, by=by or getuser(), note=note)

    typed = AnswerCommand("deny", task, tuple(request or ()), options, all_requests=every)
    if typed.is_multiple and finish == "cancel":
        raise BadInput(
            "--finish cancel ends the whole task, so it takes only one request: name one with --request, or run "
            f"`waystation cancel {task}`"
        )
    send_answers_and_exit(typed, send, together, as_json=as_json)


@app.command()
def deliver(
    task: TaskArgument, note: DeliveryNoteOption = "", by: ByOption = None, as_json: JsonOption = False
) -> None:
    """End a task with a report of what it has: deny all its open requests, and ask its agents to submit their results.

    Agents are asked at their next turn. The task makes no more requests. Its report is marked partial.
    """
    report_and_exit(asyncio.run(_deliver(task, note, by or getuser())), "refused", as_json=as_json)


async def _deliver(task: str, note: str, by: str) -> AnswerResult:
    async with await connect_client(Settings()) as client:
        task_id = await client.resolve_task_id(task)
        result = await client.deliver(task_id, by=by, note=note)
    if result.each:
        print_message(f"{task_id}: {format_count(len(result.each), 'request')} denied")
    return result.answer
