"""`waystation documents`: the documents of a task; given again, agents at work go on with what has changed."""

import asyncio
from collections.abc import Sequence
from getpass import getuser
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.answers import tell_answer
from waystation.cli.console import print_json, print_text, say
from waystation.cli.failures import OK, WORK_FAILED
from waystation.cli.options import ByOption, JsonOption, TaskArgument
from waystation.cli.render import counted
from waystation.client import Client
from waystation.client.documents import DocumentsAnswer
from waystation.domain.documents import REMOVED, Document
from waystation.settings import Settings

NAMED = 20
"""Documents of a kind that are named."""

app = typer.Typer()


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
    _tell(answer)
    if as_json:
        print_json(answer)
    return WORK_FAILED if answer.answer.outcome == "refused" else OK


def _line(document: Document) -> str:
    return f"{document.name} ({REMOVED if document.removed else counted(document.lines, 'line')})"


def _tell(answer: DocumentsAnswer) -> None:
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
