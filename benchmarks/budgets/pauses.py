"""A thousand paused tasks: the resources that they hold, whether they survive, and how fast they resume."""

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from temporalio.client import Client

from benchmarks.budgets.bare import QUEUE, AnsweredPause, BlockingPause, Tally, bare_worker
from benchmarks.budgets.brisk import ScriptedModel, build_moves
from benchmarks.budgets.many import Session, Task
from benchmarks.budgets.tables import format_spread, print_table
from tests.support.task_model import make_task_config
from tests.support.temporal_platform import TENANT, open_activity_deps, run_all_workers, start_dev_server
from waystation.kernel.temporal_names import PENDING_ATTRIBUTE
from waystation.models.ports import ModelRequest
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase, make_session_workflow_id
from waystation.testing.doubles import PlainRedactor
from waystation.workflows.task import TaskWorkflow

WANTED, SESSIONS = 1_000, 20
TIME_TO_PAUSE = 400
"""Seconds; as many tasks as pause in it are taken."""
WARM, QUIET, BLOCKING = 50, 100, 100
"""Tasks that are answered before the restart, and one by one after it; tasks of the baseline that holds its slots."""
AT_ONCE = 24
"""Requests to the server under way."""
PROMPT = 3_000
"""Tokens: the researcher's share is enough for one call, its second needs an answer."""
TERMS = make_task_config(budget=10_000, agent_budget=10_000)
GRANT = {"request_id": "read-1", "tokens": 20_000, "by": "Ada"}


@dataclass
class PauseClocks:
    """When tasks were answered and when their next model call came, by the number in their question."""

    answered: dict[int, float] = field(default_factory=dict[int, float])
    called: dict[int, float] = field(default_factory=dict[int, float])
    came: dict[int, asyncio.Event] = field(default_factory=dict[int, asyncio.Event])

    def record_call(self, request: ModelRequest, turn: int) -> None:
        """The researcher's second call is the first after its pause."""
        found = re.search(r"\(task-(\d+)\)", request.messages[0].text)
        if found and turn == 2 and any(tool.name == "submit_findings" for tool in request.tools):
            self.called[int(found[1])] = time.perf_counter()
            self.came[int(found[1])].set()

    async def answer(self, number: int, task: Task) -> None:
        """Grant, and come back when the model is called."""
        self.came[number] = asyncio.Event()
        self.answered[number] = time.perf_counter()
        await task.signal(APPROVE_BUDGET, GRANT)
        await self.came[number].wait()

    def waits(self, numbers: Sequence[int]) -> list[float]:
        """Seconds from the signal to the call."""
        return [self.called[number] - self.answered[number] for number in numbers]


@asynccontextmanager
async def running_workers(client: Client, folder: Path, clocks: PauseClocks) -> AsyncGenerator[SqlStore]:
    """The workers of the platform on the folder's store."""
    model = ScriptedModel(build_moves(1), heard=clocks.record_call, prompt_tokens=PROMPT)
    async with open_activity_deps(folder, PlainRedactor({}), model) as parts, run_all_workers(client, parts):
        yield parts.store


async def pause_many(client: Client, store: SqlStore) -> tuple[list[str], float]:
    """Ids of paused tasks, and the seconds until the last of them paused."""
    sessions = [Session(client, store, f"pauses-{n}") for n in range(SESSIONS)]
    start, free = time.perf_counter(), asyncio.Semaphore(AT_ONCE)

    async def submit(number: int) -> str | None:
        async with free:
            if time.perf_counter() - start > TIME_TO_PAUSE:
                return None
            return (await sessions[number % SESSIONS].submit(f"task-{number}", TERMS)).id

    ids = [task_id for task_id in await asyncio.gather(*map(submit, range(WANTED))) if task_id]
    async with asyncio.timeout(TIME_TO_PAUSE):
        while (await client.count_workflows(f"{PENDING_ATTRIBUTE} > 0")).count < len(ids):  # noqa: ASYNC110
            await asyncio.sleep(0.5)
    return ids, time.perf_counter() - start


async def count_held_slots(client: Client, task_ids: Sequence[str]) -> int:
    """Activities of tasks and sessions that run, or wait for a slot."""
    ids = [*task_ids, *(make_session_workflow_id(TENANT, f"pauses-{n}") for n in range(SESSIONS))]
    free = asyncio.Semaphore(AT_ONCE)

    async def pending(workflow_id: str) -> int:
        async with free:
            described = await client.get_workflow_handle(workflow_id).describe()
            return len(described.raw_description.pending_activities)

    return sum(await asyncio.gather(*map(pending, ids)))


