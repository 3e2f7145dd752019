"""The tool that writes one section of the report. What is written is kept, so a pause can show the draft."""

from pydantic import Field

from waystation.agents.tools.tool import CallSite, ToolInput, TypedTool
from waystation.domain.work import Deliverable, ReportDraft, Section
from waystation.ports import WorkStore


class WriteSectionInput(ToolInput):
    """One section."""

    heading: str = Field(min_length=1, max_length=200)
    markdown: str = Field(min_length=1, max_length=60_000, description="Cite as [document:first-last].")

    def handed_in(self, before: Deliverable | None) -> ReportDraft:
        """The draft with this section added, or replaced in its place."""
        return draft_of(before).with_section(Section(heading=self.heading, markdown=self.markdown))


class WriteSection(TypedTool[WriteSectionInput]):
    """Adds a section to the draft, or replaces the one of the same heading."""

    name = "write_section"
    description = "Writes one section of the report. The same heading again replaces that section."
    permission = "hand_in"
    input_model = WriteSectionInput

    def __init__(self, work: WorkStore) -> None:
        self._work = work

    async def run(self, arguments: WriteSectionInput, at: CallSite) -> str:
        """Keep the section."""
        grown = arguments.handed_in(await self._work.deliverable(at.run.run_id, at.run.reader))
        await self._work.hand_in(at.fence, at.run.task_id, grown)
        number = [section.heading for section in grown.sections].index(arguments.heading) + 1
        return f"section {number} kept: {arguments.heading}"


def draft_of(handed_in: Deliverable | None) -> ReportDraft:
    """The draft so far; an empty one before the first section."""
    return handed_in if isinstance(handed_in, ReportDraft) else ReportDraft()
