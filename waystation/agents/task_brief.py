"""The task brief, first message of an agent run: the request, the step, procedures, earlier tasks, recalled passages.

Parts are in tags; the allocator decides how much of each fits. Those that all agents of a task share come first, but
material comes before the question: models answer better if long texts stand before what is asked about them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple, Protocol

from waystation.agents.action_approvals import PlaceholderResolution
from waystation.agents.delegation import get_parent_id
from waystation.agents.deliverables import ReportLength, count_work
from waystation.agents.material import MATERIAL_DIVISOR, list_source_steps, render_material
from waystation.agents.ports import (
    AgentTask,
    AgentTaskRequest,
    EarlierTasks,
    PlaceholderAudit,
    TaskSource,
    TranscriptReader,
    WorkRepository,
)
from waystation.agents.prompt_sections import (
    PromptAllocation,
    PromptCandidate,
    PromptSection,
    allocate_prompt,
    compute_request_limit,
    compute_section_tokens,
)
from waystation.agents.tools.delegate import parse_assignment
from waystation.agents.tools.submissions import TaskDeliverables, load_task_deliverables
from waystation.context.tokens import estimate_text
from waystation.context.transcript import Message, build_user_message
from waystation.documents.documents import REMOVED_NAME, Document
from waystation.documents.procedures import (
    DESCRIPTION_CHARACTERS,
    MAX_PROCEDURES,
    MIN_RELEVANCE,
    InvalidProcedure,
    Procedure,
    parse_procedure,
    reject_duplicate_names,
)
from waystation.documents.redacted_documents import build_document_names
from waystation.kernel.errors import MemoryUnavailable, StoreError
from waystation.kernel.refs import RunRef
from waystation.kernel.roles import AgentRole, get_role_spec
from waystation.kernel.text import format_count
from waystation.memory.indexing import MemoryRecall, render_recalled_excerpts
from waystation.memory.passages import MemoryExcerpt, MemoryScope
from waystation.planning.plan import Step
from waystation.planning.ports import PlanReader
from waystation.privacy.policy import TextDestination, build_redaction_notes
from waystation.privacy.ports import Redactor
from waystation.security.untrusted import (
    SafeMarkup,
    join_safe_markup,
    sanitize_line,
    wrap_untrusted,
    wrap_untrusted_line,
)


def parse_procedures(row: AgentTask) -> tuple[Procedure | InvalidProcedure, ...]:
    """Parse a task's procedures, with the reason for each that cannot be used."""
    given = row.request.procedures
    read = [parse_procedure(one) for one in given[:MAX_PROCEDURES]]
    over = f"the task already has {MAX_PROCEDURES} other procedures, which is the maximum"
    return (
        *reject_duplicate_names(read),
        *(InvalidProcedure(document=one.name, reason=over) for one in given[MAX_PROCEDURES:]),
    )


def render_procedure(procedure: Procedure) -> SafeMarkup:
    """Render a procedure for a model, in a tag that no line of it can close.

    A skill is followed by the names of its files.
    """
    shown = wrap_untrusted("procedure", procedure.text, name=sanitize_line(procedure.name))
    names = ", ".join(sanitize_line(file.name) for file in procedure.files)
    return (
        join_safe_markup(shown, f"Files of this procedure, which read_skill_file shows: {names}.") if names else shown
    )


def render_procedure_listing(found: Sequence[Procedure | InvalidProcedure], more: str = "") -> SafeMarkup | None:
    """Render names and descriptions, then the number of further procedures; None if there are none."""
    if not found and not more:
        return None
    lines = [
        f"- {sanitize_line(one.name)}: {sanitize_line(one.description, DESCRIPTION_CHARACTERS)}"
        if isinstance(one, Procedure)
        else f"- {sanitize_line(one.document)} cannot be used: {one.reason}"
        for one in found
    ]
    note = (
        "The user's procedures: follow those that fit your step; read_skill shows them. They are not evidence: never "
        "cite them."
    )
    return wrap_untrusted("procedures", *lines, *([more] if more else []), note=note)


