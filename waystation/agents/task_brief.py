"""The first message of an agent run: what was asked, what this step is, and what is there to work with.

The text of a contract: its parts in their tags, what all agents of a task share first; how much of each fits.

What an agent can know of the earlier tasks of its session: that there are some, and what their reports say.

The procedures of a task, as agents are told of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from waystation.agents.decisions import Resolution
from waystation.agents.delegation import parent_of
from waystation.agents.deliverables import Findings
from waystation.agents.prompt_sections import Allocation, Layer, Part, allocate, share_of
from waystation.agents.tools.delegate import assignment
from waystation.context.tokens import estimate_text
from waystation.context.transcript import Message, user_text
from waystation.documents.documents import REMOVED_NAME, Document
from waystation.documents.procedures import (
    DESCRIPTION_CHARACTERS,
    LEAST_FIT,
    MOST_PROCEDURES,
    Malformed,
    Procedure,
    first_of_each_name,
    usable,
)
from waystation.documents.redacted import document_names
from waystation.kernel.errors import MemoryUnavailable, StoreError, TextMissing
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.roles import AgentRole, role_spec
from waystation.kernel.text import counted
from waystation.memory.archive import Recollection, as_records
from waystation.memory.memory import Excerpt, MemoryScope
from waystation.planning.plan import Plan, Step
from waystation.privacy.policy import Place, redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import Tagged, followed, one_line, tagged
from waystation.store.ports import Store
from waystation.tasks.task import TaskRequest, TaskRow


def procedures_of(row: TaskRow) -> tuple[Procedure | Malformed, ...]:
    """What agents can follow of them, and what not."""
    given = row.request.procedures
    read = [usable(one) for one in given[:MOST_PROCEDURES]]
    over = f"a task has {MOST_PROCEDURES} procedures at most"
    return (*first_of_each_name(read), *(Malformed(document=one.name, reason=over) for one in given[MOST_PROCEDURES:]))


def as_procedure(procedure: Procedure) -> Tagged:
    """As a model reads it: whose it is, and that no line of it ends it; behind a skill what its files are called."""
    shown = tagged("procedure", procedure.text, name=one_line(procedure.name))
    names = ", ".join(one_line(file.name) for file in procedure.files)
    return followed(shown, f"Files of it, which read_skill_file shows: {names}.") if names else shown


def listed(found: Sequence[Procedure | Malformed], more: str = "") -> Tagged | None:
    """By name and description, then how many more there are; None where there are none."""
    if not found and not more:
        return None
    lines = [
        f"- {one_line(one.name)}: {one_line(one.description, DESCRIPTION_CHARACTERS)}"
        if isinstance(one, Procedure)
        else f"- {one_line(one.document)} cannot be used: {one.reason}"
        for one in found
    ]
    note = "The user's: follow those that fit your step; read_skill shows them. They are no evidence: never cite them."
    return tagged("procedures", *lines, *([more] if more else []), note=note)


NAMED_DOCUMENTS = 100
HELD = (Layer.RUNTIME, Layer.SHORT_TERM, Layer.EPISODIC, Layer.SEMANTIC, Layer.OBSERVATIONS, Layer.WORK)
"""Layers that fill when the agent works: their shares are kept for that."""
_LISTED = 1.0
"""The names of procedures outlive their texts: who knows the name can read them."""


@dataclass(frozen=True)
class Room:
    """What a contract may take."""

    window: int
    fixed: int
    """Estimated tokens of system prompt and tools."""


class NamedDocuments(NamedTuple):
    """Documents that may be cited."""

    first: Sequence[Document]
    """As many as are told of, under the names that agents know."""
    total: int
    """Of all that there are."""


async def first_named(listed: Sequence[Document], redactor: Redactor, tenant: str) -> NamedDocuments:
    """Of a task's documents. No more names are redacted than are told. Raises RedactionFailed."""
    names = await document_names(listed[:NAMED_DOCUMENTS], redactor, tenant)
    return NamedDocuments(names.as_shown, len(listed))


