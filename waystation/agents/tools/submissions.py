"""Tools that submit findings, analyses and reports, and show what earlier steps submitted.

Deliverables can be derived from the conversation alone, so that they can be rewound with it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from pydantic import Field

from waystation.agents.citation_feedback import (
    NOT_FINAL,
    SubmissionChecker,
    is_kept_submission,
    may_be_mended,
)
from waystation.agents.delegation import SUBAGENT_ID_SEPARATOR, get_step_id
from waystation.agents.deliverables import (
    DEFAULT_CONFIDENCE,
    MAX_DETAIL_CHARACTERS,
    Analysis,
    Deliverable,
    Finding,
    Note,
    OutlineSection,
    ReportDraft,
    ReportSection,
    ResearchFindings,
    build_findings_from_notes,
)
from waystation.agents.ports import WorkRepository
from waystation.agents.prompt_sections import extract_question
from waystation.agents.tool_visibility import FIRST, make_urgency
from waystation.agents.tools.tool import ToolCallRejectedError, ToolContext, ToolInput, TypedTool, select_page_lines
from waystation.context.history import get_effective_transcript
from waystation.context.transcript import Message, Transcript
from waystation.kernel.scopes import TaskScope
from waystation.kernel.text import format_count
from waystation.planning.plan import Plan
from waystation.planning.ports import PlanReader


class SubmissionInput(ToolInput):
    """Arguments of a call that submits something."""

    @abstractmethod
    def build_deliverable(self, before: Deliverable | None) -> Deliverable:
        """Build the deliverable after the call, given the one before it."""


SubmissionT = TypeVar("SubmissionT", bound=SubmissionInput)


class SubmissionTool(TypedTool[SubmissionT]):
    """Stores what its arguments make of the run's deliverable, so that a pause can show it."""

    permission = "submit"
    strict = True

    def __init__(self, store: WorkRepository, checker: SubmissionChecker) -> None:
        self._store, self._checker = store, checker

    async def run(self, arguments: SubmissionT, ctx: ToolContext) -> str:
        """Store the deliverable, and return the result of the check of its citations and cited sentences."""
        submitted = arguments.build_deliverable(await self._store.get_deliverable(ctx.run.run_id, ctx.run.scope))
        self.validate(arguments, submitted, ctx)
        result = self.describe(arguments, submitted)
        part = submitted if self.ends_run else arguments.build_deliverable(None)
        question = extract_question(ctx.transcript)
        review = await self._checker.review(submitted, part, ctx.run.task_ref, ctx.document_names, question)
        await self._store.commit_deliverable(ctx.fence, ctx.run.task_id, review.deliverable)
        if review.has_faults and self.ends_run and may_be_mended(self.name, ctx.transcript, ctx.used_share):
            raise ToolCallRejectedError(f"{review.text}\n{NOT_FINAL}")
        return "\n".join(filter(None, [result, review.text]))

    def validate(self, arguments: SubmissionT, submitted: Deliverable, ctx: ToolContext) -> None:
        """Raise ToolCallRejectedError if it cannot be submitted, or not yet."""

    @abstractmethod
    def describe(self, arguments: SubmissionT, submitted: Deliverable) -> str:
        """Describe what the call has submitted, and what is next."""


def _validate_details(findings: Iterable[Finding], noun: str) -> None:
    long = [
        f"the detail of {noun} {number} has {len(finding.detail):,}"
        for number, finding in enumerate(findings, 1)
        if len(finding.detail) > MAX_DETAIL_CHARACTERS
    ]
    if long:
        raise ToolCallRejectedError(
            f"A detail may have at most {MAX_DETAIL_CHARACTERS:,} characters; {', '.join(long)}. Shorten long details, "
            f"or divide the {noun}s, and submit all {noun}s again."
        )


class SubmitAnalysisInput(SubmissionInput):
    """Conclusions, contradictions and gaps."""

    conclusions: tuple[Finding, ...] = Field(description="The answer to the question first.")
    contradictions: tuple[str, ...] = Field(
        default=(),
        description="Only contradictions that remain unexplained, each once: what each side says, with citations, and "
        "which side to follow.",
    )
    gaps: tuple[str, ...] = Field(default=(), description="What the findings do not cover, and what you assumed.")

    def build_deliverable(self, before: Deliverable | None) -> Analysis:  # noqa: ARG002
        """Build the analysis; an earlier deliverable is ignored."""
        return Analysis(conclusions=self.conclusions, contradictions=self.contradictions, gaps=self.gaps)


