"""32 agents and more at once under one limit, whose model spends each call's worst case, or anything up to it."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import show
from tests.running import opened_parts, working
from tests.spender import MODEL, Spender, fan
from waystation.agents.leg import AgentConfig
from waystation.agents.roles import prompt
from waystation.budgets.budget import Mode
from waystation.config.settings import Settings
from waystation.context.transcript import Message, ToolResult, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.tasks.task import TaskTerms
from waystation.testing import PlainRedactor

RESEARCHERS = 8
TASK_TOKENS, AGENT_TOKENS = 600_000, 50_000
SESSION_TOKENS = 650_000
"""For each task: a little more than its own limit, for tasks to draw on."""
MICRO_USD_A_TOKEN = 2
"""Limits in dollars are about as tight as those in tokens."""
TERMS = AgentConfig(
    model=MODEL, condense_model=MODEL, window=400_000, trigger=300_000, target=150_000, backpressure=False
)
HEAD = (
    "agents", "limit in", "the model spends", "how", "limit", "spent", "overshoot", "used at the first stop",
    "used at the end", "model calls", "at once",
)  # fmt: skip
OVERSHOOT = HEAD.index("overshoot")


def limit_of(unit: str, tokens: int) -> Limit:
    """So many tokens, or dollars to match."""
    return Limit(tokens=tokens) if unit == "tokens" else Limit(micro_usd=tokens * MICRO_USD_A_TOKEN)


def in_unit(unit: str, amount: Amount) -> int:
    """The amount's number of tokens or millionths of a dollar."""
    return amount.tokens if unit == "tokens" else amount.micro_usd


class Fleet(NamedTuple):
    """Who spends, and of what."""

    tasks: int
    unit: str
    seed: int | None
    """Of what the model spends; none: the worst case of every call."""

    @property
    def agents(self) -> int:
        """Researchers, all of whom work at once."""
        return self.tasks * RESEARCHERS

    @property
    def limit(self) -> Limit:
        """Of all of them together."""
        return limit_of(self.unit, self.tasks * SESSION_TOKENS)

    def spender(self) -> Spender:
        """Their model."""
        return Spender(fan(RESEARCHERS), self.agents, self.seed)


FLEETS = [*(Fleet(4, unit, seed) for unit in ("tokens", "dollars") for seed in (None, 7)), Fleet(8, "tokens", None)]


def terms(unit: str, mode: Mode) -> TaskTerms:
    """Of each task."""
    return TaskTerms(
        budget=limit_of(unit, TASK_TOKENS),
        agent_budget=limit_of(unit, AGENT_TOKENS),
        mode=mode,
        agent=TERMS.replace(hard=mode is Mode.HARD),
        plan_model=MODEL,
        offline=False,
    )


async def platform(client: Client, fleet: Fleet, mode: Mode) -> Sequence[object]:
    """Tasks of eight researchers and a writer each, in a session with a limit."""
    spender, limit = fleet.spender(), fleet.limit
    settings = Settings(agents_at_once=fleet.agents)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            opened_parts(Path(folder), PlainRedactor({}), spender) as parts,
            working(client, parts, settings=settings),
        ):
            session = Session(client, parts.store, f"{fleet.agents}-{fleet.unit}-{fleet.seed}-{mode}")
            await session.limit(limit)
            under = terms(fleet.unit, mode)
            tasks = await asyncio.gather(*(session.submit(f"{n}", under) for n in range(fleet.tasks)))
            ended = await asyncio.gather(*(task.result() for task in tasks))
            account = await session.account()
    booked = sum((task.budget.spent for task in ended), Amount())
    assert booked == account.spent == spender.spent, "what was booked is what the model used"
    assert all(task.budget.limit.can_cover(task.budget.spent) for task in ended)
    return row(fleet, f"mode {mode}", spender)


async def checked_before(tools: tuple[ToolSpec, ...], fleet: Fleet) -> Sequence[object]:
    """The baseline: the same agents on one shared counter, which each looks at before it calls."""
    spender, unit, limit = fleet.spender(), fleet.unit, fleet.limit

    async def work(agent: int) -> None:
        messages = [build_user_message("m0", f"Agent {agent}")]
        while in_unit(unit, spender.spent) < in_unit(unit, limit.amount):
            request = ModelRequest(
                model=MODEL,
                system=prompt("research"),
                messages=tuple(messages),
                tools=tools,
                max_output=TERMS.max_output,
            )
            reply = await spender.complete(request)
            messages.append(Message(id=f"m{len(messages)}", role="assistant", blocks=reply.blocks))
            results = [ToolResult(tool_use_id=call.id, content="1| A line.") for call in messages[-1].tool_uses]
            messages.append(Message(id=f"m{len(messages)}", role="user", blocks=tuple(results)))

    await asyncio.gather(*(work(agent) for agent in range(fleet.agents)))
    return row(fleet, "baseline: a shared counter, looked at before each call", spender)


def row(fleet: Fleet, how: str, spender: Spender) -> Sequence[object]:
    """What the model was asked to do, and what it spent."""
    unit = fleet.unit
    spent, whole = in_unit(unit, spender.spent), in_unit(unit, fleet.limit.amount)
    return (
        fleet.agents,
        "tokens" if unit == "tokens" else "micro-dollars",
        "the worst case" if fleet.seed is None else f"up to it, seed {fleet.seed}",
        how,
        f"{whole:,}",
        f"{spent:,}",
        f"{max(0, spent - whole):,}",
        f"{in_unit(unit, spender.spent_at_first_stop) / whole:.1%}",
        f"{spent / whole:.1%}",
        spender.calls,
        spender.most_at_once,
    )


async def prove(client: Client) -> None:
    """Print the table. Raises AssertionError where anything passes its limit."""
    ours: list[Sequence[object]] = []
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with opened_parts(Path(folder), PlainRedactor({}), Spender(fan(1), 1)) as parts:
            tools = parts.desk.toolbox("research").specs
    for fleet in FLEETS:
        held = [await platform(client, fleet, mode) for mode in (Mode.HARD, Mode.SOFT)]
        rows += [await checked_before(tools, fleet), *held]
        ours += held
    show("Fan-out: agents at once under one limit", HEAD, rows)
    assert all(line[OVERSHOOT] == "0" for line in ours)
