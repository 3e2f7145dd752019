"""A session: an ongoing line of work whose tasks share one budget.

Transitions of a session's state: tasks reserve, ask, are raised and settle, each of it once.
"""

from contextlib import suppress
from decimal import Decimal
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from waystation.budgets.budget import LOWEST_BUDGET, BudgetAccount
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, format_usd, format_used_amount
from waystation.kernel.deferred_signals import DeferredSignal
from waystation.kernel.errors import BadInput, InsufficientBudgetError
from waystation.kernel.refs import TaskRef
from waystation.kernel.value import Value
from waystation.privacy.policy import RedactionPolicy
from waystation.tasks.task import BudgetProgress, TaskConfig, TaskRow, make_own_session_name

REFUSAL_PREFIX = "the session refused the task: "
"""How the error begins where a session does not take a task; its reason follows."""


class SessionBudgetRequest(Value):
    """A task asks its session for more. Answered once for its id, however often it is sent."""

    task_id: str
    ask_id: str
    amount: Amount


class SessionState(Value):
    """What a session carries through continue-as-new."""

    account: BudgetAccount = BudgetAccount(limit=Limit())
    open_tasks: tuple[str, ...] = ()
    """Tasks that were started and have not settled."""
    sealed: bool = False
    """Whether messages must have been encrypted with the key of the workers. So from the first of its tasks on that
    takes sealed answers, or since it was started by a client that encrypts.
    """
    answered: tuple[str, ...] = ()
    """Ids of the newest answered asks: a repeated ask is not answered with money a second time."""


class SessionKey(Value):
    """Which session this is, as hashes."""

    tenant: str
    session: str


class StoredSession(Value):
    """A session as the store keeps it, for the next workflow execution after one that was terminated."""

    epoch: int
    """Counts the workflow executions that took the session over. Only the newest may save."""
    version: int
    """Counts the changes of the state."""
    state: SessionState


class SaveSessionRequest(Value):
    """A state to be saved."""

    key: SessionKey
    stored: StoredSession


class SessionWorkflowInput(Value):
    """Input of the Session workflow."""

    store_id: str
    tenant: str
    session: str
    single: bool = False
    """The session was made for one task: it ends when no task is open. The store keeps its account."""
    state: SessionState = SessionState()
    epoch: int = 0
    """0: the workflow begins with what the store has. Otherwise it continues an execution of this epoch."""
    version: int = 0
    """Of the state."""
    saved: int = 0
    """The version that the store has."""
    held: tuple[DeferredSignal, ...] = ()
    """They came while the execution before was about to continue as new, and take effect in this one."""

    @property
    def key(self) -> SessionKey:
        """The session in the store."""
        return SessionKey(tenant=self.tenant, session=self.session)


def build_session_input_for_row(row: TaskRow) -> SessionWorkflowInput:
    """The same; it ends with this task if it was made for it alone."""
    request = row.request
    own = request.session == make_own_session_name(request.request_id)
    return build_session_input(row.ref).replace(single=own)


def build_session_input(ref: TaskRef) -> SessionWorkflowInput:
    """What the session of this task is started with if it does not run."""
    return SessionWorkflowInput(store_id=ref.store_id, tenant=ref.tenant, session=ref.session)


class SubmissionResult(Value):
    """Answer to a submission."""

    task_id: str
    state: Literal["started", "running", "finished"]


class WorkerCapabilities(Value):
    """What workflows may use besides activities."""

    search_attributes: bool
    """Whether the server has our search attributes. An upsert of an unregistered one would hang the workflow."""
    notices: bool = False
    """Whether a webhook is set."""
    privacy: RedactionPolicy | None = None
    """How much is replaced."""
    sealed_answers: bool = False
    """Whether this worker encrypts, so that what people send must have been encrypted, too."""
    approvers: tuple[str, ...] = ()
    """Whose verified answers alone have an effect; without any, anybody's."""


class AdmissionResult(WorkerCapabilities):
    """What admitting a task found out: what the workflows need to start it, and nothing private."""

    ref: TaskRef
    terms: TaskConfig
    title: str
    """The question, redacted and shortened."""
    documents: int
    finished: bool
    """The store says that this task has ended before: nothing is started."""
    forked: bool = False
    """It begins with finished steps of another one."""
    budget: BudgetProgress | None = None
    """Of a task that has ended: what it could spend and has spent, grants included."""


