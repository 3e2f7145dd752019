"""`waystation approvals`: what waits for an answer."""

import asyncio

import typer

from waystation.cli.console import print_json, print_text, say
from waystation.cli.options import JsonOption
from waystation.cli.render import approvals_text
from waystation.client import Client
from waystation.seen import PendingApproval
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def approvals(as_json: JsonOption = False) -> None:
    """List every request for money that waits for an answer, with the commands that answer it."""
    waiting = asyncio.run(_approvals())
    if as_json:
        print_json(waiting)
    elif waiting:
        print_text(approvals_text(waiting))
    else:
        say("nothing waits for an answer")


async def _approvals() -> list[PendingApproval]:
    async with await Client.connect(Settings()) as client:
        return list(await client.approvals())
