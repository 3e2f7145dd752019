"""Transitions of a session's state: tasks reserve, ask, are raised and settle, each of it once."""

from contextlib import suppress

from pydantic import Field, JsonValue

from waystation.domain.errors import Overdrawn
from waystation.domain.ledger import Account
from waystation.domain.session import Answer, Ask, Raised, SessionState, Settlement
from waystation.domain.value import Input

REMEMBERED_ASKS = 500


class LimitInput(Input):
    """JSON of the signal `set_session_limit`."""

    tokens: int | None = Field(ge=0, le=1_000_000_000_000, strict=True)
    """The session's limit; null takes it away."""


def limited(state: SessionState, sent: JsonValue) -> SessionState:
    """The session's new limit. Raises ValidationError; what was spent and is held stays as it is."""
    account = state.account
    limit = LimitInput.model_validate(sent).tokens
    return state.model_copy(update={"account": Account(limit=limit, spent=account.spent, reserved=account.reserved)})


def admitted(state: SessionState, task_id: str, budget: int) -> SessionState:
    """The task's budget is reserved. Raises Overdrawn."""
    return state.model_copy(
        update={"account": state.account.reserve(task_id, budget), "open_tasks": (*state.open_tasks, task_id)}
    )


def withdrawn(state: SessionState, task_id: str) -> SessionState:
    """The task did not start after all: nothing of its reservation was spent."""
    return settled(state, Settlement(task_id=task_id, spent=0))


def settled(state: SessionState, settlement: Settlement) -> SessionState:
    """The task is over: its reservation becomes what it spent. A second settlement changes nothing."""
    return state.model_copy(
        update={
            "account": state.account.settle(settlement.task_id, settlement.spent),
            "open_tasks": tuple(task_id for task_id in state.open_tasks if task_id != settlement.task_id),
        }
    )


def raised(state: SessionState, grant: Raised) -> SessionState:
    """A person granted a task new money: limit and reservation grow together."""
    if grant.task_id not in state.account.reserved:
        return state
    return state.model_copy(update={"account": state.account.grant_to(grant.task_id, grant.tokens)})


def answered(state: SessionState, ask: Ask) -> tuple[SessionState, Answer]:
    """What the session gives: all of it, or nothing. A session without a limit gives nothing: nobody said how much.
    A task that holds nothing here is over: what it were given, nobody would give back.
    """
    account, tokens = state.account, 0
    if account.limit is not None and ask.task_id in account.reserved:
        with suppress(Overdrawn):
            account, tokens = account.reserve(ask.task_id, ask.tokens), ask.tokens
    changed = state.model_copy(
        update={
            "account": account,
            "answered": (*state.answered, ask.ask_id)[-REMEMBERED_ASKS:],
        }
    )
    return changed, Answer(ask_id=ask.ask_id, tokens=tokens)


def details(state: SessionState) -> str:
    """What a person reads in the Temporal UI, as Markdown."""
    account = state.account
    limit = "no limit" if account.limit is None else f"{account.limit:,} tokens"
    return (
        f"**Session** {len(state.open_tasks)} open tasks\n\n"
        f"**Budget** {limit}; {account.spent:,} spent, {account.held:,} reserved\n\n"
        + "\n".join(f"- `{task_id}`" for task_id in state.open_tasks)
    )
