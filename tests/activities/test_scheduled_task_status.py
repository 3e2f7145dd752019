from typing import cast

from temporalio.testing import ActivityEnvironment

from tests.support.agent_environment import TASK, AgentEnvironment
from tests.support.progress_values import PAUSED_PROGRESS
from waystation.activities.schedules import ScheduleActivities
from waystation.tasks.ports import TaskIntake
from waystation.tasks.schedules import ScheduledTaskStatus
from waystation.tasks.task import TaskPhase


class EndsWhenLookedAt:
    """A server on which the task's workflow closes just before it is asked about; it has stored its end by then."""

    def __init__(self, env: AgentEnvironment) -> None:
        self._env = env

    async def is_workflow_open(self, workflow_id: str) -> bool:
        assert workflow_id == TASK
        await self._env.store.save_task_progress(TASK, PAUSED_PROGRESS.replace(task_id=TASK, phase=TaskPhase.DONE))
        return False


async def test_a_task_that_ends_as_it_is_looked_at_has_ended_well(env: AgentEnvironment) -> None:
    activities = ScheduleActivities(env.store, cast("TaskIntake", EndsWhenLookedAt(env)), env.clock)
    status = await ActivityEnvironment().run(activities.get_task_status, env.ref)
    assert status == ScheduledTaskStatus(over=True, phase=TaskPhase.DONE)
