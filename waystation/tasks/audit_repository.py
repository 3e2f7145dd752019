"""SQL repositories of the audit trail, document updates, task events, and the progress of sending traces.

A document update and its audit entry are one transaction. Earlier versions stay named in the audit trail, so that they
are kept, forgotten and erased with the task.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta

from pydantic import TypeAdapter
from sqlalchemy import Select, bindparam, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.agents.task_messages import TaskMessage, TaskNews
from waystation.context.transcript import Transcript
from waystation.documents.documents import (
    Document,
    DocumentChange,
    DocumentSet,
    DocumentsUpdate,
    RecordedDocumentsUpdate,
    apply_document_set,
    compute_document_changes,
)
from waystation.documents.text_repository import add_documents, build_document_row, load_task_documents
from waystation.kernel.ids import short_hash
from waystation.kernel.scopes import ReadScope, SystemScope, TaskScope, TenantScope
from waystation.kernel.value import DEFERRED
from waystation.security.untrusted import ToolDefinition
from waystation.store.encryption import bind_to_row
from waystation.store.engine import (
    SqlRepository,
    bind_reader,
    build_bound_owner_filter,
    build_owner_filter,
    fetch_bodies,
    insert_if_absent,
    iter_batches,
    read_transaction,
    write_transaction,
)
from waystation.store.schema import audit, charges, documents, event_heads, runs, task_events, tasks, trace_places
from waystation.tasks.events import EventPage, TaskEvent, build_audit_event
from waystation.tasks.signals import DOCUMENTS_UPDATE_PREFIX, TASK_MESSAGE_PREFIX, make_audit_entry_id
from waystation.tasks.task import AuditEntry, TaskConfig
from waystation.tasks.task_repository import build_unknown_task_error, parse_charge_row, require_task
from waystation.tasks.traces import RunTraceData, TaskTraceData, TraceCursor, find_touched_agents

TOOL_DEFINITION_PREFIX = "tool-"
"""Prefix of the entry IDs of first tool definitions, which are no one's decisions."""
ENTRY: TypeAdapter[AuditEntry] = TypeAdapter(AuditEntry, config=DEFERRED)


