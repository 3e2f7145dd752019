"""The tool by which the writing agent hands in the report that it wrote section by section."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.agents.tools.write_section import draft_of
from waystation.domain.work import Deliverable, ReportDraft
from waystation.ports import WorkStore


class SubmitReportInput(ToolInput):
    """What stands above the sections."""

    title: str = Field(min_length=1, max_length=300)
    summary: str = Field(min_length=1, max_length=8_000, description="The answer in short, with citations.")

    def handed_in(self, before: Deliverable | None) -> ReportDraft:
        """The sections written before, with this above them."""
        return draft_of(before).model_copy(update={"title": self.title, "summary": self.summary})


class SubmitReport(TypedTool[SubmitReportInput]):
    """Hands in the report and ends the run."""

    name = "submit_report"
    description = "Gives the report its title and summary and hands it in, with the sections written before."
    ends_run = True
    permission = "hand_in"
    input_model = SubmitReportInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: SubmitReportInput, at: CallSite) -> str:
        """Keep it."""
        whole = arguments.handed_in(await self._work.deliverable(at.run.run_id, at.run.reader))
        if not whole.sections:
            raise ToolRefused("The report has no section yet. Write them with write_section, then hand it in.")
        await self._work.hand_in(at.fence, at.run.task_id, whole)
        return f"report with {len(whole.sections)} sections handed in"
