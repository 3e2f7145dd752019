"""Forgetting tasks and erasing a person: select them, check that no affected task runs, have the workers carry it out,
return the receipt.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from temporalio.service import RPCError

from waystation.client import Client
from waystation.client.person_search import PersonLocations, PersonSearch, connect_to_temporal
from waystation.client.schedules import ScheduleDescription
from waystation.config.settings import Settings
from waystation.erasure.erasure import (
    WANTED_TYPE,
    ErasureReceipt,
    ErasureResult,
    ForgetOrder,
    PersonErasureOrder,
    compute_fingerprints,
    sum_matches_by_location,
)
from waystation.erasure.report_files import rewrite_matching_reports
from waystation.kernel.erasure_locations import ErasureLocation
from waystation.kernel.errors import BadInput, Unreachable
from waystation.kernel.temporal_names import make_indexing_workflow_id
from waystation.kernel.text import format_count, format_first
from waystation.kernel.value import Value
from waystation.privacy.policy import VaultEntry
from waystation.reports.task_files import delete_task_files
from waystation.runtime.sql_store import SqlStore
from waystation.runtime.store_setup import build_client_data_converter, open_store
from waystation.runtime.temporal.connect import connect_as_person, resolve_temporal_target
from waystation.runtime.temporal.erasure_client import erase_person, forget_tasks, get_last_erasure, is_workflow_running
from waystation.security.placeholders import compute_fingerprint
from waystation.tasks.task import TaskRow, build_reader_scope, session_hash, tenant_hash

_ELSEWHERE = frozenset({ErasureLocation.VAULT, ErasureLocation.HISTORY, ErasureLocation.REPORT_FILE})
"""Locations that are not texts of the store: a running task does not write there."""

MAX_NAMED_TASKS = 5
"""Maximum number of tasks that a message names."""


class UnreachedLocation(Value):
    """A place that an erasure does not change, since Waystation cannot reach it or does not search it."""

    location: str
    """Short name, the same in every receipt."""
    description: str


UNREACHED_LOCATIONS = (
    UnreachedLocation(location="backups", description="backups of the database, memory and Temporal"),
    UnreachedLocation(location="copies of reports", description="exported, sent and printed copies of reports"),
    UnreachedLocation(
        location="other machines",
        description="files of reports and plans in home folders of other machines, until you run "
        "`waystation privacy erase` there",
    ),
    UnreachedLocation(
        location="encrypted reasoning", description="reasoning that the provider of a model has encrypted"
    ),
    UnreachedLocation(
        location="recipients",
        description="data that was sent to providers of models, embeddings and web search, to tool servers and web "
        "sites, and in notifications, webhooks and traces",
    ),
    UnreachedLocation(location="names of keys", description="names in the list of API keys"),
    UnreachedLocation(
        location="schedules", description="names and notes of schedules in Temporal, and the ids of their runs"
    ),
    UnreachedLocation(
        location="callers", description="user and host names of callers in workflow histories that are not deleted"
    ),
    UnreachedLocation(
        location="database files",
        description="files of PostgreSQL until `VACUUM FULL`, and of a Qdrant server until they are rewritten",
    ),
    UnreachedLocation(location="other tenants", description="data of other tenants"),
)
"""What every receipt names, whether or not it contains the person."""


class PersonErasureReceipt(Value):
    """The result of an erasure. It has no content, so it may be kept."""

    id: str
    at: datetime
    known_as: tuple[str, ...]
    """SHA-256 of each placeholder of the value."""
    found: dict[ErasureLocation, int]
    left: dict[ErasureLocation, int]
    originals: int
    """Number of entries deleted from the vault."""
    files: int
    """Number of report files rewritten, by the workers and on this machine."""
    histories_deleted: int
    histories_left: tuple[str, ...]
    """Ids of workflows whose histories still contain the person."""
    not_reached: tuple[UnreachedLocation, ...] = UNREACHED_LOCATIONS
    """Places that were neither searched nor changed, and may contain the person."""

    @classmethod
    def from_erasure(cls, done: ErasureResult) -> "PersonErasureReceipt":
        """Build the receipt of a finished order. More files may have been rewritten on this machine."""
        left = [one.workflow_id for one in done.order.histories if one not in done.order.histories_to_delete]
        return cls(
            id=done.id,
            at=done.at,
            known_as=compute_fingerprints(done.order.placeholders),
            found=sum_matches_by_location(done.found),
            left=sum_matches_by_location(done.remaining),
            originals=done.originals,
            files=done.files,
            histories_deleted=done.histories_deleted,
            histories_left=tuple(left),
        )


async def require_tasks_finished(client: Client, settings: Settings, found: PersonLocations) -> None:
    """Check that no affected task is running.

    Raises:
        BadInput: A task that has the person is not over, or its documents are still being indexed.
        Unreachable: There is no server, and only the server knows.
    """
    task_ids = sorted({trace.task_id for trace in found.traces if trace.place not in _ELSEWHERE})
    at_work = [one for one in task_ids if not (await client.get_task(one)).over]
    if at_work:
        verbs = "mentions this person and is" if len(at_work) == 1 else "mention this person and are"
        raise BadInput(f"{format_first(at_work, MAX_NAMED_TASKS)} {verbs} running: {_stop_or_wait(at_work)}")
    temporal = await connect_to_temporal(settings)
    async with _answering():
        remembered = [one for one in task_ids if await is_workflow_running(temporal, make_indexing_workflow_id(one))]
    if remembered:
        raise BadInput(
            f"the documents of {format_first(remembered, MAX_NAMED_TASKS)} are still being written to memory: "
            "try again later"
        )


def _stop_or_wait(running: Sequence[str]) -> str:
    """Say what a person can do about running tasks."""
    if len(running) == 1:
        return f"stop it with `waystation cancel {running[0]}`, or wait until it has ended"
    return "stop each with `waystation cancel TASK`, or wait until all have ended"


async def run_erasure(
    search: PersonSearch, found: PersonLocations, *, histories: bool, tell: Callable[[str], None] = lambda _: None
) -> PersonErasureReceipt:
    """Erase the person, and delete closed workflow histories that contain them if `histories`.

    `tell` is called with a short text whenever another step begins. Raises Unreachable without a server, BadInput,
    WrongKey.
    """
    temporal = await connect_to_temporal(search.settings)
    order = await create_erasure_order(search, found, histories=histories)
    async with _answering():
        receipt = PersonErasureReceipt.from_erasure(await erase_person(temporal, order, tell))
    # The workers have rewritten those of their own home folder, which may be another one.
    in_files = [trace.task_id for trace in found.traces if trace.place is ErasureLocation.REPORT_FILE]
    own_files = rewrite_matching_reports(search.settings.reports_folder, in_files, search.query)
    return receipt.replace(files=receipt.files + own_files)


async def load_last_receipt(search: PersonSearch) -> PersonErasureReceipt | None:
    """Return the receipt of the last order for this value, waiting for one that is running. None: Temporal has none.

    Raises:
        Unreachable: There is no server.
    """
    temporal = await connect_to_temporal(search.settings)
    async with _answering():
        done = await get_last_erasure(temporal, search.erasure_workflow_id)
    return None if done is None else PersonErasureReceipt.from_erasure(done)


async def is_erasure_running(search: PersonSearch) -> bool:
    """Return whether an order for this value is being carried out. Raises Unreachable without a server."""
    temporal = await connect_to_temporal(search.settings)
    async with _answering():
        return await is_workflow_running(temporal, search.erasure_workflow_id)


async def create_erasure_order(search: PersonSearch, found: PersonLocations, *, histories: bool) -> PersonErasureOrder:
    """Build the order; the value stays in the vault until it has been carried out."""
    tenant, value = tenant_hash(search.settings.tenant), search.query.value
    original = VaultEntry(
        type=WANTED_TYPE,
        placeholder=search.erasure_placeholder,
        fingerprint=compute_fingerprint(search.key, tenant, WANTED_TYPE, value),
        text=value,
    )
    await search.vault.store_originals(tenant, [original])
    return PersonErasureOrder(
        store_id=await search.store.get_store_id(),
        tenant=tenant,
        wanted_placeholder=search.erasure_placeholder,
        placeholders=search.query.placeholders,
        histories=found.histories,
        delete_histories=histories,
    )


@asynccontextmanager
async def _answering() -> AsyncGenerator[None]:
    """Translate Temporal's errors into Unreachable."""
    try:
        yield
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server does not answer ({error.status.name}): an erasure that was already requested may "
            "still happen. It is safe to run the command again"
        ) from error


