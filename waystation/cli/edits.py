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
    instructions: Annotated[str, typer.Option(metavar="TEXT", help="Instructions for the summary.")] = "",
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Compact the context of a running agent when its current leg (a series of turns) ends.

    A rejected summary changes nothing.
    """
    asked = _Asked(task=task, action="compact", agent=agent, instructions=instructions, by=by, note=note)
    edit_context(asked, as_json=as_json)


@app.command()
def pin(
    task: TaskArgument,
    agent: AgentOption,
    message: Annotated[
        str, typer.Option(metavar="ID", help="Id of the message, like m4, from `waystation transcript`.")
    ],
    remove: Annotated[bool, typer.Option("--remove", help="Remove the pin.")] = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exclude a message of a running agent from compactions.

    All pinned messages together may take up to a fifth of the context window.
    """
    asked = _Asked(task=task, action="unpin" if remove else "pin", agent=agent, message=message, by=by, note=note)
    edit_context(asked, as_json=as_json)


@app.command()
def restore(
    task: TaskArgument,
    agent: AgentOption,
    compaction: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Id of the compaction, or the first characters of the id. Without this option, the ids are listed.",
        ),
    ] = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo one compaction of a running agent, so that its model sees the hidden messages again.

    If the context is full after that, it is compacted again.
    """
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
        return f"{agent} has no compaction to undo: `waystation show {view.task_id}` lists all compactions"
    there = "; ".join(map(format_compaction, made))
    return f"choose a compaction to undo: {there}. For example: `{format_restore_command(view.task_id, made[-1])}`"


@app.command()
def rewind(
    task: TaskArgument,
    agent: AgentOption,
    to: Annotated[str, typer.Option("--to", metavar="MESSAGE", help="Last message to keep, like m4.")] = "",
    before: Annotated[str, typer.Option("--before", metavar="MESSAGE", help="First message to discard, like m5.")] = "",
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rewind an agent to an earlier message, in a running, paused or finished task.

    Later messages, notes and results no longer count, but they stay in the transcript and in the cost. A running agent
    is rewound when its current leg (a series of turns) ends. In a finished task, agents that used its results start
    again.
    """
    if bool(to) == bool(before):
        raise BadInput("give either --to or --before with the id of a message, from `waystation transcript`")
    asked = _Asked(task=task, action="rewind", agent=agent, message=to or before, keep=bool(to), by=by, note=note)
    edit_context(asked, as_json=as_json)