MAX_LISTED_DOCUMENTS = 100
RESERVED_SECTIONS = (
    PromptSection.RUNTIME,
    PromptSection.SHORT_TERM,
    PromptSection.EPISODIC,
    PromptSection.SEMANTIC,
    PromptSection.OBSERVATIONS,
    PromptSection.WORK,
)
"""Sections that fill while the agent works: their shares are kept free for that."""
_LISTED = 1.0
"""Relevance of names, above that of texts: an agent that knows the name can read the procedure."""


@dataclass(frozen=True)
class PromptSpace:
    """Space for a task brief, in estimated tokens."""

    window: int
    fixed_tokens: int
    """Estimated tokens of system prompt and tools."""
    trigger: int | None = None
    """Size of a request at which the context counts as full; None: the maximum size of a request."""

    def compute_material_tokens(self, brief_tokens: int) -> int:
        """Return the space for material in a brief that has this many tokens without it."""
        full = compute_request_limit(self.window)
        full = full if self.trigger is None else min(full, self.trigger)
        return max(0, full - self.fixed_tokens - brief_tokens) // MATERIAL_DIVISOR


@dataclass(frozen=True)
class StepInputs:
    """The steps that a step builds on, and what they have submitted."""

    there: TaskDeliverables
    steps: Sequence[Step]
    """See `list_source_steps`."""

    def render_needs(self, step: Step) -> Sequence[SafeMarkup]:
        """Render the steps that this one names as its needs."""
        lines: list[str] = []
        for need in map(self.there.plan.get_step, step.needs):
            counts = [format_count(count, noun) for noun, count in self._count(need) if count]
            lines.append(f"- step {need.id} ({sanitize_line(need.title)}): {', '.join(counts) or 'nothing'}")
        return [wrap_untrusted("needs", *lines)] if lines else []

    def _count(self, step: Step) -> Iterator[tuple[str, int]]:
        counts = count_work(self.there.get_result(step.id), self.there.notes.get(step.id, ()))
        yield ("conclusion" if step.role == "analysis" else "finding"), counts.findings
        yield "section", counts.sections
        yield "note", counts.notes

    @property
    def finding_count(self) -> int:
        """Number of findings of all of them."""
        return sum(len(self.there.findings[step.id].findings) for step in self.steps if step.id in self.there.findings)


class AgentBriefParts(NamedTuple):
    """The parts of a task brief for one agent alone."""

    goal: str
    parts: Sequence[SafeMarkup]
    """The step, and what it builds on, each in its tag."""
    inputs: StepInputs | None = None


LENGTH_WORDS: Mapping[ReportLength, int] = {"short": 400, "medium": 1_000, "long": 2_500}
"""Words of a report by the length that a person asked for."""
WORDS_PER_FINDING, BASE_WORDS = 40, 300
"""Without a requested length, a report has this many words for each finding, and this many more."""
MAX_WORDS_BY_MATERIAL = 4_000


def render_report_length(length: ReportLength | None, inputs: StepInputs) -> SafeMarkup:
    """Render how long the report should be: as a person asked for, or else by its material."""
    if length is not None:
        return wrap_untrusted("length", f"{length}: about {LENGTH_WORDS[length]:,} words, not counting tables.")
    found = inputs.finding_count
    words = min(MAX_WORDS_BY_MATERIAL, BASE_WORDS + WORDS_PER_FINDING * found) // 100 * 100
    return wrap_untrusted(
        "length",
        f"At most about {words:,} words for {format_count(found, 'finding')}, not counting tables; "
        "fewer if few findings matter.",
    )


class DocumentListing(NamedTuple):
    """Documents that may be cited."""

    first: Sequence[Document]
    """The first documents, under the names that agents know."""
    total: int
    """Total number of documents."""


async def build_document_listing(listed: Sequence[Document], redactor: Redactor, tenant: str) -> DocumentListing:
    """Build the listing of a task's documents. Only the names shown are redacted. Raises RedactionFailed."""
    names = await build_document_names(listed[:MAX_LISTED_DOCUMENTS], redactor, tenant)
    return DocumentListing(names.shown_documents, len(listed))