class SqlAuditRepository(SqlRepository):
    """`AuditRepository` in SQL, and what agents read of it."""

    @write_transaction
    async def add_audit_entry(self, connection: AsyncConnection, task_id: str, entry: AuditEntry) -> None:
        """Append an approval or an edit (one entry each for opened and settled), or a rejected message.

        Raises UnknownTask.
        """
        await require_task(connection, task_id)
        if await insert_if_absent(connection, audit, build_audit_row(task_id, entry)):
            self._tell(connection, task_id, build_audit_event(entry))

    @read_transaction
    async def list_audit_entries(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[AuditEntry, ...]:
        """Return the audit trail, oldest first; an entry repeated by a retried activity appears once."""
        trail = (
            _of(task_id, reader).where(~audit.c.entry_id.startswith(TOOL_DEFINITION_PREFIX)).order_by(audit.c.ordinal)
        )
        return tuple(ENTRY.validate_json(body) for body in await fetch_bodies(connection, trail))

    @read_transaction
    async def list_task_messages(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[TaskMessage, ...]:
        """What people told the task at work, in the order of their numbers."""
        return _messages(await _entries(connection, task_id, TASK_MESSAGE_PREFIX, reader))

    @read_transaction
    async def load_task_news(self, connection: AsyncConnection, task: TaskScope) -> TaskNews:
        """What people told the task, and what became of its documents: one statement, which most turns ask in vain."""
        rows = (await connection.execute(_NEWS, bind_reader(task))).all()
        bodies = {
            beginning: [body for entry_id, body, _ in rows if entry_id.startswith(beginning)]
            for beginning in (TASK_MESSAGE_PREFIX, DOCUMENTS_UPDATE_PREFIX)
        }
        return TaskNews(_messages(bodies[TASK_MESSAGE_PREFIX]), _parsed_updates(bodies[DOCUMENTS_UPDATE_PREFIX]))

    @write_transaction
    async def store_first_tool_definitions(
        self, connection: AsyncConnection, task_id: str, now: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition, ...]:
        """Store what these tools were like when the task first had them, and return that, in order.

        Raises UnknownTask.
        """
        ids = [f"{TOOL_DEFINITION_PREFIX}{short_hash(one.server, one.tool)}" for one in now]
        known = await _defined(connection, task_id)
        if missing := [(id_, one) for id_, one in zip(ids, now, strict=True) if id_ not in known]:
            await require_task(connection, task_id)
            for id_, one in missing:
                row = {"task_id": task_id, "entry_id": id_, "body": bind_to_row(one.model_dump_json(), task_id, id_)}
                await insert_if_absent(connection, audit, row)
            known = await _defined(connection, task_id)  # another agent may have been first
        return tuple(known[id_] for id_ in ids)


_NEWS = (
    select(audit.c.entry_id, audit.c.body, tasks.c.terms)
    .join(tasks, tasks.c.task_id == audit.c.task_id)
    .where(
        audit.c.task_id == bindparam("reader_task_id"),
        build_bound_owner_filter(tasks, TaskScope),
        or_(audit.c.entry_id.startswith(TASK_MESSAGE_PREFIX), audit.c.entry_id.startswith(DOCUMENTS_UPDATE_PREFIX)),
    )
)


def _messages(bodies: Iterable[str]) -> tuple[TaskMessage, ...]:
    return tuple(sorted(map(TaskMessage.model_validate_json, bodies), key=lambda message: message.number))


async def _defined(connection: AsyncConnection, task_id: str) -> dict[str, ToolDefinition]:
    own = (audit.c.task_id == task_id, audit.c.entry_id.startswith(TOOL_DEFINITION_PREFIX))
    rows = (await connection.execute(select(audit.c.entry_id, audit.c.body).where(*own))).all()
    return {id_: ToolDefinition.model_validate_json(body) for id_, body in rows}


async def _entries(connection: AsyncConnection, task_id: str, beginning: str, reader: ReadScope) -> Sequence[str]:
    """Return the bodies of a task's entries whose IDs have this prefix."""
    begun = _of(task_id, reader).where(audit.c.entry_id.startswith(beginning))
    return await fetch_bodies(connection, begun)


def build_audit_row(task_id: str, entry: AuditEntry) -> dict[str, object]:
    """Build the table row of an entry."""
    name = make_audit_entry_id(entry)
    return {"task_id": task_id, "entry_id": name, "body": bind_to_row(entry.model_dump_json(), task_id, name)}


def _of(task_id: str, reader: ReadScope) -> Select[str, str]:
    joined = select(audit.c.body, tasks.c.terms).join(tasks, tasks.c.task_id == audit.c.task_id)
    return joined.where(audit.c.task_id == task_id, build_owner_filter(tasks, reader))


class SqlEventRepository(SqlRepository):
    """Events of a tenant's tasks, in commit order."""

    @read_transaction
    async def list_events(
        self, connection: AsyncConnection, reader: TenantScope, after: int, limit: int, task_id: str | None = None
    ) -> EventPage:
        """Return the reader's first events after a number, of one task or of all."""
        later = select(task_events).where(task_events.c.tenant == reader.tenant, task_events.c.number > after)
        if task_id is not None:
            later = later.where(task_events.c.task_id == task_id)
        rows = (await connection.execute(later.order_by(task_events.c.number).limit(limit))).mappings().all()
        named = {str(row["task_id"]) for row in rows}
        own: set[str] = set()
        for batch in iter_batches(named):
            mine = select(tasks.c.task_id, tasks.c.terms).where(
                tasks.c.task_id.in_(batch), build_owner_filter(tasks, reader)
            )
            own.update(await fetch_bodies(connection, mine))
        found = tuple(TaskEvent.model_validate(row, extra="ignore") for row in rows if row["task_id"] in own)
        return EventPage(events=found, upto=max([after, *(row["number"] for row in rows)]))

    @read_transaction
    async def get_newest_event_number(self, connection: AsyncConnection, reader: TenantScope) -> int:
        """Return the number of the tenant's newest event; 0 before the first."""
        newest = select(event_heads.c.number).where(event_heads.c.tenant == reader.tenant)
        return (await connection.execute(newest)).scalar_one_or_none() or 0


_NOBODY = ""
"""Used as the tenant of the row that holds the trace lease."""


class SqlTraceRepository(SqlRepository):
    """Data of traces, and how far they were sent."""

    @write_transaction
    async def acquire_trace_lease(self, connection: AsyncConnection, holder: str, lease: timedelta) -> bool:
        """Acquire or renew the lease to send spans. Return whether this process holds it.

        The first call ever marks where tracing begins: earlier events of a task are sent only with its next one.
        """
        if await insert_if_absent(connection, trace_places, {"tenant": _NOBODY, "since": 0, "sent": 0}):
            heads = (await connection.execute(select(event_heads.c.tenant, event_heads.c.number))).all()
            if begun := [{"tenant": tenant, "since": number, "sent": number} for tenant, number in heads]:
                await connection.execute(insert(trace_places), begun)
        now, held = self._clock(), trace_places.c.held_until
        free = or_(trace_places.c.holder == holder, held.is_(None), held < now)
        taken = update(trace_places).where(trace_places.c.tenant == _NOBODY, free)
        return (await connection.execute(taken.values(holder=holder, held_until=now + lease))).rowcount == 1

    @read_transaction
    async def list_unsent_tenant_traces(self, connection: AsyncConnection, limit: int) -> tuple[TraceCursor, ...]:
        """Return the next unsent events of each tenant that has some, at most `limit` each."""
        since, sent = func.coalesce(trace_places.c.since, 0), func.coalesce(trace_places.c.sent, 0)
        joined = select(event_heads.c.tenant, since, sent).join(
            trace_places, trace_places.c.tenant == event_heads.c.tenant, isouter=True
        )
        places: list[TraceCursor] = []
        for tenant, begun, gone in (await connection.execute(joined.where(event_heads.c.number > sent))).all():
            later = select(task_events.c.number, task_events.c.task_id).where(
                task_events.c.tenant == tenant, task_events.c.number > gone
            )
            page = (await connection.execute(later.order_by(task_events.c.number).limit(limit))).all()
            if page:
                tasks_of_page = tuple(dict.fromkeys(row.task_id for row in page))
                upto = page[-1].number
                places.append(TraceCursor(tenant=tenant, since=begun, sent=gone, upto=upto, tasks=tasks_of_page))
        return tuple(places)

    @read_transaction
    async def load_task_trace_data(
        self, connection: AsyncConnection, cursor: TraceCursor, task_id: str
    ) -> tuple[TaskTraceData, int] | None:
        """Load the data of a task's trace, with empty transcripts.

        Also returns the event number up to which its spans were sent.

        Returns:
            None if the tenant has no such task.
        """
        reader = TenantScope(tenant=cursor.tenant)
        own = select(tasks.c.session, tasks.c.terms).where(
            tasks.c.task_id == task_id, build_owner_filter(tasks, reader)
        )
        if (row := (await connection.execute(own)).one_or_none()) is None:
            return None
        mine = (task_events.c.tenant == cursor.tenant, task_events.c.task_id == task_id)
        told = select(task_events).where(*mine, task_events.c.number <= cursor.upto).order_by(task_events.c.number)
        rows = (await connection.execute(told)).mappings()
        events = tuple(TaskEvent.model_validate(row, extra="ignore") for row in rows)
        after = cursor.get_last_sent_number(events)
        task = TaskTraceData(
            task_id=task_id,
            tenant=cursor.tenant,
            session=row.session,
            model=TaskConfig.model_validate_json(row.terms).default.model,
            events=events,
            runs=await _runs(connection, task_id, find_touched_agents(events, after)),
            definitions=tuple((await _defined(connection, task_id)).values()),
        )
        return task, after

    @write_transaction
    async def mark_traces_sent(self, connection: AsyncConnection, cursor: TraceCursor) -> None:
        """Mark everything up to the cursor as sent."""
        row = {"tenant": cursor.tenant, "since": cursor.since, "sent": cursor.upto}
        if not await insert_if_absent(connection, trace_places, row):
            moved = update(trace_places).where(
                trace_places.c.tenant == cursor.tenant, trace_places.c.sent < cursor.upto
            )
            await connection.execute(moved.values(sent=cursor.upto))


async def _runs(connection: AsyncConnection, task_id: str, agents: frozenset[str]) -> Mapping[str, RunTraceData]:
    chosen = select(runs.c.run_id, runs.c.step_id, runs.c.role, runs.c.proof).where(runs.c.task_id == task_id)
    found: dict[str, RunTraceData] = {}
    for row in (await connection.execute(chosen)).all():
        if row.step_id in agents:
            paid = select(charges).where(charges.c.run_id == row.run_id).order_by(charges.c.ordinal)
            own = tuple(parse_charge_row(one) for one in (await connection.execute(paid)).mappings())
            found[row.step_id] = RunTraceData(role=row.role, transcript=Transcript(run_id=row.run_id), charges=own)
    return found


class SqlDocumentsUpdateRepository(SqlRepository):
    """`DocumentUpdateRepository` in SQL."""

    @write_transaction
    async def update_documents(
        self, connection: AsyncConnection, task_id: str, update: DocumentsUpdate, document_set: DocumentSet
    ) -> RecordedDocumentsUpdate:
        """Replace the task's documents by these versions. The same number twice changes nothing.

        The texts must be in the store already. Raises UnknownTask.
        """
        locked = select(tasks.c.ordinal).where(tasks.c.task_id == task_id).with_for_update()
        if (await connection.execute(locked)).one_or_none() is None:
            raise build_unknown_task_error(task_id)
        known = {one.number: one for one in await _updates(connection, task_id, SystemScope())}
        if update.number in known:
            return known[update.number]
        before = await load_task_documents(connection, task_id, SystemScope())
        after = apply_document_set(before, document_set)
        kept = _kept(update, compute_document_changes(before, after))
        await _put(connection, task_id, before, after)
        if await insert_if_absent(connection, audit, build_audit_row(task_id, kept)):
            self._tell(connection, task_id, build_audit_event(kept))
        return kept

    @read_transaction
    async def list_document_updates(
        self, connection: AsyncConnection, task_id: str, reader: ReadScope
    ) -> tuple[RecordedDocumentsUpdate, ...]:
        """Return the updates of the running task's documents, by number."""
        return await _updates(connection, task_id, reader)


async def _updates(connection: AsyncConnection, task_id: str, reader: ReadScope) -> tuple[RecordedDocumentsUpdate, ...]:
    return _parsed_updates(await _entries(connection, task_id, DOCUMENTS_UPDATE_PREFIX, reader))


def _parsed_updates(entries: Iterable[str]) -> tuple[RecordedDocumentsUpdate, ...]:
    # A change is written with its kind, which is computed of its other fields.
    kept = [RecordedDocumentsUpdate.model_validate_json(entry, extra="ignore") for entry in entries]
    return tuple(sorted(kept, key=lambda one: one.number))


def _kept(update: DocumentsUpdate, changes: Sequence[DocumentChange]) -> RecordedDocumentsUpdate:
    kinds = [change.kind for change in changes]
    counts = {kind: kinds.count(kind) for kind in ("changed", "added", "removed")}
    return RecordedDocumentsUpdate.model_validate(
        {**update.model_dump(), **counts, "stored": True, "changes": tuple(changes)}
    )


async def _put(
    connection: AsyncConnection, task_id: str, before: Sequence[Document], after: Sequence[Document]
) -> None:
    for position, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            this = update(documents).where(documents.c.task_id == task_id, documents.c.position == position)
            await connection.execute(this.values(build_document_row(task_id, position, new)))
    await add_documents(connection, task_id, after[len(before) :], len(before))
