"""`waystation rewind`: an agent goes back to a message; a finished task goes on from there."""

from typing import Annotated

import typer

from waystation.cli.editing import Asked, edit_context
from waystation.cli.options import AgentOption, ByOption, JsonOption, NoteOption, TaskArgument
from waystation.domain.errors import BadInput

app = typer.Typer()


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
    asked = Asked(task=task, action="rewind", agent=agent, message=to or before, keep=bool(to), by=by, note=note)
    edit_context(asked, as_json=as_json)
