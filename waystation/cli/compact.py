"""`waystation compact`: a running agent's context is summarised now, however full it is."""

from typing import Annotated

import typer

from waystation.cli.editing import Asked, edit_context
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument

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
    asked = Asked(task=task, action="compact", agent=agent, instructions=instructions, by=by, note=note)
    edit_context(asked, as_json=as_json)
