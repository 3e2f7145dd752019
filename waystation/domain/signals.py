"""What people send to a task beside answers: validated here and nowhere else, so that nothing vanishes.

Words to its agents, new versions of its documents, changes to its agents' contexts.

What arrives by a signal: any number of JSON values, since a person may send anything from the Temporal UI.

A handler that raises, or whose arguments do not fit, would hang its workflow: so handlers take everything and ask here.
Who can reach the server can send; who has the key of the workers can seal. What came sealed is told apart here, by the
bytes in the history alone, so that a replay sees the same.
"""

from datetime import datetime
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, Field, JsonValue, ValidationError, model_validator

from waystation.domain.agent_run import AgentRun
from waystation.domain.approvals import ANSWER_ID_CHARACTERS, Name, refusal
from waystation.domain.compaction.outcome import Action, ContextEdit
from waystation.domain.documents import DocumentsUpdate
from waystation.domain.names import EDIT_CONTEXT, TELL, UPDATE_DOCUMENTS
from waystation.domain.task import MAX_TELLING, Refusal, Telling
from waystation.domain.task_state import TaskState
from waystation.domain.value import Input, Value


class TellInput(Input):
    """JSON of the signal `tell`."""

    text: Annotated[str, Field(max_length=MAX_TELLING)] | None = None
    """The words, as somebody types them in the Temporal UI, whose history then has them."""
    message: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    """Content hash of the words, which are in the store already."""
    by: Name = ""
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very message."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if (self.text is None) == (self.message is None):
            raise ValueError("give either `text`, the words themselves, or `message`, the content hash of stored ones")
        if self.text is not None and not self.text.strip():
            raise ValueError("`text` is blank: there is nothing to tell")
        return self


class Words(Value):
    """What is to be kept: the telling, and where its words are."""

    telling: Telling
    text: str | None = None
    message: str | None = None


def told(state: TaskState, sent: JsonValue, now: datetime) -> Words | Refusal:
    """The telling with the next number, whose words are not kept yet; or why it has no effect."""
    try:
        given = TellInput.model_validate(sent)
        if state.ending:
            raise ValueError("the task is ending, or over: none of its agents would hear it")
    except ValueError as error:
        return refusal(TELL, sent, error, now)
    number = 1 + max((telling.number for telling in state.tellings), default=0)
    telling = Telling(number=number, by=given.by, answer_id=given.answer_id, told_at=now)
    return Words(telling=telling, text=given.text, message=given.message)


def with_telling(state: TaskState, telling: Telling) -> TaskState:
    """The state that has it, as it is now."""
    others = (known for known in state.tellings if known.number != telling.number)
    return state.with_(tellings=tuple(sorted((*others, telling), key=lambda one: one.number)))


def words_not_kept(state: TaskState, telling: Telling, reason: str, now: datetime) -> tuple[TaskState, Refusal]:
    """Its words cannot be had: it has no effect."""
    refused = Refusal(signal=TELL, reason=reason, at=now, answer_id=telling.answer_id)
    others = tuple(known for known in state.tellings if known.number != telling.number)
    return state.with_(tellings=others).answered(refused), refused


class UpdateInput(Input):
    """JSON of the signal `update_documents`."""

    documents: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Content hash of a `DocumentSet`, which is in the store, as are the texts that it names."""
    by: Name = ""
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very message."""


def update_asked(state: TaskState, sent: JsonValue, now: datetime) -> DocumentsUpdate | Refusal:
    """The update with the next number, which the store does not have yet; or why it has no effect."""
    try:
        given = UpdateInput.model_validate(sent)
        if state.ending:
            raise ValueError("the task is ending, or over: none of its agents would read the documents again")
    except ValueError as error:
        return refusal(UPDATE_DOCUMENTS, sent, error, now)
    number = 1 + max((update.number for update in state.updates), default=0)
    return DocumentsUpdate(number=number, given=given.documents, by=given.by, answer_id=given.answer_id, updated_at=now)


def with_update(state: TaskState, update: DocumentsUpdate) -> TaskState:
    """The state that has it, as it is now."""
    others = (known for known in state.updates if known.number != update.number)
    return state.with_(updates=tuple(sorted((*others, update), key=lambda one: one.number)))


def documents_not_kept(
    state: TaskState, update: DocumentsUpdate, reason: str, now: datetime
) -> tuple[TaskState, Refusal]:
    """Its documents cannot be had: it has no effect."""
    refused = Refusal(signal=UPDATE_DOCUMENTS, reason=reason, at=now, answer_id=update.answer_id)
    others = tuple(known for known in state.updates if known.number != update.number)
    return state.with_(updates=others).answered(refused), refused


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


def edit_asked(state: TaskState, sent: JsonValue, now: datetime) -> ContextEdit | Refusal:
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


ModelT = TypeVar("ModelT", bound=BaseModel)

UNSEALED = (
    "it came unencrypted, and this server's workers take what was encrypted with their key alone: answer by "
    "`waystation`, or in a UI that has the codec endpoint (docs/codec.md)"
)
"""Why a message has no effect."""


class Sealed(dict[str, JsonValue]):
    """A JSON object that was encrypted with a key of the workers. Only the payload converter makes one."""


def is_sealed(sent: tuple[JsonValue, ...]) -> bool:
    """Whether whoever sent this has the key. Without input there is nothing that could show it."""
    return bool(sent) and all(isinstance(value, Sealed) for value in sent)


def whole(sent: tuple[JsonValue, ...]) -> JsonValue:
    """The signal's input as one value: None without any; several become a list, which no message of ours is."""
    return sent[0] if len(sent) == 1 else list(sent) or None


def read(model: type[ModelT], sent: tuple[JsonValue, ...]) -> ModelT | None:
    """The message, or None where the input is no such message."""
    try:
        return model.model_validate(whole(sent))
    except ValidationError:
        return None
