"""A platform with schedules: its folder of documents, and past Mondays whose runs are started by `backfill`.

A dev server does not skip time.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client as TemporalClient
from temporalio.client import ScheduleBackfill, ScheduleOverlapPolicy, WorkflowExecutionStatus
from temporalio.worker import WorkflowRunner

from tests.support.task_model import QUOTED_SENTENCE, ScriptedTaskModel
from tests.support.temporal_platform import TENANT, open_activity_deps, run_all_workers, wait_until
from waystation.client import Client
from waystation.client.schedules import ScheduleClient, ScheduleDescription
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.models.ports import ChatModel
from waystation.plugins.offline.chat_model import create_offline_model
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_cipher
from waystation.tasks.schedules import ScheduleDefinition, ScheduleTiming
from waystation.tasks.task import TaskRequest
from waystation.tasks.view import TaskFilter
from waystation.testing.doubles import PlainRedactor
from waystation.workers.activity_deps import ActivityDeps

QUESTION = "How deep is the bar of Nordvik, and who keeps the light?"
MONDAYS = [datetime(2026, 10, 5, 7, tzinfo=UTC) + timedelta(weeks=week) for week in range(5)]
BUDGET = Limit(tokens=300_000)
BAR_DOCUMENT = "# The bar\n\nThe bar of Nordvik is {depth} fathoms deep at low water.\n"
LIGHT_DOCUMENT = "# The light\n\nThe keeper Solveig keeps the light of Nordvik since 1871.\n"


@dataclass
class SchedulePlatform:
    """A platform with a folder of documents, and a client of its schedules."""

    server: TemporalClient
    client: Client
    schedules: ScheduleClient
    store: SqlStore
    docs: Path

    def write_documents(self, depth: str = "two") -> None:
        """Write the documents."""
        self.docs.mkdir(exist_ok=True)
        (self.docs / "bar.md").write_text(BAR_DOCUMENT.format(depth=depth))
        (self.docs / "light.md").write_text(LIGHT_DOCUMENT)

    def make_schedule(self) -> ScheduleDefinition:
        """Make the question of every Monday."""
        asked = TaskRequest(question=QUESTION, tenant=TENANT, session="S", request_id="r", budget=BUDGET)
        return ScheduleDefinition(
            name="weekly", request=asked, paths=(str(self.docs),), timing=ScheduleTiming(cron="0 7 * * 1")
        )

    async def run_week(self, week: int, name: str = "weekly") -> ScheduleDescription:
        """Run that Monday's run to its end."""
        before = len([one async for one in self.server.list_workflows('WorkflowType = "ScheduledRun"')])
        at = MONDAYS[week]
        past = ScheduleBackfill(
            at - timedelta(minutes=1), at + timedelta(minutes=1), overlap=ScheduleOverlapPolicy.BUFFER_ALL
        )
        await self.server.get_schedule_handle((await self.wait_for_schedule(name)).view.schedule_id).backfill(past)
        return await self.wait_for_runs(before + 1, name)

    async def wait_for_runs(self, runs: int, name: str = "weekly") -> ScheduleDescription:
        """Wait until this many runs are over, and return the schedule."""

        async def over() -> bool:
            found = [one async for one in self.server.list_workflows('WorkflowType = "ScheduledRun"')]
            busy = (await self.wait_for_schedule(name)).view.running
            return not busy and sum(one.status != WorkflowExecutionStatus.RUNNING for one in found) == runs

        await wait_until(over)
        return await self.wait_for_schedule(name)

    async def wait_for_schedule(self, name: str) -> ScheduleDescription:
        """Wait until the server lists this schedule, and return it."""
        return next(one for one in await self.list_schedules(name) if one.name == name)

    async def list_schedules(self, name: str = "weekly") -> tuple[ScheduleDescription, ...]:
        """Return all schedules, from the first list with this one: a server's list is unstable while it is written."""
        found: tuple[ScheduleDescription, ...] = ()

        async def there() -> bool:
            nonlocal found
            found = await self.schedules.list()
            return any(one.name == name for one in found)

        await wait_until(there)
        return found

    async def list_reports(self) -> list[str]:
        """Return the reports of all tasks, oldest first."""
        views = (await self.client.list_tasks(TaskFilter(session="S")))[::-1]
        return [await self.client.get_report(view.task_id) for view in views]


def with_vault(parts: ActivityDeps, settings: Settings) -> ActivityDeps:
    """Return the dependencies with the vault, for erasing people."""
    return replace(parts, vault=parts.store.build_vault(build_cipher(settings, "vault")))


@asynccontextmanager
async def run_schedule_platform(
    server: TemporalClient, settings: Settings, model: ChatModel | None = None, runner: WorkflowRunner | None = None
) -> AsyncGenerator[SchedulePlatform]:
    """Run the platform; the documents that the scripted agents cite are among its own."""
    settings = settings.replace(offline=True, revisions=0, reviews=0)
    async with (
        open_activity_deps(settings.home, PlainRedactor({}), model or create_offline_model()) as parts,
        run_all_workers(server, with_vault(parts, settings), runner=runner, settings=settings),
        await Client.connect(settings) as client,
    ):
        found = SchedulePlatform(
            server, client, await client.get_schedule_client(), parts.store, settings.home / "docs"
        )
        found.write_documents()
        if isinstance(model, ScriptedTaskModel):
            (found.docs / "pilot.md").write_text(f"{QUOTED_SENTENCE}\n")
        yield found
