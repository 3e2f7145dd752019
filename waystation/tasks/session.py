"""A session: an ongoing line of work whose tasks share one budget; its state, messages and transitions.

Tasks reserve, request, are granted and settle budget, each of it once.
"""

from contextlib import suppress
from decimal import Decimal
from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from waystation.budgets.budget import MIN_BUDGET_TOKENS, BudgetAccount
from waystation.kernel.amount import Amount, Limit, format_amount, format_limit, format_usd, format_used_amount
from waystation.kernel.deferred_signals import DeferredSignal
from waystation.kernel.errors import BadInput, InsufficientBudgetError
from waystation.kernel.refs import TaskRef
from waystation.kernel.text import format_count
from waystation.kernel.value import Value
from waystation.privacy.policy import RedactionPolicy
from waystation.tasks.task import BudgetProgress, TaskConfig, TaskRow, make_own_session_name

REFUSAL_PREFIX = "the session refused the task: "
"""Prefix of the error if a session rejects a task; the reason follows."""


class SessionBudgetRequest(Value):
    """Request of a task for more budget from its session. Answered once per ID, however often it is sent."""

    task_id: str
    request_id: str
    amount: Amount


class SessionState(Value):
    """What a session carries through continue-as-new."""

    account: BudgetAccount = BudgetAccount(limit=Limit())
    open_tasks: tuple[str, ...] = ()
    """Tasks that were started and have not settled."""
    requires_encrypted_messages: bool = False
    """Whether messages must be encrypted with the workers' key. True from the first task that requires it, or if the
    session was started by a client that encrypts.
    """
    answered: tuple[str, ...] = ()
    """IDs of the newest answered requests, so that a repeated one gets nothing a second time."""


class SessionKey(Value):
    """Identity of a session, as hashes."""

    tenant: str
    session: str


class StoredSession(Value):
    """A session as stored, for the next workflow execution after a termination."""

    epoch: int
    """Number of workflow executions that took the session over. Only the newest may save."""
    version: int
    """Number of changes of the state."""
    state: SessionState


class SaveSessionRequest(Value):
    """A state to save."""

    key: SessionKey
    stored: StoredSession


class SessionWorkflowInput(Value):
    """Input of the Session workflow."""

    store_id: str
    tenant: str
    session: str
    single_task: bool = False
    """Whether the session was made for one task: it ends when no task is open. The store keeps its account."""
    state: SessionState = SessionState()
    epoch: int = 0
    """0: the workflow starts from what the store has. Otherwise it continues an execution of this epoch."""
    version: int = 0
    """Version of the state."""
    saved_version: int = 0
    """Version in the store."""
    deferred_signals: tuple[DeferredSignal, ...] = ()
    """Messages that arrived while the previous execution was about to continue as new; applied in this one."""

    @property
    def key(self) -> SessionKey:
        """Identity of the session in the store."""
        return SessionKey(tenant=self.tenant, session=self.session)


def build_session_input_for_row(row: TaskRow) -> SessionWorkflowInput:
    """Build the input for the task's session, which ends with this task if it was made for it alone."""
    request = row.request
    own = request.session == make_own_session_name(request.request_id)
    return build_session_input(row.ref).replace(single_task=own)


def build_session_input(ref: TaskRef) -> SessionWorkflowInput:
    """Build the input with which the task's session is started if it does not run."""
    return SessionWorkflowInput(store_id=ref.store_id, tenant=ref.tenant, session=ref.session)


class SubmissionResult(Value):
    """Answer to a submission."""

    task_id: str
    state: Literal["started", "running", "finished"]


class WorkerCapabilities(Value):
    """What workflows may use besides activities."""

    search_attributes: bool
    """Whether the server has our search attributes. Upserting an unregistered one would hang the workflow."""
    notifications: bool = False
    """Whether a webhook is configured."""
    privacy: RedactionPolicy | None = None
    """How much is redacted."""
    requires_encrypted_messages: bool = False
    """Whether this worker encrypts, so that people's messages must be encrypted, too."""
    approvers: tuple[str, ...] = ()
    """Names whose verified answers alone take effect; empty: anyone's do."""


class AdmissionResult(WorkerCapabilities):
    """Result of admitting a task: what the workflows need to start it, and nothing private."""

    ref: TaskRef
    config: TaskConfig
    title: str
    """The question, redacted and shortened."""
    documents: int
    finished: bool
    """Whether the store says that this task has ended before: nothing is started."""
    forked: bool = False
    """Whether it starts with finished steps of another task."""
    fairness_weight: float = 1.0
    """The tenant's share of the workers, in relation to other tenants."""
    budget: BudgetProgress | None = None
    """Budget of a task that has ended: its limit including grants, and what it has spent."""


