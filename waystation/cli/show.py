"""`waystation show`: a task as it is now."""

import asyncio

import typer

from waystation.adapters.clock import utc_now
from waystation.cli.console import print_json, print_text, result
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render import task_screen
from waystation.cli.reports import keep_report
from waystation.cli.task_json import task_json
from waystation.client import Client
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def show(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Show a task: phase, steps, spending, compactions, requests for money; its report is written to a file."""
    asyncio.run(_show(Settings(), task, as_json=as_json))


async def _show(settings: Settings, task: str, *, as_json: bool) -> None:
    async with await Client.connect(settings) as client:
        view = await client.with_origins(await client.progress(await client.resolve(task)))
        view = await client.with_passages(view)
        path = await keep_report(client, settings, view.progress)
    if as_json:
        print_json(task_json(view, path))
        return
    result.print(task_screen(view, utc_now(), result.width), soft_wrap=True)
    if path is not None:
        print_text(str(path))
