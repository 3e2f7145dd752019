"""`waystation pin`: no compaction hides a message of a running agent."""

from typing import Annotated

import typer

from waystation.cli.editing import Asked, edit_context
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument

app = typer.Typer()


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
    asked = Asked(task=task, action="unpin" if remove else "pin", agent=agent, message=message, by=by, note=note)
    edit_context(asked, as_json=as_json)
