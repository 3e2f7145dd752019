"""Which agents a task has, as the store knows them: those of its plan, its planner, and all others that have begun."""

from waystation.adapters.store import SqlStore
from waystation.domain.errors import BadInput
from waystation.domain.ownership import Reader
from waystation.domain.plan import PLANNING_ID


async def agents_of(store: SqlStore, task_id: str, reader: Reader, wanted: str | None = None) -> tuple[str, ...]:
    """Ids of all of them, subagents among them, or the one that is wanted. None before there is a plan.

    Raises BadInput for an agent that the task does not have.
    """
    plan = await store.plan(task_id, reader)
    begun = [run_id.removeprefix(f"{task_id}/") for run_id in await store.run_ids(task_id, reader)]
    agents = tuple(dict.fromkeys((*(step.id for step in plan.steps), PLANNING_ID, *begun))) if plan else ()
    if wanted is not None and wanted not in agents:
        raise BadInput(f"{task_id} has no agent {wanted!r}; it has {', '.join(agents) or 'none yet'}")
    return agents if wanted is None else (wanted,)