class SubmitAnalysisTool(SubmissionTool[SubmitAnalysisInput]):
    """Submits the analysis and ends the run."""

    name = "submit_analysis"
    description = (
        "Submits your whole analysis in one call and ends your work. Citations are checked: if one does not hold, the "
        "call's result says why. Then submit all again."
    )
    ends_run = True
    input_model = SubmitAnalysisInput

    def validate(self, arguments: SubmitAnalysisInput, submitted: Deliverable, ctx: ToolContext) -> None:  # noqa: ARG002
        """See base class."""
        _validate_details(arguments.conclusions, "conclusion")

    def describe(self, arguments: SubmitAnalysisInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        return f"analysis with {format_count(len(arguments.conclusions), 'conclusion')} submitted"


class SubmitFindingsInput(SubmissionInput):
    """Findings and open questions."""

    findings: tuple[Finding, ...] = Field(description="The most important first.")
    open_questions: tuple[str, ...] = Field(
        default=(),
        description="What remains open and why, what you assumed, and what you did not find: where you searched, and "
        "with which words.",
    )

    def build_deliverable(self, before: Deliverable | None) -> ResearchFindings:  # noqa: ARG002
        """Build the findings; an earlier deliverable is ignored."""
        return ResearchFindings(findings=self.findings, open_questions=self.open_questions)


class SubmitFindingsTool(SubmissionTool[SubmitFindingsInput]):
    """Submits findings and ends the run."""

    name = "submit_findings"
    description = (
        "Submits all your findings in one call and ends your work. Citations are checked: if one does not hold, the "
        "call's result says why. Then submit all again."
    )
    ends_run = True
    input_model = SubmitFindingsInput

    def validate(self, arguments: SubmitFindingsInput, submitted: Deliverable, ctx: ToolContext) -> None:  # noqa: ARG002
        """See base class."""
        _validate_details(arguments.findings, "finding")

    def describe(self, arguments: SubmitFindingsInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        return f"{format_count(len(arguments.findings), 'finding')} submitted"


class WriteOutlineInput(SubmissionInput):
    """Title and sections of the report."""

    title: str = Field(min_length=1, max_length=300)
    sections: tuple[OutlineSection, ...] = Field(
        min_length=1, max_length=40, description="In order, without the summary."
    )

    def build_deliverable(self, before: Deliverable | None) -> ReportDraft:
        """Build the draft with this outline. Sections that are written already stay."""
        return get_report_draft(before).replace(outline=self.sections, outline_title=self.title)


class WriteOutlineTool(SubmissionTool[WriteOutlineInput]):
    """Plans the sections of the report."""

    name = "write_outline"
    description = (
        "Plans the report before you write it; the first sections may follow in the same reply. A second call replaces "
        "the outline; written sections stay. Returns what is still to write."
    )
    input_model = WriteOutlineInput

    def describe(self, arguments: WriteOutlineInput, submitted: Deliverable) -> str:
        """See base class."""
        count = format_count(len(arguments.sections), "section")
        return f"outline kept, with {count}\n{_describe_missing_sections(get_report_draft(submitted))}"


def _describe_missing_sections(draft: ReportDraft) -> str:
    """Return what is left of the outline; empty without one."""
    if not draft.outline:
        return ""
    if not draft.missing_sections:
        return "All sections of the outline are written: check them against the question, then call submit_report."
    return f"Still to write: {'; '.join(map(render_outline_section, draft.missing_sections))}"


def render_outline_section(section: OutlineSection) -> str:
    """Render heading and coverage on one line."""
    return f"“{_flatten(section.heading)}” ({_flatten(section.covers)})"


class WriteSectionInput(SubmissionInput):
    """One section of the report."""

    heading: str = Field(min_length=1, max_length=200)
    markdown: str = Field(
        min_length=1,
        max_length=60_000,
        description="Text below the heading (subheadings: ###), each claim with its citation [document:first-last].",
    )

    def build_deliverable(self, before: Deliverable | None) -> ReportDraft:
        """Build the draft with this section added, or replaced in its place."""
        return get_report_draft(before).with_section(ReportSection(heading=self.heading, markdown=self.markdown))


class WriteSectionTool(SubmissionTool[WriteSectionInput]):
    """Adds a section to the draft, or replaces the one with the same heading."""

    name = "write_section"
    description = (
        "Writes one section under a heading of your outline; a call with the same heading replaces it. Returns "
        "citations that do not hold, and what is still to write."
    )
    input_model = WriteSectionInput

    def describe(self, arguments: WriteSectionInput, submitted: Deliverable) -> str:
        """See base class."""
        draft = get_report_draft(submitted)
        number = [section.heading for section in draft.sections].index(arguments.heading) + 1
        kept = f"section {number} kept: {arguments.heading}"
        return "\n".join(filter(None, [kept, _describe_missing_sections(draft)]))


def get_report_draft(submitted: Deliverable | None) -> ReportDraft:
    """Return the draft so far; an empty one before the outline and the first section."""
    return submitted if isinstance(submitted, ReportDraft) else ReportDraft()


class SubmitReportInput(SubmissionInput):
    """Title, summary and criteria of the report."""

    title: str = Field(min_length=1, max_length=300)
    summary: str = Field(
        min_length=1, max_length=8_000, description="The answer in the first sentence; 60 to 150 words, with citations."
    )
    criteria: tuple[str, ...] = Field(
        default=(),
        description="For each criterion, in order: the heading of the section that meets it, or why none does.",
    )

    def build_deliverable(self, before: Deliverable | None) -> ReportDraft:
        """Build the report from the sections written earlier, with title, summary and criteria."""
        return get_report_draft(before).replace(title=self.title, summary=self.summary, criteria=self.criteria)


class SubmitReportTool(SubmissionTool[SubmitReportInput]):
    """Submits the report and ends the run."""

    name = "submit_report"
    description = (
        "Submits the report with the sections written before, and ends your work. Use it when every section of the "
        "outline is written."
    )
    ends_run = True
    input_model = SubmitReportInput

    def validate(self, arguments: SubmitReportInput, submitted: Deliverable, ctx: ToolContext) -> None:  # noqa: ARG002
        """See base class. Missing sections of the outline are named once; then the report may go without them."""
        draft = get_report_draft(submitted)
        if not draft.sections:
            raise ToolCallRejectedError(
                "The report has no sections yet. Write them with write_section, then submit the report."
            )
        if draft.missing_sections and not _was_rejected_as_incomplete(ctx.transcript):
            raise ToolCallRejectedError(
                f"{INCOMPLETE_REPORT} {'; '.join(map(render_outline_section, draft.missing_sections))}. Write them "
                "with write_section. If the report is complete without them, call submit_report again."
            )

    def describe(self, arguments: SubmitReportInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        return f"report with {format_count(len(get_report_draft(submitted).sections), 'section')} submitted"


INCOMPLETE_REPORT = "Sections of the outline are not written:"
"""Beginning of the result of a `submit_report` that is rejected for that."""


def _was_rejected_as_incomplete(transcript: Transcript) -> bool:
    """Return whether the writer has been shown which sections are missing."""
    messages = get_effective_transcript(transcript).messages
    results = (result for message in messages for result in message.tool_results)
    return any(result.is_error and result.content.startswith(INCOMPLETE_REPORT) for result in results)


SUBMISSION_INPUTS: Mapping[str, type[SubmissionInput]] = {
    SubmitFindingsTool.name: SubmitFindingsInput,
    SubmitAnalysisTool.name: SubmitAnalysisInput,
    WriteOutlineTool.name: WriteOutlineInput,
    WriteSectionTool.name: WriteSectionInput,
    SubmitReportTool.name: SubmitReportInput,
}


def extract_deliverable(messages: Iterable[Message]) -> Deliverable | None:
    """Return what the calls in these messages have submitted, as they spelled it; None if nothing."""
    messages = tuple(messages)
    results = (result for message in messages for result in message.tool_results)
    done = {result.tool_use_id for result in results if is_kept_submission(result)}
    submitted: Deliverable | None = None
    for call in (call for message in messages for call in message.tool_uses if call.id in done):
        if (arguments := SUBMISSION_INPUTS.get(call.name)) is not None:
            submitted = arguments.model_validate(call.input).build_deliverable(submitted)
    return submitted


class AgentResultSummary(NamedTuple):
    """An agent's results and open questions, as labelled entries. A finding's detail and quotations are lines of its
    entry; everything else is one line.
    """

    claims: list[str]
    open_questions: list[str]

    @property
    def lines(self) -> list[str]:
        """Claims with their citations first, then open questions."""
        return [*self.claims, *self.open_questions]


def summarise_result(deliverable: Deliverable | None, notes: Iterable[Note] = ()) -> AgentResultSummary:
    """Summarise a deliverable; for an agent that was stopped, its notes."""
    match deliverable:
        case None:
            return AgentResultSummary([*map(render_finding, build_findings_from_notes(notes).findings)], [])
        case ResearchFindings():
            claims = [*map(render_finding, deliverable.findings)]
            return AgentResultSummary(claims, [f"open: {_flatten(text)}" for text in deliverable.open_questions])
        case Analysis():
            contradictions = [f"contradiction: {_flatten(text)}" for text in deliverable.contradictions]
            return AgentResultSummary(
                [f"conclusion: {render_finding(conclusion)}" for conclusion in deliverable.conclusions],
                [*contradictions, *(f"gap: {_flatten(text)}" for text in deliverable.gaps)],
            )
        case ReportDraft():
            return AgentResultSummary([_flatten(section.markdown) for section in deliverable.sections], [])


async def load_agent_result(store: WorkRepository, task: TaskScope, agent: str) -> AgentResultSummary:
    """Load and summarise the result of one agent of the task. Raises StoreError."""
    return summarise_result(*await store.load_work(f"{task.task_id}/{agent}", task))


def render_claim(finding: Finding) -> str:
    """Render a claim on one line with its citations, its date, and its confidence unless that is the default."""
    marks = [
        *([f"date: {_flatten(finding.date)}"] if finding.date.strip() else []),
        *([f"confidence: {finding.confidence}"] if finding.confidence != DEFAULT_CONFIDENCE else []),
    ]
    aside = f"({'; '.join(marks)})" if marks else ""
    return " ".join(filter(None, [_flatten(finding.claim), *map(_flatten, finding.all_citations), aside]))


def render_finding(finding: Finding) -> str:
    """Render the claim, then on indented lines its detail and the quotations that neither of them has."""
    said = [_flatten(finding.claim), _flatten(finding.detail)]
    quotations = [
        f'"{quote}" {_flatten(quoted.citation)}'
        for quoted in finding.quotations
        if not any((quote := _flatten(quoted.quote).strip('"')) in text for text in said)
    ]
    return f"\n{_INDENT}".join([render_claim(finding), *filter(None, said[1:]), *quotations])


_INDENT = "   "
"""In front of the further lines of an entry, so that none of them looks like the beginning of another one."""


def _flatten(text: str) -> str:
    return " ".join(text.split())


class DeliverableSource(WorkRepository, PlanReader, Protocol):
    """What a task's agents submitted, by the steps of its plan."""


class ReadFindingsInput(ToolInput):
    """Part of a step's result."""

    step: str = Field(description="Id of the step.")
    notes: bool = Field(default=False, description="Show its notes instead.")
    first: int = Field(default=1, ge=1)
    count: int = Field(default=40, ge=1, le=200)


class ReadFindingsTool(TypedTool[ReadFindingsInput]):
    """Shows findings of research steps, conclusions of the analysis, and the notes behind them."""

    name = "read_findings"
    description = (
        "Shows what an earlier step submitted, or its agents' notes. Use it for what your first message leaves "
        "out. Returns a page of numbered entries."
    )
    rereadable = True
    urgency = make_urgency(FIRST)
    input_model = ReadFindingsInput

    def __init__(self, store: DeliverableSource) -> None:
        self._store = store

    async def run(self, arguments: ReadFindingsInput, ctx: ToolContext) -> str:
        """Return a header, then findings or notes by number; for a step that was stopped, its notes as findings."""
        there = await load_task_deliverables(ctx.run.scope, self._store)
        if arguments.step not in {step.id for step in there.plan.steps}:
            raise ToolCallRejectedError(
                f"There is no step {arguments.step!r}. Your first message names the steps that you build on."
            )
        noun = "note" if arguments.notes else "finding"
        texts = there.list_note_entries(arguments.step) if arguments.notes else there.list_entries(arguments.step)
        entries = [number_entry(number, text) for number, text in enumerate(texts, 1)]
        start = arguments.first - 1
        taken, _ = select_page_lines(entries[start : start + arguments.count], ctx.page_characters)
        if not taken:
            count = format_count(len(entries), noun)
            return f"Step {arguments.step} has {count}; none has number {arguments.first} or higher."
        shown = start + len(taken)
        header = f"{noun}s {arguments.first}-{shown} of {len(entries)} of step {arguments.step}"
        return "\n".join([header, *taken])


def number_entry(number: int, entry: str) -> str:
    """Return an entry of a step's result with the number under which `read_findings` shows it."""
    return f"{number}. {entry}"


@dataclass(frozen=True)
class TaskDeliverables:
    """Deliverables of a task so far, by the steps of the newest plan, in its order."""

    plan: Plan
    draft: ReportDraft
    analyses: dict[str, Analysis]
    """By step ID."""
    findings: dict[str, ResearchFindings]
    """By step ID: submitted findings; for steps that have submitted nothing, what they and their
    subagents have found.
    """
    notes: Mapping[str, tuple[Note, ...]] = field(default_factory=dict[str, tuple[Note, ...]])
    """By step ID: the notes of its agent, then those of its subagents, each in the order in which they were taken."""

    def get_result(self, step_id: str) -> Deliverable:
        """Return what a step has submitted, or the findings made of its notes; of a writing step, the draft."""
        if self.plan.get_step(step_id).role == "writing":
            return self.draft
        return self.analyses.get(step_id) or self.findings.get(step_id) or ResearchFindings(findings=())

    def list_entries(self, step_id: str) -> list[str]:
        """Render what a step has submitted, one entry for each finding, conclusion, contradiction, gap or section."""
        return summarise_result(self.get_result(step_id)).lines

    def list_note_entries(self, step_id: str) -> list[str]:
        """Render the notes of a step's agents."""
        return [f"{note.citation} {_flatten(note.text)}" for note in self.notes.get(step_id, ())]

    @property
    def analysis(self) -> Analysis | None:
        """All analyses combined, for readers who do not need to know their steps."""
        made = self.analyses.values()
        if not made:
            return None
        return Analysis(
            conclusions=tuple(conclusion for one in made for conclusion in one.conclusions),
            contradictions=tuple(text for one in made for text in one.contradictions),
            gaps=tuple(text for one in made for text in one.gaps),
        )


async def load_task_deliverables(task: TaskScope, store: DeliverableSource) -> TaskDeliverables:
    """Load the deliverables of a task. Raises StoreError."""
    plan = await store.get_newest_plan(task.task_id, task) or Plan(steps=())
    draft, analyses, findings = ReportDraft(), dict[str, Analysis](), dict[str, ResearchFindings]()
    runs = await _runs(task, store)
    notes = {step.id: runs.collect_notes(step.id) for step in plan.steps}
    for step in plan.steps:
        match runs.deliverables.get(step.id):
            case ReportDraft() as written:
                draft = written
            case Analysis() as weighed:
                analyses[step.id] = weighed
            case ResearchFindings() as found:
                findings[step.id] = found
            case None:
                findings[step.id] = runs.collect_findings(step.id)
    return TaskDeliverables(plan, draft, analyses, findings, notes)


@dataclass(frozen=True)
class _Runs:
    """Deliverables and notes of a task's agent runs, by agent ID."""

    deliverables: dict[str, Deliverable]
    notes: dict[str, list[Note]]

    def collect_notes(self, step_id: str) -> tuple[Note, ...]:
        """Collect the notes of a step's agent, then those of its subagents in the order of their start."""
        agents = sorted((agent for agent in self.notes if get_step_id(agent) == step_id), key=_numbers)
        return tuple(note for agent in agents for note in self.notes[agent])

    def collect_findings(self, step_id: str) -> ResearchFindings:
        """Collect what a step's agent has noted, and what its subagents have submitted or noted."""
        agents = [agent for agent in {*self.deliverables, *self.notes} if get_step_id(agent) == step_id]
        of_step = [self._found(agent) for agent in sorted(agents, key=_numbers)]
        return ResearchFindings(findings=tuple(finding for found in of_step for finding in found.findings))

    def _found(self, agent: str) -> ResearchFindings:
        submitted = self.deliverables.get(agent)
        return (
            submitted
            if isinstance(submitted, ResearchFindings)
            else build_findings_from_notes(self.notes.get(agent, []))
        )


async def _runs(task: TaskScope, store: WorkRepository) -> _Runs:
    notes = dict[str, list[Note]]()
    for note in await store.list_notes(task.task_id, task):
        notes.setdefault(_agent(note.run_id), []).append(note)
    return _Runs(
        {_agent(run_id): made for run_id, made in (await store.get_deliverables(task.task_id, task)).items()}, notes
    )


def _numbers(agent: str) -> list[int]:
    """Sort key by start order; the step's own agent first."""
    return [int(number) for number in agent.split(SUBAGENT_ID_SEPARATOR)[1:]]


def _agent(run_id: str) -> str:
    return run_id.rpartition("/")[2]
