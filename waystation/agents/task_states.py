"""A task's state in the store, in pieces that each fit into one payload of its workflow."""

from waystation.domain.ownership import OfTask
from waystation.domain.pieces import Piece, StateRef
from waystation.domain.task_state import TaskState, state_of, state_pieces
from waystation.ports import Store


async def store_piece(store: Store, piece: Piece, task: OfTask) -> str:
    """Store one piece and return its content hash. Raises StoreError."""
    return await store.put_text(piece.model_dump_json(), task)


async def load_piece(store: Store, blob: str, task: OfTask) -> Piece:
    """The piece with this content hash. Raises TextMissing, StoreError."""
    return Piece.model_validate_json(await store.get_text(blob, task))


async def store_state(store: Store, state: TaskState, task: OfTask) -> StateRef:
    """Store the state in pieces. Storing the same state twice changes nothing. Raises StoreError."""
    return StateRef(pieces=tuple([await store_piece(store, piece, task) for piece in state_pieces(state)]))


async def load_state(store: Store, ref: StateRef, task: OfTask) -> TaskState:
    """The state that was stored in these pieces. Raises TextMissing, StoreError."""
    return state_of([await load_piece(store, blob, task) for blob in ref.pieces])
