"""Tools that submit findings, analyses and reports, and show what earlier steps submitted.

Deliverables can be derived from the conversation alone, so that they can be rewound with it.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

from pydantic import Field

from waystation.agents.citation_feedback import NOT_FINAL, SubmissionChecker, is_kept_submission, may_be_mended
from waystation.agents.delegation import SUBAGENT_ID_SEPARATOR, get_step_id
from waystation.agents.deliverables import (
    Analysis,
    Deliverable,
    Finding,
    Note,
    ReportDraft,
    ReportSection,
    ResearchFindings,
    build_findings_from_notes,
)
from waystation.agents.ports import WorkRepository
from waystation.agents.tool_visibility import FIRST, make_urgency
from waystation.agents.tools.tool import ToolCallRejectedError, ToolContext, ToolInput, TypedTool, select_page_lines
from waystation.context.transcript import Message
from waystation.kernel.scopes import TaskScope
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

    permission = "hand_in"
    strict = True

    def __init__(self, store: WorkRepository, checker: SubmissionChecker) -> None:
        self._store, self._checker = store, checker

    async def run(self, arguments: SubmissionT, ctx: ToolContext) -> str:
        """Store the deliverable, and return the result of the check of its citations."""
        submitted = arguments.build_deliverable(await self._store.get_deliverable(ctx.run.run_id, ctx.run.scope))
        result = self.describe(arguments, submitted)
        part = submitted if self.ends_run else arguments.build_deliverable(None)
        review = await self._checker.review(submitted, part, ctx.run.task_ref, ctx.document_names)
        await self._store.commit_deliverable(ctx.fence, ctx.run.task_id, review.deliverable)
        if review.faults and self.ends_run and may_be_mended(self.name, ctx.transcript, ctx.used_share):
            raise ToolCallRejectedError(f"{review.text}\n{NOT_FINAL}")
        return "\n".join(filter(None, [result, review.text]))

    @abstractmethod
    def describe(self, arguments: SubmissionT, submitted: Deliverable) -> str:
        """Describe what the call submits. Raises ToolCallRejectedError if it cannot be submitted yet."""


class SubmitAnalysisInput(SubmissionInput):
    """Conclusions, contradictions and gaps."""

    conclusions: tuple[Finding, ...]
    contradictions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = Field(default=(), description="What the findings do not cover.")

    def build_deliverable(self, before: Deliverable | None) -> Analysis:  # noqa: ARG002
        """Build the analysis; an earlier deliverable is ignored."""
        return Analysis(conclusions=self.conclusions, contradictions=self.contradictions, gaps=self.gaps)


class SubmitAnalysisTool(SubmissionTool[SubmitAnalysisInput]):
    """Submits the analysis and ends the run."""

    name = "submit_analysis"
    description = "Hands in your conclusions with citations, contradictions and gaps, and ends your work on this step."
    ends_run = True
    input_model = SubmitAnalysisInput

    def describe(self, arguments: SubmitAnalysisInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        return f"analysis with {len(arguments.conclusions)} conclusions handed in"


class SubmitFindingsInput(SubmissionInput):
    """Findings and open questions."""

    findings: tuple[Finding, ...]
    open_questions: tuple[str, ...] = Field(default=(), description="What the documents do not answer.")

    def build_deliverable(self, before: Deliverable | None) -> ResearchFindings:  # noqa: ARG002
        """Build the findings; an earlier deliverable is ignored."""
        return ResearchFindings(findings=self.findings, open_questions=self.open_questions)


class SubmitFindingsTool(SubmissionTool[SubmitFindingsInput]):
    """Submits findings and ends the run."""

    name = "submit_findings"
    description = "Hands in your findings, each with citations, and ends your work on this step."
    ends_run = True
    input_model = SubmitFindingsInput

    def describe(self, arguments: SubmitFindingsInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        return f"{len(arguments.findings)} findings handed in"


class WriteSectionInput(SubmissionInput):
    """One section of the report."""

    heading: str = Field(min_length=1, max_length=200)
    markdown: str = Field(min_length=1, max_length=60_000, description="Cite as [document:first-last].")

    def build_deliverable(self, before: Deliverable | None) -> ReportDraft:
        """Build the draft with this section added, or replaced in its place."""
        return get_report_draft(before).with_section(ReportSection(heading=self.heading, markdown=self.markdown))


class WriteSectionTool(SubmissionTool[WriteSectionInput]):
    """Adds a section to the draft, or replaces the one with the same heading."""

    name = "write_section"
    description = "Writes one section of the report. The same heading again replaces that section."
    input_model = WriteSectionInput

    def describe(self, arguments: WriteSectionInput, submitted: Deliverable) -> str:
        """See base class."""
        sections = get_report_draft(submitted).sections
        number = [section.heading for section in sections].index(arguments.heading) + 1
        return f"section {number} kept: {arguments.heading}"


def get_report_draft(handed_in: Deliverable | None) -> ReportDraft:
    """Return the draft so far; an empty one before the first section."""
    return handed_in if isinstance(handed_in, ReportDraft) else ReportDraft()


class SubmitReportInput(SubmissionInput):
    """Title, summary and criteria of the report."""

    title: str = Field(min_length=1, max_length=300)
    summary: str = Field(min_length=1, max_length=8_000, description="The answer in short, with citations.")
    criteria: tuple[str, ...] = Field(default=(), description="Of each: the heading that meets it, or why none does.")

    def build_deliverable(self, before: Deliverable | None) -> ReportDraft:
        """Build the report from the sections written earlier, with title, summary and criteria."""
        return get_report_draft(before).replace(title=self.title, summary=self.summary, criteria=self.criteria)


class SubmitReportTool(SubmissionTool[SubmitReportInput]):
    """Submits the report and ends the run."""

    name = "submit_report"
    description = "Gives the report its title and summary and hands it in, with the sections written before."
    ends_run = True
    input_model = SubmitReportInput

    def describe(self, arguments: SubmitReportInput, submitted: Deliverable) -> str:  # noqa: ARG002
        """See base class."""
        sections = get_report_draft(submitted).sections
        if not sections:
            raise ToolCallRejectedError(
                "The report has no section yet. Write them with write_section, then hand it in."
            )
        return f"report with {len(sections)} sections handed in"


SUBMISSION_INPUTS: Mapping[str, type[SubmissionInput]] = {
    SubmitFindingsTool.name: SubmitFindingsInput,
    SubmitAnalysisTool.name: SubmitAnalysisInput,
    WriteSectionTool.name: WriteSectionInput,
    SubmitReportTool.name: SubmitReportInput,
}


def extract_deliverable(messages: Iterable[Message]) -> Deliverable | None:
    """Return what the calls in these messages have submitted, as they spelled it; None if nothing."""
    messages = tuple(messages)
    results = (result for message in messages for result in message.tool_results)
    done = {result.tool_use_id for result in results if is_kept_submission(result)}
    handed_in: Deliverable | None = None
    for call in (call for message in messages for call in message.tool_uses if call.id in done):
        if (arguments := SUBMISSION_INPUTS.get(call.name)) is not None:
            handed_in = arguments.model_validate(call.input).build_deliverable(handed_in)
    return handed_in


class AgentResultSummary(NamedTuple):
    """An agent's results and open questions, as labelled lines."""

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
            return AgentResultSummary([*map(render_claim, build_findings_from_notes(notes).findings)], [])
        case ResearchFindings():
            claims = [*map(render_claim, deliverable.findings)]
            return AgentResultSummary(claims, [f"open: {text}" for text in deliverable.open_questions])
        case Analysis():
            contradictions = [f"contradiction: {text}" for text in deliverable.contradictions]
            return AgentResultSummary(
                [f"conclusion: {render_claim(conclusion)}" for conclusion in deliverable.conclusions],
                [*contradictions, *(f"gap: {text}" for text in deliverable.gaps)],
            )
        case ReportDraft():
            return AgentResultSummary([section.markdown for section in deliverable.sections], [])


