"""A task's state inside its workflow, and its display: current details and search attributes follow every change."""

from pydantic import JsonValue
from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, SearchAttributeUpdate, TypedSearchAttributes

from activities.ledger import AuditRequest, LedgerActivities
from waystation.domain.agent_run import AgentRun
from waystation.domain.approvals import Standing
from waystation.domain.compaction.edit import ContextEdit
from waystation.domain.details import details
from waystation.domain.inbound import is_sealed
from waystation.domain.ledger import Account
from waystation.domain.names import (
    COST_ATTRIBUTE,
    PENDING_ATTRIBUTE,
    PHASE_ATTRIBUTE,
    SESSION_ATTRIBUTE,
    TOKENS_ATTRIBUTE,
)
from waystation.domain.task import Approval, AuditEntry, Refusal, TaskPhase, TaskProgress
from waystation.domain.task_progress import progress_of
from waystation.domain.task_start import TaskStart
from waystation.domain.task_state import TaskState
from waystation.domain.team import Teammate, team_of
from workflows.options import SHORT, named

SESSION = SearchAttributeKey.for_keyword(SESSION_ATTRIBUTE)
PHASE = SearchAttributeKey.for_keyword(PHASE_ATTRIBUTE)
TOKENS = SearchAttributeKey.for_int(TOKENS_ATTRIBUTE)
COST = SearchAttributeKey.for_float(COST_ATTRIBUTE)
PENDING = SearchAttributeKey.for_int(PENDING_ATTRIBUTE)


def first_attributes(session: str) -> TypedSearchAttributes:
    """What a task is started with."""
    return TypedSearchAttributes(
        [SearchAttributePair(SESSION, session), SearchAttributePair(PHASE, TaskPhase.SUBMITTED.value)]
    )


class Board:
    """Where the parts of a task's workflow read and change its state."""

    def __init__(self, start: TaskStart) -> None:
        self.start = start
        self.state = start.state or TaskState(account=Account(limit=start.terms.budget))
        self.parking = False
        """The workflow wants to continue as new: nothing new is started, and waiting agents come back."""
        self._shown: tuple[str, int, int, int | None] | None = None

    @property
    def stopping(self) -> bool:
        """Whether agents shall come back without going on."""
        return self.parking or self.state.cancelled

    @property
    def progress(self) -> TaskProgress:
        """What people see."""
        return self.progress_in(self.state)

    def progress_in(self, state: TaskState) -> TaskProgress:
        """What they would see in this state."""
        start = self.start
        return progress_of(state, start.ref, start.terms, start.title, start.privacy)

    @property
    def standing(self) -> Standing:
        """What an answer is held against. Units that are not counted used to be taken: such histories must replay."""
        state = self.state
        return Standing(
            approvals=state.approvals,
            limit=state.account.limit,
            ceiling=self.start.terms.ceiling,
            counted_only=workflow.patched("grants-in-counted-units"),
            ending=state.ending,
        )

    def takes(self, sent: tuple[JsonValue, ...]) -> bool:
        """Whether a message may have an effect: where the task was admitted under encryption, if it came so."""
        return not self.start.sealed_answers or is_sealed(sent)

    @property
    def task_id(self) -> str:
        """Of the task, and of its workflow."""
        return self.start.ref.task_id

    @property
    def task_used(self) -> float:
        """The share of the task's budget that is spent."""
        return self.state.used

    def team(self, step_id: str) -> tuple[Teammate, ...]:
        """Who else works on the task, as this agent is told."""
        return team_of(self.progress.steps, step_id)

    def run(self, step_id: str) -> AgentRun:
        """A step's agent run."""
        return self.state.runs[step_id]

    def keep(self, run: AgentRun) -> None:
        """An agent run as it is from now on, shown at once."""
        self.change(self.state.with_run(run))

    def change(self, state: TaskState) -> None:
        """The new state, shown at once."""
        self.state = state
        workflow.set_current_details(details(self.progress))
        self._upsert()

    def _upsert(self) -> None:
        """Search attributes, where the server has them: upserting an unknown one would hang the workflow."""
        totals = self.state.totals
        shown = (self.state.phase.value, totals.spent.tokens, len(self.state.pending), totals.cost_micro_usd)
        if not self.start.search_attributes or shown == self._shown:
            return
        self._shown = shown
        updates: list[SearchAttributeUpdate[str] | SearchAttributeUpdate[int] | SearchAttributeUpdate[float]] = [
            PHASE.value_set(self.state.phase.value),
            TOKENS.value_set(totals.spent.tokens),
            PENDING.value_set(len(self.state.pending)),
        ]
        if totals.cost_micro_usd is not None:
            updates.append(COST.value_set(totals.cost_micro_usd / 1_000_000))
        workflow.upsert_search_attributes(updates)  # pyright: ignore[reportUnknownMemberType]: its other overload has a bare generic


async def record(board: Board, *entries: AuditEntry) -> None:
    """Keep requests, answers, edits and what was refused in the store's audit trail."""
    request = AuditRequest(
        task_id=board.start.ref.task_id,
        approvals=tuple(entry for entry in entries if isinstance(entry, Approval)),
        refusals=tuple(entry for entry in entries if isinstance(entry, Refusal)),
        edits=tuple(entry for entry in entries if isinstance(entry, ContextEdit)),
    )
    await workflow.execute_activity_method(LedgerActivities.audit, request, **named(SHORT, "keep the audit trail"))
