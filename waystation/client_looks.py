"""What the client looks up in the store alone: which task is meant, and what memory does not have of it."""

from waystation.adapters.store import SqlStore
from waystation.domain.errors import BadInput, UnknownTask
from waystation.seen import TaskView


async def resolved(store: SqlStore, prefix: str) -> str:
    """The one task id that starts so, with or without `task-`. Raises UnknownTask; BadInput if several do."""
    wanted = prefix if prefix.startswith("task-") else f"task-{prefix}"
    found = await store.find_tasks(wanted)
    match found:
        case ():
            raise UnknownTask(f"no task starts with {prefix!r} in this store: `waystation list` shows what there is")
        case (only,):
            return only
        case _ if wanted in found:
            return wanted
        case _:
            raise BadInput(f"{prefix!r} could be {', '.join(found[:5])}: give more of the id")


async def with_passages(store: SqlStore, view: TaskView) -> TaskView:
    """The view with the passages of the task that wait for memory, and those that it does not take."""
    task_id = view.progress.task_id
    counts = {
        "passages_waiting": await store.count_waiting(task_id),
        "passages_refused": await store.refused(task_id),
    }
    return view.model_copy(update=counts)