@dataclass(frozen=True)
class BriefContext:
    """Everything that a task brief may contain, before redaction."""

    request: AgentTaskRequest
    submitted_at: datetime
    documents: DocumentListing
    procedures: Sequence[Procedure | InvalidProcedure]
    role: AgentRole
    goal: str
    assignment: Sequence[SafeMarkup]
    """The step and what it builds on, each in its tag."""
    recalled: Sequence[MemoryExcerpt]
    earlier_tasks: SafeMarkup | None = None
    """Earlier tasks of the session, in its tag."""
    inputs: StepInputs | None = None
    """What the step builds on, for agents that work from it."""
    material: Sequence[SafeMarkup] = ()
    """As much of what the step builds on as fits, each part in its tag."""

    def text(self, room: PromptSpace) -> str:
        """Render as much as fits."""
        return self._with_material(room)._text(room)

    def _with_material(self, room: PromptSpace) -> "BriefContext":
        """Return the context with as much material as fits next to everything that cannot be left out."""
        if self.inputs is None:
            return self
        space = room.compute_material_tokens(estimate_text("\n".join([*self._firm_head, *self.assignment])))
        return replace(self, material=render_material(self.inputs.there, self.inputs.steps, space))

    def _text(self, room: PromptSpace) -> str:
        allocation = allocate_prompt(room.window, self._demands(room))
        kept = {name for row in allocation.rows for name in row.included if name not in row.omitted}
        named = [one for one in self.documents.first if f"document {one.name}" in kept]
        listed = [
            render_document_list(named, self.documents.total),
            *filter(None, [self._procedures_listed(kept)]),
        ]
        asked = [*listed, *self.material, *self._firm_head] if self.material else [*self._firm_head, *listed]
        task = wrap_untrusted("task", *asked, *self.assignment)
        shown = (render_procedure(one) for one in self._relevant if f"text {one.document}" in kept)
        return "\n".join([task, *shown, *self._recalled(allocation)])

    def _demands(self, room: PromptSpace) -> Mapping[PromptSection, Sequence[PromptCandidate]]:
        firm = "\n".join([*self._firm_head, *self.material, *self.assignment])
        return {
            PromptSection.SYSTEM: [PromptCandidate(name="system and tools", tokens=room.fixed_tokens, required=True)],
            PromptSection.TASK_BRIEF: [PromptCandidate(name="task", tokens=estimate_text(firm), required=True)],
            **{
                layer: [PromptCandidate(name="held", tokens=compute_section_tokens(layer, room.window), divisible=True)]
                for layer in RESERVED_SECTIONS
            },
            PromptSection.PROCEDURAL: [*self._procedural_parts],
            PromptSection.RETRIEVED: [*self._retrieved_parts],
        }

    @property
    def _firm_head(self) -> Sequence[SafeMarkup]:
        form = [wrap_untrusted("output", told)] if (told := get_role_spec(self.role).form) else []
        earlier = [self.earlier_tasks] if self.earlier_tasks else []
        asked = render_question_and_criteria(self.request, self.submitted_at)
        return [*asked, *form, *render_answer_deadline(self.request), *earlier]

    @property
    def _relevant(self) -> Sequence[Procedure]:
        known = [one for one in self.procedures if isinstance(one, Procedure) and not one.skill]
        return [one for one in known if one.relevance(self.goal) >= MIN_RELEVANCE]

    @property
    def _procedural_parts(self) -> Iterator[PromptCandidate]:
        for one in self.procedures:
            yield PromptCandidate(
                name=f"name {one.document}",
                tokens=estimate_text(render_procedure_listing([one]) or ""),
                relevance=_LISTED,
            )
        for one in self._relevant:
            tokens, relevance = estimate_text(render_procedure(one)), one.relevance(self.goal)
            yield PromptCandidate(name=f"text {one.document}", tokens=tokens, relevance=min(relevance, 0.99))

    @property
    def _retrieved_parts(self) -> Iterator[PromptCandidate]:
        for number, excerpt in enumerate(self.recalled):
            yield PromptCandidate(name=f"passage {number}", tokens=excerpt.tokens, relevance=excerpt.best_turn.score)
        for one in self.documents.first:
            yield PromptCandidate(name=f"document {one.name}", tokens=estimate_text(_named(one) + "\n"))

    def _procedures_listed(self, kept: set[str]) -> SafeMarkup | None:
        shown = [one for one in self.procedures if f"name {one.document}" in kept]
        more = len(self.procedures) - len(shown)
        return render_procedure_listing(shown, f"- and {more} more, which read_skill names" if more else "")

    def _recalled(self, allocation: PromptAllocation) -> Sequence[SafeMarkup]:
        kept = allocation.get_row(PromptSection.RETRIEVED).included
        shown = render_recalled_excerpts(
            [one for number, one in enumerate(self.recalled) if f"passage {number}" in kept]
        )
        return [shown] if shown else []


