"""The tool by which a research agent hands in its findings."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool
from waystation.domain.work import Deliverable, Finding, Findings
from waystation.ports import WorkStore


class SubmitFindingsInput(ToolInput):
    """Findings and what stayed open."""

    findings: tuple[Finding, ...]
    open_questions: tuple[str, ...] = Field(default=(), description="What the documents do not answer.")

    def handed_in(self, before: Deliverable | None) -> Findings:  # noqa: ARG002
        """The findings, whatever was handed in before."""
        return Findings(findings=self.findings, open_questions=self.open_questions)


class SubmitFindings(TypedTool[SubmitFindingsInput]):
    """Hands in findings and ends the run."""

    name = "submit_findings"
    description = "Hands in your findings, each with citations, and ends your work on this step."
    ends_run = True
    permission = "hand_in"
    input_model = SubmitFindingsInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: SubmitFindingsInput, at: CallSite) -> str:
        """Keep them."""
        await self._work.hand_in(at.fence, at.run.task_id, arguments.handed_in(None))
        return f"{len(arguments.findings)} findings handed in"
