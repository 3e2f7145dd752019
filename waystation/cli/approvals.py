"""`waystation approvals`, `approve` and `deny`: what waits for a person, and the answers.

`waystation approvals`: what waits for an answer.

Answers to one request or to several: a line for each, and never to a call that nobody named. Several are one message,
so that none goes on with what another leaves, or was given.

Answers to requests from the command line: which request is meant, and what became of the answer.

`waystation approve`: a task gets more tokens or dollars, or a call is carried out.

`waystation deny`: a task gets no more money, or a call is not carried out.
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
    JsonOption,
    NoteOption,
    RequestsOption,
    TaskArgument,
    parse_amount,
)
from waystation.cli.render import format_inbox_lines
from waystation.cli.render_requests import (
    MOMENT,
    format_approve_command,
    format_deny_command,
    format_inbox,
    format_request,
)
from waystation.client import Client, connect_client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, format_amount
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.text import format_count
from waystation.tasks.details import format_request_and_answer
from waystation.tasks.signals import AnswerOutcome, AnswerResult
from waystation.tasks.task import ApprovalRequest, TaskProgress
from waystation.tasks.view import PendingApproval, TaskView, list_pending_approvals

app = typer.Typer()


@app.command()
def approvals(
    task: Annotated[
        str | None, typer.Argument(metavar="TASK", help="Of this task alone, with details; its beginning is enough.")
    ] = None,
    details: Annotated[
        bool, typer.Option("--details", help="What each is for, and the commands that answer it, of all tasks.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List every request that waits for an answer, for money or a tool's call, a line each; with details of a task."""
    waiting = asyncio.run(_approvals(task))
    now = utc_now()
    if as_json:
        print_json(waiting)
    elif not waiting:
        print_message("nothing waits for an answer")
    elif details or task is not None:
        print_text(format_inbox(waiting, now, result.width))
    else:
        for line in format_inbox_lines(waiting, now.astimezone(), result.width):
            result.print(line, soft_wrap=True)
        print_message("what it is for, and how to answer: `waystation approvals TASK`")


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
    """Those that are meant; none where it is the only one, or all of them."""
    options: Mapping[str, str | None]
    """By their names; None and empty where they were not given."""
    amount: Amount | None = None
    """What each request is granted; None: what it asked for."""
    every: bool = False
    """All open requests for money are meant."""

    @property
    def is_multiple(self) -> bool:
        """Whether it is told for each request by its id what became of the answer, as for more than one."""
        return self.every or len(self.request_ids) > 1

    def render_command_for(self, task_id: str, request_id: str) -> str:
        """The same command for this request."""
        options = [word for name, value in self.options.items() if value for word in (name, value)]
        return shlex.join(["waystation", self.command, task_id, "--request", request_id, *options])


async def answer_request(client: Client, typed: AnswerCommand, send: Send) -> AnswerResult:
    """Send the answer; a refusal names whoever answered before. The one open request is meant where none is named.

    Raises:
        BadInput: the task is over, or has several open requests and none is named, or the one to approve is for a call,
            which nobody shall approve unseen; nothing is sent then.
    """
    progress = await load_answerable_task(client, typed)
    meant = typed.request_ids[0] if typed.request_ids else _only_one(typed, progress)
    answer = await send_answer(client, typed, progress.task_id, meant, send)
    print_answer(answer)
    asked = next((one.approval for one in list_pending_approvals(progress) if one.approval.request_id == meant), None)
    if asked is not None and (short := describe_insufficient_grant(typed.amount, asked, answer)):
        print_message(short)
    return answer


async def load_answerable_task(client: Client, typed: AnswerCommand) -> TaskProgress:
    """The task, which can still be answered. Raises BadInput, UnknownTask."""
    task_id = await client.resolve_task_id(typed.task)
    progress = (await client.get_task(task_id)).progress
    if progress.phase.over:
        raise BadInput(f"{task_id} has ended: {progress.phase}; there is nothing left to {typed.command}")
    return progress


async def _refused_late(
    client: Client, typed: AnswerCommand, task_id: str, request_id: str | None, answer: AnswerResult
) -> AnswerResult:
    if answer.outcome != "refused":
        return answer
    return describe_late_answer(typed, answer, await client.with_origins(await client.get_task(task_id)), request_id)


async def send_answer(
    client: Client, typed: AnswerCommand, task_id: str, request_id: str | None, send: Send
) -> AnswerResult:
    """Send one answer; a refusal names whoever answered before."""
    return await _refused_late(client, typed, task_id, request_id, await send(task_id, request_id))


