"""The cost of orchestration: turns per second with a model that answers at once, with and without Temporal."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from temporalio.client import Client

from benchmarks.budgets.bare import QUEUE, SLOTS, Chain, bare_worker
from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import print_table
from tests.support.task_model import SCRIPTED_CALLS, ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import DOCUMENTS, TENANT, open_activity_deps, run_all_workers
from waystation.agents.agent_run import AgentRun, RunLeg
from waystation.agents.structured_caller import CallOptions
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.planning.plan import Step
from waystation.tasks.progress import build_task_progress
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase, TaskRequest, TaskRow, make_task_id, session_hash, tenant_hash
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

TASKS, SESSIONS, ROUNDS = 50, 5, 3
TURNS = TASKS * (sum(map(len, SCRIPTED_CALLS.values())) + len(SCRIPTED_CALLS["submit_findings"]))
ACTIVITIES = 7
"""Of each task: admitted, planned, four legs, its report stored."""


class InProcessRunner:
    """One task by the same agents on the same store, with nothing between them but the domain's state machines."""

    def __init__(self, parts: ActivityDeps, at_once: asyncio.Semaphore) -> None:
        self._parts, self._at_once = parts, at_once

    async def run_task(self, request_id: str) -> TaskPhase:
        """Admit, plan, work, report."""
        store, under = self._parts.store, make_task_config()
        asked = TaskRequest(question="How is the bar crossed?", tenant=TENANT, session="alone", request_id=request_id)
        ref = TaskRef(
            store_id=await store.get_store_id(),
            tenant=tenant_hash(TENANT),
            session=session_hash(TENANT, "alone"),
            task_id=make_task_id(asked),
        )
        await store.register_task(TaskRow(ref=ref, request=asked, config=under, submitted_at=utc_now()), DOCUMENTS)
        await store.save_task_title(ref.task_id, "a title")
        async with self._at_once:
            made = await self._parts.planner.create_plan(
                ref, CallOptions("crew", under.budget.divide_by(10), under.default.prices)
            )
        state = TaskState(account=BudgetAccount(limit=under.budget)).with_plan(
            made.plan, made.totals, made.notes, under.agent_budget
        )
        while ready := made.plan.list_ready_steps(state.delivered_agents, frozenset(state.runs)):
            for run in await asyncio.gather(*(self._step(state, step, ref) for step in ready)):
                state = state.with_run(run)
        await self._parts.publisher.publish(
            ref, build_task_progress(state.end_task(state.final_phase), ref, under, "a title")
        )
        return state.final_phase

    async def _step(self, state: TaskState, step: Step, ref: TaskRef) -> AgentRun:
        """The step's run, delivered."""
        run = state.start_step(step, ref, make_task_config()).runs[step.id]
        async with self._at_once:
            while isinstance(move := run.get_next_action(), RunLeg):
                run = run.after_leg(await self._parts.agent_loop.run(move.request, lambda: False))
        return run


async def run_on_platform(client: Client, parts: ActivityDeps, mark: str) -> None:
    """All tasks at once, through their sessions."""
    sessions = [Session(client, parts.store, f"{mark}-{n}") for n in range(SESSIONS)]

    async def one(number: int) -> TaskPhase:
        return (await (await sessions[number % SESSIONS].submit(f"{number}", make_task_config())).result()).phase

    phases = await asyncio.gather(*(one(number) for number in range(TASKS)))
    assert set(phases) == {TaskPhase.DONE}


async def run_in_process(parts: ActivityDeps, mark: str) -> None:
    """All tasks at once, without Temporal, with as many agents at work as a worker has."""
    one = InProcessRunner(parts, asyncio.Semaphore(SLOTS))
    phases = await asyncio.gather(*(one.run_task(f"{mark}-{number}") for number in range(TASKS)))
    assert set(phases) == {TaskPhase.DONE}


async def run_bare_workflows(client: Client, mark: str) -> None:
    """As many workflows with as many activities, which do nothing."""
    await asyncio.gather(
        *(
            client.execute_workflow(Chain.run, ACTIVITIES, id=f"chain-{mark}-{number}", task_queue=QUEUE)
            for number in range(TASKS)
        )
    )


async def measure_seconds(work: Callable[[str], Awaitable[None]], into: list[float], mark: str) -> None:
    """How long it took."""
    start = time.perf_counter()
    await work(mark)
    into.append(time.perf_counter() - start)


async def prove(client: Client) -> None:
    """Print the table: medians of the rounds, in which the three take turns."""
    took: dict[str, list[float]] = {"platform": [], "alone": [], "chains": []}
    with tempfile.TemporaryDirectory() as folder:
        async with open_activity_deps(Path(folder), PlainRedactor({}), ScriptedTaskModel()) as parts:
            for number in range(ROUNDS):
                mark = f"round-{number}"
                async with run_all_workers(client, parts):
                    await measure_seconds(lambda mark: run_on_platform(client, parts, mark), took["platform"], mark)
                await measure_seconds(lambda mark: run_in_process(parts, mark), took["alone"], mark)
                async with bare_worker(client):
                    await measure_seconds(lambda mark: run_bare_workflows(client, mark), took["chains"], mark)
    _show(took)


def _show(took: dict[str, list[float]]) -> None:
    ours, loop, bare = (statistics.median(took[name]) for name in ("platform", "alone", "chains"))
    rows: list[Sequence[object]] = [
        ("the platform", *_rates(took["platform"], TURNS), f"{TASKS * ACTIVITIES / ours:,.0f}", ""),
        (
            "baseline: the same loop on the same store, without Temporal",
            *_rates(took["alone"], TURNS),
            "",
            f"the platform does {loop / ours:.2f} of its turns",
        ),
        (
            "baseline: activities that do nothing, on the same server",
            f"{bare:.1f} s",
            "",
            "",
            f"{TASKS * ACTIVITIES / bare:,.0f}",
            f"the platform does {bare / ours:.2f} of its activities, "
            f"and {bare / ours * TURNS / (TASKS * ACTIVITIES):.2f} turns for each",
        ),
    ]
    head = ("", "median time", "turns a second", "of all rounds", "activities a second", "ratio")
    print_table(f"Orchestration: {TASKS} tasks at once, {TURNS} turns in all, a model that answers at once", head, rows)


def _rates(took: Sequence[float], count: int) -> tuple[str, str, str]:
    rates = sorted(count / seconds for seconds in took)
    return (
        f"{statistics.median(took):.1f} s",
        f"{statistics.median(rates):,.0f}",
        f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
    )
