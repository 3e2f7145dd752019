"""The tool that shows a procedure of the user's."""

from pydantic import Field

from waystation.agents.procedures import as_procedure, procedures_of
from waystation.agents.tools.tool import CallSite, ToolInput, ToolRefused, TypedTool
from waystation.domain.procedures import Procedure
from waystation.domain.projection import FIRST, urgent
from waystation.ports import DocumentStore, TaskStore


class ReadSkillInput(ToolInput):
    """Which procedure."""

    name: str = Field(min_length=1, max_length=300, description="As the contract names it.")


class ReadSkill(TypedTool[ReadSkillInput]):
    """A whole procedure."""

    name = "read_skill"
    description = (
        "Shows a procedure of the user's, whole. Follow it where it fits your step; it is no evidence to cite."
    )
    rereadable = True
    originals = frozenset({"name"})
    urgency = urgent(FIRST)
    input_model = ReadSkillInput

    def __init__(self, tasks: TaskStore, documents: DocumentStore) -> None:
        self._tasks, self._documents = tasks, documents

    async def run(self, arguments: ReadSkillInput, at: CallSite) -> str:
        """Its text, in its tag."""
        found = await procedures_of(await self._tasks.task(at.run.task_id, at.run.reader), self._documents)
        for one in found:
            if isinstance(one, Procedure) and arguments.name in {one.name, one.document}:
                return as_procedure(one)
        names = ", ".join(one.name for one in found if isinstance(one, Procedure))
        raise ToolRefused(f"There is no procedure {arguments.name!r}. There are: {names or 'none'}.")
