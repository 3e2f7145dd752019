"""Activities of sessions: save and take over, reconcile running tasks, load forks, reopen finished tasks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from pydantic import JsonValue
from temporalio import activity

from waystation.activities.activity_errors import heartbeating, translating_errors
from waystation.agents.ports import RunRepository
from waystation.documents.ports import TextStore
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput
from waystation.kernel.json_chunks import StateRef
from waystation.kernel.refs import TaskRef
from waystation.kernel.scopes import SystemScope
from waystation.kernel.value import Value
from waystation.tasks.context_editor import TaskRewinder
from waystation.tasks.continuation import TaskRewind
from waystation.tasks.ports import SessionRepository, TaskReader, TaskRepository
from waystation.tasks.session import (
    RefusedTask,
    SaveSessionRequest,
    SessionKey,
    SessionWorkflowInput,
    StoredSession,
    TaskSettlement,
    build_session_input_for_row,
)
from waystation.tasks.state import TaskState
from waystation.tasks.state_storage import store_state, store_task_refusal

TASKS_AT_ONCE = 8
"""Maximum number of tasks that `ReconcileTasks` checks concurrently."""


class ReconcileRequest(Value):
    """Some of the tasks whose end the session has not seen."""

    task_ids: tuple[str, ...]


class ReconcileResult(Value):
    """Those of the tasks that are over, with what they spent."""

    settled: tuple[TaskSettlement, ...]


class SessionSignal(Value):
    """A signal from a task to its session."""

    ref: TaskRef
    name: str
    message: JsonValue


SessionSender = Callable[[SessionWorkflowInput, str, JsonValue], Awaitable[None]]


class SessionStore(SessionRepository, TaskRepository, RunRepository, Protocol):
    """Sessions, their tasks, and what those spent."""


class SessionActivities:
    """Saves sessions and settles dead tasks.

    A terminated task sends no signal and would keep its reservation forever.
    """

    def __init__(self, runs: Callable[[str], Awaitable[bool]], store: SessionStore, send: SessionSender) -> None:
        """Initialise.

        Args:
            runs: Whether the workflow of this ID is open.
            store: Store of sessions and tasks.
            send: Signals a session, and starts it if it does not run.
        """
        self._runs, self._store, self._send = runs, store, send

    @activity.defn(name="TakeOverSession")
    async def take_over_session(self, key: SessionKey) -> StoredSession:
        """Load the saved session and fence off all other workflow executions from saving it."""
        with translating_errors():
            return await self._store.take_over_session(key)

    @activity.defn(name="SaveSession")
    async def save_session(self, request: SaveSessionRequest) -> bool:
        """Save the session's state. Return False if another workflow execution has taken the session over."""
        with translating_errors():
            return await self._store.save_session(request.key, request.stored)

    @activity.defn(name="SignalSession")
    async def signal_session(self, request: SessionSignal) -> None:
        """Send a task's signal to its terminated session, which starts again from the store."""
        with translating_errors():
            row = await self._store.get_task(request.ref.task_id, request.ref.scope)
            await self._send(build_session_input_for_row(row), request.name, request.message)

    @activity.defn(name="ReconcileTasks")
    async def reconcile_tasks(self, request: ReconcileRequest) -> ReconcileResult:
        """Check which tasks still run, several at once, and settle the others with what the store says they spent."""
        at_once = asyncio.Semaphore(TASKS_AT_ONCE)

        async def settle(task_id: str) -> TaskSettlement | None:
            async with at_once:
                if await self._runs(task_id):
                    return None
                return TaskSettlement(task_id=task_id, spent=await self._spent(task_id))

        async with heartbeating():
            with translating_errors():
                found = await asyncio.gather(*map(settle, request.task_ids))
        return ReconcileResult(settled=tuple(one for one in found if one is not None))

    @activity.defn(name="RefuseTask")
    async def store_refusal(self, refused: RefusedTask) -> None:
        """Store that the session rejected the task, and why. Does nothing for a task of another store."""
        with translating_errors():
            if await self._store.get_store_id() == refused.ref.store_id:
                await store_task_refusal(self._store, refused)

    async def _spent(self, task_id: str) -> Amount:
        """Return the final cost of the task's agent runs: an agent that still runs is fenced off."""
        return sum(
            [await self._last_spending(run) for run in await self._store.list_run_ids(task_id, SystemScope())],
            Amount(),
        )

    async def _last_spending(self, run_id: str) -> Amount:
        await self._store.acquire_fence(run_id)
        return (await self._store.get_run_usage(run_id)).spent


class ForkSource(TaskReader, TextStore, Protocol):
    """Tasks and the states in which they ended."""


class ForkActivities:
    """Tasks that reuse finished steps."""

    def __init__(self, store: ForkSource) -> None:
        self._store = store

    @activity.defn(name="TakeOverFork")
    async def get_fork_state_ref(self, ref: TaskRef) -> StateRef:
        """Return the state that was stored with the task when it was forked; its steps are in the store, too."""
        with translating_errors():
            row = await self._store.get_task(ref.task_id, ref.scope)
            if row.progress is None or row.progress.state is None:
                raise BadInput(f"{ref.task_id} is a fork, but the store has no state for it to start with: fork again")
            state = TaskState.model_validate_json(await self._store.get_text(row.progress.state, ref.scope))
            return await store_state(self._store, state, ref.scope)


class RewindActivities:
    """Finished tasks that continue."""

    def __init__(self, rewinder: TaskRewinder, store: TextStore) -> None:
        self._rewinder, self._store = rewinder, store

    @activity.defn(name="ReopenTask")
    async def reopen_task(self, rewind: TaskRewind) -> StateRef:
        """Rewind the agent, reset the agents that built on it, and store the state to continue from."""
        with translating_errors():
            return await store_state(self._store, await self._rewinder.reopen_task(rewind), rewind.ref.scope)
