"""What agents deliver through typed tool calls: notes, findings, an analysis, a report; and checks of report criteria.

A report's writer says where a criterion is met; code decides whether it is.
"""

from collections.abc import Iterable, Sequence, Set
from typing import Annotated, Literal

from pydantic import Field

from waystation.documents.citations import parse_citations
from waystation.documents.headings import find_heading
from waystation.kernel.identifiers import Identifier
from waystation.kernel.value import Value


class Note(Value):
    """A quotation or remark with its source. `id` derives from the call that took it."""

    id: Identifier
    run_id: Identifier
    text: str
    document: str
    first_line: int
    last_line: int

    @property
    def citation(self) -> str:
        """The lines that it refers to, as a citation."""
        return f"[{self.document}:{self.first_line}-{self.last_line}]"


MAX_DETAIL_CHARACTERS = 1_500
"""Maximum characters of a finding's detail. The tool that submits it checks this, since redaction and the erasure of a
person may make a stored text longer.
"""
Confidence = Literal["high", "medium", "low"]
"""How sure the author of a finding is of it."""
DEFAULT_CONFIDENCE: Confidence = "medium"


class Quotation(Value):
    """Words of a source, and where they stand."""

    quote: str = Field(description="Copied exactly.")
    citation: str = Field(description="[document:first-last]")


class Finding(Value):
    """One claim with what supports it. Places are written `[document:first-last]`."""

    claim: str = Field(description="One sentence, clear on its own.")
    detail: str = Field(
        default="",
        description=f"Conditions, exceptions, reasons, calculations: at most {MAX_DETAIL_CHARACTERS:,} characters.",
    )
    quotations: tuple[Quotation, ...] = Field(default=(), description="The few quotations that prove the claim.")
    citations: tuple[str, ...] = Field(default=(), description="Other places, [document:first-last].")
    date: str = Field(default="", description="When the claim holds: 2024-12-31, 2024-12 or 2024.")
    confidence: Confidence = Field(
        default=DEFAULT_CONFIDENCE,
        description="high: the original source says so, or independent sources agree; medium: an inference, or one "
        "secondary source; low: indirect, outdated, or the less trusted side of a dispute.",
    )

    @property
    def all_citations(self) -> tuple[str, ...]:
        """Its citations, then those of its quotations, each once."""
        return tuple(dict.fromkeys((*self.citations, *(quoted.citation for quoted in self.quotations))))


class ResearchFindings(Value):
    """Result of a research agent."""

    type: Literal["findings"] = "findings"
    findings: tuple[Finding, ...]
    open_questions: tuple[str, ...] = ()


class Analysis(Value):
    """Result of an analysis agent."""

    type: Literal["analysis"] = "analysis"
    conclusions: tuple[Finding, ...]
    contradictions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


class ReportSection(Value):
    """A section of a report. Its heading is its key: writing it again replaces it."""

    heading: str
    markdown: str


class OutlineSection(Value):
    """A section that a report is to have."""

    heading: str = Field(min_length=1)
    covers: str = Field(min_length=1, description="What the section answers or compares, in a sentence.")
    findings: tuple[str, ...] = Field(
        default=(), description="Findings that the section uses, by step and number: research-1 4."
    )


