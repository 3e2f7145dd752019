"""The first message of an agent run: what was asked, what this step is, and what is there to work with."""

from collections.abc import Sequence
from dataclasses import dataclass

from waystation.agents.contract_text import ContractParts, Room
from waystation.agents.delegating import assignment
from waystation.agents.document_names import document_names
from waystation.agents.earlier import EarlierTasks
from waystation.agents.procedures import procedures_of
from waystation.agents.recollection import Recollection
from waystation.domain.delegation import parent_of
from waystation.domain.errors import MemoryUnavailable, StoreError
from waystation.domain.excerpts import Excerpt
from waystation.domain.foreign_text import Tagged, one_line, tagged
from waystation.domain.leg import RunRef
from waystation.domain.memory import MemoryScope
from waystation.domain.messages import Message, user_text
from waystation.domain.plan import Plan, Step
from waystation.domain.privacy import Place
from waystation.domain.procedures import Malformed, evidence
from waystation.domain.redaction import redaction_notes
from waystation.domain.request_text import counted
from waystation.domain.work import Findings
from waystation.ports import DocumentStore, Redactor, TaskStore, TranscriptStore, WorkStore

STARTING_TOKENS = 1_000
"""Recalled before the first turn."""


@dataclass(frozen=True)
class ContractWriter:
    """Writes contracts from what the store holds."""

    transcripts: TranscriptStore
    tasks: TaskStore
    documents: DocumentStore
    work: WorkStore
    recollection: Recollection
    redactor: Redactor

    async def write(self, run: RunRef, message_id: str, notices: list[str], room: Room) -> Message:
        """The contract, as far as it has room, redacted as everything that a model sees.

        `notices` takes what a person should know. Raises RedactionFailed, StoreError.
        """
        goal, assigned = await self._assigned(run)
        row = await self.tasks.task(run.task_id, run.reader)
        procedures = await procedures_of(row, self.documents)
        if unusable := sum(isinstance(one, Malformed) for one in procedures):
            notices.append(f"{counted(unusable, 'procedure')} cannot be used; the contract of each agent says why.")
        names = await document_names(await self.documents.documents(run.task_id, run.reader), self.redactor, run.tenant)
        parts = ContractParts(
            request=row.request,
            earlier=await EarlierTasks(self.tasks, self.documents).named(row, room.window),
            documents=evidence(names.as_shown),
            procedures=procedures,
            role=run.role,
            goal=goal,
            assigned=assigned,
            recalled=await self._recalled(run, goal, row.terms.agent.memory, notices),
        )
        (redacted,) = await self.redactor.redact([parts.text(room)], Place.CONTRACT, run.tenant)
        notices.extend(redaction_notes(redacted))
        return user_text(message_id, redacted.text)

    async def _assigned(self, run: RunRef) -> tuple[str, Sequence[Tagged]]:
        """The goal, and the parts of the contract that are this agent's own."""
        parent = parent_of(run.step_id)
        return await (self._of_step(run) if parent is None else self._of_subagent(run, parent))

    async def _of_step(self, run: RunRef) -> tuple[str, Sequence[Tagged]]:
        """The goal, the step, and what it builds on."""
        plan = await self.tasks.plan(run.task_id, run.reader)
        if plan is None:
            raise StoreError(f"task {run.task_id} has no plan in the store")
        step = plan.step(run.step_id)
        own = _step_part(step.id, step.role, step.title, step.goal)
        return step.goal, [own, *await self._needs(run, plan, step)]

    async def _of_subagent(self, run: RunRef, parent: str) -> tuple[str, Sequence[Tagged]]:
        """The goal, what its parent asked for, and what that gave it to know."""
        asked = assignment(await self.transcripts.load(f"{run.task_id}/{parent}", run.reader), run.step_id)
        own = _step_part(run.step_id, run.role, asked.title, asked.goal)
        known = [tagged("context", asked.context, **{"from": parent})] if asked.context else []
        to_whom = tagged("result", f"What you hand in goes to the agent {parent}, which asked for it.")
        return asked.goal, [own, *known, to_whom]

    async def _needs(self, run: RunRef, plan: Plan, step: Step) -> Sequence[Tagged]:
        lines: list[str] = []
        for need in (plan.step(step_id) for step_id in step.needs):
            deliverable = await self.work.deliverable(f"{run.task_id}/{need.id}", run.reader)
            count = f"{len(deliverable.findings)} findings, " if isinstance(deliverable, Findings) else ""
            lines.append(f"- step {need.id} ({one_line(need.title)}): {count}read with read_findings")
        return [tagged("needs", *lines)] if lines else []

    async def _recalled(self, run: RunRef, goal: str, scope: MemoryScope, notices: list[str]) -> Sequence[Excerpt]:
        """Earlier work of the session on this goal."""
        try:
            return await self.recollection.unasked(run, goal, STARTING_TOKENS, scope)
        except MemoryUnavailable:
            notices.append("Memory did not answer at the start of a run; the agent went on without it.")
            return ()


def _step_part(step_id: str, role: str, title: str, goal: str) -> Tagged:
    """A plan is a model's words over documents: its goals are followed, and are no other part of the contract."""
    return tagged("step", goal, id=step_id, role=role, title=one_line(title))
