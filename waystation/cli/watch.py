"""`waystation watch`: a task until it is over."""

import asyncio

import typer

from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.seeing_through import see_through
from waystation.client import Client
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def watch(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Follow a task until it is over, and answer its requests at the terminal."""
    raise typer.Exit(asyncio.run(_watch(Settings(), task, as_json=as_json)))


async def _watch(settings: Settings, task: str, *, as_json: bool) -> int:
    async with await Client.connect(settings) as client:
        return await see_through(client, settings, await client.resolve(task), detach=False, as_json=as_json)
