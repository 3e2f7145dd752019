"""A session: an ongoing line of work whose tasks share one budget."""

from typing import Literal

from pydantic import AliasChoices, Field

from waystation.domain.amount import Amount, Limit
from waystation.domain.ledger import Account
from waystation.domain.privacy import Policy
from waystation.domain.task import BudgetProgress, TaskRef, TaskTerms
from waystation.domain.value import Value


class Ask(Value):
    """A task asks its session for more. Answered once for its id, however often it is sent."""

    task_id: str
    ask_id: str
    amount: Amount = Field(validation_alias=AliasChoices("amount", "tokens"))


class SessionState(Value):
    """What a session carries through continue-as-new."""

    account: Account = Account(limit=Limit())
    open_tasks: tuple[str, ...] = ()
    """Tasks that were started and have not settled."""
    sealed: bool = False
    """Whether messages must have been encrypted with the key of the workers. So from the first of its tasks on that
    takes sealed answers, or since it was started by a client that encrypts.
    """
    answered: tuple[str, ...] = ()
    """Ids of the newest answered asks: a repeated ask is not answered with money a second time."""


class SessionStart(Value):
    """Input of the Session workflow."""

    store_id: str
    tenant: str
    session: str
    state: SessionState = SessionState()


class Admission(Value):
    """Answer to a submission."""

    task_id: str
    state: Literal["started", "running", "finished"]


class Equipment(Value):
    """What workflows may use besides activities."""

    search_attributes: bool
    """Whether the server has our search attributes. An upsert of an unregistered one would hang the workflow."""
    notices: bool = False
    """Whether a webhook is set."""
    privacy: Policy | None = None
    """How much is replaced."""
    sealed_answers: bool = False
    """Whether this worker encrypts, so that what people send must have been encrypted, too."""


class Admitted(Equipment):
    """What admitting a task found out: what the workflows need to start it, and nothing private."""

    ref: TaskRef
    terms: TaskTerms
    title: str
    """The question, redacted and shortened."""
    documents: int
    finished: bool
    """The store says that this task has ended before: nothing is started."""
    forked: bool = False
    """It begins with finished steps of another one."""
    budget: BudgetProgress | None = None
    """Of a task that has ended: what it could spend and has spent, grants included."""


class Settlement(Value):
    """What a task spent in all, told to its session when the task ends or is found dead."""

    task_id: str
    spent: Amount


class Answer(Value):
    """A session's answer to an ask: what it gives, possibly nothing."""

    ask_id: str
    amount: Amount = Field(validation_alias=AliasChoices("amount", "tokens"))
    used: Amount = Amount()
    """What the session has spent and holds for its tasks, this amount included."""
    limit: Limit = Limit()
    """What the session may spend in all."""


class Raised(Value):
    """A person granted a task new money: its session is raised by as much."""

    task_id: str
    amount: Amount = Field(validation_alias=AliasChoices("amount", "tokens"))
