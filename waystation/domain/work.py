"""What agents hand over: notes with their source, findings, an analysis, a report. All of it typed tool calls."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from waystation.domain.value import Value


class Note(Value):
    """Something worth keeping, quoted or said, with where it stands. `id` derives from the call that took it."""

    id: str
    run_id: str
    text: str
    document: str
    first_line: int
    last_line: int


class Finding(Value):
    """One claim and the places that support it, written `[document:first-last]`."""

    claim: str = Field(description="One claim, in a sentence.")
    citations: tuple[str, ...] = Field(description="Where it stands: [document:first-last], one or more.")


class Findings(Value):
    """What a research agent hands in."""

    type: Literal["findings"] = "findings"
    findings: tuple[Finding, ...]
    open_questions: tuple[str, ...] = ()


class Analysis(Value):
    """What an analysis agent hands in."""

    type: Literal["analysis"] = "analysis"
    conclusions: tuple[Finding, ...]
    contradictions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


class Section(Value):
    """One part of a report. Its heading is its key: writing it again replaces it."""

    heading: str
    markdown: str


class ReportDraft(Value):
    """What a writing agent hands in, section by section: Markdown with citations `[document:first-last]`."""

    type: Literal["report"] = "report"
    title: str = ""
    summary: str = ""
    sections: tuple[Section, ...] = ()

    def with_section(self, section: Section) -> "ReportDraft":
        """The draft with this section added, or replaced in its place."""
        if any(known.heading == section.heading for known in self.sections):
            sections = tuple(section if known.heading == section.heading else known for known in self.sections)
        else:
            sections = (*self.sections, section)
        return self.model_copy(update={"sections": sections})


Deliverable = Annotated[Findings | Analysis | ReportDraft, Field(discriminator="type")]


def findings_from_notes(notes: Iterable[Note]) -> Findings:
    """What an agent that was stopped had found: its notes, each with its source."""
    return Findings(
        findings=tuple(
            Finding(claim=note.text, citations=(f"[{note.document}:{note.first_line}-{note.last_line}]",))
            for note in notes
        )
    )


class Made(Value):
    """How much an agent has handed over so far: numbers, no text."""

    notes: int = 0
    findings: int = 0
    """Findings of a research agent, conclusions of an analysis."""
    sections: int = 0


def made(deliverable: Deliverable | None, notes: Sequence[Note]) -> Made:
    """What there is of an agent, counted."""
    match deliverable:
        case None:
            return Made(notes=len(notes))
        case Findings():
            return Made(notes=len(notes), findings=len(deliverable.findings))
        case Analysis():
            return Made(notes=len(notes), findings=len(deliverable.conclusions))
        case ReportDraft():
            return Made(notes=len(notes), sections=len(deliverable.sections))
