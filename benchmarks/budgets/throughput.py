"""What orchestration costs: turns a second with a model that answers at once, with and without Temporal."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from temporalio.client import Client

from benchmarks.budgets.bare import QUEUE, SLOTS, Chain, bare_worker
from benchmarks.budgets.many import Session
from benchmarks.budgets.tables import show
from tests.crew import MOVES, Crew, terms
from tests.running import DOCUMENTS, TENANT, opened_parts, working
from waystation.agents.agent_run import AgentRun, RunLeg
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.planning.plan import Step
from waystation.tasks.progress import progress_of
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase, TaskRequest, TaskRow, session_hash, task_id_of, tenant_hash
from waystation.testing import PlainRedactor
from workers.parts import ActivityDeps

TASKS, SESSIONS, ROUNDS = 50, 5, 3
TURNS = TASKS * (sum(map(len, MOVES.values())) + len(MOVES["submit_findings"]))
ACTIVITIES = 7
"""Of each task: admitted, planned, four legs, its report stored."""


class Alone:
    """One task by the same agents on the same store, with nothing between them but the domain's state machines."""

    def __init__(self, parts: ActivityDeps, at_once: asyncio.Semaphore) -> None:
        self._parts, self._at_once = parts, at_once

    async def task(self, request_id: str) -> TaskPhase:
        """Admit, plan, work, report."""
        store, under = self._parts.store, terms()
        asked = TaskRequest(question="How is the bar crossed?", tenant=TENANT, session="alone", request_id=request_id)
        ref = TaskRef(
            store_id=await store.store_id(),
            tenant=tenant_hash(TENANT),
            session=session_hash(TENANT, "alone"),
            task_id=task_id_of(asked),
        )
        await store.register(TaskRow(ref=ref, request=asked, terms=under, submitted_at=utc_now()), DOCUMENTS)
        await store.admit(ref.task_id, "a title")
        async with self._at_once:
            made = await self._parts.planner.plan(ref, "crew", under.budget.part(10), under.agent.prices)
        state = TaskState(account=BudgetAccount(limit=under.budget)).planned(
            made.plan, made.totals, made.notes, under.agent_budget
        )
        while ready := made.plan.ready(state.done, frozenset(state.runs)):
            for run in await asyncio.gather(*(self._step(state, step, ref) for step in ready)):
                state = state.with_run(run)
        await self._parts.publisher.publish(ref, progress_of(state.ended(state.last_phase), ref, under, "a title"))
        return state.last_phase

    async def _step(self, state: TaskState, step: Step, ref: TaskRef) -> AgentRun:
        """The step's run, delivered."""
        run = state.started(step, ref, terms()).runs[step.id]
        async with self._at_once:
            while isinstance(move := run.next_move(), RunLeg):
                run = run.after_leg(await self._parts.loop.run(move.request, lambda: False))
        return run


async def platform(client: Client, parts: ActivityDeps, mark: str) -> None:
    """All tasks at once, through their sessions."""
    sessions = [Session(client, parts.store, f"{mark}-{n}") for n in range(SESSIONS)]

    async def one(number: int) -> TaskPhase:
        return (await (await sessions[number % SESSIONS].submit(f"{number}", terms())).result()).phase

    phases = await asyncio.gather(*(one(number) for number in range(TASKS)))
    assert set(phases) == {TaskPhase.DONE}


async def alone(parts: ActivityDeps, mark: str) -> None:
    """All tasks at once, without Temporal, with as many agents at work as a worker has."""
    one = Alone(parts, asyncio.Semaphore(SLOTS))
    phases = await asyncio.gather(*(one.task(f"{mark}-{number}") for number in range(TASKS)))
    assert set(phases) == {TaskPhase.DONE}


async def chains(client: Client, mark: str) -> None:
    """As many workflows with as many activities, which do nothing."""
    await asyncio.gather(
        *(
            client.execute_workflow(Chain.run, ACTIVITIES, id=f"chain-{mark}-{number}", task_queue=QUEUE)
            for number in range(TASKS)
        )
    )


async def seconds_of(work: Callable[[str], Awaitable[None]], into: list[float], mark: str) -> None:
    """How long it took."""
    start = time.perf_counter()
    await work(mark)
    into.append(time.perf_counter() - start)


async def prove(client: Client) -> None:
    """Print the table: medians of the rounds, in which the three take turns."""
    took: dict[str, list[float]] = {"platform": [], "alone": [], "chains": []}
    with tempfile.TemporaryDirectory() as folder:
        async with opened_parts(Path(folder), PlainRedactor({}), Crew()) as parts:
            for number in range(ROUNDS):
                mark = f"round-{number}"
                async with working(client, parts):
                    await seconds_of(lambda mark: platform(client, parts, mark), took["platform"], mark)
                await seconds_of(lambda mark: alone(parts, mark), took["alone"], mark)
                async with bare_worker(client):
                    await seconds_of(lambda mark: chains(client, mark), took["chains"], mark)
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
    show(f"Orchestration: {TASKS} tasks at once, {TURNS} turns in all, a model that answers at once", head, rows)


def _rates(took: Sequence[float], count: int) -> tuple[str, str, str]:
    rates = sorted(count / seconds for seconds in took)
    return (
        f"{statistics.median(took):.1f} s",
        f"{statistics.median(rates):,.0f}",
        f"{rates[0]:,.0f} to {rates[-1]:,.0f}",
    )