@dataclass(frozen=True)
class ContractParts:
    """Everything that may be in a contract, as a model reads it once it is redacted."""

    request: TaskRequest
    documents: NamedDocuments
    procedures: Sequence[Procedure | Malformed]
    role: AgentRole
    goal: str
    assigned: Sequence[Tagged]
    """The step and what it builds on, each in its tag."""
    recalled: Sequence[Excerpt]
    earlier: Tagged | None = None
    """What there is of earlier tasks of the session, in its tag."""

    def text(self, room: Room) -> str:
        """What of it has room, the stable parts first."""
        allocation = allocate(room.window, self._demands(room))
        kept = {name for row in allocation.rows for name in row.kept if name not in row.gave_way}
        named = [one for one in self.documents.first if f"document {one.name}" in kept]
        task = tagged(
            "task",
            *self._firm_head,
            documents_part(named, self.documents.total),
            *filter(None, [self._procedures_listed(kept)]),
            *self.assigned,
        )
        shown = (as_procedure(one) for one in self._relevant if f"text {one.document}" in kept)
        return "\n".join([task, *shown, *self._recalled(allocation)])

    def _demands(self, room: Room) -> Mapping[Layer, Sequence[Part]]:
        firm = "\n".join([*self._firm_head, *self.assigned])
        return {
            Layer.SYSTEM: [Part(name="system and tools", tokens=room.fixed, firm=True)],
            Layer.CONTRACT: [Part(name="task", tokens=estimate_text(firm), firm=True)],
            **{layer: [Part(name="held", tokens=share_of(layer, room.window), divisible=True)] for layer in HELD},
            Layer.PROCEDURAL: [*self._procedural_parts],
            Layer.RETRIEVED: [*self._retrieved_parts],
        }

    @property
    def _firm_head(self) -> Sequence[Tagged]:
        form = [tagged("output", told)] if (told := role_spec(self.role).form) else []
        earlier = [self.earlier] if self.earlier else []
        return [*request_parts(self.request), *form, *deadline_part(self.request), *earlier]

    @property
    def _relevant(self) -> Sequence[Procedure]:
        known = [one for one in self.procedures if isinstance(one, Procedure) and not one.skill]
        return [one for one in known if one.relevance(self.goal) >= LEAST_FIT]

    @property
    def _procedural_parts(self) -> Iterator[Part]:
        for one in self.procedures:
            yield Part(name=f"name {one.document}", tokens=estimate_text(listed([one]) or ""), relevance=_LISTED)
        for one in self._relevant:
            tokens, relevance = estimate_text(as_procedure(one)), one.relevance(self.goal)
            yield Part(name=f"text {one.document}", tokens=tokens, relevance=min(relevance, 0.99))

    @property
    def _retrieved_parts(self) -> Iterator[Part]:
        for number, excerpt in enumerate(self.recalled):
            yield Part(name=f"passage {number}", tokens=excerpt.tokens, relevance=excerpt.best.score)
        for one in self.documents.first:
            yield Part(name=f"document {one.name}", tokens=estimate_text(_named(one) + "\n"))

    def _procedures_listed(self, kept: set[str]) -> Tagged | None:
        shown = [one for one in self.procedures if f"name {one.document}" in kept]
        more = len(self.procedures) - len(shown)
        return listed(shown, f"- and {more} more, which read_skill names" if more else "")

    def _recalled(self, allocation: Allocation) -> Sequence[Tagged]:
        kept = allocation.row(Layer.RETRIEVED).kept
        shown = as_records([one for number, one in enumerate(self.recalled) if f"passage {number}" in kept])
        return [shown] if shown else []


def task_parts(request: TaskRequest, documents: NamedDocuments) -> Sequence[Tagged]:
    """Question, instructions, criteria and documents, each in its tag."""
    return [*request_parts(request), documents_part(*documents)]


def request_parts(request: TaskRequest) -> Sequence[Tagged]:
    """What the user asked for, each in its tag."""
    parts = [tagged("question", request.question)]
    if request.instructions:
        parts.append(tagged("instructions", request.instructions))
    if request.accept:
        parts.append(tagged("accept", *(f"- {criterion}" for criterion in request.accept)))
    return parts


def deadline_part(request: TaskRequest) -> Sequence[Tagged]:
    """Until when a person is waited for, where that was decided in advance."""
    ahead = request.unattended
    if ahead.answer_by is None or ahead.then == "wait":
        return []
    by = f"{ahead.answer_by:%Y-%m-%d %H:%M %Z}".strip()
    return [tagged("deadline", f"{by}: from then on nobody is waited for; hand in before the budget is spent.")]


def documents_part(named: Sequence[Document], count: int) -> Tagged:
    """These documents by name, and how many more there are."""
    lines = [_named(document) for document in named]
    if len(named) < count:
        lines.append(f"- and {count - len(named)} more; list_documents shows them")
    return tagged("documents", *lines, count=str(count))


def _named(document: Document) -> str:
    return f"- {one_line(document.name)} ({REMOVED_NAME if document.removed else f'{document.lines} lines'})"


_MOST_NAMED = 10
WINDOW_SHARE = 20
"""At most this part of a window tells of earlier tasks."""
_HEAD = (
    "Earlier tasks of this session, the newest first. `recall` finds passages of their reports, findings and "
    "conversations; `expand` with the id of one shows its report."
)


@dataclass(frozen=True)
class EarlierTasks:
    """Of one session; of its tenant, where an agent recalls as widely."""

    store: Store

    async def named(self, own: TaskRow, window: int) -> Tagged | None:
        """Tasks that were over before this one was handed in, and have a report: by id, day and redacted title, as many
        of the newest as fit. None without any.
        """
        shown, room = list[str](), window // WINDOW_SHARE - estimate_text(_HEAD)
        for line in await self._lines(own.ref, own.submitted_at):
            room -= estimate_text(line)
            if room < 0:
                break
            shown.append(line)
        return _part(shown)

    async def most_tokens(self, ref: TaskRef, at: datetime) -> int:
        """Estimated tokens of what a task that is submitted now is told, in a window where all of it fits."""
        return estimate_text(_part(await self._lines(ref, at)) or "")

    async def _lines(self, ref: TaskRef, at: datetime) -> Sequence[str]:
        rows = [row for row in await self.store.tasks(ref.reader.recalling("session")) if _is_earlier(row, ref, at)]
        return [_line(row) for row in rows[:_MOST_NAMED]]

    async def report(self, run: RunRef, task: str, scope: MemoryScope) -> str | None:
        """The whole report of a task that the agent may look into, by its id or the beginning of it; else None."""
        reader = run.reader.recalling(scope)
        found = await self.store.find_tasks(task, reader)
        row = await self.store.task(found[0], reader) if len(found) == 1 else None
        version = row.progress.readable if row is not None and row.progress is not None else None
        if version is None:
            return None
        try:
            return await self.store.get_text(version.report, reader)
        except TextMissing:  # it was forgotten
            return None


