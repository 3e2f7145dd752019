"""The activity by which a forked task takes over what is done."""

from temporalio import activity

from activities.failures import reported
from waystation.domain.errors import StoreError
from waystation.domain.task import TaskRef
from waystation.domain.task_state import TaskState
from waystation.ports import DocumentStore, TaskStore


class ForkActivities:
    """Tasks that reuse finished steps."""

    def __init__(self, tasks: TaskStore, texts: DocumentStore) -> None:
        self._tasks, self._texts = tasks, texts

    @activity.defn(name="TakeOverFork")
    async def take_over(self, ref: TaskRef) -> TaskState:
        """The state that was stored with the task when it was forked: the steps themselves are in the store, too."""
        with reported():
            row = await self._tasks.task(ref.task_id, ref.reader)
            if row.progress is None or row.progress.state is None:
                raise StoreError(f"{ref.task_id} was forked, but the store has no state for it to begin with")
            return TaskState.model_validate_json(await self._texts.get_text(row.progress.state, ref.reader))