def describe_late_answer(
    typed: AnswerCommand, refused: AnswerResult, view: TaskView, request_id: str | None
) -> AnswerResult:
    """A refusal with whoever answered before. Among all open requests, one that was withdrawn meanwhile fails nobody:
    the money that an earlier answer freed was enough for it.
    """
    before = describe_previous_answer(view, request_id)
    found = (asked.decision for asked in view.progress.approvals if asked.request_id == request_id)
    if typed.every and "withdrawn" in found:
        return AnswerResult(outcome="withdrawn", reason=before)
    return refused.replace(reason=f"{refused.reason}: {before}") if before else refused


def _only_one(typed: AnswerCommand, progress: TaskProgress) -> str | None:
    """The one open request, where none is named; None where none is open. Raises BadInput."""
    task_id, waiting = progress.task_id, list_pending_approvals(progress)
    if len(waiting) > 1:
        for one in waiting:
            print_message(typed.render_command_for(task_id, one.approval.request_id))
        raise BadInput(
            f"{task_id} has {len(waiting)} open requests: name the one that is meant by --request, as above, or say "
            "--all for all that ask for money"
        )
    if waiting and waiting[0].approval.action is not None and typed.command == "approve":
        print_message(format_request(waiting[0], utc_now(), console.progress.width))
        raise BadInput(f"{waiting[0].approval.agent} asks for no money: name the call by --request, as above")
    return waiting[0].approval.request_id if waiting else None


def describe_insufficient_grant(amount: Amount | None, asked: ApprovalRequest, answer: AnswerResult) -> str:
    """What to say of a grant with which its agent can do nothing; empty where it is enough, or was not given."""
    if amount is None or answer.outcome not in {"approved", "unseen"} or asked.needed.subtract_clamped(amount).is_zero:
        return ""
    return (
        f"a grant of {format_amount(amount)} is too little for the next call of {asked.agent}, which may need "
        f"{format_amount(asked.needed)} more than it has: it takes what comes free in its task, or asks again"
    )


def describe_previous_answer(view: TaskView, request_id: str | None) -> str:
    """Who answered the request, when, and what; empty while it is open. None means whichever was answered last."""
    answered = [
        approval
        for approval in view.progress.approvals
        if approval.decision != "pending" and request_id in {None, approval.request_id}
    ]
    last = max(answered, key=lambda approval: approval.answered_at or datetime.min.replace(tzinfo=UTC), default=None)
    return _answered_line(view, last) if last is not None else ""


def _answered_line(view: TaskView, approval: ApprovalRequest) -> str:
    origin = view.origins.get(approval.request_id)
    told = format_request_and_answer(approval, over=True, origin=origin.text if origin is not None else "")
    return f"{told} ({approval.answered_at:{MOMENT}})" if approval.answered_at is not None else told


def print_answer(answer: AnswerResult) -> None:
    """What became of an answer."""
    print_message(format_answer_outcome(answer))


def format_answer_outcome(answer: AnswerResult) -> str:
    """What became of an answer, in a line."""
    match answer.outcome:
        case "approved" | "denied" as decided:
            return decided
        case "done":
            return f"done: {answer.reason}" if answer.reason else "done"
        case "waiting":
            return "it waits for the agent's leg to end; `waystation show` tells what became of it"
        case "refused":
            return f"refused: {answer.reason}"
        case "withdrawn":
            return f"not needed any more: {answer.reason}"
        case "unseen":
            return f"sent; {answer.reason}"


def report_and_exit(answer: AnswerResult, *failing: AnswerOutcome, as_json: bool) -> NoReturn:
    """Tell what became of an order, print it where that is asked for, and exit: 1 with an outcome that is failing."""
    print_answer(answer)
    if as_json:
        print_json(answer)
    raise typer.Exit(WORK_FAILED if answer.outcome in failing else OK)


SendWith = Callable[[Client, str, str | None], Awaitable[AnswerResult]]
"""Sends an answer by a client to a task, by its id, for a request, by its id."""
SendSeveral = Callable[[Client, str, Sequence[str]], Awaitable[Mapping[str, AnswerResult]]]
"""The same for several requests: by id, what became of the answer."""
FAILING: dict[str, tuple[AnswerOutcome, ...]] = {"approve": ("refused", "denied"), "deny": ("refused", "approved")}
"""By command: outcomes that are not what was wanted."""


class _Answered(AnswerResult):
    """What became of the answer to one of several requests."""

    request_id: str


class RequestSelection(NamedTuple):
    """Which requests are answered together, and what is said of the others."""

    request_ids: tuple[str, ...]
    asked: dict[str, ApprovalRequest]
    """Those of them that are open."""
    left_out: tuple[str, ...] = ()


