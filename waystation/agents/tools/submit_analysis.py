"""The tool by which an analysis agent hands in its conclusions."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool
from waystation.domain.work import Analysis, Deliverable, Finding
from waystation.ports import WorkStore


class SubmitAnalysisInput(ToolInput):
    """Conclusions, contradictions and gaps."""

    conclusions: tuple[Finding, ...]
    contradictions: tuple[str, ...] = ()
    gaps: tuple[str, ...] = Field(default=(), description="What the findings do not cover.")

    def handed_in(self, before: Deliverable | None) -> Analysis:  # noqa: ARG002
        """The analysis, whatever was handed in before."""
        return Analysis(conclusions=self.conclusions, contradictions=self.contradictions, gaps=self.gaps)


class SubmitAnalysis(TypedTool[SubmitAnalysisInput]):
    """Hands in the analysis and ends the run."""

    name = "submit_analysis"
    description = "Hands in your conclusions with citations, contradictions and gaps, and ends your work on this step."
    ends_run = True
    permission = "hand_in"
    input_model = SubmitAnalysisInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: SubmitAnalysisInput, at: CallSite) -> str:
        """Keep it."""
        await self._work.hand_in(at.fence, at.run.task_id, arguments.handed_in(None))
        return f"analysis with {len(arguments.conclusions)} conclusions handed in"
