"""`waystation deny`: a task gets no more money, or a call is not carried out."""

import asyncio
from getpass import getuser
from typing import Annotated, Literal

import typer

from waystation.cli.answers import Typed, answer_request, conclude
from waystation.cli.options import ByOption, JsonOption, NoteOption, RequestOption, TaskArgument
from waystation.client import Client
from waystation.seen import Answer
from waystation.settings import Settings

Finish = Literal["partial", "cancel"]

app = typer.Typer()


@app.command()
def deny(
    task: TaskArgument,
    finish: Annotated[Finish, typer.Option(help="Deliver what there is, or cancel the task.")] = "partial",
    request: RequestOption = None,
    note: NoteOption = "",
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Refuse a paused task more money; or a call that its agent asks for, which then goes on without it."""
    typed = Typed("deny", task, request, {"--finish": finish, "--note": note, "--by": by})
    conclude(asyncio.run(_deny(typed, finish, by or getuser(), note)), "refused", "approved", as_json=as_json)


async def _deny(typed: Typed, finish: Finish, by: str, note: str) -> Answer:
    async with await Client.connect(Settings()) as client:
        return await answer_request(
            client,
            typed,
            lambda task_id, request_id: client.deny(task_id, request_id=request_id, finish=finish, by=by, note=note),
        )
