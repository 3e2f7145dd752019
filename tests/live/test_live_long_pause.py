"""A pause as long as people take, with the server's clock for that workflow moved on."""

from datetime import timedelta
from pathlib import Path

from tests.live.time_skipping import register_admitted_task, run_time_skipping_server
from tests.support.task_model import WORK_TOKENS, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import open_activity_deps, run_all_workers, wait_until
from waystation.kernel.amount import Amount
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow

MONTH = timedelta(days=30)


async def test_a_task_that_waited_a_month_for_its_approval_goes_on_and_finishes(
    tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_time_skipping_server() as server, open_activity_deps(tmp_path, redactor, crew) as parts:
        client = server.client
        start = await register_admitted_task(parts.store, make_tight_budget_config())
        async with run_all_workers(client, parts):
            task = await client.start_workflow(
                TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE
            )

            async def paused() -> bool:
                return (await task.query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED

            await wait_until(paused)
            asked_at = await server.get_current_time(task)
            assert await server.fast_forward(task, MONTH)
            assert await server.get_current_time(task) - asked_at >= MONTH
            waiting = await task.query(TaskWorkflow.progress)
            pending = (await task.describe()).raw_description.pending_activities
        async with run_all_workers(client, parts):
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
