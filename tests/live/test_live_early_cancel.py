"""A task that is cancelled before it has begun ends like any other: with a report, and known to have ended."""

from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.live.time_skipping import register_admitted_task
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import open_activity_deps, run_all_workers
from waystation.budgets.budget import BudgetAccount
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.privacy.ports import Redactor
from waystation.tasks.progress import build_task_progress
from waystation.tasks.state import TaskState
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow


@pytest.mark.parametrize("forked", [False, True])
async def test_a_task_that_is_cancelled_before_a_worker_saw_it_ends_with_a_report(
    server: Client, tmp_path: Path, redactor: Redactor, *, forked: bool
) -> None:
    crew = ScriptedTaskModel()
    async with open_activity_deps(tmp_path, redactor, crew) as parts:
        start = (await register_admitted_task(parts.store, make_task_config())).replace(forked=forked)
        if forked:
            state = TaskState(account=BudgetAccount(limit=start.config.budget))
            kept = await parts.store.put_text(state.model_dump_json(), start.ref.scope)
            begun = build_task_progress(state, start.ref, start.config, start.title).replace(phase=TaskPhase.SUBMITTED)
            await parts.store.save_task_progress(start.ref.task_id, begun.replace(state=kept))
        task = await server.start_workflow(TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE)
        await task.cancel()
        async with run_all_workers(server, parts):
            with pytest.raises(WorkflowFailureError):
                await task.result()
        row = await parts.store.get_task(start.ref.task_id, SYSTEM_SCOPE)
        assert row.ended_at is not None
        assert row.progress is not None
        assert row.progress.phase is TaskPhase.CANCELLED
        assert crew.calls == []


async def test_a_fork_whose_state_is_not_in_the_store_fails_and_says_what_to_do(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        start = (await register_admitted_task(parts.store, make_task_config())).replace(forked=True)
        task = await server.start_workflow(TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE)
        async with run_all_workers(server, parts):
            with pytest.raises(WorkflowFailureError) as failed:
                await task.result()
        row = await parts.store.get_task(start.ref.task_id, SYSTEM_SCOPE)
        assert row.progress is not None
        assert row.progress.phase is TaskPhase.FAILED
        assert "fork again" in str(failed.value.cause)
