"""A pause as long as people take, with the server's clock for that workflow moved on."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from tests.crew import WORK_TOKENS, Crew, tight
from tests.running import DOCUMENTS, TENANT, Watched, opened_parts, request, until, working
from waystation.adapters.clock import utc_now
from waystation.adapters.presidio.redactor import PresidioRedactor
from waystation.adapters.store.sql_store import SqlStore
from waystation.adapters.temporal.dev_server import find_temporal
from waystation.domain.amount import Amount
from waystation.domain.names import APPROVE_BUDGET, WORKFLOWS_QUEUE
from waystation.domain.task import TaskPhase, TaskRef, TaskRow, session_hash, task_id_of, tenant_hash
from waystation.domain.task_state import TaskStart
from workflows.task import TaskWorkflow

MONTH = timedelta(days=30)


@pytest.fixture
async def moving_server() -> AsyncIterator[WorkflowEnvironment]:
    async with await WorkflowEnvironment.start_time_skipping_v2(
        dev_server_existing_path=find_temporal(),
        dev_server_extra_args=["--dynamic-config-value", "frontend.WorkflowTimeSkippingEnabled=true"],
        dev_server_log_level="error",
        data_converter=pydantic_data_converter,
        plugins=[Watched(cached=True)],
    ) as environment:
        yield environment


async def admitted_task(store: SqlStore) -> TaskStart:
    """Without its session, whose look after open tasks every five minutes a month would be full of."""
    asked, under = request(), tight()
    ref = TaskRef(
        store_id=await store.store_id(),
        tenant=tenant_hash(TENANT),
        session=session_hash(TENANT, "alone"),
        task_id=task_id_of(asked),
    )
    await store.register(TaskRow(ref=ref, request=asked, terms=under, submitted_at=utc_now()), DOCUMENTS)
    await store.admit(ref.task_id, "a title")
    return TaskStart(ref=ref, terms=under, title="a title", search_attributes=False)


async def test_a_task_that_waited_a_month_for_its_approval_goes_on_and_finishes(
    moving_server: WorkflowEnvironment, tmp_path: Path, redactor: PresidioRedactor
) -> None:
    crew = Crew()
    client = moving_server.client
    async with opened_parts(tmp_path, redactor, crew) as parts:
        start = await admitted_task(parts.store)
        async with working(client, parts):
            task = await client.start_workflow(
                TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE
            )

            async def paused() -> bool:
                return (await task.query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED

            await until(paused)
            asked_at = await moving_server.get_current_time(task)
            assert await moving_server.fast_forward(task, MONTH)
            assert await moving_server.get_current_time(task) - asked_at >= MONTH
            waiting = await task.query(TaskWorkflow.progress)
            pending = (await task.describe()).raw_description.pending_activities
        async with working(client, parts):
            for request_id in ("harbours-1", "tides-1"):
                await task.signal(APPROVE_BUDGET, {"request_id": request_id, "by": "Ada"})
            progress = await task.result()
    assert waiting.phase is TaskPhase.PAUSED
    assert not pending
    waited = [
        approval.answered_at - approval.requested_at
        for approval in progress.approvals
        if approval.answered_at and approval.requested_at
    ]
    assert len(waited) == 2
    assert min(waited) >= MONTH
    assert progress.phase is TaskPhase.DONE
    assert progress.budget.spent == Amount(tokens=WORK_TOKENS)
    assert len(crew.calls) == len(set(crew.calls))
