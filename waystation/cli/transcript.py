"""`waystation transcript`: what an agent said and was told."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text, say
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render import message_text
from waystation.cli.render_log import log_texts
from waystation.client import Client
from waystation.client.looks import require_words
from waystation.domain.compaction.shown import shown
from waystation.domain.compaction.view import view
from waystation.domain.messages import Message
from waystation.domain.plan import PLANNING_ID
from waystation.domain.transcript import Transcript
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class AgentJson(Value):
    """An agent of a task."""

    id: str
    role: str


class ViewJson(Value):
    """What the model sees."""

    run_id: str
    messages: tuple[Message, ...]


@app.command()
def transcript(
    task: TaskArgument,
    agent: Annotated[
        str | None, typer.Option(help="The agent: the id of its step, like research-1. Not given: list them.")
    ] = None,
    only_view: Annotated[
        bool,
        typer.Option("--view", help="Print what the model sees of it now: with summaries, without what they hide."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Print everything that an agent said and was told: redacted, nothing left out, with what compactions did to it."""
    if agent is None:
        _list_agents(task, as_json=as_json)
        return
    found = asyncio.run(_transcript(task, agent))
    if as_json:
        print_json(ViewJson(run_id=found.run_id, messages=view(found)) if only_view else shown(found))
        return
    for text in map(message_text, view(found)) if only_view else log_texts(shown(found)):
        print_text(text)


async def _transcript(task: str, agent: str) -> Transcript:
    async with await Client.connect(Settings()) as client:
        return await client.transcript(await client.resolve(task), agent)


def _list_agents(task: str, *, as_json: bool) -> None:
    task_id, agents = asyncio.run(_agents(task))
    if as_json:
        print_json(agents)
        return
    for agent in agents:
        print_text(f"{agent.id}  {agent.role}")
    say(f"name one: `waystation transcript {task_id} --agent {agents[-1].id}`")


async def _agents(task: str) -> tuple[str, list[AgentJson]]:
    async with await Client.connect(Settings()) as client:
        task_id = await client.resolve(task)
        progress = (await client.progress(task_id)).progress
    require_words(task_id, progress.title)
    planner = AgentJson(id=PLANNING_ID, role="planning")
    return task_id, [planner, *(AgentJson(id=step.id, role=step.role) for step in progress.steps)]
