"""Measures how long a person's submission takes while twelve schedules are due in the same minute, compared with an
idle platform; and whether the runs keep to their month's budget.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

import httpx2
from temporalio.client import Client, WorkflowExecutionStatus

from benchmarks.budgets.tables import print_table
from tests.support.schedule_platform import BUDGET, QUESTION, SchedulePlatform, run_schedule_platform
from tests.support.temporal_platform import TENANT, wait_until
from waystation.config.settings import Settings
from waystation.models.anthropic.model import create_anthropic_model
from waystation.plugins.offline.transport import OfflineTransport
from waystation.tasks.schedules import ScheduleTiming
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import TaskFilter

SCHEDULES = 12
SUBMITS = 5
BUSY_SUBMITS, EVERY_S = 15, 8.0
"""Two minutes: each schedule is due twice, and its month has room for one run."""
REPLY_S = 3.0
"""Time of a model call, as a provider's. The built-in model answers at once, so that agents would take all the CPU."""
RUNS_TAKE = 900.0
"""Seconds at most, until all runs are over."""
MAX_RATIO = 1.5
"""Of the median on a busy platform to that on an idle one."""


class _Slow(OfflineTransport):
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See base class; with the latency of a provider."""
        await asyncio.sleep(REPLY_S)
        return await super().handle_async_request(request)


async def submit(at: SchedulePlatform, home: Path, number: int) -> float:
    """Seconds that the command takes."""
    asked = ["submit", f"{QUESTION} ({number})", "--docs", str(at.docs), "--session", f"person-{number}", "--detach"]
    here = {**os.environ, "WAYSTATION_HOME": str(home), "WAYSTATION_TENANT": TENANT, "WAYSTATION_OFFLINE": "true"}
    began = time.perf_counter()
    command = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "waystation.cli.main", *asked, env=here, stdout=DEVNULL, stderr=PIPE
    )
    _, said = await command.communicate()
    assert command.returncode == 0, said.decode()
    return time.perf_counter() - began


async def add_schedules(at: SchedulePlatform) -> list[str]:
    """Ids of schedules in sessions of their own, which are due every minute."""
    ids: list[str] = []
    for number in range(SCHEDULES):
        asked = TaskRequest(question=QUESTION, tenant=TENANT, session=f"S{number}", request_id="r", budget=BUDGET)
        timing = ScheduleTiming(cron="* * * * *", overlap="allow-all")
        wish = at.make_schedule().replace(name=f"weekly-{number}", request=asked, monthly=BUDGET, timing=timing)
        added = await at.schedules.add(wish)
        ids.append(added.view.schedule_id)
    return ids


async def prove(client: Client) -> None:
    """Raises AssertionError if a submit takes too long, or if a month's budget is passed."""
    os.environ["TEMPORAL_ADDRESS"] = client.service_client.config.target_host
    with tempfile.TemporaryDirectory() as folder:
        model = create_anthropic_model("offline", "http://offline.invalid", httpx2.AsyncClient(transport=_Slow()))
        home = Path(folder)
        async with run_schedule_platform(client, Settings(home=home, tenant=TENANT), model) as at:
            await submit(at, home, 0)  # what is loaded once
            idle = [await submit(at, home, 1 + number) for number in range(SUBMITS)]
            ids = await add_schedules(at)
            busy: list[float] = []
            for number in range(BUSY_SUBMITS):
                busy.append(await submit(at, home, 1 + SUBMITS + number))
                await asyncio.sleep(EVERY_S)
            for schedule_id in ids:
                await at.server.get_schedule_handle(schedule_id).pause()

            runs = 0

            async def over() -> bool:
                nonlocal runs
                found = [one async for one in client.list_workflows('WorkflowType = "ScheduledRun"')]
                runs = len(found)
                return all(one.status != WorkflowExecutionStatus.RUNNING for one in found)

            await wait_until(over, patience=RUNS_TAKE)
            tasks = [len(await at.client.list_tasks(TaskFilter(session=f"S{n}"))) for n in range(SCHEDULES)]
    ratio = statistics.median(busy) / statistics.median(idle)
    rows = [
        [name, *(f"{seconds:.2f} s" for seconds in (statistics.median(taken), max(taken)))]
        for name, taken in (("idle", idle), ("twelve schedules are due every minute", busy))
    ]
    print_table("A person's submit", ["platform", "median", "slowest"], rows)
    assert runs > SCHEDULES, f"{runs} runs of {SCHEDULES} schedules: no month was full"
    assert tasks == [1] * SCHEDULES, f"{tasks} tasks in months that have room for one each"
    assert ratio <= MAX_RATIO, f"a submit takes {ratio:.2f} times as long while the runs begin"
