"""How the client has tasks forgotten and one person erased.

One person is erased: that no task has them that runs, what the workers carry out, and the receipt.

Tasks are forgotten: which ones, that none of them runs, and what is carried out where.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from temporalio.service import RPCError

from waystation.client import Client
from waystation.client.persons import PersonFound, Search, connect_to_temporal
from waystation.config.settings import Settings
from waystation.erasure.removal import (
    WANTED,
    CarriedOut,
    Erasure,
    ForgetOrder,
    PersonOrder,
    Whereabouts,
    fingerprints,
    summed_places,
)
from waystation.erasure.report_files import rewritten_reports
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.temporal_names import make_indexing_workflow_id
from waystation.kernel.value import Value
from waystation.plugins.redaction.placeholders import fingerprint
from waystation.privacy.policy import VaultEntry
from waystation.reports.files import without_reports
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.stores import data_converter, open_store
from waystation.runtime.temporal.connect import connect_as_person, find_target
from waystation.runtime.temporal.orders import erase_person, forget_tasks, is_workflow_running, last_erasure
from waystation.tasks.task import TaskRow, reader_of, tenant_hash

_ELSEWHERE = frozenset({Whereabouts.VAULT, Whereabouts.HISTORY, Whereabouts.REPORT_FILE})
"""Not in the store's texts: a task that runs does not write there."""


class PersonErasureReceipt(Value):
    """What was erased. It has no content, and may be kept."""

    id: str
    at: datetime
    known_as: tuple[str, ...]
    """SHA-256 of each placeholder that stood for the value."""
    found: dict[Whereabouts, int]
    left: dict[Whereabouts, int]
    originals: int
    """Entries that the vault has no more."""
    files: int
    """Reports that were written anew, by the workers and on this machine."""
    histories_deleted: int
    histories_left: tuple[str, ...]
    """Ids of workflows whose histories still have the person."""

    @classmethod
    def of(cls, done: Erasure) -> "PersonErasureReceipt":
        """What the order did; on this machine there may have been more files."""
        left = [one.workflow_id for one in done.order.histories if one not in done.order.doomed]
        return cls(
            id=done.id,
            at=done.at,
            known_as=fingerprints(done.order.placeholders),
            found=summed_places(done.found),
            left=summed_places(done.left),
            originals=done.originals,
            files=done.files,
            histories_deleted=done.histories_deleted,
            histories_left=tuple(left),
        )


async def require_at_rest(client: Client, settings: Settings, found: PersonFound) -> None:
    """Raise BadInput where a task has the person that is not over, or whose documents are being remembered; Unreachable
    without a server, which alone knows.
    """
    task_ids = sorted({trace.task_id for trace in found.traces if trace.place not in _ELSEWHERE})
    at_work = [one for one in task_ids if not (await client.progress(one)).progress.phase.over]
    if at_work:
        verbs = "has this person and runs" if len(at_work) == 1 else "have this person and run"
        raise BadInput(
            f"{', '.join(at_work[:5])} {verbs}: `waystation cancel {at_work[0]}` stops it, or wait until it has ended"
        )
    temporal = await connect_to_temporal(settings)
    async with _answering():
        remembered = [one for one in task_ids if await is_workflow_running(temporal, make_indexing_workflow_id(one))]
    if remembered:
        raise BadInput(
            f"the documents of {', '.join(remembered[:5])} are on their way into memory: try again when they are there"
        )


async def erase(
    search: Search, found: PersonFound, *, histories: bool, tell: Callable[[str], None] = lambda _: None
) -> PersonErasureReceipt:
    """Erase the person; closed histories that have them are deleted as a whole where that is wanted.

    `tell` gets a few words whenever another step is under way. Raises Unreachable without a server, BadInput, WrongKey.
    """
    temporal = await connect_to_temporal(search.settings)
    order = await create_erasure_order(search, found, histories=histories)
    async with _answering():
        receipt = PersonErasureReceipt.of(await erase_person(temporal, order, tell))
    # The workers have done those of their home folder, which may be another one.
    in_files = [trace.task_id for trace in found.traces if trace.place is Whereabouts.REPORT_FILE]
    own_files = rewritten_reports(search.settings.reports_folder, in_files, search.sought)
    return receipt.replace(files=receipt.files + own_files)


