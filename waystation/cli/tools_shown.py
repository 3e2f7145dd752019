"""Which tools the agents of a task see now, which are hidden and why: from its store and the settings here."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace

from waystation.agents.roles import Desk
from waystation.client import Client
from waystation.client.desk import idle_desk
from waystation.domain.errors import BadInput
from waystation.domain.leg import AgentTerms, RunRef
from waystation.domain.projection import Projection
from waystation.domain.task import reader_of
from waystation.domain.value import Value
from waystation.settings import Settings


class ToolCost(Value):
    """A tool that an agent sees."""

    name: str
    tokens: int
    """Estimated, of its definition."""
    limits: tuple[str, ...] = ()
    """On values of its parameters, as the agent is told them."""


class HiddenCost(Value):
    """A tool that an agent does not see."""

    name: str
    """`server` or `server tool` where a tool server, or the file that names it, keeps it back."""
    tokens: int
    """0 where the definition is not known."""
    reason: str


class AgentTools(Value):
    """The tools of one agent."""

    agent: str
    phase: str
    tokens: int
    budget: int
    shown: tuple[ToolCost, ...]
    hidden: tuple[HiddenCost, ...]


async def tools_shown(client: Client, settings: Settings, task_id: str, agent: str | None) -> tuple[AgentTools, ...]:
    """Of one agent, or of each that the task has by now.

    Raises BadInput for an agent that the task does not have, StoreError, and as the settings' tool servers do.
    """
    steps = [step for step in (await client.progress(task_id)).progress.steps if agent in {None, step.id}]
    if agent is not None and not steps:
        raise BadInput(f"{task_id} has no agent {agent!r}: `waystation show {task_id}` names them")
    async with _desk(settings) as desk:
        row = await desk.tasks.task(task_id, reader_of(settings.tenant))
        fields = row.ref.model_dump()
        runs = [RunRef.model_validate({**fields, "step_id": step.id, "role": step.role}) for step in steps]
        return tuple([await _of(desk, run, row.terms.agent_of(run.role)) for run in runs])


async def _of(desk: Desk, run: RunRef, terms: AgentTerms) -> AgentTools:
    toolbox = await desk.toolbox_of(run, terms, await desk.transcripts.load(run.run_id, run.reader))
    kept_back = () if desk.servers is None else (await desk.servers.tools()).hidden
    seen = toolbox.projection or Projection(phase="executing", budget=0, shown=(), hidden=())
    limits = {
        tool: tuple(f"{parameter} {limit.words}" for parameter, limit in of_tool.items())
        for tool, of_tool in toolbox.limits.items()
    }
    return AgentTools(
        agent=run.step_id,
        phase=seen.phase,
        tokens=seen.tokens,
        budget=seen.budget,
        shown=tuple(ToolCost(name=one.name, tokens=one.tokens, limits=limits.get(one.name, ())) for one in seen.shown),
        hidden=(
            *(HiddenCost(name=one.name, tokens=one.tokens, reason=one.reason) for one in seen.hidden),
            *(HiddenCost(name=f"{one.server} {one.tool}".strip(), tokens=0, reason=one.reason) for one in kept_back),
        ),
    )


@asynccontextmanager
async def _desk(settings: Settings) -> AsyncGenerator[Desk]:
    """As a worker with these settings has it."""
    # They take a second to load.
    from temporalio.common import MetricMeter  # noqa: PLC0415

    from waystation.adapters.temporal.metrics import TemporalMeter  # noqa: PLC0415
    from waystation.stores import opened_store  # noqa: PLC0415
    from workers.tools import Ledgers, opened_reach  # noqa: PLC0415

    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(aclosing(await opened_store(settings)))
        desk = idle_desk(store, settings.tool_policy)
        ledgers = Ledgers(store, store, TemporalMeter(MetricMeter.noop), desk.redacted)
        reach = await stack.enter_async_context(opened_reach(settings, ledgers))
        yield replace(desk, web=reach.web, servers=reach.servers)


def tools_text(agents: Sequence[AgentTools]) -> str:
    """A block for each agent."""
    return "\n\n".join("\n".join(_lines(agent)) for agent in agents) or "nothing yet: the task has no agents"


def _lines(agent: AgentTools) -> Iterator[str]:
    yield f"{agent.agent}, {agent.phase}: {len(agent.shown)} tools, {agent.tokens:,} of {agent.budget:,} tokens"
    width = max((len(tool.name) for tool in (*agent.shown, *agent.hidden)), default=0)
    for tool in agent.shown:
        yield f"  {tool.name:{width}}  {tool.tokens:5,}  {'; '.join(tool.limits)}".rstrip()
    if agent.hidden:
        yield "hidden"
        yield from (f"  {tool.name:{width}}  {tool.tokens:5,}  {tool.reason}" for tool in agent.hidden)
