"""`waystation show`: a task as it is now."""

import asyncio
from typing import Annotated

import typer

from waystation.adapters.clock import utc_now
from waystation.cli.console import print_json, print_text, result, say
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render import task_screen
from waystation.cli.render_context import context_text
from waystation.cli.reports import keep_report, remark_on
from waystation.cli.task_json import task_json
from waystation.cli.tools_shown import tools_shown, tools_text
from waystation.client import Client
from waystation.domain.errors import BadInput
from waystation.settings import Settings

app = typer.Typer()


@app.command()
def show(
    task: TaskArgument,
    context: Annotated[
        bool, typer.Option("--context", help="Show instead who gets how much of each agent's next request.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="Show instead which tools each agent sees, which are hidden, and why.")
    ] = False,
    agent: Annotated[
        str | None,
        typer.Option(help="With --context or --tools: of this agent alone, the id of its step, like research-1."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a task: phase, steps, spending, compactions, requests for money; its report is written to a file."""
    if context and tools:
        raise BadInput("--context and --tools are two different views: say one of them")
    if agent is not None and not (context or tools):
        raise BadInput("--agent says whose context or tools are shown: add --context or --tools")
    if context:
        shown = _show_context(Settings(), task, agent, as_json=as_json)
    elif tools:
        shown = _show_tools(Settings(), task, agent, as_json=as_json)
    else:
        shown = _show(Settings(), task, as_json=as_json)
    asyncio.run(shown)


async def _show_context(settings: Settings, task: str, agent: str | None, *, as_json: bool) -> None:
    async with await Client.connect(settings) as client:
        found = await client.contexts(await client.resolve(task), agent)
    if as_json:
        print_json(list(found))
        return
    print_text("\n\n".join(map(context_text, found)) or "nothing yet: no agent has begun")


async def _show_tools(settings: Settings, task: str, agent: str | None, *, as_json: bool) -> None:
    async with await Client.connect(settings) as client:
        found = await tools_shown(client, settings, await client.resolve(task), agent)
    if as_json:
        print_json(list(found))
        return
    print_text(tools_text(found))


async def _show(settings: Settings, task: str, *, as_json: bool) -> None:
    async with await Client.connect(settings) as client:
        view = await client.with_origins(await client.progress(await client.resolve(task)))
        view = await client.with_stored(view)
        path = await keep_report(client, settings, view.progress)
    if as_json:
        print_json(task_json(view, path))
        return
    result.print(task_screen(view, utc_now(), result.width), soft_wrap=True)
    if remark := remark_on(view.progress):
        say(remark)
    if path is not None:
        print_text(str(path))
