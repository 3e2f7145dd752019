"""A server on which a waiting workflow's clock can be moved on, and a task that runs there."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import WorkflowHandle
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tests.running import DOCUMENTS, PATIENCE, TENANT, Watched, request, until
from waystation.kernel.clock import utc_now
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.temporal.dev_server import find_temporal
from waystation.tasks.continuation import TaskStart
from waystation.tasks.task import TaskPhase, TaskProgress, TaskRow, TaskTerms, session_hash, task_id_of, tenant_hash
from workflows.task import TaskWorkflow


@asynccontextmanager
async def moving_server() -> AsyncGenerator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=find_temporal(),
        dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        dev_server_log_level="error",
        data_converter=pydantic_data_converter,
        plugins=[Watched(cached=True)],
    ) as environment:
        yield environment


async def admitted(store: SqlStore, terms: TaskTerms) -> TaskStart:
    """Without its session, whose look after open tasks every five minutes a long pause would be full of."""
    asked = request()
    ref = TaskRef(
        store_id=await store.store_id(),
        tenant=tenant_hash(TENANT),
        session=session_hash(TENANT, "alone"),
        task_id=task_id_of(asked),
    )
    await store.register(TaskRow(ref=ref, request=asked, terms=terms, submitted_at=utc_now()), DOCUMENTS)
    await store.admit(ref.task_id, "a title")
    return TaskStart(ref=ref, terms=terms, title="a title", search_attributes=False)


@dataclass(frozen=True)
class WaitingTask:
    """A task that runs until everything in it waits for a person; a worker must be there."""

    server: WorkflowEnvironment
    handle: WorkflowHandle[TaskWorkflow, TaskProgress]

    @classmethod
    async def paused(cls, server: WorkflowEnvironment, start: TaskStart) -> "WaitingTask":
        """Started, and as far as its pause. Its clock moves by `sleep` only, not whenever nothing happens."""
        with server.with_time_skipping_disabled():
            handle = await server.client.start_workflow(
                TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE
            )
        task = cls(server, handle)

        async def waits() -> bool:
            return (await task.progress()).phase is TaskPhase.PAUSED and not await task.busy()

        await until(waits)
        return task

    async def progress(self) -> TaskProgress:
        return await self.handle.query(TaskWorkflow.progress)

    async def busy(self) -> bool:
        """Whether an activity runs or waits to be run."""
        return bool((await self.handle.describe()).raw_description.pending_activities)

    async def result(self) -> TaskProgress:
        """How it ended. Raises TimeoutError where it does not end."""
        async with asyncio.timeout(PATIENCE):
            return await self.handle.result()

    async def sleep(self, span: timedelta) -> None:
        """Let so much of the task's time pass."""
        assert await self.server.fast_forward(self.handle, span)
