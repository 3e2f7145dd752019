"""What the client tells of compactions: what they kept and lost, from the store alone or with memory beside it."""

from collections.abc import Mapping
from typing import NamedTuple

from waystation.adapters.store import SqlStore
from waystation.agents.auditor import Auditor
from waystation.agents.document_names import NamingRedactor
from waystation.agents.recollection import Recollection
from waystation.domain.compaction.audit import Audit
from waystation.domain.errors import BadInput
from waystation.domain.leg import RunRef
from waystation.domain.plan import PLANNING_ID, AgentRole
from waystation.domain.task import TaskRow
from waystation.domain.transcript import Transcript
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
    runs = await _runs(store, row, agent)
    compacted = {run: log for run, log in runs.items() if log.compactions}
    if not compacted:
        return ()
    # Presidio takes seconds and hundreds of megabytes, which nothing else of the client needs.
    from waystation.redactors import redactor_of  # noqa: PLC0415

    redactor = redactor_of(settings, await key_of(store, settings))
    try:
        recollection = Recollection(memory.memory, memory.embedder, redactor) if memory else None
        naming = NamingRedactor(redactor, store, row.ref.task_id)
        auditor = Auditor(naming, await store.passages_of(row.ref.task_id), recollection)
        found = [
            AgentAudits(agent=run.step_id, compactions=await auditor.audit(run, log)) for run, log in compacted.items()
        ]
    finally:
        redactor.close()
    return tuple(one for one in found if one.compactions)


async def _runs(store: SqlStore, row: TaskRow, agent: str | None) -> Mapping[RunRef, Transcript]:
    plan = await store.plan(row.ref.task_id)
    roles: dict[str, AgentRole] = {step.id: step.role for step in plan.steps} if plan else {}
    if plan:
        roles[PLANNING_ID] = "planning"
    if agent is not None and agent not in roles:
        raise BadInput(f"{row.ref.task_id} has no agent {agent!r}; it has {', '.join(roles) or 'none yet'}")
    runs = [
        RunRef(**row.ref.model_dump(), step_id=step_id, role=role)
        for step_id, role in roles.items()
        if agent is None or agent == step_id
    ]
    return {run: await store.load(run.run_id) for run in runs}
