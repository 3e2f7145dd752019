"""What a task's workflow is started with."""

from waystation.domain.privacy import Policy
from waystation.domain.rewind import TaskRewind
from waystation.domain.task import TaskRef, TaskTerms
from waystation.domain.task_state import TaskState
from waystation.domain.value import Value


class TaskStart(Value):
    """Input of the Task workflow: references and terms, and the state to go on from."""

    ref: TaskRef
    terms: TaskTerms
    title: str
    search_attributes: bool
    notices: bool = False
    """Whether people are told by a webhook. Tasks that were started before there were any tell nobody."""
    privacy: Policy | None = None
    """How much is replaced by the worker that admitted the task. Not known of tasks that were started before it was
    told.
    """
    sealed_answers: bool = False
    """Whether what people send must have been encrypted with the key of the workers: said by the worker that admitted
    the task, which encrypts. Tasks that were started before take any.
    """
    documents: int = 0
    """How many it has. Tasks that were started before memory took documents do not say it."""
    rewind: TaskRewind | None = None
    """The task has ended before, and goes on from here."""
    forked: bool = False
    """The store has the state to go on from: of another task, as far as this one reuses it."""
    state: TaskState | None = None
