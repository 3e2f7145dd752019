"""`waystation watch`: a task until it is over."""

import asyncio

import typer

from waystation.cli.console import print_json, print_text
from waystation.cli.following import ask_person, follow, outcome_code
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.reports import keep_report
from waystation.cli.task_json import task_json
from waystation.client import Client
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def watch(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Follow a task until it is over, and answer its requests at the terminal."""
    raise typer.Exit(asyncio.run(_watch(Settings(), task, as_json=as_json)))


async def _watch(settings: Settings, task: str, *, as_json: bool) -> int:
    async with await Client.connect(settings) as client:
        view = await follow(client, await client.resolve(task), ask_person)
        path = await keep_report(client, settings, view.progress)
    if as_json:
        print_json(task_json(view, path))
    elif path is not None:
        print_text(str(path))
    return outcome_code(view)
