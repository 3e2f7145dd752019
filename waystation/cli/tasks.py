"""`waystation tell`, `documents`, `fork`, `cancel` and `session`: what is done with tasks that are there.

`waystation cancel`: a task stops.

`waystation documents`: the documents of a task; given again, agents at work go on with what has changed.

`waystation fork`: a new task that reuses finished steps of one that is over.

`waystation session`: what a session may spend.

`waystation tell`: all agents of a running task hear something at their next turns.
"""

import asyncio
import secrets
from collections.abc import Sequence
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.approvals import conclude, tell_answer
from waystation.cli.console import OK, WORK_FAILED, print_json, print_text, say
from waystation.cli.follow import see_through, tell_of, tell_of_unattended
from waystation.cli.options import ByOption, JsonOption, TaskArgument, parse_budget
from waystation.cli.render import counted
from waystation.cli.submit import text_of
from waystation.client import Client
from waystation.client.sessions import DocumentsAnswer, ForkWish
from waystation.client.task_json import CancelJson, SessionJson
from waystation.domain.amount import Limit, limit_text
from waystation.domain.documents import REMOVED_NAME, Document
from waystation.domain.errors import Unreachable
from waystation.domain.signals import Answer
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def cancel(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Stop a task. What it has spent stays spent; what it had reserved goes back to its session."""
    done = asyncio.run(_cancel(task))
    if done.asked:
        say(f"asked {done.task_id} to stop; `waystation show {done.task_id}` tells when it has")
    else:
        say(f"{done.task_id} has ended: {done.phase}")
    if as_json:
        print_json(done)


async def _cancel(task: str) -> CancelJson:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        return CancelJson.of(task_id, await client.cancel(task_id))


NAMED = 20
"""Documents of a kind that are named."""


@app.command()
def documents(
    task: TaskArgument,
    docs: Annotated[list[Path] | None, typer.Option(help="File or folder to read again; repeatable.")] = None,
    remove_missing: Annotated[
        bool, typer.Option("--remove-missing", help="Documents that are not in --docs any more are removed.")
    ] = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the documents of a task; with --docs, give a running task what has changed of them.

    Only changed and new files are read. Agents hear at their next turns which documents are others now, and read the
    new versions from then on.
    """
    raise typer.Exit(asyncio.run(_documents(task, docs or [], remove_missing, by or getuser(), as_json)))


async def _documents(task: str, docs: Sequence[Path], remove_missing: bool, by: str, as_json: bool) -> int:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        if not docs:
            listed = await client.documents(task_id)
            if as_json:
                print_json(listed)
            else:
                print_text("\n".join(map(_line, listed)))
            return OK
        answer = await client.update_documents(task_id, docs, remove_missing=remove_missing, by=by)
    _tell_changes(answer)
    if as_json:
        print_json(answer)
    return WORK_FAILED if answer.answer.outcome == "refused" else OK


def _line(document: Document) -> str:
    return f"{document.name} ({REMOVED_NAME if document.removed else counted(document.lines, 'line')})"


def _tell_changes(answer: DocumentsAnswer) -> None:
    for item in answer.left_out:
        say(f"skipped {item.name}: {item.reason}")
    for kind in ("changed", "added", "removed"):
        _name(kind, [change.name for change in answer.changes if change.kind == kind])
    if answer.not_given:
        _name("not given, stays as it is (--remove-missing removes it)", answer.not_given)
    tell_answer(answer.answer)


def _name(what: str, names: Sequence[str]) -> None:
    for name in names[:NAMED]:
        say(f"{what}: {name}")
    if len(names) > NAMED:
        say(f"{what}: {len(names) - NAMED} more")


@app.command()
def fork(
    task: TaskArgument,
    step: Annotated[str, typer.Option("--from", metavar="STEP", help="Begins anew, with all that builds on it.")],
    instructions: Annotated[Path | None, typer.Option(help="File with other instructions for the agents.")] = None,
    budget: Annotated[str | None, typer.Option(help="Of the new task; by default that of the first one.")] = None,
    request_id: Annotated[str | None, typer.Option(help="The same id again finds the same task.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a new task with the finished steps of one that is over: those cost nothing again.

    Question and documents stay; a step that begins anew reads the same and is paid from the new budget.
    """
    wish = ForkWish(
        step=step,
        request_id=request_id or secrets.token_hex(8),
        instructions=text_of(instructions) if instructions else None,
        budget=parse_budget(budget, "--budget") if budget is not None else None,
    )
    raise typer.Exit(asyncio.run(_fork(Settings(), task, wish, detach=detach, as_json=as_json)))


async def _fork(settings: Settings, task: str, wish: ForkWish, *, detach: bool, as_json: bool) -> int:
    async with await Client.connect(settings) as client:
        await tell_of_unattended(client)
        try:
            submitted = await client.fork(await client.resolve(task), wish)
        except Unreachable as error:
            raise Unreachable(f"{error}: --request-id {wish.request_id}") from error
        tell_of(submitted)
        return await see_through(client, settings, submitted.task_id, detach=detach, as_json=as_json)


UNLIMITED = "unlimited"


session = typer.Typer(name="session", help="Set what a session may spend.", no_args_is_help=True)
app.add_typer(session)


@session.callback()
def _session() -> None:
    """Set what a session may spend."""


@session.command("set")
def set_limit(
    name: Annotated[str, typer.Argument(metavar="SESSION", help="Name of the session.")],
    budget: Annotated[str, typer.Option(help=f"For all its tasks, like 2M, $50, 2M+$50, or {UNLIMITED}.")],
    as_json: JsonOption = False,
) -> None:
    """Set what all tasks of a session may spend together."""
    limit = Limit() if budget == UNLIMITED else parse_budget(budget, "--budget")
    asyncio.run(_set(name, limit))
    say(f"session {name} may spend {limit_text(limit)}")
    if as_json:
        print_json(SessionJson(session=name, limit_tokens=limit.tokens, limit_usd=limit.usd))


async def _set(name: str, limit: Limit) -> None:
    async with await Client.connect(Settings()) as client:
        await client.set_session_limit(name, limit)


@app.command()
def tell(
    task: TaskArgument,
    message: Annotated[str, typer.Argument(help="What the agents shall know, as they will read it.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the agents of a running task something: those at work, and those that start later, each of them once.

    An agent hears it at its next turn; one that waits, when it goes on. `waystation show` tells who has heard it.
    """
    conclude(asyncio.run(_told(task, message, by or getuser())), "refused", as_json=as_json)


async def _told(task: str, message: str, by: str) -> Answer:
    async with await Client.connect(Settings()) as client:
        return await client.tell(await client.resolve(task), message, by)
