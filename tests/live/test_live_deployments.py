"""A build whose commands differ is rolled out and back while tasks wait, and no task is patched."""

from pathlib import Path

from temporalio.client import Client

from tests.support.builds import NEW, OLD, list_build_ids, run_build
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskSubmitter, open_activity_deps, wait_until
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.deployment_client import TemporalDeploymentClient
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.task import TaskPhase
from waystation.workflows.task import TaskWorkflow

ALL = ("workflows", "agents", "context")


async def test_a_waiting_task_moves_to_the_new_build_and_the_old_one_can_be_retired(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with open_activity_deps(tmp_path, redactor, ScriptedTaskModel()) as parts:
        deployments, submitter = TemporalDeploymentClient(server), TaskSubmitter(server, parts.store)
        async with run_build(server, parts, OLD):
            await submitter.submit(under=make_task_config().replace(review_plan=True))
            task = submitter.get_task_handle()

            async def asks() -> bool:
                return bool((await task.query(TaskWorkflow.progress)).approvals)

            await wait_until(asks)
            async with run_build(server, parts, NEW):

                async def runs() -> bool:
                    return any(
                        build.build_id == NEW and len(build.queues) == 3 for build in await deployments.list_builds()
                    )

                await wait_until(runs)
                await deployments.set_current(NEW)
                assert await deployments.nudge_tasks() == 1

                async def drained() -> bool:
                    return [build.state for build in await deployments.list_builds()] == ["current", "drained"]

                await wait_until(drained)
        async with run_build(server, parts, NEW):
            await task.signal(APPROVE_BUDGET, {"request_id": "plan-1", "by": "Ada"})
            assert (await task.result()).phase is TaskPhase.DONE
        assert await list_build_ids(server, task.id) == [OLD, NEW]
