"""Answers to requests for money from the command line: which request is meant, and what became of the answer."""

import shlex
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from waystation.cli.console import say
from waystation.cli.render_requests import MOMENT, pending
from waystation.client import Client
from waystation.domain.errors import BadInput
from waystation.domain.request_text import answer_text
from waystation.domain.task import Approval
from waystation.seen import Answer, TaskView

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
        BadInput: the task is over, or has several open requests and none is named; nothing is sent then.
    """
    task_id = await client.resolve(typed.task)
    progress = (await client.progress(task_id)).progress
    if progress.phase.over:
        raise BadInput(f"{task_id} has ended: {progress.phase}; there is nothing left to {typed.command}")
    waiting = [one.approval.request_id for one in pending(progress)]
    if typed.request_id is None and len(waiting) > 1:
        for request_id in waiting:
            say(typed.naming(task_id, request_id))
        raise BadInput(f"{task_id} has {len(waiting)} open requests: name the one that is meant by --request, as above")
    meant = typed.request_id or next(iter(waiting), None)
    answer = await send(task_id, meant)
    if answer.outcome != "refused":
        return answer
    before = answered_before(await client.with_origins(await client.progress(task_id)), meant)
    return answer.model_copy(update={"reason": f"{answer.reason}: {before}"}) if before else answer


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