class AdmissionRequest(Value):
    """Request of a workflow to admit a task. The session answers by the signal `ADMISSION_ANSWER`."""

    ref: TaskRef
    reply_to: str
    """ID of the workflow."""


class AdmissionAnswer(Value):
    """Answer to an `AdmissionRequest`."""

    admission: SubmissionResult | None = None
    """None if the session rejects the task."""
    error: str = ""
    """Type of the error with which it was rejected."""
    reason: str = ""


class TaskSettlement(Value):
    """Total that a task spent, sent to its session when the task ends or is found dead."""

    task_id: str
    spent: Amount


class SessionBudgetAnswer(Value):
    """Answer of a session to a budget request: the amount given, possibly zero."""

    request_id: str
    amount: Amount
    used: Amount = Amount()
    """What the session has spent and reserved for its tasks, including this amount."""
    limit: Limit = Limit()
    """The session's limit."""


class ApprovedTaskGrant(Value):
    """A person's grant to a task, which raises its session's limit by as much."""

    task_id: str
    amount: Amount


MAX_REMEMBERED_REQUESTS = 500


class SessionLimitInput(Value):
    """JSON of the signal `set_session_limit`."""

    tokens: int | None = Field(default=None, ge=0, le=1_000_000_000_000, strict=True)
    """The session's limit in tokens; null removes it; if omitted, it stays as it is."""
    usd: Decimal | None = Field(default=None, ge=0, le=10_000_000, decimal_places=6)
    """The same in dollars."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("give tokens, usd or both")
        return self

    def apply_to(self, limit: Limit) -> Limit:
        """Return the limit with the given units replaced."""
        micro_usd = None if self.usd is None else int(self.usd * 1_000_000)
        return Limit(
            tokens=self.tokens if "tokens" in self.model_fields_set else limit.tokens,
            micro_usd=micro_usd if "usd" in self.model_fields_set else limit.micro_usd,
        )


def with_limit(state: SessionState, sent: JsonValue) -> SessionState:
    """Set the session's limit; spent and reserved amounts stay. Raises ValidationError."""
    account = state.account
    limit = SessionLimitInput.model_validate(sent).apply_to(account.limit)
    return state.replace(account=BudgetAccount(limit=limit, spent=account.spent, reserved=account.reserved))


MAX_OPEN_TASKS = 1_000
"""Maximum open tasks of one session: its state is one payload, and stays below 256 kB."""


def admit_or_reopen_task(state: SessionState, task: AdmissionResult) -> SessionState:
    """Reserve a task's budget, for the first time or again.

    Raises as `admit_task` and `reopen_task` do, and BadInput if the session has the maximum of open tasks.
    """
    if len(state.open_tasks) >= MAX_OPEN_TASKS:
        raise BadInput(
            f"the session has {len(state.open_tasks):,} open tasks, which is the maximum: wait until some "
            "have ended, or submit to another session (--session)"
        )
    state = state.replace(
        requires_encrypted_messages=state.requires_encrypted_messages or task.requires_encrypted_messages
    )
    if task.budget is not None:
        return reopen_task(state, task.ref.task_id, task.budget)
    return admit_task(state, task.ref.task_id, task.config.budget)


def admit_task(state: SessionState, task_id: str, budget: Limit) -> SessionState:
    """Reserve a task's budget.

    Raises:
        InsufficientBudgetError: The session has less left.
        BadInput: The session has a limit and the task has none: nothing could be reserved for it.
    """
    limit = state.account.limit
    if not budget.limits_units_of(limit):
        raise BadInput(f"the session is limited to {format_limit(limit)}: give the task a --budget in the same unit")
    return state.replace(account=state.account.reserve(task_id, budget.amount), open_tasks=(*state.open_tasks, task_id))


def reopen_task(state: SessionState, task_id: str, budget: BudgetProgress) -> SessionState:
    """Undo a task's settlement because it continues, and reserve all that it may still spend.

    Raises InsufficientBudgetError if the session has less left than the task.
    """
    account = state.account.undo_settlement(task_id, budget.spent)
    account = account.reserve(task_id, budget.limit.remaining_after(budget.spent).amount)
    return state.replace(account=account, open_tasks=(*state.open_tasks, task_id))


_CENT = 10_000
"""One cent in micro-USD."""


