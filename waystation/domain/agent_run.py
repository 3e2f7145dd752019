"""The state machine of one agent run: what the workflow must do next with it.

It is part of the workflow's state: immutable, serialisable, carried through continue-as-new.
"""

from typing import Literal

from waystation.domain.amount import Amount, Limit
from waystation.domain.budget import RunTotals
from waystation.domain.compaction.outcome import CompactionOutcome
from waystation.domain.leg import (
    AgentTerms,
    AllowanceSpent,
    ContextFull,
    Finished,
    LegOutcome,
    LegRequest,
    ProviderLimit,
    RunRef,
    TurnLimit,
    Yielded,
)
from waystation.domain.value import Value
from waystation.domain.work import Made

MAX_FUTILE_COMPACTIONS = 3
"""Compactions in a row without a turn between them; then what there is gets delivered."""


class RunLeg(Value):
    """Carry out this leg."""

    request: LegRequest


class Compact(Value):
    """Make room in the context before the next leg."""

    request_tokens: int


class AskMoney(Value):
    """The agent's budget is spent: draw on its task, then its session, and only then ask a person."""

    amount: Amount


class Deliver(Value):
    """The run is over. `partial`: the agent did not hand in a result of its own."""

    partial: bool
    reason: str = ""


Move = RunLeg | Compact | AskMoney | Deliver
Phase = Literal["running", "full", "spent", "delivered"]


class AgentRun(Value):
    """One agent with its own context window, budget and compactions."""

    run: RunRef
    terms: AgentTerms
    limit: Limit
    """What it may spend in all."""
    share: Limit
    """What it started with, and what it asks for when that is spent."""
    leg: int = 1
    phase: Phase = "running"
    totals: RunTotals = RunTotals()
    needed: Amount = Amount()
    """What its next call needs over what is left; nothing of a unit that it has enough of."""
    request_tokens: int = 0
    scale: float = 1.0
    compactions: tuple[CompactionOutcome, ...] = ()
    futile: int = 0
    """Compactions since the last turn."""
    partial: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    made: Made = Made()
    """What it had handed over when its last leg ended."""
    halted: str = ""
    """Why the provider makes no more calls, until a person has seen to it."""

    def next_move(self) -> Move:
        """What the workflow does next."""
        match self.phase:
            case "running":
                return RunLeg(
                    request=LegRequest(run=self.run, leg=self.leg, limit=self.limit, terms=self.terms, scale=self.scale)
                )
            case "full":
                return Compact(request_tokens=self.request_tokens)
            case "spent":
                return AskMoney(amount=self.wanted)
            case "delivered":
                return Deliver(partial=self.partial, reason=self.reason)

    @property
    def wanted(self) -> Amount:
        """What it asks for when its budget is spent: its share again, in the units that it lacks, or what it needs."""
        share, needed = self.share.amount, self.needed
        return Amount(
            tokens=max(share.tokens, needed.tokens) if needed.tokens else 0,
            micro_usd=max(share.micro_usd, needed.micro_usd) if needed.micro_usd else 0,
        )

    def after_leg(self, outcome: LegOutcome) -> "AgentRun":
        """The leg's outcome, taken into the state."""
        standing = outcome.standing
        worked = standing.totals.turns > self.totals.turns
        base = self._with(
            totals=standing.totals,
            scale=standing.scale,
            made=standing.made,
            leg=self.leg + 1,
            futile=0 if worked else self.futile,
            notes=tuple(dict.fromkeys((*self.notes, *standing.notes))),
        )
        match outcome:
            case Finished():
                return base._with(phase="delivered", partial=outcome.partial, reason=outcome.reason)
            case ContextFull():
                return base._full(outcome.request_tokens)
            case AllowanceSpent():
                return base._with(phase="spent", needed=outcome.needed)
            case ProviderLimit():
                return base._with(phase="spent", needed=Amount(), halted=outcome.reason)
            case TurnLimit() | Yielded():
                return base._with(phase="running")

    def after_compaction(self, outcome: CompactionOutcome) -> "AgentRun":
        """The compaction's outcome, taken into the state. What made no room is tried again at most a few times."""
        base = self._with(
            totals=outcome.totals,
            compactions=(*self.compactions, outcome),
            futile=self.futile + 1,
            notes=tuple(dict.fromkeys((*self.notes, *outcome.notes))),
        )
        if outcome.status.made_room:
            return base._with(phase="running")
        return base.cannot_go_on(f"its context cannot be made smaller ({outcome.status})")

    def after_grant(self, amount: Amount) -> "AgentRun":
        """More, from a parent or a person: the run goes on."""
        return self._with(limit=self.limit.raised(amount), phase="running", needed=Amount(), halted="")

    def cannot_go_on(self, reason: str) -> "AgentRun":
        """Deliver what there is, marked partial, with the reason."""
        return self._with(phase="delivered", partial=True, reason=reason)

    def settled(self, totals: RunTotals) -> "AgentRun":
        """What the store says was spent, after a leg that failed, timed out or was cancelled."""
        return self._with(totals=totals)

    def _full(self, request_tokens: int) -> "AgentRun":
        if self.futile >= MAX_FUTILE_COMPACTIONS:
            return self.cannot_go_on(f"{self.futile} compactions in a row made no room for a turn")
        return self._with(phase="full", request_tokens=request_tokens)

    def _with(self, **changes: object) -> "AgentRun":
        return self.model_copy(update=changes)
