"""The activity that looks after tasks which a session believes to be running."""

from collections.abc import Awaitable, Callable

from temporalio import activity

from activities.failures import reported
from waystation.domain.amount import Amount
from waystation.domain.ownership import Installation
from waystation.domain.session import Settlement
from waystation.domain.value import Value
from waystation.ports import TranscriptStore


class ReconcileRequest(Value):
    """The tasks that a session has not seen ending."""

    task_ids: tuple[str, ...]


class Reconciled(Value):
    """Those of them that are over, with what they spent."""

    settled: tuple[Settlement, ...]


class SessionActivities:
    """Finds dead tasks: one that was terminated tells nobody, and would keep its reservation for ever."""

    def __init__(self, runs: Callable[[str], Awaitable[bool]], transcripts: TranscriptStore) -> None:
        """`runs`: whether the workflow of this id is open."""
        self._runs, self._transcripts = runs, transcripts

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
            [await self._last_spending(run) for run in await self._transcripts.run_ids(task_id, Installation())],
            Amount(),
        )

    async def _last_spending(self, run_id: str) -> Amount:
        await self._transcripts.take_fence(run_id)
        return (await self._transcripts.totals(run_id)).spent
