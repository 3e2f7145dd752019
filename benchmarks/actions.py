"""The Temporal actions of a task with five agents that take 20 turns each: `python -m benchmarks.actions`.

A scripted model plays three research agents, an analysis agent and a writing agent. It also revises the plan and
reviews the report. The server is Temporal's development server. The task runs twice: with legs that end at once, and as
if each leg took longer than a minute, so that each leg that ends updates the search attributes. The table shows what
the command `waystation cost TASK --actions` adds up.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.budgets.tables import describe_machine, print_table
from tests.support.temporal_platform import start_dev_server
from tests.support.twenty_turn_task import AGENT_TURNS, PLAN, TwentyTurnTask, run_twenty_turn_task


async def _run(*, slow: bool) -> TwentyTurnTask:
    with tempfile.TemporaryDirectory() as folder:
        async with start_dev_server() as server:
            return await run_twenty_turn_task(server, Path(folder), slow=slow)


async def measure() -> None:
    """Print the table."""
    quick, slow = await _run(slow=False), await _run(slow=True)
    kinds = sorted(slow.kinds | quick.kinds, key=lambda kind: (-slow.kinds[kind], kind))
    rows: list[list[object]] = [[kind, quick.kinds[kind], slow.kinds[kind]] for kind in kinds]
    rows.append(["**sum**", f"**{quick.counted.total}**", f"**{slow.counted.total}**"])
    turns = sum(slow.turns[step.id] for step in PLAN.steps)
    title = f"Actions of a task: {len(PLAN.steps)} agents, {AGENT_TURNS} turns each, {turns} in all"
    print_table(f"{title} ({describe_machine()})", ["action", "quick legs", "legs of over a minute"], rows)


if __name__ == "__main__":
    asyncio.run(measure())
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash at exit
