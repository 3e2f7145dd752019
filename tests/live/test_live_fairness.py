"""Work that waits for a worker is ordered by its urgency, then shared among tenants by their weights."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.client import Client
from temporalio.common import Priority

from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import (
    DOCUMENTS,
    WAIT_TIMEOUT_SECONDS,
    TaskSubmitter,
    load_priority,
    run_platform,
    start_dev_server,
)
from waystation.config.resolver import make_task_id
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import SESSION_PRIORITY, TASK_PRIORITY
from waystation.runtime.temporal.dev_server import FAIRNESS_SETTINGS
from waystation.tasks.session import SessionWorkflowInput
from waystation.tasks.task import TaskRequest, TaskRow, make_session_workflow_id, session_hash, tenant_hash
from waystation.testing.doubles import PlainRedactor

LARGE, SMALL = "large", "small"


async def submit(platform: TaskSubmitter, tenant: str, number: int) -> TaskRef:
    asked = TaskRequest(
        question=f"Which question of {tenant} has the number {number}?",
        instructions="",
        tenant=tenant,
        session="s",
        request_id=f"{tenant}-{number}",
    )
    start = SessionWorkflowInput(
        store_id=await platform.store.get_store_id(), tenant=tenant_hash(tenant), session=session_hash(tenant, "s")
    )
    ref = TaskRef(store_id=start.store_id, tenant=start.tenant, session=start.session, task_id=make_task_id(asked))
    row = TaskRow(ref=ref, request=asked, config=make_task_config(), submitted_at=utc_now())
    await platform.store.register_task(row, DOCUMENTS)
    await platform.tasks.admit(
        start, make_session_workflow_id(tenant, "s"), ref, timedelta(seconds=WAIT_TIMEOUT_SECONDS)
    )
    return ref


@asynccontextmanager
async def run_tenants(folder: Path, settings: Settings) -> AsyncGenerator[TaskSubmitter]:
    async with (
        start_dev_server(*FAIRNESS_SETTINGS) as client,
        run_platform(client, folder, PlainRedactor({}), ScriptedTaskModel(), settings=settings) as platform,
    ):
        yield platform


async def list_activity_priorities(client: Client, workflow_id: str) -> set[int]:
    """Return the priority keys of the workflow's activities; 0 if they inherit the workflow's."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    return {
        event.activity_task_scheduled_event_attributes.priority.priority_key
        for event in history.events
        if event.HasField("activity_task_scheduled_event_attributes")
    }


async def test_work_has_the_key_and_weight_of_its_tenant_and_submissions_go_first(tmp_path: Path) -> None:
    async with run_tenants(tmp_path, Settings(tenant_weights={SMALL: 2.5})) as platform:
        small, large = await submit(platform, SMALL, 0), await submit(platform, LARGE, 0)
        client, session = platform.client, make_session_workflow_id(SMALL, "s")
        for ref in (small, large):
            await client.get_workflow_handle(ref.task_id).result()

        assert await load_priority(client, small.task_id) == Priority(TASK_PRIORITY, small.tenant, 2.5)
        assert await load_priority(client, large.task_id) == Priority(TASK_PRIORITY, large.tenant, 1.0)
        assert await load_priority(client, session) == Priority(SESSION_PRIORITY, small.tenant)
        assert await list_activity_priorities(client, small.task_id) == {0}
