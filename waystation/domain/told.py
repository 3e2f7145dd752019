"""What is told to a task, as people send it: validated here and nowhere else, so that nothing vanishes."""

from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, JsonValue, model_validator

from waystation.domain.approvals import ANSWER_ID_CHARACTERS, Name, refusal
from waystation.domain.names import TELL
from waystation.domain.task import Refusal
from waystation.domain.task_state import TaskState
from waystation.domain.telling import MAX_TELLING, Telling
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


def not_kept(state: TaskState, telling: Telling, reason: str, now: datetime) -> tuple[TaskState, Refusal]:
    """Its words cannot be had: it has no effect."""
    refused = Refusal(signal=TELL, reason=reason, at=now, answer_id=telling.answer_id)
    others = tuple(known for known in state.tellings if known.number != telling.number)
    return state.with_(tellings=others).answered(refused), refused
