"""`waystation restore`: one compaction of a running agent is undone."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.editing import Asked, edit_context
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument
from waystation.cli.render import compaction_text, restore_command
from waystation.client import Client
from waystation.domain.errors import BadInput
from waystation.settings import Settings

app = typer.Typer()


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
    asked = Asked(task=task, action="restore", agent=agent, compaction=compaction, by=by, note=note)
    edit_context(asked, as_json=as_json)


async def _which(task: str, agent: str) -> str:
    """What there is to choose from."""
    async with await Client.connect(Settings()) as client:
        progress = (await client.progress(await client.resolve(task))).progress
    made = [one for one in progress.compactions if one.agent == agent and one.status.made_room]
    if not made:
        return f"{agent} has no compaction that could be undone: `waystation show {progress.task_id}` lists them all"
    there = "; ".join(map(compaction_text, made))
    return f"say which compaction is to be undone, as in `{restore_command(progress.task_id, made[-1])}`: {there}"
