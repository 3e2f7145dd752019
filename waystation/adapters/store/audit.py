"""The audit trail of tasks: approvals asked for and answered, edits of contexts, and messages that had no effect."""

from collections.abc import Sequence
from datetime import UTC

from pydantic import TypeAdapter
from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from waystation.adapters.store.engine import add_once
from waystation.adapters.store.part import StorePart, owned, reading, writing
from waystation.adapters.store.schema import audit, tasks
from waystation.adapters.store.sealed import bound
from waystation.adapters.store.tasks import require_task
from waystation.domain.compaction.edit import ContextEdit
from waystation.domain.document_changes import KeptUpdate
from waystation.domain.foreign_tools import ToolDefinition
from waystation.domain.ownership import Reader
from waystation.domain.task import Approval, AuditEntry, Refusal, Resolution, short_hash
from waystation.domain.telling import Telling

TOLD = "told-"
"""The ids of tellings begin so: agents look for them at every turn."""
UPDATED = "documents-"
"""And those of updates of the documents, for which they look as well."""
DEFINED = "tool-"
"""And those of what tools of others were like at first, which are no decisions of anybody."""
ENTRY: TypeAdapter[AuditEntry] = TypeAdapter(AuditEntry)


class SqlAudit(StorePart):
    """The audit of the port `TaskStore`."""

    @writing
    async def audit(self, connection: AsyncConnection, task_id: str, entry: AuditEntry) -> None:
        """Append an approval or an edit (each asked for and settled), or a refused message. Raises UnknownTask."""
        await require_task(connection, task_id)
        await add_once(connection, audit, entry_row(task_id, entry))

    @reading
    async def audit_trail(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[AuditEntry, ...]:
        """Everything audited, oldest first; the same entry twice (a retried activity) is one."""
        trail = _of(task_id, reader).where(~audit.c.entry_id.startswith(DEFINED)).order_by(audit.c.ordinal)
        bodies = (await connection.execute(trail)).scalars().all()
        return tuple(ENTRY.validate_json(body) for body in bodies)

    @reading
    async def tellings(self, connection: AsyncConnection, task_id: str, reader: Reader) -> tuple[Telling, ...]:
        """What people told the task at work, in the order of their numbers."""
        told = map(Telling.model_validate_json, await entries(connection, task_id, TOLD, reader))
        return tuple(sorted(told, key=lambda telling: telling.number))

    @writing
    async def first_definitions(
        self, connection: AsyncConnection, task_id: str, now: Sequence[ToolDefinition]
    ) -> tuple[ToolDefinition, ...]:
        """What each of these tools was like when the task first had it, in their order. Raises UnknownTask."""
        ids = [f"{DEFINED}{short_hash(one.server, one.tool)}" for one in now]
        known = await _defined(connection, task_id)
        if missing := [(id_, one) for id_, one in zip(ids, now, strict=True) if id_ not in known]:
            await require_task(connection, task_id)
            for id_, one in missing:
                row = {"task_id": task_id, "entry_id": id_, "body": bound(one.model_dump_json(), task_id, id_)}
                await add_once(connection, audit, row)
            known = await _defined(connection, task_id)  # another agent may have been first
        return tuple(known[id_] for id_ in ids)


async def _defined(connection: AsyncConnection, task_id: str) -> dict[str, ToolDefinition]:
    own = (audit.c.task_id == task_id, audit.c.entry_id.startswith(DEFINED))
    rows = (await connection.execute(select(audit.c.entry_id, audit.c.body).where(*own))).all()
    return {id_: ToolDefinition.model_validate_json(body) for id_, body in rows}


async def entries(connection: AsyncConnection, task_id: str, beginning: str, reader: Reader) -> Sequence[str]:
    """Bodies of those entries of a task whose ids begin so."""
    begun = _of(task_id, reader).where(audit.c.entry_id.startswith(beginning))
    return (await connection.execute(begun)).scalars().all()


def entry_row(task_id: str, entry: AuditEntry) -> dict[str, object]:
    """The entry as its table has it."""
    name = entry_id(entry)
    return {"task_id": task_id, "entry_id": name, "body": bound(entry.model_dump_json(), task_id, name)}


def _of(task_id: str, reader: Reader) -> Select[str]:
    joined = select(audit.c.body).join(tasks, tasks.c.task_id == audit.c.task_id)
    return joined.where(audit.c.task_id == task_id, owned(tasks, reader))


def entry_id(entry: AuditEntry) -> str:
    """By which the same entry twice is one."""
    match entry:
        case Approval():
            return short_hash("approval", entry.request_id, entry.decision)
        case Refusal():
            return short_hash("refusal", entry.signal, entry.reason, entry.at.astimezone(UTC).isoformat())
        case ContextEdit():
            return short_hash("edit", entry.agent, entry.id, entry.state)
        case Telling():
            return f"{TOLD}{entry.number}"
        case KeptUpdate():
            return f"{UPDATED}{entry.number}"
        case Resolution():
            return short_hash("resolution", entry.agent, entry.call_id, *entry.placeholders)
