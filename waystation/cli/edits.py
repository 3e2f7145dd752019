"""`waystation compact`, `pin`, `restore` and `rewind`: edit the context of a running agent; `rewind` also resumes a
finished task.
"""

import asyncio
from getpass import getuser
from typing import Annotated

import typer

from waystation.cli.approvals import report_and_exit
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument
from waystation.cli.render import format_compaction, format_restore_command
from waystation.client import connect_client
from waystation.config.settings import Settings
from waystation.context.compaction import ContextEditAction
from waystation.kernel.errors import BadInput
from waystation.kernel.value import Value
from waystation.tasks.signals import AnswerResult, ContextEditInput


class _Asked(Value):
    """An edit as it was typed."""

    task: str
    action: ContextEditAction
    agent: str
    message: str | None = None
    keep: bool | None = None
    compaction: str | None = None
    instructions: str = ""
    by: str | None = None
    note: str = ""


def edit_context(asked: _Asked, *, as_json: bool) -> None:
    """Have the edit carried out, and exit: with 1 if it was refused."""
    report_and_exit(asyncio.run(_edit(asked)), "refused", as_json=as_json)


async def _edit(asked: _Asked) -> AnswerResult:
    edit = ContextEditInput(
        action=asked.action,
        agent=asked.agent,
        message=asked.message,
        keep=asked.keep,
        compaction=asked.compaction,
        by=asked.by or getuser(),
        note=asked.note,
    )
    async with await connect_client(Settings()) as client:
        return await client.edit_context(await client.resolve_task_id(asked.task), edit, asked.instructions)


app = typer.Typer()


@app.command()
def compact(
    task: TaskArgument,
    agent: AgentOption,
    instructions: Annotated[str, typer.Option(help="What the summary is to heed.")] = "",
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Summarise the context of an agent at work, between two of its legs. A summary that is refused changes nothing."""
    asked = _Asked(task=task, action="compact", agent=agent, instructions=instructions, by=by, note=note)
    edit_context(asked, as_json=as_json)


@app.command()
def pin(
    task: TaskArgument,
    agent: AgentOption,
    message: Annotated[str, typer.Option(help="Id of the message, like m4: `waystation transcript` shows them.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the pin back.")] = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a message of an agent at work as it is, whatever is compacted. All pins may have a fifth of the window."""
    asked = _Asked(task=task, action="unpin" if remove else "pin", agent=agent, message=message, by=by, note=note)
    edit_context(asked, as_json=as_json)


@app.command()
def restore(
    task: TaskArgument,
    agent: AgentOption,
    compaction: Annotated[
        str | None, typer.Option(help="Id of the compaction, which `waystation show` prints; its beginning is enough.")
    ] = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo one compaction of an agent at work: what it hid is shown again. A context that is full then is compacted."""
    if compaction is None:
        raise BadInput(asyncio.run(_which(task, agent)))
    asked = _Asked(task=task, action="restore", agent=agent, compaction=compaction, by=by, note=note)
    edit_context(asked, as_json=as_json)


async def _which(task: str, agent: str) -> str:
    """Describe the compactions to choose from."""
    async with await connect_client(Settings()) as client:
        view = await client.get_task(await client.resolve_task_id(task))
    made = [one for one in view.compactions if one.agent == agent and one.status.made_room]
    if not made:
        return f"{agent} has no compaction that could be undone: `waystation show {view.task_id}` lists them all"
    there = "; ".join(map(format_compaction, made))
    return f"say which compaction is to be undone, as in `{format_restore_command(view.task_id, made[-1])}`: {there}"


@app.command()
def rewind(
    task: TaskArgument,
    agent: AgentOption,
    to: Annotated[str, typer.Option("--to", metavar="MESSAGE", help="Go on after this message, like m4.")] = "",
    before: Annotated[str, typer.Option("--before", metavar="MESSAGE", help="Go on without this message.")] = "",
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take an agent back to a message: of a task that is paused or at work between two legs, or of a finished one.

    What it said, noted and handed in after that counts no more, but stays paid and in the transcript. In a finished
    task the agents that built on its work begin anew.
    """
    if bool(to) == bool(before):
        raise BadInput("give either --to or --before, with the id of a message: `waystation transcript` shows them")
    asked = _Asked(task=task, action="rewind", agent=agent, message=to or before, keep=bool(to), by=by, note=note)
    edit_context(asked, as_json=as_json)
