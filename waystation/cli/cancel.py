"""`waystation cancel`: a task stops."""

import asyncio

import typer

from waystation.cli.console import print_json, say
from waystation.cli.options import JsonOption, TaskArgument
from waystation.client import Client
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class CancelJson(Value):
    """What `cancel` prints. `asked` is false where the task was over already; `phase` is as it was before."""

    task_id: str
    phase: str
    asked: bool


@app.command()
def cancel(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Stop a task. What it has spent stays spent; what it had reserved goes back to its session."""
    done = asyncio.run(_cancel(task))
    if done.asked:
        say(f"asked {done.task_id} to stop; `waystation show {done.task_id}` tells when it has")
    else:
        say(f"{done.task_id} has ended: {done.phase}")
    if as_json:
        print_json(done)


async def _cancel(task: str) -> CancelJson:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        phase = (await client.progress(task_id)).progress.phase
        if not phase.over:
            await client.cancel(task_id)
    return CancelJson(task_id=task_id, phase=phase.value, asked=not phase.over)