def format_insufficient_budget(account: BudgetAccount, asked: Amount, *, again: bool = False) -> str:
    """Explain why this amount cannot be reserved, and what to do. `again`: the task is to continue."""
    left = account.unreserved
    asks = "the rest of the task's budget is" if again else "the task asks for"
    words = f"the session has {_left_text(left, account.limit)} left, but {asks} {format_amount(asked)}"
    if not account.total_reserved.is_zero:
        words += (
            f"; the session's running tasks hold {format_amount(account.total_reserved)}, and return what they do "
            "not spend"
        )
    steps = ["raise the session's limit with `waystation session set SESSION --budget AMOUNT`"]
    if not again and (fitting := _fitting_budget(left, asked)):
        steps.insert(0, f"submit with --budget {fitting} or less")
    if account.total_reserved.is_zero:
        return f"{words}: {', or '.join(steps)}"
    return f"{words}. {', '.join(['Wait until they have ended', *steps[:-1]])}, or {steps[-1]}"


def _left_text(remaining: Limit, limit: Limit) -> str:
    parts: list[str] = []
    if limit.tokens is not None:
        parts.append(f"{remaining.tokens or 0:,} of {limit.tokens:,} tokens")
    if limit.micro_usd is not None:
        parts.append(f"{format_usd(remaining.micro_usd or 0)} of {format_usd(limit.micro_usd)}")
    return " and ".join(parts)


def _fitting_budget(remaining: Limit, asked: Amount) -> str:
    """Return a budget that fits, as written in a shell; empty if it is too little for any task."""
    tokens = asked.tokens if remaining.tokens is None else min(asked.tokens, remaining.tokens)
    micro_usd = asked.micro_usd if remaining.micro_usd is None else min(asked.micro_usd, remaining.micro_usd)
    if (asked.tokens and tokens < MIN_BUDGET_TOKENS) or (asked.micro_usd and micro_usd < _CENT):
        return ""
    parts = [str(max(MIN_BUDGET_TOKENS, tokens - tokens % 1_000))] if asked.tokens else []
    parts += [f"${(micro_usd - micro_usd % _CENT) / 1_000_000:.2f}"] if asked.micro_usd else []
    written = "+".join(parts)
    return f"'{written}'" if "$" in written else written


class RefusedTask(Value):
    """A task that its session rejected."""

    ref: TaskRef
    reason: str


def release_unstarted_task(state: SessionState, task_id: str) -> SessionState:
    """Release the reservation of a task that did not start after all."""
    return settle_task(state, TaskSettlement(task_id=task_id, spent=Amount()))


def settle_task(state: SessionState, settlement: TaskSettlement) -> SessionState:
    """Replace the task's reservation by what it spent. A second settlement changes nothing."""
    return state.replace(
        account=state.account.settle(settlement.task_id, settlement.spent),
        open_tasks=tuple(task_id for task_id in state.open_tasks if task_id != settlement.task_id),
    )


def apply_task_grant(state: SessionState, grant: ApprovedTaskGrant) -> SessionState:
    """Raise limit and reservation by a person's grant to a task."""
    if grant.task_id not in state.account.reserved:
        return state
    return state.replace(account=state.account.grant_to(grant.task_id, grant.amount))


def answer_budget_request(
    state: SessionState, ask: SessionBudgetRequest
) -> tuple[SessionState, SessionBudgetAnswer | None]:
    """Answer a budget request: all of it, or nothing.

    A session without a limit gives nothing, since no one set an amount.

    A task without a reservation here is over, and would never release what it got.

    Returns:
        The state and the answer; None if the request was answered before, and nothing changes.
    """
    if ask.request_id in state.answered:
        return state, None
    account, given = state.account, Amount()
    if _limited(account.limit, ask.amount) and ask.task_id in account.reserved:
        with suppress(InsufficientBudgetError):
            account, given = account.reserve(ask.task_id, ask.amount), ask.amount
    changed = state.replace(
        account=account,
        answered=(*state.answered, ask.request_id)[-MAX_REMEMBERED_REQUESTS:],
    )
    used = account.spent + account.total_reserved
    return changed, SessionBudgetAnswer(request_id=ask.request_id, amount=given, used=used, limit=account.limit)


def _limited(limit: Limit, asked: Amount) -> bool:
    """Return whether there is a limit in each requested unit."""
    return (not asked.tokens or limit.tokens is not None) and (not asked.micro_usd or limit.micro_usd is not None)


def render_session_details(state: SessionState) -> str:
    """Render the session for the Temporal UI as Markdown."""
    account = state.account
    return (
        f"**Session** {format_count(len(state.open_tasks), 'open task')}\n\n"
        f"**Budget** {format_used_amount(account.spent, account.limit)} spent, "
        f"{format_amount(account.total_reserved)} reserved"
        f"{', no limit' if account.limit.is_unlimited else ''}\n\n"
        + "\n".join(f"- `{task_id}`" for task_id in state.open_tasks)
    )
