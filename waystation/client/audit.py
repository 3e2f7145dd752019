"""What the client tells of compactions: what they kept and lost, from the store alone or with memory beside it."""

from typing import NamedTuple

from waystation.adapters.store import SqlStore
from waystation.agents.auditor import Auditor
from waystation.agents.document_names import NamingRedactor
from waystation.agents.recollection import Recollection
from waystation.client.agents import agents_of
from waystation.domain.compaction.audit import Audit
from waystation.domain.task import TaskRow
from waystation.domain.value import Value
from waystation.ports import Embedder, Memory
from waystation.settings import Settings
from waystation.stores import key_of


class SearchedMemory(NamedTuple):
    """Memory, opened by whoever may hold it, and the embedder that it was made with."""

    memory: Memory
    embedder: Embedder


class AgentAudits(Value):
    """The compactions that stand in one agent's view."""

    agent: str
    compactions: tuple[Audit, ...]


async def audits(
    settings: Settings, store: SqlStore, row: TaskRow, agent: str | None, memory: SearchedMemory | None
) -> tuple[AgentAudits, ...]:
    """Of one agent, or of each that has any. Without memory, recall is judged by the passages that the store keeps.

    Raises BadInput for an agent that the task does not have, RedactionFailed, and MemoryUnavailable where memory was
    given and does not answer.
    """
    task = row.ref
    logs = {
        one: await store.load(f"{task.task_id}/{one}", task.reader)
        for one in await agents_of(store, task.task_id, task.reader, agent)
    }
    compacted = {one: log for one, log in logs.items() if log.compactions}
    if not compacted:
        return ()
    # Presidio takes seconds and hundreds of megabytes, which nothing else of the client needs.
    from waystation.redactors import redactor_of  # noqa: PLC0415

    redactor = redactor_of(settings, await key_of(store, settings))
    try:
        recollection = Recollection(memory.memory, memory.embedder, redactor) if memory else None
        naming = NamingRedactor(redactor, store, task.reader)
        auditor = Auditor(naming, await store.passages_of(task.task_id, task.reader), recollection)
        found = [AgentAudits(agent=one, compactions=await auditor.audit(task, log)) for one, log in compacted.items()]
    finally:
        redactor.close()
    return tuple(one for one in found if one.compactions)
