"""Changes to agents' contexts as people send them: validated here and nowhere else, so that nothing vanishes."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from waystation.domain.agent_run import AgentRun
from waystation.domain.approvals import ANSWER_ID_CHARACTERS, Name, refusal
from waystation.domain.compaction.edit import Action, ContextEdit
from waystation.domain.names import EDIT_CONTEXT
from waystation.domain.task import Refusal
from waystation.domain.task_state import TaskState
from waystation.domain.value import Input

MAX_INSTRUCTIONS = 4_000
"""Characters of what a summary is to heed."""
_NEEDS = {"compact": None, "pin": "message", "unpin": "message", "rewind": "message", "restore": "compaction"}
"""Which of the fields that name something an action needs; it takes no other."""

ID_CHARACTERS = 64


def _id(given: str) -> str:
    return _of_signs(given, "-", "an id such as m4, which `waystation transcript` shows")


def _compaction_id(given: str) -> str:
    return _of_signs(given, "-", "the id of a compaction or its beginning, which `waystation show` prints")


def _agent_id(given: str) -> str:
    return _of_signs(given, "-.", "an agent such as research-1, which `waystation transcript` lists")


def _of_signs(given: str, others: str, what: str) -> str:
    signs = given.translate(str.maketrans("", "", others + "_"))
    if not given or len(given) > ID_CHARACTERS or not (signs.isalnum() or not signs):
        raise ValueError(f"{what}: letters, digits and {' '.join(others + '_')}, {ID_CHARACTERS} at most")
    return given


Id = Annotated[str, AfterValidator(_id)]
CompactionId = Annotated[str, AfterValidator(_compaction_id)]
AgentId = Annotated[str, AfterValidator(_agent_id)]


class EditInput(Input):
    """JSON of the signal `edit_context`."""

    action: Action
    agent: AgentId
    """Id of the agent's step, or of a subagent."""
    message: Id | None = None
    """Of `pin`, `unpin` and `rewind`."""
    keep: bool | None = None
    """Of `rewind`: whether the message itself stays. It does, if this is left out."""
    compaction: CompactionId | None = None
    """Of `restore`: the id, or the beginning of it."""
    instructions: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Of `compact`: content hash of a text in the store. Never the text: signals stay in the workflow's history."""
    by: Name = ""
    note: str = Field(default="", max_length=2_000)
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very edit."""

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> Self:
        for name in ("message", "compaction"):
            if (getattr(self, name) is not None) != (_NEEDS[self.action] == name):
                verb = "needs" if _NEEDS[self.action] == name else "takes no"
                raise ValueError(f"{self.action} {verb} `{name}`")
        if self.instructions is not None and self.action != "compact":
            raise ValueError(f"{self.action} takes no `instructions`")
        if self.keep is not None and self.action != "rewind":
            raise ValueError(f"{self.action} takes no `keep`")
        return self


def asked(state: TaskState, sent: JsonValue, now: datetime) -> ContextEdit | Refusal:
    """The edit that waits from now on; or why it has no effect."""
    try:
        given = EditInput.model_validate(sent)
        run = _editable(state, given.agent)
    except ValueError as error:
        return refusal(EDIT_CONTEXT, sent, error, now)
    return ContextEdit(
        id=run.next_edit_id,
        agent=given.agent,
        action=given.action,
        message=given.message or "",
        keep=given.keep is not False,
        compaction=given.compaction or "",
        instructions=given.instructions or "",
        by=given.by,
        note=given.note,
        answer_id=given.answer_id,
        asked_at=now,
    )


def with_edit(state: TaskState, answer: ContextEdit | Refusal) -> TaskState:
    """The state in which the edit waits; a refused one changes nothing but the list of refusals."""
    if isinstance(answer, Refusal):
        return state.answered(answer)
    return state.with_run(state.runs[answer.agent].with_edit(answer))


def _editable(state: TaskState, agent: str) -> AgentRun:
    """Raises ValueError, without the name as given where no agent has it."""
    if state.ending:
        raise ValueError("the task is ending, or over: its agents' contexts are not edited any more")
    run = state.runs.get(agent)
    if run is not None and run.phase == "delivered":
        raise ValueError(f"{agent} has delivered: the context of an agent that is done is not edited")
    if run is not None:
        return run
    if state.plan is not None and any(step.id == agent for step in state.plan.steps):
        raise ValueError(f"{agent} has not begun: it has no context yet")
    working = ", ".join(name for name in state.runs if name not in state.done)
    raise ValueError(f"there is no agent of this name; at work are: {working or 'none yet'}")