class ReportDraft(Value):
    """Result of a writing agent, section by section: Markdown with citations `[document:first-last]`."""

    type: Literal["report"] = "report"
    title: str = ""
    """Empty until the report is submitted."""
    summary: str = ""
    sections: tuple[ReportSection, ...] = ()
    outline: tuple[OutlineSection, ...] = ()
    """The sections that its writer planned, in order; empty if there is no outline."""
    outline_title: str = ""
    criteria: tuple[str, ...] = ()
    """For each criterion, in order: heading of the section that meets it, or why none does."""

    def with_section(self, section: ReportSection) -> "ReportDraft":
        """Return the draft with this section added, or replaced in its place."""
        if any(known.heading == section.heading for known in self.sections):
            sections = tuple(section if known.heading == section.heading else known for known in self.sections)
        else:
            sections = (*self.sections, section)
        return self.replace(sections=sections)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it can be shown to a reader."""
        return not (self.title or self.summary or self.sections)

    @property
    def missing_sections(self) -> tuple[OutlineSection, ...]:
        """The sections of the outline that are not written yet, in order."""
        written = [section.heading for section in self.sections]
        return tuple(planned for planned in self.outline if find_heading(written, planned.heading) is None)


ReportLength = Literal["short", "medium", "long"]
"""How long a report should be: about a page; two to three pages; five pages or more."""


class CriterionResult(Value):
    """A criterion for a report, and where the report meets it."""

    text: str
    state: Literal["met", "not met", "not judged"]
    """Not judged: the writer says neither where it is met nor why it is not. The built-in model never says either."""
    heading: str = ""
    """Heading of the section that meets it."""
    citations: tuple[str, ...] = ()
    """Some citations of that section that hold."""
    why_not: str = ""
    """Why it does not count as met."""

    @property
    def markdown_line(self) -> str:
        """The result as an item of a Markdown list."""
        behind = f" in “{self.heading}”" if self.state == "met" else f", {self.why_not}"
        return " ".join(f"- {self.text}: **{self.state}**{behind} {' '.join(self.citations)}".split())


MAX_SHOWING_SECTIONS = 3
"""Maximum number of citations shown for a criterion."""
UNSAID = "because the report's writer named no section for this criterion, and gave no reason"


def check_criteria(
    accept: Sequence[str], draft: ReportDraft, holding: Set[str], failing: Set[str]
) -> tuple[CriterionResult, ...]:
    """Check each criterion. It is met if its writer names a section with a citation that holds and none that fails."""
    said = (*draft.criteria, *[""] * len(accept))
    return tuple(_criterion(text, where, draft, holding, failing) for text, where in zip(accept, said, strict=False))


def _criterion(text: str, where: str, draft: ReportDraft, holding: Set[str], failing: Set[str]) -> CriterionResult:
    place = find_heading([one.heading for one in draft.sections], where)
    named = None if place is None else draft.sections[place]
    if named is None:
        if not where.strip():
            return CriterionResult(text=text, state="not judged", why_not=UNSAID)
        return CriterionResult(text=text, state="not met", why_not=f"because the report's writer says: {where}")
    cited = tuple(dict.fromkeys(map(str, parse_citations(named.markdown))))
    wrong, right = [one for one in cited if one in failing], [one for one in cited if one in holding]
    if wrong or not right:
        lack = "has a citation that failed the check" if wrong else "has no citation"
        why_not = f"because the section “{named.heading}” {lack}"
        return CriterionResult(text=text, state="not met", why_not=why_not)
    return CriterionResult(text=text, state="met", heading=named.heading, citations=tuple(right[:MAX_SHOWING_SECTIONS]))


Deliverable = Annotated[ResearchFindings | Analysis | ReportDraft, Field(discriminator="type")]


def build_findings_from_notes(notes: Iterable[Note]) -> ResearchFindings:
    """Build the findings of an agent that was stopped from its notes. Each quotes its note, with its source."""
    return ResearchFindings(
        findings=tuple(
            Finding(claim=note.text, quotations=(Quotation(quote=note.text, citation=note.citation),)) for note in notes
        )
    )


class WorkCounts(Value):
    """How much an agent has delivered so far, in numbers."""

    notes: int = 0
    findings: int = 0
    """Findings of a research agent, or conclusions of an analysis."""
    sections: int = 0


def count_work(deliverable: Deliverable | None, notes: Sequence[Note]) -> WorkCounts:
    """Count an agent's delivered work."""
    match deliverable:
        case None:
            return WorkCounts(notes=len(notes))
        case ResearchFindings():
            return WorkCounts(notes=len(notes), findings=len(deliverable.findings))
        case Analysis():
            return WorkCounts(notes=len(notes), findings=len(deliverable.conclusions))
        case ReportDraft():
            return WorkCounts(notes=len(notes), sections=len(deliverable.sections))
