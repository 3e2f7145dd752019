"""`waystation transcript`: what an agent said and was told."""

import asyncio
from typing import Annotated

import typer

from waystation.cli.console import print_json, print_text, say
from waystation.cli.options import JsonOption, TaskArgument
from waystation.cli.render import message_text
from waystation.client import Client
from waystation.domain.plan import PLANNING_ID
from waystation.domain.transcript import Transcript
from waystation.domain.value import Value
from waystation.settings import Settings

app = typer.Typer()


class AgentJson(Value):
    """An agent of a task."""

    id: str
    role: str


@app.command()
def transcript(
    task: TaskArgument,
    agent: Annotated[
        str | None, typer.Option(help="The agent: the id of its step, like research-1. Not given: list them.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Print everything that an agent said and was told, as the model saw it: redacted, nothing left out."""
    if agent is None:
        _list_agents(task, as_json=as_json)
        return
    found = asyncio.run(_transcript(task, agent))
    if as_json:
        print_json(found)
        return
    for message in found.messages:
        print_text(message_text(message))


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
        steps = (await client.progress(task_id)).progress.steps
    planner = AgentJson(id=PLANNING_ID, role="planning")
    return task_id, [planner, *(AgentJson(id=step.id, role=step.role) for step in steps)]
