"""`waystation restore`: one compaction of a running agent is undone."""

from typing import Annotated

import typer

from waystation.cli.editing import Asked, edit_context
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument

app = typer.Typer()


@app.command()
def restore(
    task: TaskArgument,
    agent: AgentOption,
    compaction: Annotated[str, typer.Option(help="Id of the compaction; its beginning is enough.")],
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Undo one compaction of an agent at work: what it hid is shown again. A context that is full then is compacted."""
    asked = Asked(task=task, action="restore", agent=agent, compaction=compaction, by=by, note=note)
    edit_context(asked, as_json=as_json)
