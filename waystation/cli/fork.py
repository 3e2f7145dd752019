"""`waystation fork`: a new task that reuses finished steps of one that is over."""

import asyncio
import secrets
from pathlib import Path
from typing import Annotated

import typer

from waystation.cli.amounts import parse_budget
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.seeing_through import see_through, tell_of, tell_of_unattended
from waystation.cli.submit import text_of
from waystation.client import Client
from waystation.client.sessions import ForkWish
from waystation.domain.errors import Unreachable
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def fork(
    task: TaskArgument,
    step: Annotated[str, typer.Option("--from", metavar="STEP", help="Begins anew, with all that builds on it.")],
    instructions: Annotated[Path | None, typer.Option(help="File with other instructions for the agents.")] = None,
    budget: Annotated[str | None, typer.Option(help="Of the new task; by default that of the first one.")] = None,
    request_id: Annotated[str | None, typer.Option(help="The same id again finds the same task.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the end.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start a new task with the finished steps of one that is over: those cost nothing again.

    Question and documents stay; a step that begins anew reads the same and is paid from the new budget.
    """
    wish = ForkWish(
        step=step,
        request_id=request_id or secrets.token_hex(8),
        instructions=text_of(instructions) if instructions else None,
        budget=parse_budget(budget, "--budget") if budget is not None else None,
    )
    raise typer.Exit(asyncio.run(_fork(Settings(), task, wish, detach=detach, as_json=as_json)))


async def _fork(settings: Settings, task: str, wish: ForkWish, *, detach: bool, as_json: bool) -> int:
    async with await Client.connect(settings) as client:
        await tell_of_unattended(client)
        try:
            submitted = await client.fork(await client.resolve(task), wish)
        except Unreachable as error:
            raise Unreachable(f"{error}: --request-id {wish.request_id}") from error
        tell_of(submitted)
        return await see_through(client, settings, submitted.task_id, detach=detach, as_json=as_json)