class AdmissionRequest(Value):
    """A workflow asks a session to admit a task. The session answers by the signal `ADMISSION_ANSWER`."""

    ref: TaskRef
    reply_to: str
    """Workflow id."""


class AdmissionAnswer(Value):
    """What became of an `AdmissionRequest`."""

    admission: SubmissionResult | None = None
    """None if the session refuses the task."""
    error: str = ""
    """Type of the error with which it was refused."""
    reason: str = ""


class TaskSettlement(Value):
    """What a task spent in all, told to its session when the task ends or is found dead."""

    task_id: str
    spent: Amount


class SessionBudgetAnswer(Value):
    """A session's answer to an ask: what it gives, possibly nothing."""

    ask_id: str
    amount: Amount
    used: Amount = Amount()
    """What the session has spent and holds for its tasks, this amount included."""
    limit: Limit = Limit()
    """What the session may spend in all."""


class TaskGrant(Value):
    """A person granted a task new money: its session is raised by as much."""

    task_id: str
    amount: Amount


MAX_REMEMBERED_REQUESTS = 500


class SessionLimitInput(Value):
    """JSON of the signal `set_session_limit`."""

    tokens: int | None = Field(default=None, ge=0, le=1_000_000_000_000, strict=True)
    """The session's limit; null takes it away; left out, it stays as it is."""
    usd: Decimal | None = Field(default=None, ge=0, le=10_000_000, decimal_places=6)
    """The same in dollars."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give tokens, usd or both")
        return self

    def apply_to(self, limit: Limit) -> Limit:
        """The limit with what was given instead."""
        micro_usd = None if self.usd is None else int(self.usd * 1_000_000)
        return Limit(
            tokens=self.tokens if "tokens" in self.model_fields_set else limit.tokens,
            micro_usd=micro_usd if "usd" in self.model_fields_set else limit.micro_usd,
        )


def with_limit(state: SessionState, sent: JsonValue) -> SessionState:
    """The session's new limit. Raises ValidationError; what was spent and is held stays as it is."""
    account = state.account
    limit = SessionLimitInput.model_validate(sent).apply_to(account.limit)
    return state.replace(account=BudgetAccount(limit=limit, spent=account.spent, reserved=account.reserved))


MAX_OPEN_TASKS = 1_000
"""Of one session at a time: its state is one payload, and stays below 256 kB."""


def admit_or_reopen_task(state: SessionState, task: AdmissionResult) -> SessionState:
    """A task's budget is held, for the first time or again. Raises as `admitted` and `reopened` do, and BadInput where
    as many tasks are open as a session may have.
    """
    if len(state.open_tasks) >= MAX_OPEN_TASKS:
        raise BadInput(
            f"the session has {len(state.open_tasks):,} open tasks, the most that it may have: wait until some have "
            "ended, or submit to another --session"
        )
    state = state.replace(sealed=state.sealed or task.sealed_answers)
    if task.budget is not None:
        return reopen_task(state, task.ref.task_id, task.budget)
    return admit_task(state, task.ref.task_id, task.terms.budget)


def admit_task(state: SessionState, task_id: str, budget: Limit) -> SessionState:
    """The task's budget is reserved. Raises Overdrawn, and BadInput for a task without a limit where its session has
    one: nothing could be held for it.
    """
    limit = state.account.limit
    if not budget.limits_units_of(limit):
        raise BadInput(f"the session is limited to {format_limit(limit)}: give the task a --budget in the same unit")
    return state.replace(account=state.account.reserve(task_id, budget.amount), open_tasks=(*state.open_tasks, task_id))


def reopen_task(state: SessionState, task_id: str, budget: BudgetProgress) -> SessionState:
    """A task that had settled goes on: its settlement is undone, and all that it may spend is held again.

    Raises Overdrawn where the session has not as much left as the task.
    """
    account = state.account.undo_settlement(task_id, budget.spent)
    account = account.reserve(task_id, budget.limit.remaining_after(budget.spent).amount)
    return state.replace(account=account, open_tasks=(*state.open_tasks, task_id))


_CENT = 10_000
"""Micro-USD."""


