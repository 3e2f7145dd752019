"""The tool that shows what earlier steps handed in."""

from pydantic import Field

from waystation.agents.tools.results import results_of
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool, page
from waystation.domain.projection import FIRST, urgent
from waystation.ports import TaskStore, WorkStore


class ReadFindingsInput(ToolInput):
    """Which part of which step's result."""

    step: str = Field(description="Id of the step.")
    first: int = Field(default=1, ge=1)
    count: int = Field(default=40, ge=1, le=200)


class ReadFindings(TypedTool[ReadFindingsInput]):
    """Findings of research steps, conclusions of the analysis."""

    name = "read_findings"
    description = "Shows what an earlier step handed in, with its citations, page by page."
    rereadable = True
    urgency = urgent(FIRST)
    input_model = ReadFindingsInput

    def __init__(self, tasks: TaskStore, work: WorkStore) -> None:
        self._tasks, self._work = tasks, work

    async def run(self, arguments: ReadFindingsInput, at: CallSite) -> str:
        """A header and one line a finding; a step that was stopped is represented by its notes."""
        lines = [_line(number, text) for number, text in enumerate(await self._texts(arguments.step, at), 1)]
        start = arguments.first - 1
        taken, _ = page(lines[start : start + arguments.count], at.page_characters)
        if not taken:
            return f"Step {arguments.step} has {len(lines)} findings; none from number {arguments.first} on."
        shown = start + len(taken)
        header = f"findings {arguments.first}-{shown} of {len(lines)} of step {arguments.step}"
        return "\n".join([header, *taken])

    async def _texts(self, step_id: str, at: CallSite) -> list[str]:
        plan = await self._tasks.plan(at.run.task_id, at.run.reader)
        if plan is None or step_id not in {step.id for step in plan.steps}:
            raise ToolRefused(f"There is no step {step_id!r}. Your contract names the steps that you build on.")
        return (await results_of(self._work, at.run.reader, step_id)).lines


def _line(number: int, text: str) -> str:
    return f"{number}. {' '.join(text.split())}"