def _part(lines: Sequence[str]) -> Tagged | None:
    return tagged("session", _HEAD, *lines) if lines else None


def _is_earlier(row: TaskRow, own: TaskRef, submitted_at: datetime) -> bool:
    return (
        row.ref != own
        and row.submitted_at <= submitted_at
        and row.progress is not None
        and row.progress.phase.over
        and row.progress.report is not None
    )


def _line(row: TaskRow) -> str:
    phase = row.progress.phase if row.progress is not None else ""
    return f"- {row.ref.task_id} ({row.submitted_at:%Y-%m-%d}, {phase}): {one_line(row.title)}"


STARTING_TOKENS = 1_000
"""Recalled before the first turn."""
RECALL: Final = "recall"
"""The name of the tool, also where a run begins with what it would find."""


@dataclass(frozen=True)
class ContractWriter:
    """Writes contracts from what the store holds."""

    store: Store
    recollection: Recollection
    redactor: Redactor

    async def write(self, run: RunRef, message_id: str, notices: list[str], room: Room) -> Message:
        """The contract, as far as it has room, redacted as everything that a model sees.

        `notices` takes what a person should know. Raises RedactionFailed, StoreError.
        """
        goal, assigned = await self._assigned(run)
        row = await self.store.task(run.task_id, run.reader)
        procedures = procedures_of(row)
        if unusable := sum(isinstance(one, Malformed) for one in procedures):
            notices.append(f"{counted(unusable, 'procedure')} cannot be used; the contract of each agent says why.")
        listed = await self.store.documents(run.task_id, run.reader)
        parts = ContractParts(
            request=row.request,
            earlier=await EarlierTasks(self.store).named(row, room.window),
            documents=await first_named(listed, self.redactor, run.tenant),
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
        plan = await self.store.plan(run.task_id, run.reader)
        if plan is None:
            raise StoreError(f"task {run.task_id} has no plan in the store")
        step = plan.step(run.step_id)
        own = _step_part(step.id, step.role, step.title, step.goal)
        return step.goal, [own, *await self._needs(run, plan, step)]

    async def _of_subagent(self, run: RunRef, parent: str) -> tuple[str, Sequence[Tagged]]:
        """The goal, what its parent asked for, and what that gave it to know."""
        asked = assignment(await self.store.load(f"{run.task_id}/{parent}", run.reader), run.step_id)
        own = _step_part(run.step_id, run.role, asked.title, asked.goal)
        known = [tagged("context", asked.context, **{"from": parent})] if asked.context else []
        to_whom = tagged("result", f"What you hand in goes to the agent {parent}, which asked for it.")
        return asked.goal, [own, *known, to_whom]

    async def _needs(self, run: RunRef, plan: Plan, step: Step) -> Sequence[Tagged]:
        lines: list[str] = []
        for need in (plan.step(step_id) for step_id in step.needs):
            deliverable = await self.store.deliverable(f"{run.task_id}/{need.id}", run.reader)
            count = f"{len(deliverable.findings)} findings, " if isinstance(deliverable, Findings) else ""
            lines.append(f"- step {need.id} ({one_line(need.title)}): {count}read with read_findings")
        return [tagged("needs", *lines)] if lines else []

    async def _recalled(self, run: RunRef, goal: str, scope: MemoryScope, notices: list[str]) -> Sequence[Excerpt]:
        """Earlier work of the session on this goal."""
        try:
            found = await self.recollection.unasked(run, goal, STARTING_TOKENS, scope)
        except MemoryUnavailable:
            notices.append("Memory did not answer at the start of a run; the agent went on without it.")
            return ()
        return await audited(self.store, run, "", found)


async def audited(store: Store, run: RunRef, call_id: str, found: Sequence[Excerpt]) -> Sequence[Excerpt]:
    """What was recalled, once the audit trail says which placeholders are names in it. Raises StoreError."""
    if restored := frozenset[str]().union(*[turn.restored for one in found for turn in one.turns]):
        entry = Resolution(agent=run.step_id, tool=RECALL, call_id=call_id, placeholders=tuple(sorted(restored)))
        await store.audit(run.task_id, entry)
    return found


def _step_part(step_id: str, role: str, title: str, goal: str) -> Tagged:
    """A plan is a model's words over documents: its goals are followed, and are no other part of the contract."""
    return tagged("step", goal, id=step_id, role=role, title=one_line(title))
