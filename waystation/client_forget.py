"""Tasks are forgotten: which ones, that none of them runs, and what is carried out where."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from temporalio.service import RPCError

from waystation.adapters.store import SqlStore
from waystation.adapters.temporal.connect import connect, find_target, person_identity
from waystation.adapters.temporal.forgetting import carry_out, delete_histories
from waystation.client import Client
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.forgetting import ForgetOrder, Forgotten
from waystation.domain.task import TaskRow, session_hash, tenant_hash
from waystation.domain.value import Value
from waystation.payloads import data_converter
from waystation.settings import Settings
from waystation.stores import opened_store

MOST_TASKS = 10_000


class Gone(Value):
    """What was forgotten."""

    forgotten: Forgotten
    histories: int = 0
    """Workflow histories that the server was told to delete."""
    files: int = 0
    """Reports in the home folder of this machine."""


@dataclass(frozen=True)
class Selection:
    """Whose tasks: one of the three, and nothing else."""

    session: str | None = None
    task: str | None = None
    all_of_tenant: bool = False

    def require_one(self) -> None:
        """Raise BadInput unless exactly one is given."""
        if (self.session is not None) + (self.task is not None) + self.all_of_tenant != 1:
            raise BadInput("say what to forget: --session S, --task T, or --all-of-tenant, and one of them only")


async def selected(client: Client, settings: Settings, selection: Selection) -> tuple[str, ...]:
    """Ids of the tasks that are meant, all of them over.

    Raises:
        BadInput: there are none, one still runs, or the task is another tenant's.
        Unreachable: whether one runs cannot be told without a server.
    """
    selection.require_one()
    async with aclosing(await opened_store(settings)) as store:
        rows = await _rows(client, store, settings, selection)
    if not rows:
        raise BadInput("there are no such tasks in this store: `waystation list` shows what there is")
    running = [row.ref.task_id for row in rows if not await _over(client, row)]
    if running:
        raise BadInput(
            f"{', '.join(running[:5])} {'runs' if len(running) == 1 else 'run'}: `waystation cancel {running[0]}` "
            "stops it, or wait until it has ended"
        )
    return tuple(row.ref.task_id for row in rows)


async def _rows(client: Client, store: SqlStore, settings: Settings, selection: Selection) -> Sequence[TaskRow]:
    if selection.task is not None:
        rows = [await store.task(await client.resolve(selection.task))]
    else:
        session = None if selection.session is None else session_hash(settings.tenant, selection.session)
        rows = await store.tasks(session, MOST_TASKS)
    own = [row for row in rows if row.ref.tenant == tenant_hash(settings.tenant)]
    if selection.task is not None and not own:
        raise BadInput(
            f"{rows[0].ref.task_id} belongs to another tenant than {settings.tenant!r}: set WAYSTATION_TENANT"
        )
    return own


async def _over(client: Client, row: TaskRow) -> bool:
    return (await client.progress(row.ref.task_id)).progress.phase.over


async def forget(settings: Settings, task_ids: tuple[str, ...], *, everything: bool) -> Gone:
    """Forget these tasks, which are over. Raises Unreachable without a server, BadInput, WrongKey."""
    async with aclosing(await opened_store(settings)) as store:
        store_id = await store.store_id()
    order = ForgetOrder(
        store_id=store_id, tenant=tenant_hash(settings.tenant), task_ids=task_ids, everything=everything
    )
    target = find_target(settings.run_file, settings.temporal_ui)
    temporal = await connect(target, data_converter(settings), identity=person_identity())
    try:
        forgotten = await carry_out(temporal, order, f"forget {len(task_ids)} of a tenant's tasks")
        histories = await delete_histories(temporal, task_ids) if everything else 0
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server at {target.address} does not answer ({error.status.name}): the order may be carried "
            "out all the same; giving it again is safe"
        ) from error
    return Gone(forgotten=forgotten, histories=histories, files=_without_files(settings, task_ids) if everything else 0)


def _without_files(settings: Settings, task_ids: tuple[str, ...]) -> int:
    paths = [settings.reports_folder / f"{task_id}.md" for task_id in task_ids]
    there = [path for path in paths if path.exists()]
    for path in there:
        path.unlink()
    return len(there)