def render_task_parts(
    request: AgentTaskRequest, submitted_at: datetime, documents: DocumentListing, more: Sequence[SafeMarkup] = ()
) -> Sequence[SafeMarkup]:
    """Render documents, `more` about them, question, date, instructions and criteria, each in its tag."""
    return [render_document_list(*documents), *more, *render_question_and_criteria(request, submitted_at)]


def render_question_and_criteria(request: AgentTaskRequest, submitted_at: datetime) -> Sequence[SafeMarkup]:
    """Render what the user asked for and on which day (UTC), each part in its tag.

    The day is in the first message rather than in the system prompt, which stays the same for all tasks so that the
    provider can cache it.
    """
    parts = render_question(request, submitted_at)
    if request.instructions:
        parts.append(wrap_untrusted("instructions", request.instructions))
    if request.accept:
        parts.append(wrap_untrusted("accept", *(f"- {criterion}" for criterion in request.accept)))
    return parts


def render_question(request: AgentTaskRequest, submitted_at: datetime) -> list[SafeMarkup]:
    """Render the question and its day, each in its tag."""
    today = f"{submitted_at.astimezone(UTC):%A, %Y-%m-%d}"
    return [wrap_untrusted("question", request.question), wrap_untrusted_line("today", today)]


def render_answer_deadline(request: AgentTaskRequest) -> Sequence[SafeMarkup]:
    """Render the deadline after which no person is waited for, if it was set in advance."""
    ahead = request.unattended
    if ahead.answer_by is None or ahead.at_deadline == "wait":
        return []
    by = f"{ahead.answer_by:%Y-%m-%d %H:%M %Z}".strip()
    return [
        wrap_untrusted(
            "deadline",
            f"{by}: after this time, no one approves more budget or tool calls; submit before your budget is spent.",
        )
    ]


def render_document_list(named: Sequence[Document], count: int) -> SafeMarkup:
    """Render the names of these documents, and the number of the others."""
    lines = [_named(document) for document in named]
    if len(named) < count:
        lines.append(f"- and {count - len(named)} more; list_documents shows all")
    return wrap_untrusted("documents", *lines, count=str(count))


def _named(document: Document) -> str:
    size = f"{format_count(document.lines, 'line')}{document.date_suffix}"
    return f"- {sanitize_line(document.name)} ({REMOVED_NAME if document.removed else size})"


STARTING_TOKENS = 1_000
"""Maximum tokens recalled before the first turn."""
RECALL: Final = "recall"
"""Name of the tool, also for what is recalled at the start of a run."""


class BriefSource(TaskSource, PlanReader, WorkRepository, TranscriptReader, PlaceholderAudit, Protocol):
    """What a task brief is built from."""


