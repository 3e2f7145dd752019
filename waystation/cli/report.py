"""`waystation report`: what a task has written."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text, say
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render_restored import said_of
from waystation.cli.reports import remark_on
from waystation.client import Client
from waystation.client.restore import restored_for_owner
from waystation.domain.task import TaskPhase
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class ReportJson(Value):
    """A report as Markdown, and how its task ended."""

    task_id: str
    phase: TaskPhase
    """How the task stands now: after a rewind it goes on."""
    version: int | None
    """Of the report, from 1 on; null of a draft."""
    report: str


@app.command()
def report(
    task: TaskArgument,
    draft: Annotated[bool, typer.Option("--draft", help="Of a task that is not over: what there is so far.")] = False,
    restore: Annotated[
        bool, typer.Option("--restore", help="With what its placeholders stand for, by your key. Credentials stay out.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print a task's report as Markdown."""
    found = asyncio.run(_report(task, draft=draft, restore=restore))
    if as_json:
        print_json(found)
    else:
        print_text(found.report)


async def _report(task: str, *, draft: bool, restore: bool) -> ReportJson:
    settings = Settings()
    async with await Client.connect(settings) as client:
        task_id = await client.resolve(task)
        if draft:
            found = await client.draft(task_id)
            report, phase, version = found.markdown, found.phase, None
        else:
            report, progress = await client.report(task_id), await client.reported(task_id)
            phase, version = progress.phase, progress.readable.number if progress.readable else None
            if remark := remark_on(progress):
                say(remark)
    if restore:
        restored = await restored_for_owner(settings, task_id, report)
        say(said_of(restored))
        report = restored.text
    return ReportJson(task_id=task_id, phase=phase, version=version, report=report)
