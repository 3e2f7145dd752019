"""`waystation approve`: a task gets more tokens or dollars, or a call is carried out."""

import asyncio
from getpass import getuser
from typing import Annotated

import typer

from waystation.cli.amounts import parse_amount
from waystation.cli.answers import Typed, answer_request, conclude
from waystation.cli.options import ByOption, JsonOption, NoteOption, RequestOption, TaskArgument
from waystation.client import Client
from waystation.domain.amount import Amount
from waystation.seen import Answer
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def approve(
    task: TaskArgument,
    add: Annotated[str | None, typer.Option(help="How much, like 50k or $1.00; by default what was asked for.")] = None,
    request: RequestOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Grant a paused task more: new money, on top of its budget. Or let its agent call a tool, once, by `--request`."""
    amount = parse_amount(add, "--add") if add is not None else None
    typed = Typed("approve", task, request, {"--add": add, "--note": note, "--by": by})
    conclude(asyncio.run(_approve(typed, amount, by or getuser(), note)), "refused", "denied", as_json=as_json)


async def _approve(typed: Typed, amount: Amount | None, by: str, note: str) -> Answer:
    async with await Client.connect(Settings()) as client:
        return await answer_request(
            client,
            typed,
            lambda task_id, request_id: client.approve(task_id, request_id=request_id, amount=amount, by=by, note=note),
        )
