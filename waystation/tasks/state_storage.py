"""Stores a task's state in pieces that fit into payloads, and the progress of tasks that no session has taken."""

from waystation.documents.ports import TextStore
from waystation.kernel.json_chunks import JsonChunk, StateRef
from waystation.kernel.scopes import TaskScope
from waystation.tasks.ports import TaskRepository
from waystation.tasks.session import RefusedTask
from waystation.tasks.state import TaskState, join_state, split_state
from waystation.tasks.task import TaskPhase, TaskRow


async def store_state_chunk(store: TextStore, piece: JsonChunk, task: TaskScope) -> str:
    """Store one piece and return its content hash. Raises StoreError."""
    return await store.put_text(piece.model_dump_json(), task)


async def load_state_chunk(store: TextStore, blob: str, task: TaskScope) -> JsonChunk:
    """Load the piece with this content hash. Raises TextNotFoundError, StoreError."""
    return JsonChunk.model_validate_json(await store.get_text(blob, task))


async def store_state(store: TextStore, state: TaskState, task: TaskScope) -> StateRef:
    """Store the state in pieces. Storing the same state twice changes nothing. Raises StoreError."""
    return StateRef(pieces=tuple([await store_state_chunk(store, piece, task) for piece in split_state(state)]))


async def load_state(store: TextStore, ref: StateRef, task: TaskScope) -> TaskState:
    """Load the state that was stored in these pieces. Raises TextNotFoundError, StoreError."""
    return join_state([await load_state_chunk(store, blob, task) for blob in ref.pieces])


async def store_task_refusal(store: TaskRepository, refused: RefusedTask) -> None:
    """Store that the session rejected the task, and why. A task that has begun stays as it is. Raises StoreError."""
    row = await store.get_task(refused.ref.task_id, refused.ref.scope)
    if row.progress is not None and row.progress.phase not in {TaskPhase.SUBMITTED, TaskPhase.REFUSED}:
        return
    progress = row.build_stored_progress(TaskPhase.REFUSED).replace(
        notes=(f"the session refused the task: {refused.reason}",)
    )
    if progress != row.progress:
        await store.save_task_progress(refused.ref.task_id, progress)


async def cancel_submitted_task(store: TaskRepository, row: TaskRow) -> None:
    """End a task that no session has taken: a session that takes it later finds it ended. Raises StoreError."""
    progress = row.build_stored_progress(TaskPhase.CANCELLED).replace(
        notes=("the task was cancelled before a session accepted it",)
    )
    await store.save_task_progress(row.ref.task_id, progress)


async def clear_task_refusal(store: TaskRepository, row: TaskRow) -> TaskRow:
    """Clear an earlier rejection, because the same request was submitted again. Raises StoreError."""
    if row.progress is None or row.progress.phase is not TaskPhase.REFUSED:
        return row
    progress = row.progress.replace(phase=TaskPhase.SUBMITTED, notes=())
    await store.save_task_progress(row.ref.task_id, progress)
    return row.replace(progress=progress, ended_at=None)