async def measure_bare_waits(client: Client, tally: Tally, ids: Sequence[str]) -> list[float]:
    """From the signal to the activity, one workflow after another."""
    waits: list[float] = []
    for workflow_id in ids:
        handle = client.get_workflow_handle_for(AnsweredPause.run, workflow_id)
        start = asyncio.get_running_loop().time()
        await handle.signal(AnsweredPause.approve)
        await handle.result()
        waits.append(tally.reached[workflow_id] - start)
    return waits


async def measure_blocking(client: Client) -> tuple[int, int]:
    """Slots that paused workflows of the baseline hold, and how many of them could not even begin."""
    async with bare_worker(client) as tally:
        started = [
            await client.start_workflow(BlockingPause.run, id=f"blocking-{n}", task_queue=QUEUE)
            for n in range(BLOCKING)
        ]
        await tally.full.wait()
        await asyncio.sleep(2)
        held = tally.waiting
        tally.released.set()
        await asyncio.gather(*(handle.result() for handle in started))
    return held, BLOCKING - held


async def answer_one_by_one(client: Client, clocks: PauseClocks, numbered: Sequence[tuple[int, str]]) -> list[float]:
    """Each is answered when the one before has ended."""
    for number, task_id in numbered:
        task = client.get_workflow_handle_for(TaskWorkflow.run, task_id)
        await clocks.answer(number, task)
        assert (await task.result()).phase is TaskPhase.DONE
    return clocks.waits([number for number, _ in numbered])


async def answer_all_at_once(client: Client, clocks: PauseClocks, numbered: Sequence[tuple[int, str]]) -> list[float]:
    """All are answered as fast as the server takes it; back when all have ended."""
    free = asyncio.Semaphore(AT_ONCE)

    async def answer(number: int, task_id: str) -> None:
        task = client.get_workflow_handle_for(TaskWorkflow.run, task_id)
        async with free:
            clocks.came[number] = asyncio.Event()
            clocks.answered[number] = time.perf_counter()
            await task.signal(APPROVE_BUDGET, GRANT)
        assert (await task.result()).phase is TaskPhase.DONE

    await asyncio.gather(*(answer(number, task_id) for number, task_id in numbered))
    return clocks.waits([number for number, _ in numbered])


async def prove() -> None:
    """Print the tables. Raises AssertionError where a pause holds a slot, or a paused task does not finish."""
    clocks, waits = PauseClocks(), dict[str, list[float]]()
    bare = [f"bare-{n}" for n in range(2 * WARM)]
    with tempfile.TemporaryDirectory() as name:
        folder, database = Path(name), Path(name) / "temporal.db"
        async with start_dev_server(database=database) as client:
            async with running_workers(client, folder, clocks) as store:
                ids, seconds = await pause_many(client, store)
                held = await count_held_slots(client, ids)
                numbered = list(enumerate(ids))
                waits["a paused task, warm"] = await answer_one_by_one(client, clocks, numbered[:WARM])
            blocked = await measure_blocking(client)
            async with bare_worker(client) as tally:
                for workflow_id in bare:
                    await client.start_workflow(AnsweredPause.run, id=workflow_id, task_queue=QUEUE)
                waits["baseline: a bare workflow and activity, warm"] = await measure_bare_waits(
                    client, tally, bare[:WARM]
                )
        async with start_dev_server(database=database) as client:
            async with running_workers(client, folder, clocks):
                held_after = await count_held_slots(client, ids[WARM:])
                quiet, rest = numbered[WARM : WARM + QUIET], numbered[WARM + QUIET :]
                waits["a paused task, after the restart"] = await answer_one_by_one(client, clocks, quiet)
                start = time.perf_counter()
                waits[f"{len(rest)} paused tasks answered at once, after the restart"] = await answer_all_at_once(
                    client, clocks, rest
                )
                took = time.perf_counter() - start
            async with bare_worker(client) as tally:
                waits["baseline: a bare workflow and activity, after the restart"] = await measure_bare_waits(
                    client, tally, bare[WARM:]
                )
    print_table(
        "Paused tasks",
        ("", "paused", "slots held", "slots held after server and workers were restarted", "finished once answered"),
        [
            (
                "the platform",
                f"{len(ids)} in {seconds:.0f} s",
                held,
                held_after,
                f"{len(ids)}, the last {len(rest)} in {took:.0f} s",
            ),
            ("baseline: a pause inside its activity", f"{blocked[0]}; {blocked[1]} never began", blocked[0], "", ""),
        ],
    )
    _show(waits)
    assert (held, held_after) == (0, 0)


def _show(waits: Mapping[str, Sequence[float]]) -> None:
    rows = [(name, len(seconds), *format_spread(seconds)) for name, seconds in waits.items()]
    print_table(
        "From the signal to the next model call, or to the bare activity", ("", "count", "median", "95 %"), rows
    )
