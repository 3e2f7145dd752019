"""`waystation tools`: lists what tool servers offer to agents, what requires approval, and what is hidden and why, for
a config file or for the agents of a task.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer

from waystation.agents.leg import AgentConfig
from waystation.agents.roles import AgentDeps
from waystation.agents.tool_visibility import ToolVisibility
from waystation.cli.console import OK, UNREACHABLE, print_json, print_text
from waystation.cli.options import JsonOption
from waystation.client import Client
from waystation.client.agent_contexts import build_idle_agent_deps
from waystation.config.settings import Settings
from waystation.kernel.errors import BadInput
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.runtime.store_setup import load_tool_secrets, open_store
from waystation.security.untrusted import HiddenTool, UntrustedTools, UntrustedToolSpec
from waystation.tasks.task import StepState, build_reader_scope

app = typer.Typer()


@app.command()
def tools(
    file: Annotated[
        Path,
        typer.Option(
            "--servers", metavar="FILE", help="Config file of the tool servers, in the format of other MCP clients."
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """List the tools of the servers in a config file, with their approvals and restrictions.

    The command starts each server or connects to it. What a server says about its tools, for example that a tool only
    reads, is not verified. Exits with 3 if a server does not list its tools.
    """
    found, by_name = asyncio.run(_found(file))
    if as_json:
        print_json(found)
    else:
        for line in format_tool_lines(found, by_name):
            print_text(line)
    raise typer.Exit(UNREACHABLE if _silent(found) else OK)


def format_tool_lines(found: UntrustedTools, by_name: Collection[str] = ()) -> Iterator[str]:
    """Yield a block for each server, in the file's order, and what is hidden after it.

    `by_name`: servers that tasks have to name.
    """
    for server, specs in groupby(found.tools, key=lambda spec: spec.server):
        yield f"{server} (only for tasks that name it)" if server in by_name else server
        yield from (f"  {spec.name}  {_notes(spec)}" for spec in specs)
    if found.hidden:
        yield "hidden"
        yield from (f"  {_hidden(one)}" for one in found.hidden)
    if not found.tools and not found.hidden:
        yield "No tools: the file has no enabled tool server, or its servers have no tools."


def _silent(found: UntrustedTools) -> set[str]:
    """Return the servers that did not list their tools."""
    listing = {spec.server for spec in found.tools} | {one.server for one in found.hidden if one.tool}
    return {one.server for one in found.hidden} - listing


async def _found(file: Path) -> tuple[UntrustedTools, frozenset[str]]:
    """Return the tools of all servers, and the servers that only tasks that name them have."""
    # The MCP library takes half a second to load.
    from waystation.mcp.config import list_secret_names, load_servers  # noqa: PLC0415
    from waystation.mcp.servers import McpServers  # noqa: PLC0415

    kept: Mapping[str, str] = {}
    if names := list_secret_names(file):
        settings = Settings()
        async with aclosing(await open_store(settings)) as store:
            kept = await load_tool_secrets(settings, store, names)
    known = load_servers(file, os.environ, kept)
    async with aclosing(McpServers(known)) as servers:
        found = await servers.list_tools(servers=[one.name for one in known])
    return found, frozenset(one.name for one in known if one.by_name)


def _notes(spec: UntrustedToolSpec) -> str:
    effect = "reads" if spec.read_only else "writes, may be repeated" if spec.idempotent else "writes"
    approval = "needs approval" if spec.requires_approval else "no approval"
    return f"{approval}; {effect}; for {', '.join(spec.roles)}"


def _hidden(one: HiddenTool) -> str:
    return f"{one.server} {one.tool}: {one.reason}" if one.tool else f"{one.server}: {one.reason}"


class ToolCost(Value):
    """A tool that an agent sees."""

    name: str
    tokens: int
    """Estimated tokens of its definition."""
    limits: tuple[str, ...] = ()
    """Limits on the values of its parameters, as shown to the agent."""


class HiddenToolCost(Value):
    """A tool that an agent does not see."""

    name: str
    """`server` or `server tool` if a tool server, or the file that names it, withholds it."""
    tokens: int
    """0 if the definition is not known."""
    reason: str


FINISHED = "finished"
FINAL_STATES: frozenset[StepState] = frozenset({"done", "partial"})


class AgentTools(Value):
    """The tools of one agent."""

    agent: str
    phase: str
    """Phase whose tools it sees; `finished` for an agent that has delivered, with the tools that it saw last."""
    tokens: int
    budget: int
    shown: tuple[ToolCost, ...]
    hidden: tuple[HiddenToolCost, ...]


async def list_agent_tools(
    client: Client, settings: Settings, task_id: str, agent: str | None
) -> tuple[AgentTools, ...]:
    """Return the tools of one agent, or of every agent that the task has so far.

    Raises:
        BadInput: The task has no such agent.
        StoreError: The store failed. Also whatever the settings' tool servers raise.
    """
    known = (await client.get_task(task_id)).steps
    steps = [step for step in known if agent in {None, step.id}]
    if agent is not None and not steps:
        names = ", ".join(step.id for step in known) or "none yet"
        raise BadInput(f"{task_id} has no agent {agent!r}; it has {names}")
    async with _desk(settings) as desk:
        row = await desk.store.get_task(task_id, build_reader_scope(settings.tenant))
        fields = row.ref.model_dump()
        runs = [RunRef.model_validate({**fields, "step_id": step.id, "role": step.role}) for step in steps]
        found = [await _of(desk, run, row.config.get_config(run.role)) for run in runs]
        return tuple(
            one.replace(phase=FINISHED) if step.state in FINAL_STATES else one
            for step, one in zip(steps, found, strict=True)
        )


async def _of(deps: AgentDeps, run: RunRef, config: AgentConfig) -> AgentTools:
    loaded = await deps.store.load_run(run)
    toolbox = await deps.build_agent_toolbox(run, config, loaded.transcript, loaded)
    named = loaded.task.request.servers
    kept_back = () if deps.servers is None else (await deps.servers.list_tools(servers=named)).hidden
    seen = toolbox.visibility or ToolVisibility(phase="executing", token_budget=0, shown=(), hidden=())
    limits = {
        tool: tuple(f"{parameter} {limit.description}" for parameter, limit in of_tool.items())
        for tool, of_tool in toolbox.limits.items()
    }
    return AgentTools(
        agent=run.step_id,
        phase=seen.phase,
        tokens=seen.tokens,
        budget=seen.token_budget,
        shown=tuple(ToolCost(name=one.name, tokens=one.tokens, limits=limits.get(one.name, ())) for one in seen.shown),
        hidden=(
            *(HiddenToolCost(name=one.name, tokens=one.tokens, reason=one.reason) for one in seen.hidden),
            *(
                HiddenToolCost(name=f"{one.server} {one.tool}".strip(), tokens=0, reason=one.reason)
                for one in kept_back
            ),
        ),
    )


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncGenerator[AgentDeps]:
    """Open the agents' dependencies as a worker with these settings has them."""
    # These imports take a second.
    from temporalio.common import MetricMeter  # noqa: PLC0415

    from waystation.runtime.plugins import build_plugin_registry  # noqa: PLC0415
    from waystation.runtime.temporal.metrics import TemporalMeter  # noqa: PLC0415
    from waystation.workers.external_systems import ToolBackendDeps, open_tool_backends  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await open_store(settings)))
        desk = build_idle_agent_deps(store, settings.tool_policy)
        ledgers = ToolBackendDeps(store, TemporalMeter(MetricMeter.noop), desk.redacted_documents)
        reach = await stack.enter_async_context(open_tool_backends(settings, ledgers))
        plugins = build_plugin_registry(settings).create_tools()
        yield replace(desk, web=reach.web, servers=reach.servers, plugins=plugins)


def format_agent_tools(agents: Sequence[AgentTools]) -> str:
    """Format a block for each agent."""
    return (
        "\n\n".join("\n".join(_lines(agent)) for agent in agents) or "no tools yet, because the task has no agents yet"
    )


def _lines(agent: AgentTools) -> Iterator[str]:
    yield (
        f"{agent.agent}, {agent.phase}: {len(agent.shown)} tools, {agent.tokens:,} tokens; tools of tool "
        f"servers and plug-ins may take {agent.budget:,} tokens"
    )
    width = max((len(tool.name) for tool in (*agent.shown, *agent.hidden)), default=0)
    for tool in agent.shown:
        yield f"  {tool.name:{width}}  {tool.tokens:5,}  {'; '.join(tool.limits)}".rstrip()
    if agent.hidden:
        yield "hidden"
        yield from (f"  {tool.name:{width}}  {tool.tokens:5,}  {tool.reason}" for tool in agent.hidden)
