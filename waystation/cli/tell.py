"""`waystation tell`: all agents of a running task hear something at their next turns."""

import asyncio
from getpass import getuser
from typing import Annotated

import typer

from waystation.cli.answers import conclude
from waystation.cli.options import ByOption, JsonOption, TaskArgument
from waystation.client import Client
from waystation.seen import Answer
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def tell(
    task: TaskArgument,
    message: Annotated[str, typer.Argument(help="What the agents shall know, as they will read it.")],
    by: ByOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell the agents of a running task something: those at work, and those that start later, each of them once.

    An agent hears it at its next turn; one that waits, when it goes on. `waystation show` tells who has heard it.
    """
    conclude(asyncio.run(_tell(task, message, by or getuser())), "refused", as_json=as_json)


async def _tell(task: str, message: str, by: str) -> Answer:
    async with await Client.connect(Settings()) as client:
        return await client.tell(await client.resolve(task), message, by)
