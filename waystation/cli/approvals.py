"""`waystation approvals`: what waits for an answer."""

import asyncio

import typer

from waystation.adapters.clock import utc_now
from waystation.cli.console import print_json, print_text, result, say
from waystation.cli.options import JsonOption
from waystation.cli.render_requests import inbox_text
from waystation.client import Client
from waystation.seen import PendingApproval
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def approvals(as_json: JsonOption = False) -> None:
    """List every request that waits for an answer, for money or a tool's call, with the commands that answer it."""
    waiting = asyncio.run(_approvals())
    if as_json:
        print_json(waiting)
    elif waiting:
        print_text(inbox_text(waiting, utc_now(), result.width))
    else:
        say("nothing waits for an answer")


async def _approvals() -> list[PendingApproval]:
    async with await Client.connect(Settings()) as client:
        return list(await client.approvals())
