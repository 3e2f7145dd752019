"""Answers to requests from the command line: which request is meant, and what became of the answer."""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, NoReturn

import typer

from waystation.adapters.clock import utc_now
from waystation.cli import console
from waystation.cli.console import print_json, say
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.render_requests import MOMENT, pending, request_text
from waystation.client import Client
from waystation.domain.errors import BadInput
from waystation.domain.request_text import answer_text
from waystation.domain.task import Approval, TaskProgress
from waystation.seen import Answer, AnswerOutcome, TaskView

Send = Callable[[str, str | None], Awaitable[Answer]]
"""Sends an answer to a task, by its id, for a request, by its id."""


class Typed(NamedTuple):
    """An answer as a person typed it."""

    command: str
    task: str
    request_id: str | None
    options: Mapping[str, str | None]
    """By their names; None and empty where they were not given."""

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
    task_id = await client.resolve(typed.task)
    progress = (await client.progress(task_id)).progress
    if progress.phase.over:
        raise BadInput(f"{task_id} has ended: {progress.phase}; there is nothing left to {typed.command}")
    meant = typed.request_id or _only_one(typed, progress)
    answer = await send(task_id, meant)
    if answer.outcome != "refused":
        return answer
    before = answered_before(await client.with_origins(await client.progress(task_id)), meant)
    return answer.model_copy(update={"reason": f"{answer.reason}: {before}"}) if before else answer


def _only_one(typed: Typed, progress: TaskProgress) -> str | None:
    """The one open request, where none is named; None where none is open. Raises BadInput."""
    task_id, waiting = progress.task_id, pending(progress)
    if len(waiting) > 1:
        for one in waiting:
            say(typed.naming(task_id, one.approval.request_id))
        raise BadInput(f"{task_id} has {len(waiting)} open requests: name the one that is meant by --request, as above")
    if waiting and waiting[0].approval.action is not None and typed.command == "approve":
        say(request_text(waiting[0], utc_now(), console.progress.width))
        raise BadInput(f"{waiting[0].approval.agent} asks for no money: name the call by --request, as above")
    return waiting[0].approval.request_id if waiting else None


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
    match answer.outcome:
        case "approved":
            say("approved")
        case "denied":
            say("denied")
        case "done":
            say(f"done: {answer.reason}" if answer.reason else "done")
        case "waiting":
            say("it waits for the agent's leg to end; `waystation show` tells what became of it")
        case "refused":
            say(f"refused: {answer.reason}")
        case "unseen":
            say(f"sent; {answer.reason}")


def conclude(answer: Answer, *failing: AnswerOutcome, as_json: bool) -> NoReturn:
    """Tell what became of an answer, print it where that is asked for, and exit: 1 with an outcome that is failing."""
    tell_answer(answer)
    if as_json:
        print_json(answer)
    raise typer.Exit(WORK_FAILED if answer.outcome in failing else OK)