async def last_receipt(search: Search) -> PersonErasureReceipt | None:
    """What the last order for this value did; one that is under way is waited for. None: Temporal keeps none.

    Raises Unreachable without a server.
    """
    temporal = await connect_to_temporal(search.settings)
    async with _answering():
        done = await last_erasure(temporal, search.order_id)
    return None if done is None else PersonErasureReceipt.of(done)


async def is_erasure_running(search: Search) -> bool:
    """Whether an order for this value is being carried out. Raises Unreachable without a server."""
    temporal = await connect_to_temporal(search.settings)
    async with _answering():
        return await is_workflow_running(temporal, search.order_id)


async def create_erasure_order(search: Search, found: PersonFound, *, histories: bool) -> PersonOrder:
    """The order, with the value in the vault until it has been carried out."""
    tenant, value = tenant_hash(search.settings.tenant), search.sought.value
    original = VaultEntry(
        type=WANTED, placeholder=search.wanted, fingerprint=fingerprint(search.key, tenant, WANTED, value), text=value
    )
    await search.vault.keep(tenant, [original])
    return PersonOrder(
        store_id=await search.store.store_id(),
        tenant=tenant,
        wanted=search.wanted,
        placeholders=search.sought.placeholders,
        histories=found.histories,
        delete_histories=histories,
    )


@asynccontextmanager
async def _answering() -> AsyncGenerator[None]:
    """Turns Temporal's errors into Unreachable."""
    try:
        yield
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server does not answer ({error.status.name}): the order may be carried out all the same; "
            "giving it again is safe"
        ) from error


_MOST_TASKS = 10_000


class ForgetResult(CarriedOut):
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


async def select_task_ids(client: Client, settings: Settings, selection: Selection) -> tuple[str, ...]:
    """Ids of the tasks that are meant, all of them over. Those that run have not ended before any moment.

    Raises:
        BadInput: there are none, or one still runs.
        Unreachable: whether one runs cannot be told without a server.
    """
    selection.require_one()
    async with aclosing(await open_store(settings)) as store:
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
        rows = await store.tasks(reader, _MOST_TASKS, ended_before=selection.ended_before)
    return rows


async def _over(client: Client, row: TaskRow) -> bool:
    return (await client.progress(row.ref.task_id)).progress.phase.over


async def forget(settings: Settings, task_ids: tuple[str, ...], *, everything: bool) -> ForgetResult:
    """Forget these tasks, which are over. Raises Unreachable without a server, BadInput, WrongKey."""
    async with aclosing(await open_store(settings)) as store:
        store_id = await store.store_id()
    order = ForgetOrder(
        store_id=store_id, tenant=tenant_hash(settings.tenant), task_ids=task_ids, everything=everything
    )
    target = find_target(settings)
    temporal = await connect_as_person(target, data_converter(settings))
    try:
        done = await forget_tasks(temporal, order, f"forget {len(task_ids)} of a tenant's tasks")
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server at {target.address} does not answer ({error.status.name}): the order may be carried "
            "out all the same; giving it again is safe"
        ) from error
    # The workers have deleted those of their home folder, which may be another one.
    own_files = without_reports(settings.reports_folder, task_ids) if everything else 0
    return ForgetResult(
        forgotten=done.forgotten,
        histories=done.histories,
        files=done.files + own_files,
        remains=describe_remaining_data(settings, everything=everything),
    )


def describe_remaining_data(settings: Settings, *, everything: bool) -> tuple[str, ...]:
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
