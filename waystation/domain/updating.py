"""New versions of a task's documents, as people send word of them: validated here and nowhere else."""

from datetime import datetime

from pydantic import Field, JsonValue

from waystation.domain.approvals import ANSWER_ID_CHARACTERS, Name, refusal
from waystation.domain.document_changes import DocumentsUpdate
from waystation.domain.names import UPDATE_DOCUMENTS
from waystation.domain.task import Refusal
from waystation.domain.task_state import TaskState
from waystation.domain.value import Input


class UpdateInput(Input):
    """JSON of the signal `update_documents`."""

    documents: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Content hash of a `DocumentSet`, which is in the store, as are the texts that it names."""
    by: Name = ""
    answer_id: str = Field(default="", max_length=ANSWER_ID_CHARACTERS)
    """Chosen by programs that want to see what became of this very message."""


def asked(state: TaskState, sent: JsonValue, now: datetime) -> DocumentsUpdate | Refusal:
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


def not_kept(state: TaskState, update: DocumentsUpdate, reason: str, now: datetime) -> tuple[TaskState, Refusal]:
    """Its documents cannot be had: it has no effect."""
    refused = Refusal(signal=UPDATE_DOCUMENTS, reason=reason, at=now, answer_id=update.answer_id)
    others = tuple(known for known in state.updates if known.number != update.number)
    return state.with_(updates=others).answered(refused), refused
