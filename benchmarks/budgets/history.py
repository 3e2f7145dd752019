"""Measures the workflow history of a run of a hundred model calls on a conversation of 200,000 tokens."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import TerminatedError

from benchmarks.budgets.bare import QUEUE, Conversation, bare_worker
from benchmarks.budgets.brisk import ScriptedModel, build_moves
from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import print_table
from tests.support.task_model import LARGE_WINDOW_CONFIG
from tests.support.temporal_platform import open_activity_deps, run_all_workers
from waystation.budgets.budget import BudgetMode
from waystation.context.tokens import estimate_messages
from waystation.kernel.amount import Limit
from waystation.models.ports import ModelRequest
from waystation.tasks.task import TaskConfig, TaskPhase
from waystation.testing.doubles import PlainRedactor

CALLS, TOKENS = 100, 200_000
OPENING = "The bar of the river carries two fathoms at low water. " * (TOKENS * 4 // 55 + 1)
MAX_BYTES, MAX_EVENTS = 1_000_000, 2_000
TERMS = TaskConfig(
    budget=Limit(tokens=100_000_000),
    agent_budget=Limit(tokens=10_000_000),
    mode=BudgetMode.APPROVAL,
    default=LARGE_WINDOW_CONFIG.replace(window=400_000, trigger=300_000, target=150_000),
    plan_model="brisk",
    offline=False,
)


class Size(NamedTuple):
    """Of a workflow's history, all its runs together."""

    events: int
    size: int

    def per_call(self, calls: int) -> float:
        """Bytes."""
        return self.size / calls


async def measure_history(client: Client, workflow_id: str) -> Size:
    """As the server counts it."""
    described = (await client.get_workflow_handle(workflow_id).describe()).raw_description.workflow_execution_info
    assert described.first_run_id == described.execution.run_id, "it continued as new: its runs must be added up"
    return Size(described.history_length, described.history_size_bytes)


async def measure_platform(client: Client) -> tuple[Size, int]:
    """The task's history and its session's together, and how many calls had the whole conversation."""
    long: list[int] = []

    def heard(request: ModelRequest, turn: int) -> None:
        if turn > 1 and (tokens := estimate_messages(request.messages)) >= TOKENS:
            long.append(tokens)

    # Its first reply brings the conversation to its length, the last call hands in.
    model = ScriptedModel(build_moves(CALLS), opening=OPENING, heard=heard)
    with tempfile.TemporaryDirectory() as folder:
        async with open_activity_deps(Path(folder), PlainRedactor({}), model) as parts, run_all_workers(client, parts):
            session = Session(client, parts.store, "history")
            task = await session.submit("long", TERMS)
            progress = await task.result()
            assert progress.phase is TaskPhase.DONE
            sizes = [await measure_history(client, workflow_id) for workflow_id in (task.id, session.id)]
    return Size(sum(size.events for size in sizes), sum(size.size for size in sizes)), len(long)


async def measure_naive_workflow(client: Client, *, returned: bool) -> tuple[Size, int, str]:
    """A workflow that carries the conversation, how many calls it lived for, and how it died."""
    workflow_id = f"naive-{returned}"
    async with bare_worker(client) as tally:
        handle = await client.start_workflow(
            Conversation.run, args=[CALLS, OPENING, returned], id=workflow_id, task_queue=QUEUE
        )
        death = "it lived"
        try:
            await handle.result()
        except WorkflowFailureError as error:
            terminated = isinstance(error.cause, TerminatedError)
            death = f"{'terminated by the server: ' if terminated else ''}{error.cause}"
        return await measure_history(client, workflow_id), tally.calls, death


async def prove(client: Client) -> None:
    """Print the table. Raises AssertionError where the platform's history is larger than its goal."""
    ours, calls = await measure_platform(client)
    rows: list[Sequence[object]] = [_row("the platform, task and session", ours, calls, f"{calls} calls done", ours)]
    for name, returned in (("inputs", False), ("inputs and results", True)):
        size, lived, death = await measure_naive_workflow(client, returned=returned)
        rows.append(_row(f"baseline: the conversation in activity {name}", size, lived, death, ours))
    print_table(
        f"History of a run of {CALLS} model calls on a conversation of {TOKENS:,} tokens",
        ("", "calls", "events", "bytes", "bytes a call", "times the platform's, a call", "end"),
        rows,
    )
    assert calls == CALLS
    assert ours.size < MAX_BYTES
    assert ours.events < MAX_EVENTS


def _row(name: str, size: Size, calls: int, end: str, ours: Size) -> Sequence[object]:
    ratio = size.per_call(calls) / ours.per_call(CALLS)
    return (name, calls, f"{size.events:,}", f"{size.size:,}", f"{size.per_call(calls):,.0f}", f"{ratio:,.0f}", end)
