"""Stores and loads a task's state in pieces, since no payload may grow with the task."""

import asyncio

from temporalio import workflow

from waystation.activities.ledger import StateActivities, StateChunkRef, StoreStateChunkRequest
from waystation.kernel.json_chunks import StateRef
from waystation.kernel.refs import TaskRef
from waystation.tasks.state import TaskState, join_state, split_state
from waystation.workflows.options import SHORT, with_summary


async def store_state(ref: TaskRef, state: TaskState) -> StateRef:
    """Store the state of a task."""
    pieces = split_state(state)
    stored = (
        workflow.execute_activity_method(
            StateActivities.store_state_chunk,
            StoreStateChunkRequest(ref=ref, piece=piece),
            **with_summary(SHORT, f"store the task's state, piece {number} of {len(pieces)}"),
        )
        for number, piece in enumerate(pieces, 1)
    )
    return StateRef(pieces=tuple(await asyncio.gather(*stored)))


async def load_state(ref: TaskRef, stored: StateRef) -> TaskState:
    """Load the state of a task."""
    pieces = (
        workflow.execute_activity_method(
            StateActivities.load_state_chunk,
            StateChunkRef(ref=ref, blob=blob),
            **with_summary(SHORT, f"load the task's state, piece {number} of {len(stored.pieces)}"),
        )
        for number, blob in enumerate(stored.pieces, 1)
    )
    return join_state(await asyncio.gather(*pieces))
