"""`waystation cost`: a task's bill."""

import asyncio

import typer

from waystation.cli.console import print_json, print_text, result
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render_bill import bill_text
from waystation.client import Client
from waystation.domain.bill import Bill
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def cost(task: TaskArgument, as_json: JsonOption = False) -> None:
    """Show what a task has cost so far: by agent, model and kind of call, and each compaction."""
    bill = asyncio.run(_bill(task))
    if as_json:
        print_json(bill)
    else:
        print_text(bill_text(bill, result.width))


async def _bill(task: str) -> Bill:
    async with await Client.connect(Settings()) as client:
        return await client.bill(await client.resolve(task))
