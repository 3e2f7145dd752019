"""Tasks are forgotten: which ones, that none of them runs, and what is carried out where."""

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from temporalio.service import RPCError

from waystation.adapters.store import SqlStore
from waystation.adapters.temporal.connect import connect_as_person, find_target
from waystation.adapters.temporal.forgetting import carry_out
from waystation.client import Client
from waystation.domain.errors import BadInput, Unreachable
from waystation.domain.forgetting import CarriedOut, ForgetOrder
from waystation.domain.task import TaskRow, reader_of, tenant_hash
from waystation.payloads import data_converter
from waystation.report_files import without_reports
from waystation.settings import Settings
from waystation.stores import opened_store

MOST_TASKS = 10_000


class Gone(CarriedOut):
    """What was forgotten."""

    remains: tuple[str, ...] = ()
    """Where something of it still is, and until when: sentences."""


@dataclass(frozen=True)
class Selection:
    """Whose tasks: one of the first three, or all that ended before some moment."""

    session: str | None = None
    task: str | None = None
    all_of_tenant: bool = False
    ended_before: datetime | None = None

    def require_one(self) -> None:
        """Raise BadInput unless exactly one is given."""
        given = (self.session is not None) + (self.task is not None) + self.all_of_tenant
        if given > 1 or (not given and self.ended_before is None):
            raise BadInput(
                "say what to forget: --session S, --task T, or --all-of-tenant, and one of them only; or --before DATE"
            )
        if self.task is not None and self.ended_before is not None:
            raise BadInput("--task names one task, whenever it ended: leave --before out")


async def selected(client: Client, settings: Settings, selection: Selection) -> tuple[str, ...]:
    """Ids of the tasks that are meant, all of them over. Those that run have not ended before any moment.

    Raises:
        BadInput: there are none, or one still runs.
        Unreachable: whether one runs cannot be told without a server.
    """
    selection.require_one()
    async with aclosing(await opened_store(settings)) as store:
        rows = await _rows(client, store, settings, selection)
    if not rows:
        raise BadInput("there are no such tasks in this store: `waystation list` shows what there is")
    running = [row.ref.task_id for row in rows if not await _over(client, row)]
    if running and selection.ended_before is None:
        raise BadInput(
            f"{', '.join(running[:5])} {'runs' if len(running) == 1 else 'run'}: `waystation cancel {running[0]}` "
            "stops it, or wait until it has ended"
        )
    over = tuple(row.ref.task_id for row in rows if row.ref.task_id not in running)
    if not over:
        raise BadInput("what was submitted before that moment has not ended: `waystation list` shows what runs")
    return over


async def _rows(client: Client, store: SqlStore, settings: Settings, selection: Selection) -> Sequence[TaskRow]:
    if selection.task is not None:
        rows = [await store.task(await client.resolve(selection.task), reader_of(settings.tenant))]
    else:
        reader = reader_of(settings.tenant, selection.session)
        rows = await store.tasks(reader, MOST_TASKS, ended_before=selection.ended_before)
    return rows


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
    temporal = await connect_as_person(target, data_converter(settings))
    try:
        done = await carry_out(temporal, order, f"forget {len(task_ids)} of a tenant's tasks")
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server at {target.address} does not answer ({error.status.name}): the order may be carried "
            "out all the same; giving it again is safe"
        ) from error
    # The workers have deleted those of their home folder, which may be another one.
    own_files = without_reports(settings, task_ids) if everything else 0
    return Gone(
        forgotten=done.forgotten,
        histories=done.histories,
        files=done.files + own_files,
        remains=remains(settings, everything=everything),
    )


def remains(settings: Settings, *, everything: bool) -> tuple[str, ...]:
    """Where something of what was forgotten still is. Embedded memory and SQLite have overwritten it."""
    said = {
        "Transcripts, documents, reports and workflow histories stay: --everything takes them, too.": not everything,
        "The Temporal server deletes histories a moment later.": everything,
        "PostgreSQL's files lose it when it is vacuumed next.": settings.database_url.startswith("postgresql"),
        "The Qdrant server finds it no more; its files lose it when its optimiser writes them anew (docs/memory.md).": (
            settings.qdrant_url is not None
        ),
        "Backups of database, memory and Temporal keep what they had.": True,
    }
    return tuple(sentence for sentence, holds in said.items() if holds)
