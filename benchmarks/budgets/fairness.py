"""Measures how long a small tenant's task waits for its first model call, alone and behind 450 legs of a large one."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import describe_machine, print_table
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import open_activity_deps, run_all_workers, start_dev_server, wait_until
from waystation.config.settings import Settings
from waystation.kernel.temporal_names import AGENTS_QUEUE
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.runtime.temporal.dev_server import FAIRNESS_SETTINGS, SINGLE_PARTITION_SETTINGS
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

LARGE_TASKS, LARGE_SESSIONS = 450, 15
"""Each waits for the leg that plans it."""
SLOTS = 32
REPLY_S = 0.5, 1.5
"""Least and greatest time of a model call."""
TRIES = 3
UNFAIR_SETTINGS = ("matching.autoEnableV2=false", "matching.useNewMatcher=false", "matching.enableFairness=false")
"""Newer servers may turn fairness on by themselves when they see a fairness key."""
MAX_WAIT = 0.5
"""Of the wait without fairness, that with it."""


@dataclass
class _Model(ScriptedTaskModel):
    """Answers after a while, and no earlier than it is opened; records when the calls for one question begin."""

    opened: asyncio.Event = field(default_factory=asyncio.Event)
    awaited: str = ""
    """The question whose first call is waited for."""
    begun: list[float] = field(default_factory=list[float])
    """When its calls began."""
    random: Random = field(default_factory=lambda: Random(1))

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """See base class."""
        if self.awaited and self.awaited in request.messages[0].text:
            self.begun.append(time.perf_counter())
        await self.opened.wait()
        await asyncio.sleep(self.random.uniform(*REPLY_S))
        return await super().complete(request)


async def _first_call(small: Session, model: _Model, request_id: str) -> float:
    """Submit a task. Returns the seconds until its first model call."""
    model.awaited = f"Where does the small tenant anchor ({request_id})?"
    model.begun.clear()
    began = time.perf_counter()
    await small.submit(request_id, make_task_config(), question=model.awaited)

    async def called() -> bool:
        return bool(model.begun)

    await wait_until(called)
    return model.begun[0] - began


async def _count_waiting_legs(client: Client) -> int:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=AGENTS_QUEUE),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        report_stats=True,
    )
    return (await client.workflow_service.describe_task_queue(request)).stats.approximate_backlog_count


async def _waits(client: Client, parts: ActivityDeps, model: _Model) -> tuple[list[float], float]:
    """Return the small tenant's waits alone, and its wait behind the large one."""
    small = Session(client, parts.store, "small", tenant="small")
    model.opened.set()
    await _first_call(small, model, "first")  # what is loaded once
    alone = [await _first_call(small, model, f"alone-{number}") for number in range(TRIES)]
    model.opened.clear()
    sessions = [Session(client, parts.store, f"large-{number}", tenant="large") for number in range(LARGE_SESSIONS)]
    await asyncio.gather(*(sessions[n % LARGE_SESSIONS].submit(f"{n}", make_task_config()) for n in range(LARGE_TASKS)))

    async def full() -> bool:
        return await _count_waiting_legs(client) >= LARGE_TASKS - SLOTS

    await wait_until(full)
    model.opened.set()
    await asyncio.sleep(max(REPLY_S))  # until slots become free one after the other
    return alone, await _first_call(small, model, "behind")


async def _on_server(*settings: str) -> tuple[list[float], float]:
    model = _Model()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            start_dev_server(*settings) as client,
            open_activity_deps(Path(folder), PlainRedactor({}), model) as parts,
            run_all_workers(client, parts, settings=Settings(agents_at_once=SLOTS)),
        ):
            return await _waits(client, parts, model)


async def prove() -> None:
    """Raises AssertionError if fairness gains a small tenant too little."""
    unfair_alone, unfair = await _on_server(*UNFAIR_SETTINGS)
    fair_alone, fair = await _on_server(*FAIRNESS_SETTINGS, *SINGLE_PARTITION_SETTINGS)
    rows: Sequence[Sequence[object]] = [
        [name, f"{statistics.median(alone):.2f} s", f"{behind:.2f} s", f"{behind / statistics.median(alone):.1f}"]
        for name, alone, behind in (
            ("without fairness (baseline)", unfair_alone, unfair),
            ("as `waystation dev` and docker-compose.yml set it", fair_alone, fair),
        )
    ]
    head = ["server", "alone", f"behind {LARGE_TASKS} legs of another tenant", "times as long"]
    print_table(f"A small tenant's first model call ({describe_machine()})", head, rows)
    assert fair <= MAX_WAIT * unfair, f"{fair:.1f} s with fairness, {unfair:.1f} s without"
