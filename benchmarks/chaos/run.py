"""One run: tasks at work, kills as drawn, and the final comparison of the store with the model's server."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from benchmarks.chaos.account import Verdict, judge, load_account
from benchmarks.chaos.kills import Kill, Moment, Victim, draw_kills
from benchmarks.chaos.model import CountingModel
from benchmarks.chaos.platform import Platform, running_platform
from benchmarks.chaos.work import TaskDriver, build_documents
from tests.end_to_end.messages_server import run_server
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase

QUIET_S = 40.0
"""So long a kill waits for its moment: legs of a dead worker are missed after 20 s, and begun again a little later."""
ECHO_S = 1.0
"""So long replies to a dead worker go on: they are nobody's moment. The next worker takes longer to start."""
BEGINNING_S, KILL_S, ENDING_S = 120.0, 45.0, 1_800.0
"""A run may take so long before its kills, for each of them and after the last; what is open then is not finished."""
FINISHED = {TaskPhase.DONE, TaskPhase.PARTIAL}
WATCH_S = 1.0


@dataclass(frozen=True)
class ChaosConfig:
    """What to do."""

    kills: int
    seed: int
    tasks: int
    """Open at once."""
    home: Path
    fault_share: float = 0.0
    """Share of the model's calls that fail, from 0 to 1."""


@dataclass(frozen=True)
class ChaosResult:
    """What came of it."""

    verdict: Verdict
    kills: Counter[tuple[str, str]]
    """By victim and moment."""
    tasks: int
    approvals: int
    turns: int
    refused: int
    """Calls that the model's server refused."""
    cut: int
    """Replies that it cut off."""
    worker_exits: int
    killing_s: float
    """From the start to the last kill."""
    wall_s: float


async def run_chaos(order: ChaosConfig, say: Callable[[str], None]) -> ChaosResult:
    """Carry it out. Raises TimeoutError where the kills do not get on."""
    settings = Settings(home=order.home, offline=False)
    started = time.monotonic()
    with run_server(CountingModel(chance=Random(order.seed), fault_share=order.fault_share)) as model:
        async with running_platform(settings, model.url) as platform, await Client.connect(settings) as client:
            crew = TaskDriver(client, open_at_once=order.tasks, documents=build_documents())
            at_work = asyncio.create_task(crew.run())
            plan = draw_kills(order.kills, order.seed)
            try:
                async with asyncio.timeout(BEGINNING_S + KILL_S * len(plan)):
                    await crew.complete.wait()
                    await _carry_out(plan, platform, model, say)
                killing_s = time.monotonic() - started
                crew.enough = True
                await _until_over(at_work, platform)
            finally:
                at_work.cancel()
                await asyncio.wait([at_work])
        verdict = await _verdict(settings, crew, model)
    return ChaosResult(
        verdict=verdict,
        kills=Counter((kill.victim.value, kill.moment.value) for kill in plan),
        tasks=len(crew.ids),
        approvals=crew.approved.total(),
        turns=sum(call.id.kind == "turn" for call in model.calls),
        refused=model.refused,
        cut=model.cut,
        worker_exits=len(platform.exits),
        killing_s=killing_s,
        wall_s=time.monotonic() - started,
    )


async def _carry_out(plan: list[Kill], platform: Platform, model: CountingModel, say: Callable[[str], None]) -> None:
    loop = asyncio.get_running_loop()
    moments = {moment: asyncio.Event() for moment in Moment}
    model.on_asked = partial(loop.call_soon_threadsafe, moments[Moment.ASKED].set)
    model.on_replied = partial(loop.call_soon_threadsafe, moments[Moment.REPLIED].set)
    for number, kill in enumerate(plan, 1):
        moments[kill.moment].clear()
        await _within(QUIET_S, moments[kill.moment], platform)
        await asyncio.sleep(kill.wait)
        await platform.kill(kill.victim)
        if kill.victim is not Victim.SERVER:
            await asyncio.sleep(ECHO_S)
        say(f"kill {number} of {len(plan)}: {kill.victim}, {kill.moment}; {len(model.calls)} calls answered")


async def _within(seconds: float, moment: asyncio.Event, platform: Platform) -> None:
    deadline = time.monotonic() + seconds
    while not moment.is_set() and time.monotonic() < deadline:
        platform.supervise()
        try:
            await asyncio.wait_for(moment.wait(), WATCH_S)
        except TimeoutError:
            continue


async def _until_over(at_work: asyncio.Task[None], platform: Platform) -> None:
    deadline = time.monotonic() + ENDING_S
    while not at_work.done() and time.monotonic() < deadline:
        platform.supervise()
        await asyncio.wait([at_work], timeout=WATCH_S)
    if at_work.done():
        at_work.result()


async def _verdict(settings: Settings, crew: TaskDriver, model: CountingModel) -> Verdict:
    store = await SqlStore.open(settings.database_url, utc_now)
    try:
        account = await load_account(store, crew.ids)
    finally:
        await store.aclose()
    unfinished = [n for n, phase in enumerate(crew.phases) if phase not in FINISHED]
    return judge(account, model.calls, unfinished, crew.budgets)
