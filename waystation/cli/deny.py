"""`waystation deny`: a task gets no more money, or a call is not carried out."""

from getpass import getuser
from typing import Annotated, Literal

import typer

from waystation.cli.answering import carry_out
from waystation.cli.answers import Typed
from waystation.cli.options import AllOption, ByOption, JsonOption, NoteOption, RequestsOption, TaskArgument
from waystation.client import Client
from waystation.domain.errors import BadInput
from waystation.seen import Answer

Finish = Literal["partial", "cancel"]

app = typer.Typer()


@app.command()
def deny(
    task: TaskArgument,
    finish: Annotated[Finish, typer.Option(help="Deliver what there is, or cancel the task.")] = "partial",
    request: RequestsOption = None,
    every: AllOption = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a paused task more money; or a call that its agent asks for, which then goes on without it."""
    options = {"--finish": finish, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> Answer:
        return await client.deny(task_id, request_id=request_id, finish=finish, by=by or getuser(), note=note)

    typed = Typed("deny", task, tuple(request or ()), options, every=every)
    if typed.several and finish == "cancel":
        raise BadInput(f"--finish cancel ends the whole task: deny one request so, or `waystation cancel {task}`")
    carry_out(typed, send, as_json=as_json)