_MAX_TASKS = 10_000


class ForgetResult(ErasureReceipt):
    """The result of forgetting tasks."""

    schedules: int = 0
    """Number of schedules that were removed, with their questions."""
    remains: tuple[str, ...] = ()
    """Sentences that say where some of it remains, and until when."""


@dataclass(frozen=True)
class TaskSelection:
    """Selects tasks by one of the first three criteria, by the time before which they ended, or by both, except for a
    single task.
    """

    session: str | None = None
    task: str | None = None
    all_of_tenant: bool = False
    ended_before: datetime | None = None

    @property
    def includes_schedules(self) -> bool:
        """Whether schedules are selected, too: a whole session has its own, and a tenant has all."""
        return self.ended_before is None and (self.session is not None or self.all_of_tenant)

    def require_single_criterion(self) -> None:
        """Raise BadInput if no criterion is given, or ones that exclude each other."""
        given = (self.session is not None) + (self.task is not None) + self.all_of_tenant
        if given > 1 or (not given and self.ended_before is None):
            raise BadInput(
                "choose what to forget: one of --session S, --task T and --all-of-tenant; or --before DATE, alone or "
                "with --session S"
            )
        if self.task is not None and self.ended_before is not None:
            raise BadInput("--task names one task, and --before does not apply to it: leave --before out")


