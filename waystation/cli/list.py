"""`waystation list`: the newest tasks."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_json, result, say
from waystation.cli.options import JsonOption
from waystation.cli.render import tasks_table
from waystation.cli.task_json import task_json
from waystation.client import Client
from waystation.seen import TaskView
from waystation.settings import Settings

app = typer.Typer()


@app.command("list")
def list_tasks(
    session: Annotated[str | None, typer.Option(help="Only the tasks of this session.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the newest tasks, also those that Temporal has forgotten."""
    views = asyncio.run(_tasks(session))
    for remark in sorted({view.remark for view in views if view.remark}):
        say(remark)
    if as_json:
        print_json([task_json(view, None) for view in views])
    else:
        result.print(tasks_table(views), soft_wrap=True)


async def _tasks(session: str | None) -> tuple[TaskView, ...]:
    async with await Client.connect(Settings()) as client:
        return await client.tasks(session)
