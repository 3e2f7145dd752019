"""32 agents and more at once under one limit, whose model spends each call's worst case, or anything up to it."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client

from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import print_table
from tests.support.budget_exhausting_model import MODEL, BudgetExhaustingModel, make_fan_out_plan
from tests.support.temporal_platform import open_activity_deps, run_all_workers
from waystation.agents.leg import AgentConfig
from waystation.agents.roles import load_prompt
from waystation.budgets.budget import BudgetMode
from waystation.config.settings import Settings
from waystation.context.transcript import Message, ToolResult, build_user_message
from waystation.kernel.amount import Amount, Limit
from waystation.models.ports import ModelRequest, ToolSpec
from waystation.tasks.task import TaskConfig
from waystation.testing.doubles import PlainRedactor

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


def build_limit(unit: str, tokens: int) -> Limit:
    """So many tokens, or dollars to match."""
    return Limit(tokens=tokens) if unit == "tokens" else Limit(micro_usd=tokens * MICRO_USD_A_TOKEN)


def amount_in_unit(unit: str, amount: Amount) -> int:
    """The amount's number of tokens or millionths of a dollar."""
    return amount.tokens if unit == "tokens" else amount.micro_usd


class FanOut(NamedTuple):
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
        return build_limit(self.unit, self.tasks * SESSION_TOKENS)

    def spender(self) -> BudgetExhaustingModel:
        """Their model."""
        return BudgetExhaustingModel(make_fan_out_plan(RESEARCHERS), self.agents, self.seed)


FLEETS = [*(FanOut(4, unit, seed) for unit in ("tokens", "dollars") for seed in (None, 7)), FanOut(8, "tokens", None)]


def build_task_config(unit: str, mode: BudgetMode) -> TaskConfig:
    """Of each task."""
    return TaskConfig(
        budget=build_limit(unit, TASK_TOKENS),
        agent_budget=build_limit(unit, AGENT_TOKENS),
        mode=mode,
        default=TERMS.replace(hard_budget=mode is BudgetMode.HARD),
        plan_model=MODEL,
        offline=False,
    )


async def measure_platform(client: Client, fleet: FanOut, mode: BudgetMode) -> Sequence[object]:
    """Tasks of eight researchers and a writer each, in a session with a limit."""
    spender, limit = fleet.spender(), fleet.limit
    settings = Settings(agents_at_once=fleet.agents)
    with tempfile.TemporaryDirectory() as folder:
        async with (
            open_activity_deps(Path(folder), PlainRedactor({}), spender) as parts,
            run_all_workers(client, parts, settings=settings),
        ):
            session = Session(client, parts.store, f"{fleet.agents}-{fleet.unit}-{fleet.seed}-{mode}")
            await session.limit(limit)
            under = build_task_config(fleet.unit, mode)
            tasks = await asyncio.gather(*(session.submit(f"{n}", under) for n in range(fleet.tasks)))
            ended = await asyncio.gather(*(task.result() for task in tasks))
            account = await session.account()
    booked = sum((task.budget.spent for task in ended), Amount())
    assert booked == account.spent == spender.spent, "what was booked is what the model used"
    assert all(task.budget.limit.can_cover(task.budget.spent) for task in ended)
    return format_row(fleet, f"mode {mode}", spender)


async def measure_shared_counter(tools: tuple[ToolSpec, ...], fleet: FanOut) -> Sequence[object]:
    """The baseline: the same agents on one shared counter, which each looks at before it calls."""
    spender, unit, limit = fleet.spender(), fleet.unit, fleet.limit

    async def work(agent: int) -> None:
        messages = [build_user_message("m0", f"Agent {agent}")]
        while amount_in_unit(unit, spender.spent) < amount_in_unit(unit, limit.amount):
            request = ModelRequest(
                model=MODEL,
                system=load_prompt("research"),
                messages=tuple(messages),
                tools=tools,
                max_output=TERMS.max_output,
            )
            reply = await spender.complete(request)
            messages.append(Message(id=f"m{len(messages)}", role="assistant", blocks=reply.blocks))
            results = [ToolResult(tool_use_id=call.id, content="1| A line.") for call in messages[-1].tool_uses]
            messages.append(Message(id=f"m{len(messages)}", role="user", blocks=tuple(results)))

    await asyncio.gather(*(work(agent) for agent in range(fleet.agents)))
    return format_row(fleet, "baseline: a shared counter, looked at before each call", spender)


def format_row(fleet: FanOut, how: str, spender: BudgetExhaustingModel) -> Sequence[object]:
    """What the model was asked to do, and what it spent."""
    unit = fleet.unit
    spent, whole = amount_in_unit(unit, spender.spent), amount_in_unit(unit, fleet.limit.amount)
    return (
        fleet.agents,
        "tokens" if unit == "tokens" else "micro-dollars",
        "the worst case" if fleet.seed is None else f"up to it, seed {fleet.seed}",
        how,
        f"{whole:,}",
        f"{spent:,}",
        f"{max(0, spent - whole):,}",
        f"{amount_in_unit(unit, spender.total_spent_at_first_stop) / whole:.1%}",
        f"{spent / whole:.1%}",
        spender.calls,
        spender.most_at_once,
    )


async def prove(client: Client) -> None:
    """Print the table. Raises AssertionError where anything passes its limit."""
    ours: list[Sequence[object]] = []
    rows: list[Sequence[object]] = []
    with tempfile.TemporaryDirectory() as folder:
        async with open_activity_deps(
            Path(folder), PlainRedactor({}), BudgetExhaustingModel(make_fan_out_plan(1), 1)
        ) as parts:
            tools = parts.agent_deps.build_role_toolbox("research").visible_specs
    for fleet in FLEETS:
        held = [await measure_platform(client, fleet, mode) for mode in (BudgetMode.HARD, BudgetMode.SOFT)]
        rows += [await measure_shared_counter(tools, fleet), *held]
        ours += held
    print_table("Fan-out: agents at once under one limit", HEAD, rows)
    assert all(line[OVERSHOOT] == "0" for line in ours)