@dataclass(frozen=True)
class BriefBuilder:
    """Builds task briefs from the store."""

    store: BriefSource
    memory_recall: MemoryRecall
    redactor: Redactor
    earlier_tasks: EarlierTasks

    async def build_message(self, run: RunRef, message_id: str, notes: list[str], room: PromptSpace) -> Message:
        """Build the task brief, as much as fits, redacted like everything that a model sees.

        Args:
            run: The agent run.
            message_id: ID of the message.
            notes: Receives what a person should know.
            room: Space for the task brief.

        Raises:
            RedactionFailed: The task brief could not be redacted.
            StoreError: The store does not answer.
        """
        row = await self.store.get_task(run.task_id, run.scope)
        assigned = await self._assigned(run, row.request)
        procedures = parse_procedures(row)
        if unusable := sum(isinstance(one, InvalidProcedure) for one in procedures):
            notes.append(
                f"{format_count(unusable, 'procedure')} cannot be used; `waystation transcript` shows why, in "
                "the first message to each agent."
            )
        listed = await self.store.list_documents(run.task_id, run.scope)
        parts = BriefContext(
            request=row.request,
            submitted_at=row.submitted_at,
            earlier_tasks=await self.earlier_tasks.render_listing(row, room.window),
            documents=await build_document_listing(listed, self.redactor, run.tenant),
            procedures=procedures,
            role=run.role,
            goal=assigned.goal,
            assignment=assigned.parts,
            recalled=await self._recalled(run, assigned.goal, row.config.default.memory, notes),
            inputs=assigned.inputs,
        )
        (redacted,) = await self.redactor.redact([parts.text(room)], TextDestination.TASK_BRIEF, run.tenant)
        notes.extend(build_redaction_notes(redacted))
        return build_user_message(message_id, redacted.text)

    async def _assigned(self, run: RunRef, request: AgentTaskRequest) -> AgentBriefParts:
        """Return the parts of the task brief for this agent alone."""
        parent = get_parent_id(run.step_id)
        return await (self._of_step(run, request) if parent is None else self._of_subagent(run, parent))

    async def _of_step(self, run: RunRef, request: AgentTaskRequest) -> AgentBriefParts:
        """Return the goal, the step, and what it builds on."""
        plan = await self.store.get_newest_plan(run.task_id, run.scope)
        if plan is None:
            raise StoreError(f"task {run.task_id} has no plan in the store")
        step = plan.get_step(run.step_id)
        own = _step_part(step.id, step.role, step.title, step.goal)
        if not step.needs:
            return AgentBriefParts(step.goal, [own])
        inputs = StepInputs(await load_task_deliverables(run.scope, self.store), list_source_steps(plan, step))
        parts = [own, *inputs.render_needs(step)]
        if step.role == "writing":
            parts.append(render_report_length(request.length, inputs))
        return AgentBriefParts(step.goal, parts, inputs)

    async def _of_subagent(self, run: RunRef, parent: str) -> AgentBriefParts:
        """Return the goal, the parent's assignment and its context."""
        asked = parse_assignment(await self.store.load_transcript(f"{run.task_id}/{parent}", run.scope), run.step_id)
        own = _step_part(run.step_id, run.role, asked.title, asked.goal)
        known = [wrap_untrusted("context", asked.context, **{"from": parent})] if asked.context else []
        to_whom = wrap_untrusted("result", f"What you submit goes to the agent {parent}, which started you.")
        return AgentBriefParts(asked.goal, [own, *known, to_whom])

    async def _recalled(self, run: RunRef, goal: str, scope: MemoryScope, notes: list[str]) -> Sequence[MemoryExcerpt]:
        """Recall earlier work of the session on this goal."""
        try:
            found = await self.memory_recall.find_relevant(run, goal, STARTING_TOKENS, scope)
        except MemoryUnavailable:
            notes.append("Memory did not answer when an agent started; the agent continued without it.")
            return ()
        return await record_restored_placeholders(self.store, run, "", found)


async def record_restored_placeholders(
    store: PlaceholderAudit, run: RunRef, call_id: str, found: Sequence[MemoryExcerpt]
) -> Sequence[MemoryExcerpt]:
    """Return the excerpts after recording in the audit trail which placeholders are restored in them.

    Raises StoreError.
    """
    if restored := frozenset[str]().union(*[turn.restored_placeholders for one in found for turn in one.turns]):
        entry = PlaceholderResolution(
            agent=run.step_id, tool=RECALL, call_id=call_id, placeholders=tuple(sorted(restored))
        )
        await store.add_audit_entry(run.task_id, entry)
    return found


def _step_part(step_id: str, role: str, title: str, goal: str) -> SafeMarkup:
    """Render the step.

    A plan is a model's words over documents: its goals are followed, but cannot imitate other parts.
    """
    return wrap_untrusted("step", goal, id=step_id, role=role, title=sanitize_line(title))
