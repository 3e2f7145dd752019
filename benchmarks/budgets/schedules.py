"""How long a person's submit takes while twelve schedules begin in the same moment, compared with one on an idle
platform; and whether the runs keep to the budget of their month.
"""

import asyncio
import os
import statistics
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client, ScheduleBackfill, ScheduleOverlapPolicy, WorkflowExecutionStatus

from benchmarks.budgets.tables import show
from tests.running import TENANT, until
from tests.scheduled import BUDGET, MONDAYS, QUESTION, Office, office
from waystation.domain.schedules import Timing
from waystation.domain.task import SourceDocument, TaskRequest
from waystation.settings import Settings
from waystation.task_view import TaskFilter

SCHEDULES = 12
RUNS = 2
"""Runs of each schedule that begin together; the month has room for one."""
SUBMITS = 5
MAX_RATIO = 1.5
"""Of the median on a busy platform to that on an idle one."""
DOCUMENTS = (SourceDocument(name="bar.md", text="The bar carries two fathoms.\n"),)


async def submit(at: Office, number: int) -> float:
    """Seconds that a submit takes."""
    asked = TaskRequest(question=f"{QUESTION} ({number})", tenant=TENANT, session=f"person-{number}", request_id="r")
    began = time.perf_counter()
    await at.client.submit(asked, DOCUMENTS)
    return time.perf_counter() - began


async def add_schedules(at: Office) -> list[str]:
    """Ids of schedules in sessions of their own."""
    ids: list[str] = []
    for number in range(SCHEDULES):
        asked = TaskRequest(question=QUESTION, tenant=TENANT, session=f"S{number}", request_id="r", budget=BUDGET)
        timing = Timing(cron="0 7 * * 1", overlap="allow-all")
        wish = at.wish().replace(name=f"weekly-{number}", request=asked, monthly=BUDGET, timing=timing)
        added = await at.schedules.add(wish)
        ids.append(added.seen.schedule_id)
    return ids


async def begin_all(at: Office, schedule_ids: list[str]) -> None:
    """Have all runs begin now."""
    past = ScheduleBackfill(
        MONDAYS[0] - timedelta(minutes=1),
        MONDAYS[RUNS - 1] + timedelta(minutes=1),
        overlap=ScheduleOverlapPolicy.ALLOW_ALL,
    )
    await asyncio.gather(*(at.server.get_schedule_handle(one).backfill(past) for one in schedule_ids))


async def prove(client: Client) -> None:
    """Raises AssertionError if a submit takes too long, or if a month's budget is passed."""
    os.environ["TEMPORAL_ADDRESS"] = client.service_client.config.target_host
    with tempfile.TemporaryDirectory() as folder:
        async with office(client, Settings(home=Path(folder), tenant=TENANT)) as at:
            await submit(at, 0)  # what is loaded once
            idle = [await submit(at, 1 + number) for number in range(SUBMITS)]
            await begin_all(at, await add_schedules(at))
            busy = [await submit(at, 1 + SUBMITS + number) for number in range(SUBMITS)]

            async def over() -> bool:
                found = [one async for one in client.list_workflows('WorkflowType = "ScheduledRun"')]
                return sum(one.status != WorkflowExecutionStatus.RUNNING for one in found) == SCHEDULES * RUNS

            await until(over)
            most = max([len(await at.client.tasks(TaskFilter(session=f"S{n}"))) for n in range(SCHEDULES)])
    ratio = statistics.median(busy) / statistics.median(idle)
    rows = [
        [name, *(f"{seconds:.2f} s" for seconds in (statistics.median(taken), max(taken)))]
        for name, taken in (("idle", idle), ("twelve schedules begin", busy))
    ]
    show("A person's submit", ["platform", "median", "slowest"], rows)
    assert most == 1, f"{most} runs in a month that has room for one"
    assert ratio <= MAX_RATIO, f"a submit takes {ratio:.2f} times as long while the schedules begin"
