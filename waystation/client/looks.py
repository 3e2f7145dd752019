"""What the client looks up in the store alone: which task is meant, and what memory does not have of it."""

from waystation.adapters.store import SqlStore
from waystation.domain.errors import BadInput, UnknownTask
from waystation.domain.forgetting import FORGOTTEN
from waystation.domain.ownership import OfTenant
from waystation.domain.task import Resolution, TaskProgress, TaskRequest, TaskRow
from waystation.seen import TaskView


def require_own(request: TaskRequest, tenant: str) -> None:
    """Raise BadInput where a request is another tenant's: whoever hands it in could not follow it."""
    if request.tenant != tenant:
        raise BadInput(
            f"the request is of tenant {request.tenant!r} and the settings of {tenant!r}: set WAYSTATION_TENANT, or "
            "give the request the same"
        )


def require_words(task_id: str, title: str) -> None:
    """Raise BadInput where the task was forgotten, every word of it."""
    if title == FORGOTTEN:
        raise BadInput(
            f"{task_id} was forgotten, every word of it: only numbers stay (`waystation cost {task_id}`, "
            f"`waystation show {task_id}`)"
        )


def without_report(progress: TaskProgress) -> BadInput:
    """Why there is none. Raises BadInput itself where the task was forgotten."""
    task_id = progress.task_id
    require_words(task_id, progress.title)
    follows = "" if progress.phase.over else f": `waystation watch {task_id}` follows it"
    return BadInput(f"{task_id} has no report (it is {progress.phase}){follows}")


async def own_task(store: SqlStore, reader: OfTenant, task_id: str) -> TaskRow:
    """The task, if it is the tenant's. Raises UnknownTask, which does not tell whether another tenant has it."""
    return await store.task(task_id, reader)


async def resolved(store: SqlStore, reader: OfTenant, prefix: str) -> str:
    """The tenant's one task id that starts so, with or without `task-`. Raises UnknownTask; BadInput if several do."""
    wanted = prefix if prefix.startswith("task-") else f"task-{prefix}"
    found = await store.find_tasks(wanted, reader)
    match found:
        case ():
            raise UnknownTask(f"no task starts with {prefix!r} in this store: `waystation list` shows what there is")
        case (only,):
            return only
        case _ if wanted in found:
            return wanted
        case _:
            raise BadInput(f"{prefix!r} could be {', '.join(found[:5])}: give more of the id")


async def with_stored(store: SqlStore, view: TaskView, reader: OfTenant) -> TaskView:
    """The view with what memory does not have of the task: passages that wait, or that it does not take, and documents
    beyond what the terms let into it; and with its plans, and what its tools were given of the vault.
    """
    task_id = view.progress.task_id
    most = (await store.task(task_id, reader)).terms.remembered_characters
    characters = sum(document.characters for document in await store.documents(task_id, reader) if not document.removed)
    found = {
        "characters_not_remembered": max(0, characters - most) if most else 0,
        "passages_waiting": await store.count_waiting(task_id),
        "passages_refused": await store.refused(task_id),
        "plans": await store.plan_versions(task_id, reader),
        "resolutions": tuple([one for one in await store.audit_trail(task_id, reader) if isinstance(one, Resolution)]),
    }
    return view.model_copy(update=found)
