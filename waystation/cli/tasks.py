"""`waystation message`, `documents`, `fork` and `cancel`: operations on submitted tasks."""

import asyncio
from collections.abc import Sequence
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.approvals import print_answer, report_and_exit
from waystation.cli.console import OK, WORK_FAILED, print_json, print_message, print_text
from waystation.cli.follow import print_submission, warn_if_unattended, watch_and_print_result
from waystation.cli.options import (
    ByOption,
    DetachOption,
    JsonOption,
    RequestIdOption,
    TaskArgument,
    parse_budget,
    parse_document_path,
    resolve_request_id,
)
from waystation.cli.render import format_count
from waystation.cli.submit import read_instructions
from waystation.client import connect_client
from waystation.client.submission import DocumentUpdateAnswer, ForkRequest
from waystation.config.settings import Settings
from waystation.documents.documents import REMOVED_NAME, Document
from waystation.kernel.errors import Unreachable
from waystation.tasks.signals import AnswerResult
from waystation.tasks.view import CancelResult

app = typer.Typer()


@app.command()
def cancel(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Stop a task. Its reserved budget returns to the session; what it has spent stays spent."""
    done = asyncio.run(_cancel(task))
    if done.requested:
        print_message(f"Asked {done.task_id} to stop. `waystation show {done.task_id}` shows when it has stopped.")
    else:
        print_message(f"{done.task_id} has ended: {done.phase}")
    if as_json:
        print_json(done)


async def _cancel(task: str) -> CancelResult:
    async with await connect_client(Settings()) as client:
        task_id = await client.resolve_task_id(task)
        return CancelResult.from_phase(task_id, await client.cancel(task_id))


MAX_NAMED_DOCUMENTS = 20
"""Maximum number of documents of a kind that are named."""


@app.command()
def documents(
    task: TaskArgument,
    docs: Annotated[
        list[Path] | None,
        typer.Option(metavar="PATH", parser=parse_document_path, help="File or folder to read again; repeatable."),
    ] = None,
    remove_missing: Annotated[
        bool, typer.Option("--remove-missing", help="Remove documents that are not in --docs any more.")
    ] = False,
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """List a task's documents. With --docs, send new and changed documents to a running task.

    Agents are notified of the changes at their next turn, and read the new versions from then on.
    """
    raise typer.Exit(asyncio.run(_documents(task, docs or [], remove_missing, by or getuser(), as_json)))


async def _documents(task: str, docs: Sequence[Path], remove_missing: bool, by: str, as_json: bool) -> int:
    async with await connect_client(Settings()) as client:
        task_id = await client.resolve_task_id(task)
        if not docs:
            listed = await client.list_documents(task_id)
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
    size = REMOVED_NAME if document.removed else format_count(document.lines, "line")
    return f"{document.name} ({size}{f'; file {document.file_name}' if document.file_name else ''})"


def _tell_changes(answer: DocumentUpdateAnswer) -> None:
    for item in answer.left_out:
        print_message(f"skipped {item.name}: {item.reason}")
    for kind in ("changed", "added", "removed"):
        _name(kind, [change.name for change in answer.changes if change.kind == kind])
    if answer.not_given:
        _name("not in --docs, kept (to remove: --remove-missing)", answer.not_given)
    print_answer(answer.answer)


def _name(what: str, names: Sequence[str]) -> None:
    for name in names[:MAX_NAMED_DOCUMENTS]:
        print_message(f"{what}: {name}")
    if len(names) > MAX_NAMED_DOCUMENTS:
        print_message(f"{what}: {len(names) - MAX_NAMED_DOCUMENTS} more")


@app.command()
def fork(
    task: TaskArgument,
    step: Annotated[
        str, typer.Option("--from", metavar="STEP", help="Step to run again, with all steps that depend on it.")
    ],
    instructions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File with instructions for the agents; default: those of the forked task."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="AMOUNT", help="Budget of the new task, like 600k or '$2'; default: that of the forked task."
        ),
    ] = None,
    request_id: RequestIdOption = None,
    detach: DetachOption = False,
    as_json: JsonOption = False,
) -> None:
    """Start a new task that reuses finished steps of a task that is over.

    Question and documents stay the same. Reused steps cost nothing; the others are paid from the new task's budget.
    """
    wish = ForkRequest(
        step=step,
        request_id=resolve_request_id(request_id),
        instructions=read_instructions(instructions) if instructions else None,
        budget=parse_budget(budget, "--budget") if budget is not None else None,
    )
    raise typer.Exit(asyncio.run(_fork(Settings(), task, wish, detach=detach, as_json=as_json)))


async def _fork(settings: Settings, task: str, fork: ForkRequest, *, detach: bool, as_json: bool) -> int:
    async with await connect_client(settings) as client:
        await warn_if_unattended(client)
        try:
            submitted = await client.fork(await client.resolve_task_id(task), fork)
        except Unreachable as error:
            raise Unreachable(f"{error}. To retry safely, add --request-id {fork.request_id}") from error
        print_submission(submitted)
        return await watch_and_print_result(client, settings, submitted.task_id, detach=detach, as_json=as_json)


@app.command()
def message(
    task: TaskArgument,
    text: Annotated[
        str, typer.Argument(metavar="MESSAGE", help="Text of the message; agents receive it word for word.")
    ],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send a message to all agents of a running task, including those that start later.

    An agent receives it at its next turn; a paused agent, when it continues. `waystation show --verbose` lists the
    agents that have received it.
    """
    report_and_exit(asyncio.run(_send(task, text, by or getuser())), "refused", as_json=as_json)


async def _send(task: str, text: str, by: str) -> AnswerResult:
    async with await connect_client(Settings()) as client:
        return await client.send_message(await client.resolve_task_id(task), text, by)
