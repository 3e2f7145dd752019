"""A server on which a waiting workflow's clock can be moved on, and a task that runs there."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tests.support.temporal_platform import (
    DOCUMENTS,
    TENANT,
    WAIT_TIMEOUT_SECONDS,
    StrictWorkerPlugin,
    make_task_request,
    wait_until,
)
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.dev_server import find_temporal_executable
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.task import TaskConfig, TaskPhase, TaskProgress, TaskRow, make_task_id, session_hash, tenant_hash
from waystation.workflows.task import TaskWorkflow


@asynccontextmanager
async def run_time_skipping_server() -> AsyncGenerator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=find_temporal_executable(),
        dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        dev_server_log_level="error",
        data_converter=pydantic_data_converter,
        plugins=[StrictWorkerPlugin(cached=True)],
    ) as environment:
        yield environment


async def register_admitted_task(store: SqlStore, terms: TaskConfig) -> TaskWorkflowInput:
    """Without its session, whose look after open tasks every five minutes a long pause would be full of."""
    asked = make_task_request()
    ref = TaskRef(
        store_id=await store.get_store_id(),
        tenant=tenant_hash(TENANT),
        session=session_hash(TENANT, "alone"),
        task_id=make_task_id(asked),
    )
    await store.register_task(TaskRow(ref=ref, request=asked, config=terms, submitted_at=utc_now()), DOCUMENTS)
    await store.save_task_title(ref.task_id, "a title")
    return TaskWorkflowInput(ref=ref, config=terms, title="a title", search_attributes=False)


@dataclass(frozen=True)
class WaitingTask:
    """A task that runs until everything in it waits for a person; a worker must be there."""

    server: WorkflowEnvironment
    handle: WorkflowHandle[TaskWorkflow, TaskProgress]

    @classmethod
    async def start_paused(cls, server: WorkflowEnvironment, start: TaskWorkflowInput) -> "WaitingTask":
        """Started, and as far as its pause. Its clock moves by `sleep` only, not whenever nothing happens."""
        with server.with_time_skipping_disabled():
            handle = await server.client.start_workflow(
                TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE
            )
        task = cls(server, handle)

        async def waits() -> bool:
            return (await task.progress()).phase is TaskPhase.PAUSED and not await task.has_pending_activities()

        await wait_until(waits)
        return task

    async def progress(self) -> TaskProgress:
        return await self.handle.query(TaskWorkflow.progress)

    async def has_pending_activities(self) -> bool:
        """Whether an activity runs or waits to be run."""
        return bool((await self.handle.describe()).raw_description.pending_activities)

    async def result(self) -> TaskProgress:
        """How it ended. Raises TimeoutError where it does not end."""
        async with asyncio.timeout(WAIT_TIMEOUT_SECONDS):
            return await self.handle.result()

    async def skip_time(self, span: timedelta) -> None:
        """Let so much of the task's time pass."""
        assert await self.server.fast_forward(self.handle, span)