async def load_agent_result(store: WorkRepository, task: TaskScope, agent: str) -> AgentResultSummary:
    """Load and summarise the result of one agent of the task. Raises StoreError."""
    run_id = f"{task.task_id}/{agent}"
    return summarise_result(
        await store.get_deliverable(run_id, task), await store.list_notes(task.task_id, task, run_id)
    )


def render_claim(finding: Finding) -> str:
    """Render a claim with its citations."""
    return " ".join([finding.claim, *finding.citations])


class DeliverableSource(WorkRepository, PlanReader, Protocol):
    """What a task's agents submitted, by the steps of its plan."""


class ReadFindingsInput(ToolInput):
    """Part of a step's result."""

    step: str = Field(description="Id of the step.")
    first: int = Field(default=1, ge=1)
    count: int = Field(default=40, ge=1, le=200)


class ReadFindingsTool(TypedTool[ReadFindingsInput]):
    """Shows findings of research steps and conclusions of the analysis."""

    name = "read_findings"
    description = "Shows what an earlier step handed in, with its citations, page by page."
    rereadable = True
    urgency = make_urgency(FIRST)
    input_model = ReadFindingsInput

    def __init__(self, store: DeliverableSource) -> None:
        self._store = store

    async def run(self, arguments: ReadFindingsInput, ctx: ToolContext) -> str:
        """Return a header and one line per finding; for a step that was stopped, its notes."""
        lines = [_line(number, text) for number, text in enumerate(await self._texts(arguments.step, ctx), 1)]
        start = arguments.first - 1
        taken, _ = select_page_lines(lines[start : start + arguments.count], ctx.page_characters)
        if not taken:
            return f"Step {arguments.step} has {len(lines)} findings; none from number {arguments.first} on."
        shown = start + len(taken)
        header = f"findings {arguments.first}-{shown} of {len(lines)} of step {arguments.step}"
        return "\n".join([header, *taken])

    async def _texts(self, step_id: str, ctx: ToolContext) -> list[str]:
        plan = await self._store.get_newest_plan(ctx.run.task_id, ctx.run.scope)
        if plan is None or step_id not in {step.id for step in plan.steps}:
            raise ToolCallRejectedError(
                f"There is no step {step_id!r}. Your contract names the steps that you build on."
            )
        return (await load_agent_result(self._store, ctx.run.scope, step_id)).lines


def _line(number: int, text: str) -> str:
    return f"{number}. {' '.join(text.split())}"


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
    return TaskDeliverables(plan, draft, analyses, findings)


@dataclass(frozen=True)
class _Runs:
    """Deliverables and notes of a task's agent runs, by agent ID."""

    deliverables: dict[str, Deliverable]
    notes: dict[str, list[Note]]

    def collect_findings(self, step_id: str) -> ResearchFindings:
        """Collect what a step's agent has noted, and what its subagents have submitted or noted."""
        agents = [agent for agent in {*self.deliverables, *self.notes} if get_step_id(agent) == step_id]
        of_step = [self._found(agent) for agent in sorted(agents, key=_numbers)]
        return ResearchFindings(findings=tuple(finding for found in of_step for finding in found.findings))

    def _found(self, agent: str) -> ResearchFindings:
        handed_in = self.deliverables.get(agent)
        return (
            handed_in
            if isinstance(handed_in, ResearchFindings)
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