async def select_task_ids(client: Client, settings: Settings, selection: TaskSelection) -> tuple[str, ...]:
    """Return the ids of the selected tasks, all of them over. A running task has not ended before any time.

    Raises:
        BadInput: There are none, or one still runs.
        Unreachable: There is no server to say whether one still runs.
    """
    selection.require_single_criterion()
    async with aclosing(await open_store(settings)) as store:
        rows = await _rows(client, store, settings, selection)
    if not rows:
        raise BadInput("no task in this store matches: `waystation list` shows the newest tasks")
    running = [row.ref.task_id for row in rows if not await _over(client, row)]
    if running and selection.ended_before is None:
        raise BadInput(
            f"{format_first(running, MAX_NAMED_TASKS)} {'is' if len(running) == 1 else 'are'} running: "
            f"{_stop_or_wait(running)}"
        )
    over = tuple(row.ref.task_id for row in rows if row.ref.task_id not in running)
    if not over:
        raise BadInput("all matching tasks are still running: `waystation list` shows them")
    return over


async def select_schedules(
    client: Client, tenant: str, selection: TaskSelection, *, everything: bool
) -> tuple[ScheduleDescription, ...]:
    """Return the schedules that are removed with the selected tasks: without their questions, no run could be asked.

    Only if everything is forgotten: otherwise the questions of the tasks stay, too. Raises Unreachable.
    """
    if not (everything and selection.includes_schedules):
        return ()
    found = await (await client.get_schedule_client()).list()
    session = None if selection.session is None else session_hash(tenant, selection.session)
    return tuple(one for one in found if session is None or one.view.order.session_ref.session == session)


async def _rows(client: Client, store: SqlStore, settings: Settings, selection: TaskSelection) -> Sequence[TaskRow]:
    if selection.task is not None:
        rows = [await store.get_task(await client.resolve_task_id(selection.task), build_reader_scope(settings.tenant))]
    else:
        reader = build_reader_scope(settings.tenant, selection.session)
        rows = await store.list_tasks(reader, _MAX_TASKS, ended_before=selection.ended_before)
    return rows