def send_answers_and_exit(typed: AnswerCommand, send: SendWith, together: SendSeveral, *, as_json: bool) -> NoReturn:
    """Answer what is meant, print what became of it where that is asked for, and exit: 1 where any answer failed.

    Raises BadInput where nothing was sent, or the command cannot be meant so.
    """
    if typed.every and typed.request_ids:
        raise BadInput("--request and --all exclude each other: name the requests, or answer all that ask for money")
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
    """Answer several requests, and tell of each.

    Raises BadInput where none is open of those that are meant; nothing is sent then.
    """
    progress = await load_answerable_task(client, typed)
    meant = select_requests(typed, progress)
    for line in meant.left_out:
        print_message(line)
    if not meant.request_ids:
        raise BadInput(f"{progress.task_id} has no open request for money: `waystation approvals` shows what waits")
    print_message(f"{progress.task_id}: {format_announcement(typed, meant)}")
    answers: list[_Answered] = []
    for request_id, sent in (await send(client, progress.task_id, meant.request_ids)).items():
        answer = await _refused_late(client, typed, progress.task_id, request_id, sent)
        asked = meant.asked.get(request_id)
        short = describe_insufficient_grant(typed.amount, asked, answer) if asked is not None else ""
        print_message(f"{request_id}: {'; '.join(filter(None, (format_answer_outcome(answer), short)))}")
        answers.append(_Answered(request_id=request_id, **answer.model_dump()))
    return answers


def select_requests(typed: AnswerCommand, progress: TaskProgress) -> RequestSelection:
    """The requests that are named, each once; or all that ask for money, and a line for each that does not."""
    waiting = [one.approval for one in list_pending_approvals(progress)]
    if not typed.every:
        named = tuple(dict.fromkeys(typed.request_ids))
        return RequestSelection(named, {asked.request_id: asked for asked in waiting if asked.request_id in named})
    for_money = {asked.request_id: asked for asked in waiting if not asked.asked.is_zero}
    others = (asked for asked in waiting if asked.asked.is_zero)
    return RequestSelection(
        tuple(for_money), for_money, tuple(_left_out(typed, progress.task_id, asked) for asked in others)
    )


def format_announcement(typed: AnswerCommand, meant: RequestSelection) -> str:
    """What is about to happen: how many answers, and for what sum."""
    requests = format_count(len(meant.request_ids), "request")
    if typed.command == "deny":
        return f"denying {requests}"
    total = Amount()
    for request in meant.asked.values():
        total += typed.amount or request.asked
    if total.is_zero:
        return f"approving {requests}"
    each = f"{format_amount(typed.amount)} each" if typed.amount is not None else "what each asked for"
    return f"approving {requests}, {each}: {format_amount(total)} in all"


def _left_out(typed: AnswerCommand, task_id: str, asked: ApprovalRequest) -> str:
    wants = f"asks to call {asked.action.tool}" if asked.action is not None else "asks for no money"
    command = (format_approve_command if typed.command == "approve" else format_deny_command)(task_id, asked)
    look = f"look at it (`waystation approvals {task_id}`), then `{command}`"
    return f"{asked.request_id} {wants}, so --all leaves it out: {look}"


@app.command()
def approve(
    task: TaskArgument,
    add: Annotated[
        str | None, typer.Option(help="How much for each, like 50k or $1.00; by default what was asked for.")
    ] = None,
    request: RequestsOption = None,
    every: AllOption = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grant a paused task more: new money, on top of its budget. Or let its agent call a tool, once, by `--request`."""
    amount = parse_amount(add, "--add") if add is not None else None
    options = {"--add": add, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> AnswerResult:
        return await client.approve(task_id, request_id=request_id, amount=amount, by=by or getuser(), note=note)

    async def together(client: Client, task_id: str, request_ids: Sequence[str]) -> Mapping[str, AnswerResult]:
        return await client.approve_many(task_id, request_ids, amount, by=by or getuser(), note=note)

    typed = AnswerCommand("approve", task, tuple(request or ()), options, amount=amount, every=every)
    send_answers_and_exit(typed, send, together, as_json=as_json)


_Finish = Literal["partial", "cancel"]


@app.command()
def deny(
    task: TaskArgument,
    finish: Annotated[_Finish, typer.Option(help="Deliver what there is, or cancel the task.")] = "partial",
    request: RequestsOption = None,
    every: AllOption = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a paused task more money; or a call that its agent asks for, which then goes on without it."""
    options = {"--finish": finish, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> AnswerResult:
        return await client.deny(task_id, request_id=request_id, finish=finish, by=by or getuser(), note=note)

    async def together(client: Client, task_id: str, request_ids: Sequence[str]) -> Mapping[str, AnswerResult]:
        return await client.deny_many(task_id, request_ids, by=by or getuser(), note=note)

    typed = AnswerCommand("deny", task, tuple(request or ()), options, every=every)
    if typed.is_multiple and finish == "cancel":
        raise BadInput(f"--finish cancel ends the whole task: deny one request so, or `waystation cancel {task}`")
    send_answers_and_exit(typed, send, together, as_json=as_json)