def format_insufficient_budget(account: BudgetAccount, asked: Amount, *, again: bool = False) -> str:
    """Why this amount cannot be held for a task, and what to do. `again`: for a task that is to go on."""
    left = account.unreserved
    asks = "the task may still spend" if again else "the task asks for"
    words = f"the session has {_left_text(left, account.limit)} left, and {asks} {format_amount(asked)}"
    if not account.total_reserved.is_zero:
        words += (
            f"; {format_amount(account.total_reserved)} held for its tasks at work, which give back what they do "
            "not spend"
        )
    steps = ["raise the session's limit with `waystation session set SESSION --budget AMOUNT`"]
    if not again and (fitting := _fitting_budget(left, asked)):
        steps.insert(0, f"submit with --budget {fitting} or less")
    return f"{words}: {', or '.join(steps)}"


def _left_text(left: Limit, limit: Limit) -> str:
    parts: list[str] = []
    if limit.tokens is not None:
        parts.append(f"{left.tokens or 0:,} of {limit.tokens:,} tokens")
    if limit.micro_usd is not None:
        parts.append(f"{format_usd(left.micro_usd or 0)} of {format_usd(limit.micro_usd)}")
    return " and ".join(parts)


def _fitting_budget(left: Limit, asked: Amount) -> str:
    """What a task could ask for, as it is written in a shell; empty where that is too little for any task."""
    tokens = asked.tokens if left.tokens is None else min(asked.tokens, left.tokens)
    micro_usd = asked.micro_usd if left.micro_usd is None else min(asked.micro_usd, left.micro_usd)
    if (asked.tokens and tokens < LOWEST_BUDGET) or (asked.micro_usd and micro_usd < _CENT):
        return ""
    parts = [str(max(LOWEST_BUDGET, tokens - tokens % 1_000))] if asked.tokens else []
    parts += [f"${(micro_usd - micro_usd % _CENT) / 1_000_000:.2f}"] if asked.micro_usd else []
    written = "+".join(parts)
    return f"'{written}'" if "$" in written else written


class RefusedTask(Value):
    """A task that its session does not take."""

    ref: TaskRef
    reason: str


def release_unstarted_task(state: SessionState, task_id: str) -> SessionState:
    """The task did not start after all: nothing of its reservation was spent."""
    return settle_task(state, TaskSettlement(task_id=task_id, spent=Amount()))


def settle_task(state: SessionState, settlement: TaskSettlement) -> SessionState:
    """The task is over: its reservation becomes what it spent. A second settlement changes nothing."""
    return state.replace(
        account=state.account.settle(settlement.task_id, settlement.spent),
        open_tasks=tuple(task_id for task_id in state.open_tasks if task_id != settlement.task_id),
    )


def apply_task_grant(state: SessionState, grant: TaskGrant) -> SessionState:
    """A person granted a task new money: limit and reservation grow together."""
    if grant.task_id not in state.account.reserved:
        return state
    return state.replace(account=state.account.grant_to(grant.task_id, grant.amount))


def answer_budget_request(
    state: SessionState, ask: SessionBudgetRequest
) -> tuple[SessionState, SessionBudgetAnswer | None]:
    """What the session gives: all of it, or nothing. A session without a limit gives nothing: nobody said how much.
    A task that holds nothing here is over: what it were given, nobody would give back. None: the ask was answered
    before, and nothing changes.
    """
    if ask.ask_id in state.answered:
        return state, None
    account, given = state.account, Amount()
    if _limited(account.limit, ask.amount) and ask.task_id in account.reserved:
        with suppress(InsufficientBudgetError):
            account, given = account.reserve(ask.task_id, ask.amount), ask.amount
    changed = state.replace(
        account=account,
        answered=(*state.answered, ask.ask_id)[-MAX_REMEMBERED_REQUESTS:],
    )
    used = account.spent + account.total_reserved
    return changed, SessionBudgetAnswer(ask_id=ask.ask_id, amount=given, used=used, limit=account.limit)


def _limited(limit: Limit, asked: Amount) -> bool:
    """Whether there is a limit in each unit that is asked for."""
    return (not asked.tokens or limit.tokens is not None) and (not asked.micro_usd or limit.micro_usd is not None)


def render_session_details(state: SessionState) -> str:
    """What a person reads in the Temporal UI, as Markdown."""
    account = state.account
    return (
        f"**Session** {len(state.open_tasks)} open tasks\n\n"
        f"**Budget** {format_used_amount(account.spent, account.limit)} spent, "
        f"{format_amount(account.total_reserved)} reserved"
        f"{', no limit' if account.limit.is_unlimited else ''}\n\n"
        + "\n".join(f"- `{task_id}`" for task_id in state.open_tasks)
    )
