"""`waystation approve`: a task gets more tokens or dollars, or a call is carried out."""

from getpass import getuser
from typing import Annotated

import typer

from waystation.cli.amounts import parse_amount
from waystation.cli.answering import carry_out
from waystation.cli.answers import Typed
from waystation.cli.options import AllOption, ByOption, JsonOption, NoteOption, RequestsOption, TaskArgument
from waystation.client import Client
from waystation.seen import Answer

app = typer.Typer()


@app.command()
def approve(
    task: TaskArgument,
    add: Annotated[
        str | None, typer.Option(help="How much for each, like 50k or $1.00; by default what was asked for.")
    ] = None,
    request: RequestsOption = None,
    every: AllOption = False,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grant a paused task more: new money, on top of its budget. Or let its agent call a tool, once, by `--request`."""
    amount = parse_amount(add, "--add") if add is not None else None
    options = {"--add": add, "--note": note, "--by": by}

    async def send(client: Client, task_id: str, request_id: str | None) -> Answer:
        return await client.approve(task_id, request_id=request_id, amount=amount, by=by or getuser(), note=note)

    typed = Typed("approve", task, tuple(request or ()), options, amount=amount, every=every)
    carry_out(typed, send, as_json=as_json)
