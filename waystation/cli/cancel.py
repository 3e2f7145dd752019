"""`waystation cancel`: a task stops."""

import asyncio

import typer

from waystation.cli.console import say
from waystation.cli.options import TaskArgument
from waystation.client import Client
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def cancel(task: TaskArgument) -> None:
    """Stop a task. What it has spent stays spent; what it had reserved goes back to its session."""
    say(asyncio.run(_cancel(task)))


async def _cancel(task: str) -> str:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        phase = (await client.progress(task_id)).progress.phase
        if phase.over:
            return f"{task_id} has ended: {phase}"
        await client.cancel(task_id)
    return f"asked {task_id} to stop; `waystation show {task_id}` tells when it has"
