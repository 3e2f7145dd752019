"""The activities that look after a session's tasks: those at work, forks, and those that are taken back.

The activity that looks after tasks which a session believes to be running.

The activity by which a forked task takes over what is done.

The activity by which a finished task goes on from a message of one of its agents.
"""

from collections.abc import Awaitable, Callable

from temporalio import activity

from activities.attempts import reported
from waystation.agents.editor import Rewinder
from waystation.agents.task_states import store_state
from waystation.domain.amount import Amount
from waystation.domain.continuation import TaskRewind
from waystation.domain.errors import StoreError
from waystation.domain.ownership import Installation
from waystation.domain.pieces import StateRef
from waystation.domain.session import Settlement
from waystation.domain.task import TaskRef
from waystation.domain.task_state import TaskState
from waystation.domain.value import Value
from waystation.ports import Store


class ReconcileRequest(Value):
    """The tasks that a session has not seen ending."""

    task_ids: tuple[str, ...]


class Reconciled(Value):
    """Those of them that are over, with what they spent."""

    settled: tuple[Settlement, ...]


class SessionActivities:
    """Finds dead tasks: one that was terminated tells nobody, and would keep its reservation for ever."""

    def __init__(self, runs: Callable[[str], Awaitable[bool]], store: Store) -> None:
        """`runs`: whether the workflow of this id is open."""
        self._runs, self._store = runs, store

    @activity.defn(name="ReconcileTasks")
    async def reconcile(self, request: ReconcileRequest) -> Reconciled:
        """Describe each task; those that no longer run are settled with what the store says they spent."""
        with reported():
            over = [task_id for task_id in request.task_ids if not await self._runs(task_id)]
            return Reconciled(
                settled=tuple([Settlement(task_id=task_id, spent=await self._spent(task_id)) for task_id in over])
            )

    async def _spent(self, task_id: str) -> Amount:
        """What the task's agent runs have cost, and will have: an agent that nobody has stopped yet is fenced off."""
        return sum(
            [await self._last_spending(run) for run in await self._store.run_ids(task_id, Installation())],
            Amount(),
        )

    async def _last_spending(self, run_id: str) -> Amount:
        await self._store.take_fence(run_id)
        return (await self._store.totals(run_id)).spent


class ForkActivities:
    """Tasks that reuse finished steps."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @activity.defn(name="TakeOverFork")
    async def take_over(self, ref: TaskRef) -> StateRef:
        """Where the state is that was stored with the task when it was forked: its steps are in the store, too."""
        with reported():
            row = await self._store.task(ref.task_id, ref.reader)
            if row.progress is None or row.progress.state is None:
                raise StoreError(f"{ref.task_id} was forked, but the store has no state for it to begin with")
            state = TaskState.model_validate_json(await self._store.get_text(row.progress.state, ref.reader))
            return await store_state(self._store, state, ref.reader)


class RewindActivities:
    """Tasks that go on."""

    def __init__(self, rewinder: Rewinder, store: Store) -> None:
        self._rewinder, self._store = rewinder, store

    @activity.defn(name="ReopenTask")
    async def reopen(self, asked: TaskRewind) -> StateRef:
        """Take the agent back, let those that built on it begin anew, and store the state to go on from."""
        with reported():
            return await store_state(self._store, await self._rewinder.reopen(asked), asked.ref.reader)
