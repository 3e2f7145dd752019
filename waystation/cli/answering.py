"""Answers to one request or to several: in turn, a line for each, and never to a call that nobody named."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, NoReturn

import typer

from waystation.cli.answers import Send, Typed, answer_request, open_task, outcome_text, send_answer, too_little
from waystation.cli.console import print_json, say
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.render_requests import approve_command, deny_command, pending
from waystation.client import Client
from waystation.domain.amount import Amount, amount_text
from waystation.domain.errors import BadInput
from waystation.domain.request_text import counted
from waystation.domain.task import Approval, TaskProgress
from waystation.seen import Answer, AnswerOutcome
from waystation.settings import Settings

SendWith = Callable[[Client, str, str | None], Awaitable[Answer]]
"""Sends an answer by a client to a task, by its id, for a request, by its id."""
FAILING: dict[str, tuple[AnswerOutcome, ...]] = {"approve": ("refused", "denied"), "deny": ("refused", "approved")}
"""By command: outcomes that are not what was wanted."""


class Answered(Answer):
    """What became of the answer to one of several requests."""

    request_id: str


class Meant(NamedTuple):
    """Which requests are answered together, and what is said of the others."""

    request_ids: tuple[str, ...]
    asked: dict[str, Approval]
    """Those of them that are open."""
    left_out: tuple[str, ...] = ()


def carry_out(typed: Typed, send: SendWith, *, as_json: bool) -> NoReturn:
    """Answer what is meant, print what became of it where that is asked for, and exit: 1 where any answer failed.

    Raises BadInput where nothing was sent, or the command cannot be meant so.
    """
    if typed.every and typed.request_ids:
        raise BadInput("--request and --all exclude each other: name the requests, or answer all that ask for money")
    answers = asyncio.run(_answered(typed, send))
    if as_json:
        print_json(answers if typed.several else answers[0])
    raise typer.Exit(WORK_FAILED if any(one.outcome in FAILING[typed.command] for one in answers) else OK)


async def _answered(typed: Typed, send: SendWith) -> Sequence[Answer]:
    async with await Client.connect(Settings()) as client:

        async def by_client(task_id: str, request_id: str | None) -> Answer:
            return await send(client, task_id, request_id)

        if typed.several:
            return await answer_several(client, typed, by_client)
        return [await answer_request(client, typed, by_client)]


async def answer_several(client: Client, typed: Typed, send: Send) -> list[Answered]:
    """Answer one request after the other, and tell of each; one that is refused does not stop the others.

    Raises BadInput where none is open of those that are meant; nothing is sent then.
    """
    progress = await open_task(client, typed)
    meant = meant_by(typed, progress)
    for line in meant.left_out:
        say(line)
    if not meant.request_ids:
        raise BadInput(f"{progress.task_id} has no open request for money: `waystation approvals` shows what waits")
    say(f"{progress.task_id}: {announced(typed, meant)}")
    answers: list[Answered] = []
    for request_id in meant.request_ids:
        try:
            answer = await send_answer(client, typed, progress.task_id, request_id, send)
        except BadInput as ended:
            answer = Answer(outcome="refused", reason=str(ended))
        asked = meant.asked.get(request_id)
        short = too_little(typed.amount, asked, answer) if asked is not None else ""
        say(f"{request_id}: {'; '.join(filter(None, (outcome_text(answer), short)))}")
        answers.append(Answered(request_id=request_id, **answer.model_dump()))
    return answers


def meant_by(typed: Typed, progress: TaskProgress) -> Meant:
    """The requests that are named, each once; or all that ask for money, and a line for each that does not."""
    waiting = [one.approval for one in pending(progress)]
    if not typed.every:
        named = tuple(dict.fromkeys(typed.request_ids))
        return Meant(named, {asked.request_id: asked for asked in waiting if asked.request_id in named})
    for_money = {asked.request_id: asked for asked in waiting if not asked.asked.nothing}
    others = (asked for asked in waiting if asked.asked.nothing)
    return Meant(tuple(for_money), for_money, tuple(_left_out(typed, progress.task_id, asked) for asked in others))


def announced(typed: Typed, meant: Meant) -> str:
    """What is about to happen: how many answers, and for what sum."""
    requests = counted(len(meant.request_ids), "request")
    if typed.command == "deny":
        return f"denying {requests}"
    total = Amount()
    for request in meant.asked.values():
        total += typed.amount or request.asked
    if total.nothing:
        return f"approving {requests}"
    each = f"{amount_text(typed.amount)} each" if typed.amount is not None else "what each asked for"
    return f"approving {requests}, {each}: {amount_text(total)} in all"


def _left_out(typed: Typed, task_id: str, asked: Approval) -> str:
    wants = f"asks to call {asked.action.tool}" if asked.action is not None else "asks for no money"
    command = (approve_command if typed.command == "approve" else deny_command)(task_id, asked)
    return f"{asked.request_id} {wants}, so --all leaves it out: look at it (`waystation approvals`), then `{command}`"
