"""`waystation report`: what a task has written."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text
from waystation.cli.options import JsonOption, TaskArgument
from waystation.client import Client
from waystation.domain.task import TaskPhase
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class ReportJson(Value):
    """A report as Markdown, and how its task ended."""

    task_id: str
    phase: TaskPhase
    report: str


@app.command()
def report(
    task: TaskArgument,
    draft: Annotated[bool, typer.Option("--draft", help="Of a task that is not over: what there is so far.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a task's report as Markdown."""
    found = asyncio.run(_report(task, draft=draft))
    if as_json:
        print_json(found)
    else:
        print_text(found.report)


async def _report(task: str, *, draft: bool) -> ReportJson:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        if draft:
            found = await client.draft(task_id)
            return ReportJson(task_id=task_id, phase=found.phase, report=found.markdown)
        text = await client.report(task_id)
        view = await client.progress(task_id)
    return ReportJson(task_id=task_id, phase=view.progress.phase, report=text)