async def _over(client: Client, row: TaskRow) -> bool:
    return (await client.get_task(row.ref.task_id)).over


async def forget_tasks_and_schedules(
    client: Client, settings: Settings, selection: TaskSelection, task_ids: tuple[str, ...], *, everything: bool
) -> ForgetResult:
    """Forget the selected tasks, which are over; first remove the selected schedules, so that no run asks again.

    Raises Unreachable without a server, BadInput, WrongKey.
    """
    schedules = await select_schedules(client, settings.tenant, selection, everything=everything)
    for one in schedules:
        await (await client.get_schedule_client()).remove(one.name)
    gone = await forget_selected_tasks(settings, task_ids, everything=everything)
    return gone.replace(schedules=len(schedules))


async def forget_selected_tasks(settings: Settings, task_ids: tuple[str, ...], *, everything: bool) -> ForgetResult:
    """Forget these tasks, which are over. Raises Unreachable without a server, BadInput, WrongKey."""
    async with aclosing(await open_store(settings)) as store:
        store_id = await store.get_store_id()
    order = ForgetOrder(
        store_id=store_id, tenant=tenant_hash(settings.tenant), task_ids=task_ids, everything=everything
    )
    target = resolve_temporal_target(settings)
    temporal = await connect_as_person(target, build_client_data_converter(settings))
    try:
        done = await forget_tasks(temporal, order, f"forget {format_count(len(task_ids), 'task')} of one tenant")
    except RPCError as error:
        raise Unreachable(
            f"the Temporal server at {target.address} does not answer ({error.status.name}): workers may "
            "nevertheless forget the tasks. It is safe to run the command again"
        ) from error
    # The workers have deleted those of their own home folder, which may be another one.
    own_files = delete_task_files(settings.reports_folder, task_ids) if everything else 0
    return ForgetResult(
        removed=done.removed,
        histories=done.histories,
        files=done.files + own_files,
        remains=describe_remaining_data(settings, everything=everything),
    )


def describe_remaining_data(settings: Settings, *, everything: bool) -> tuple[str, ...]:
    """Return sentences on where forgotten data remains. Embedded memory and SQLite have overwritten theirs."""
    said = {
        "Transcripts, documents, reports and workflow histories remain. --everything deletes them too.": not everything,
        "The Temporal server needs a moment to delete the histories.": everything,
        "PostgreSQL's files can contain the forgotten data until `VACUUM FULL`.": settings.database_url.startswith(
            "postgresql"
        ),
        (
            "The Qdrant server no longer finds the forgotten data, but its files contain the data until its optimiser "
            "rewrites them (docs/how-to/forget-tasks.md)."
        ): (settings.qdrant_url is not None),
        "Backups of the database, memory and Temporal still contain the forgotten data.": True,
    }
    return tuple(sentence for sentence, holds in said.items() if holds)


def format_removed_counts(gone: ForgetResult) -> str:
    """Format how many items of each kind were removed, and what still has them."""
    counts = {**gone.removed.model_dump(), "histories": gone.histories, "files": gone.files}
    counts["schedules"] = gone.schedules
    listed = [_format_kind_count(kind, count) for kind, count in counts.items() if count]
    went = f"Forgotten: {', '.join(listed)}" if listed else "Nothing was left to forget."
    return "\n".join([went, *gone.remains])


_KIND_NAMES = {
    "work": ("note or result", "notes and results"),
    "audits": ("audit entry", "audit entries"),
    "histories": ("history", "histories"),
}
"""Singular and plural of the kinds whose names are not regular plurals."""


def _format_kind_count(kind: str, count: int) -> str:
    one, several = _KIND_NAMES.get(kind, (kind.removesuffix("s"), kind))
    return f"{count:,} {one if count == 1 else several}"
