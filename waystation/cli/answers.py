"""Answers to requests from the command line: which request is meant, and what became of the answer."""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple, NoReturn

import typer

from waystation.adapters.clock import utc_now
from waystation.cli import console
from waystation.cli.console import print_json, say
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.render_requests import MOMENT, pending, request_text
from waystation.client import Client
from waystation.domain.amount import Amount, amount_text
from waystation.domain.errors import BadInput
from waystation.domain.request_text import answer_text
from waystation.domain.task import Approval, TaskProgress
from waystation.seen import Answer, AnswerOutcome, TaskView

Send = Callable[[str, str | None], Awaitable[Answer]]
"""Sends an answer to a task, by its id, for a request, by its id."""


class Typed(NamedTuple):
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
    def several(self) -> bool:
        """Whether it is told for each request by its id what became of the answer, as for more than one."""
        return self.every or len(self.request_ids) > 1

    def naming(self, task_id: str, request_id: str) -> str:
        """The same command for this request."""
        options = [word for name, value in self.options.items() if value for word in (name, value)]
        return shlex.join(["waystation", self.command, task_id, "--request", request_id, *options])


async def answer_request(client: Client, typed: Typed, send: Send) -> Answer:
    """Send the answer; a refusal names whoever answered before. The one open request is meant where none is named.

    Raises:
        BadInput: the task is over, or has several open requests and none is named, or the one to approve is for a call,
            which nobody shall approve unseen; nothing is sent then.
    """
    progress = await open_task(client, typed)
    meant = typed.request_ids[0] if typed.request_ids else _only_one(typed, progress)
    answer = await send_answer(client, typed, progress.task_id, meant, send)
    tell_answer(answer)
    asked = next((one.approval for one in pending(progress) if one.approval.request_id == meant), None)
    if asked is not None and (short := too_little(typed.amount, asked, answer)):
        say(short)
    return answer


async def open_task(client: Client, typed: Typed) -> TaskProgress:
    """The task, which can still be answered. Raises BadInput, UnknownTask."""
    task_id = await client.resolve(typed.task)
    progress = (await client.progress(task_id)).progress
    if progress.phase.over:
        raise BadInput(f"{task_id} has ended: {progress.phase}; there is nothing left to {typed.command}")
    return progress


async def send_answer(client: Client, typed: Typed, task_id: str, request_id: str | None, send: Send) -> Answer:
    """Send one answer; a refusal names whoever answered before."""
    answer = await send(task_id, request_id)
    if answer.outcome != "refused":
        return answer
    return late(typed, answer, await client.with_origins(await client.progress(task_id)), request_id)


def late(typed: Typed, refused: Answer, view: TaskView, request_id: str | None) -> Answer:
    """A refusal with whoever answered before. Among all open requests, one that was withdrawn meanwhile fails nobody:
    the money that an earlier answer freed was enough for it.
    """
    before = answered_before(view, request_id)
    found = (asked.decision for asked in view.progress.approvals if asked.request_id == request_id)
    if typed.every and "withdrawn" in found:
        return Answer(outcome="withdrawn", reason=before)
    return refused.model_copy(update={"reason": f"{refused.reason}: {before}"}) if before else refused


def _only_one(typed: Typed, progress: TaskProgress) -> str | None:
    """The one open request, where none is named; None where none is open. Raises BadInput."""
    task_id, waiting = progress.task_id, pending(progress)
    if len(waiting) > 1:
        for one in waiting:
            say(typed.naming(task_id, one.approval.request_id))
        raise BadInput(
            f"{task_id} has {len(waiting)} open requests: name the one that is meant by --request, as above, or say "
            "--all for all that ask for money"
        )
    if waiting and waiting[0].approval.action is not None and typed.command == "approve":
        say(request_text(waiting[0], utc_now(), console.progress.width))
        raise BadInput(f"{waiting[0].approval.agent} asks for no money: name the call by --request, as above")
    return waiting[0].approval.request_id if waiting else None


def too_little(amount: Amount | None, asked: Approval, answer: Answer) -> str:
    """What to say of a grant with which its agent can do nothing; empty where it is enough, or was not given."""
    if amount is None or answer.outcome not in {"approved", "unseen"} or asked.needed.less(amount).nothing:
        return ""
    return (
        f"a grant of {amount_text(amount)} is too little for the next call of {asked.agent}, which may need "
        f"{amount_text(asked.needed)} more than it has: it will ask again"
    )


def answered_before(view: TaskView, request_id: str | None) -> str:
    """Who answered the request, when, and what; empty while it is open. None means whichever was answered last."""
    answered = [
        approval
        for approval in view.progress.approvals
        if approval.decision != "pending" and request_id in {None, approval.request_id}
    ]
    last = max(answered, key=lambda approval: approval.answered_at or datetime.min.replace(tzinfo=UTC), default=None)
    return _answered(view, last) if last is not None else ""


def _answered(view: TaskView, approval: Approval) -> str:
    origin = view.origins.get(approval.request_id)
    told = answer_text(approval, over=True, origin=origin.text if origin is not None else "")
    return f"{told} ({approval.answered_at:{MOMENT}})" if approval.answered_at is not None else told


def tell_answer(answer: Answer) -> None:
    """What became of an answer."""
    say(outcome_text(answer))


def outcome_text(answer: Answer) -> str:
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


def conclude(answer: Answer, *failing: AnswerOutcome, as_json: bool) -> NoReturn:
    """Tell what became of an order, print it where that is asked for, and exit: 1 with an outcome that is failing."""
    tell_answer(answer)
    if as_json:
        print_json(answer)
    raise typer.Exit(WORK_FAILED if answer.outcome in failing else OK)
