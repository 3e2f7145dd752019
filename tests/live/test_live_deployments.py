"""Builds whose commands differ: rolled out and back while tasks wait, and no task is patched."""

from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError

from tests.support.builds import NEW, OLD, run_build, trace_builds
from tests.support.rollout import check_rollout, list_open_requests, roll_out_and_back
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, open_activity_deps, wait_until
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase

REVIEWED = make_task_config().replace(review_plan=True)
APPROVAL = {"request_id": "plan-1", "by": "Ada"}


async def wait_for_request(submitter: TaskSubmitter) -> None:
    async def asks() -> bool:
        return bool(await list_open_requests(submitter.get_task_handle()))

    await wait_until(asks)


async def test_a_waiting_task_moves_to_the_new_build_and_the_old_one_can_be_retired(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        deployment, submitter = TemporalDeploymentClient(server), TaskSubmitter(server, parts.store)
        task = submitter.get_task_handle()
        async with run_build(server, parts, OLD):
            await submitter.submit(under=REVIEWED)
            await wait_for_request(submitter)
            async with run_build(server, parts, NEW):
                await deployment.set_current(NEW)
                assert await deployment.nudge_tasks() == 1

                async def drained() -> bool:
                    return [build.state for build in await deployment.list_builds()] == ["current", "drained"]

                await wait_until(drained)
        async with run_build(server, parts, NEW):
            await task.signal(APPROVE_BUDGET, APPROVAL)
            assert (await task.result()).phase is TaskPhase.DONE
        assert (await trace_builds(server, task.id)).builds == (OLD, NEW)


async def test_without_versioning_the_other_commands_would_break_the_task(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        submitter = TaskSubmitter(server, parts.store)
        async with run_build(server, parts, OLD, versioning=False):
            await submitter.submit(under=REVIEWED)
            await wait_for_request(submitter)
        async with run_build(server, parts, NEW, versioning=False):
            await submitter.get_task_handle().signal(APPROVE_BUDGET, APPROVAL)
            with pytest.raises(WorkflowFailureError) as caught:
                await submitter.get_task_handle().result()
        assert "Nondeterminism" in str(caught.value.cause)


async def test_tasks_that_wait_or_work_survive_a_rollout_and_a_rollback(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    check_rollout(await roll_out_and_back(server, tmp_path, redactor, ("budget", "leg", "subagent")))
