"""The state machine of one agent run: what the workflow must do next with it.

It is part of the workflow's state: immutable, serialisable, carried through continue-as-new.

The moves of an agent run: what the workflow must do next with it.

What a request for money is about: what calls have cost, what more would buy, and what a denial would deliver.

Counts and ids only: it is part of workflow history.
"""

from collections.abc import Mapping
from typing import Literal

from waystation.agents.action_approvals import ActionDecision, ActionQuestion
from waystation.agents.delegation import SubagentOrder, SubagentProgress, SubagentResult
from waystation.agents.deliverables import WorkCounts
from waystation.agents.leg import (
    AgentConfig,
    AgentFinished,
    ApprovalRequired,
    BudgetExhausted,
    ContextFull,
    Interrupted,
    LegOutcome,
    LegRequest,
    OperatorActionRequired,
    SubagentsRequested,
    TurnLimitReached,
)
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.context.compaction import (
    EDIT_PREFIX,
    TOO_LATE,
    CompactionOutcome,
    CompactionStatus,
    CompactionTotals,
    ContextEdit,
    EditOutcome,
    EditRequest,
)
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.planning.plan import Plan


class RunLeg(Value):
    """Carry out this leg."""

    request: LegRequest


class CompactContext(Value):
    """Make room in the context before the next leg."""

    request_tokens: int


class ApplyContextEdit(Value):
    """Change the context as a person asked."""

    request: EditRequest


class RequestBudget(Value):
    """The agent's budget is spent: draw on its task, then its session, and only then ask a person."""

    amount: Amount


class StartSubagents(Value):
    """Have these subagents work, and wait until all of them have ended."""

    orders: tuple[SubagentOrder, ...]


class RequestApproval(Value):
    """Have a person decide on each of these calls, and wait until all of them are decided on."""

    questions: tuple[ActionQuestion, ...]


class FinishRun(Value):
    """The run is over. `partial`: the agent did not hand in a result of its own."""

    partial: bool
    reason: str = ""


RunAction = RunLeg | CompactContext | ApplyContextEdit | RequestBudget | StartSubagents | RequestApproval | FinishRun


LISTED_COMPACTIONS = 5
"""A run lists its newest compactions; earlier ones are totals, so that its state does not grow with its age."""
LISTED_NOTES = 20
"""The same of its notes, all of which its task has taken over."""
MAX_FUTILE_COMPACTIONS = 3
"""Compactions in a row without a turn between them; then what there is gets delivered."""

STRETCH_TURNS, MOST_SHARES = 10, 3
"""Turns that a request for money pays for at least: a grant of what was asked must not pause again at once."""

OutcomeWithOpenCalls = SubagentsRequested | ApprovalRequired | OperatorActionRequired
"""Outcomes of legs after which calls of the last reply may have no results yet."""

_Phase = Literal["running", "full", "spent", "delegating", "asking", "delivered"]


class AgentRun(Value):
    """One agent with its own context window, budget and compactions."""

    run: RunRef
    terms: AgentConfig
    limit: Limit
    """What it may spend in all."""
    share: Limit
    """What it started with, and what it asks for when that is spent."""
    leg: int = 1
    phase: _Phase = "running"
    totals: RunUsage = RunUsage()
    needed: Amount = Amount()
    """What its next call needs over what is left; nothing of a unit that it has enough of."""
    request_tokens: int = 0
    scale: float = 1.0
    compactions: tuple[CompactionOutcome, ...] = ()
    """The newest ones, oldest first."""
    earlier_compactions: CompactionTotals = CompactionTotals()
    """All others."""
    futile: int = 0
    """Compactions since the last turn."""
    partial: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    made: WorkCounts = WorkCounts()
    """What it had handed over when its last leg ended."""
    halted: str = ""
    """Why the provider makes no more calls, until a person has seen to it."""
    unanswered: str = ""
    """Why its last call brought no reply, where that spent its budget."""
    edits: tuple[ContextEdit, ...] = ()
    """What people changed, or want to change, in its context: in the order in which it is carried out."""
    orders: tuple[SubagentOrder, ...] = ()
    """The subagents that it asked for, oldest first."""
    handed_back: tuple[SubagentResult, ...] = ()
    """Those of them that have ended."""
    lacking: bool = False
    """One of those whose work it has ended early, or lacked something itself."""
    spare: Amount = Amount()
    """What those that it waits for have handed back: others of them may draw on it."""
    questions: tuple[ActionQuestion, ...] = ()
    """Calls that it waits for a person to decide on."""
    decisions: tuple[ActionDecision, ...] = ()
    """On calls of its last reply that have no results yet."""

    def get_next_action(self) -> RunAction:
        """What the workflow does next."""
        if self.next_edit is not None:
            return ApplyContextEdit(request=self._edit_request(self.next_edit))
        return self._next_move()

    def _next_move(self) -> RunAction:
        match self.phase:
            case "running":
                return RunLeg(request=self._leg_request())
            case "full":
                return CompactContext(request_tokens=self.request_tokens)
            case "spent":
                return RequestBudget(amount=self.top_up_amount)
            case "delegating":
                return StartSubagents(orders=self.open_orders)
            case "asking":
                return RequestApproval(questions=self.questions)
            case "delivered":
                return FinishRun(partial=self.partial, reason=self.reason)

    @property
    def top_up_amount(self) -> Amount:
        """What it takes when its budget is spent, in the units that it lacks: what its next call needs, and beyond that
        its share again.
        """
        return self._lacking_units.restrict_to_limited_units(self.share.amount) + self.needed

    @property
    def proposed_grant(self) -> Amount:
        """What a person is asked for: the same, or enough for its next `STRETCH_TURNS` turns at the pace so far, so
        that a grant of it does not pause again at once. At most `MOST_SHARES` of its shares: first turns are dear.
        """
        spent, turns, share = self.totals.spent, max(1, self.totals.turns), self.share.amount
        stretch = Amount(
            tokens=min(STRETCH_TURNS * spent.tokens // turns, MOST_SHARES * share.tokens),
            micro_usd=min(STRETCH_TURNS * spent.micro_usd // turns, MOST_SHARES * share.micro_usd),
        )
        return self._lacking_units.restrict_to_limited_units(share.max_with(stretch)) + self.needed

    @property
    def _lacking_units(self) -> Limit:
        return Limit(tokens=self.needed.tokens or None, micro_usd=self.needed.micro_usd or None)

    def after_leg(self, outcome: LegOutcome) -> "AgentRun":
        """The leg's outcome, taken into the state."""
        standing = outcome.standing
        worked = standing.totals.turns > self.totals.turns
        base = self.replace(
            totals=standing.totals,
            scale=standing.scale,
            made=standing.made,
            decisions=self.decisions if isinstance(outcome, OutcomeWithOpenCalls) else (),
            leg=self.leg + 1,
            futile=0 if worked else self.futile,
            notes=_newest(self.notes, standing.notes),
            unanswered="",
        )
        match outcome:
            case AgentFinished():
                return base._delivered(partial=outcome.partial, reason=outcome.reason)
            case ContextFull():
                return base._full(outcome.request_tokens)
            case BudgetExhausted():
                return base.replace(phase="spent", needed=outcome.needed, unanswered=outcome.unanswered)
            case OperatorActionRequired():
                return base.replace(phase="spent", needed=Amount(), halted=outcome.reason)
            case SubagentsRequested() | ApprovalRequired():
                return base._waiting_for(outcome)
            case TurnLimitReached() | Interrupted():
                return base.replace(phase="running")

    def _waiting_for(self, outcome: SubagentsRequested | ApprovalRequired) -> "AgentRun":
        if isinstance(outcome, SubagentsRequested):
            return self.replace(phase="delegating", orders=(*self.orders, *outcome.orders), spare=Amount())
        return self.replace(phase="asking", questions=outcome.questions)

    def after_compaction(self, outcome: CompactionOutcome) -> "AgentRun":
        """The compaction's outcome, taken into the state. What made no room for a turn, or was blocked, is tried
        again at most a few times.
        """
        base = self.replace(
            totals=outcome.totals,
            futile=self.futile + 1,
            notes=_newest(self.notes, outcome.notes),
        )._compacted(outcome)
        if outcome.status.made_room:
            return base.replace(phase="running")
        if outcome.status is CompactionStatus.BLOCKED:
            blocked = f"its context may not be compacted: {' '.join(outcome.notes)}"
            return base if base.futile < MAX_FUTILE_COMPACTIONS else base.finish_partial(blocked)
        return base.finish_partial(f"its context cannot be made smaller ({outcome.status})")

    def after_grant(self, amount: Amount) -> "AgentRun":
        """More, from a parent or a person: the run goes on."""
        return self.replace(limit=self.limit.increase_by(amount), phase="running", needed=Amount(), halted="")

    @property
    def remaining_budget(self) -> Amount:
        """What it has of its own."""
        return self.limit.remaining_after(self.totals.spent).amount

    def after_decision(self, decision: ActionDecision) -> "AgentRun":
        """One of the calls that it waits for is decided on; after the last of them it goes on."""
        left = tuple(question for question in self.questions if question.digest != decision.digest)
        if len(left) == len(self.questions):
            return self
        base = self.replace(questions=left, decisions=(*self.decisions, decision))
        return base if left or base.phase != "asking" else base.replace(phase="running")

    @property
    def open_orders(self) -> tuple[SubagentOrder, ...]:
        """Subagents that have not ended."""
        ended = {back.id for back in self.handed_back}
        return tuple(order for order in self.orders if order.id not in ended)

    def find_open_order(self, subagent: str) -> SubagentOrder | None:
        """The order of a subagent that has not ended."""
        return next((order for order in self.open_orders if order.id == subagent), None)

    def after_subagent(self, back: SubagentResult, rest: Amount, *, lacking: bool = False) -> "AgentRun":
        """A subagent has ended: what it did not spend is its parent's again, which goes on after the last of them."""
        base = self.replace(
            limit=self.limit.increase_by(rest),
            handed_back=(*self.handed_back, back),
            lacking=self.lacking or lacking,
            spare=self.spare + rest,
        )
        done = base.phase == "delegating" and not base.open_orders
        return base.replace(phase="running") if done else base

    def after_transfer(self, amount: Amount) -> "AgentRun":
        """It keeps so much less for itself: its subagents have that."""
        return self.replace(limit=self.limit.remaining_after(amount), spare=self.spare.subtract_clamped(amount))

    def after_reallocation(self, amount: Amount) -> "AgentRun":
        """Another agent of its task has so much of what it waits to have more of: it needs that, too, to go on."""
        return self.replace(
            limit=self.limit.remaining_after(amount), needed=self.limit.restrict_to_limited_units(self.needed + amount)
        )

    def with_progress(self, news: SubagentProgress) -> "AgentRun":
        """How far it is, as its own workflow tells."""
        return self.replace(totals=news.totals, leg=news.leg, made=news.made)

    def reopen_run(self, share: Limit) -> "AgentRun":
        """It works again after the task's end, with a share of what the task has left. What it spent stays spent."""
        return self.replace(
            phase="running",
            questions=(),
            decisions=(),
            limit=share.increase_by(self.totals.spent),
            share=share,
            needed=Amount(),
            futile=0,
            partial=False,
            lacking=False,
            reason="",
            halted="",
            unanswered="",
        )

    def finish_partial(self, reason: str) -> "AgentRun":
        """Deliver what there is, marked partial, with the reason; and with what stood in its way before."""
        before = self.halted or (format_unanswered_call(self.unanswered) if self.unanswered else "")
        reason = f"{reason}; {before}" if before and before not in reason else reason
        return self._delivered(partial=True, reason=reason)

    @property
    def next_edit(self) -> ContextEdit | None:
        """The edit that waits, the oldest first. None waits for an agent that has delivered."""
        return next((edit for edit in self.edits if edit.state == "waiting"), None)

    def get_edit(self, edit_id: str) -> ContextEdit:
        """As it is now."""
        return next(edit for edit in self.edits if edit.id == edit_id)

    @property
    def next_edit_id(self) -> str:
        """`edit-N`."""
        return f"{EDIT_PREFIX}{len(self.edits) + 1}"

    @property
    def late_edits(self) -> tuple[ContextEdit, ...]:
        """Those that the end of the run came before."""
        return tuple(edit for edit in self.edits if edit.reason == TOO_LATE)

    @property
    def committed_compaction_count(self) -> int:
        """Compactions that were committed."""
        return self.all_compactions.made_room

    @property
    def all_compactions(self) -> CompactionTotals:
        """Every compaction of this run, added up."""
        return self.earlier_compactions + CompactionTotals.from_outcomes(self.compactions)

    def with_edit(self, edit: ContextEdit) -> "AgentRun":
        """One more, or what became of one. What does not wait any more is noted."""
        known = {one.id: one for one in (*self.edits, edit)}
        noted = () if edit.state == "waiting" else (edit.text,)
        return self.replace(edits=tuple(known.values()), notes=_newest(self.notes, noted))

    def after_edit(self, edit: ContextEdit, outcome: EditOutcome) -> "AgentRun":
        """The edit's outcome, taken into the state: the run goes on where it was."""
        base = self.with_edit(edit.replace(state=outcome.state, reason=outcome.reason))
        if outcome.state == "done" and base.phase == "full":
            base = base.replace(phase="running")  # whether it still is, the next leg measures
        if outcome.state == "done" and base.phase == "asking" and edit.action == "rewind":
            base = base.replace(phase="running", questions=(), decisions=())  # whether it still asks, the next leg sees
        if outcome.state == "done" and edit.action == "rewind":
            base = base.replace(lacking=False)
        made = outcome.compaction
        return base if made is None else base.replace(totals=made.totals)._compacted(made)

    def with_settled_usage(self, totals: RunUsage) -> "AgentRun":
        """What the store says was spent, after a leg that failed, timed out or was cancelled."""
        cut_off = self.phase == "running"  # its number is not used again: its outcome may be in the store
        return self.replace(totals=totals, leg=self.leg + 1 if cut_off else self.leg)

    def _delivered(self, *, partial: bool, reason: str) -> "AgentRun":
        base = self.replace(phase="delivered", partial=partial, reason=reason)
        for edit in self.edits:
            if edit.state == "waiting":
                base = base.with_edit(edit.replace(state="refused", reason=TOO_LATE))
        return base

    def _leg_request(self) -> LegRequest:
        return LegRequest(
            run=self.run,
            leg=self.leg,
            limit=self.limit,
            terms=self.terms,
            scale=self.scale,
            handed_back=self.handed_back,
            decisions=self.decisions,
        )

    def _edit_request(self, edit: ContextEdit) -> EditRequest:
        return EditRequest(
            run=self.run,
            terms=self.terms,
            limit=self.limit,
            edit=edit,
            scale=self.scale,
            known_records=self.committed_compaction_count,
        )

    def _compacted(self, outcome: CompactionOutcome) -> "AgentRun":
        listed = (*self.compactions, outcome)
        dropped, newest = listed[:-LISTED_COMPACTIONS], listed[-LISTED_COMPACTIONS:]
        earlier = self.earlier_compactions + CompactionTotals.from_outcomes(dropped)
        return self.replace(compactions=newest, earlier_compactions=earlier)

    def _full(self, request_tokens: int) -> "AgentRun":
        if self.futile >= MAX_FUTILE_COMPACTIONS:
            return self.finish_partial(f"{self.futile} compactions in a row made no room for a turn")
        return self.replace(phase="full", request_tokens=request_tokens)


def _newest(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))[-LISTED_NOTES:]


def format_unanswered_call(cause: str) -> str:
    """Why so much counts as spent that brought nothing."""
    return f"its last call brought no reply and may have been billed: {cause}"


class BudgetForecast(Value):
    """As it was when the request was made."""

    calls: int
    """Turns of the agent so far."""
    each: Amount
    """What a turn has cost on average, in the units that the agent is limited in."""
    worth: int
    """About how many more turns what is asked for is good for, at that average."""
    finishing: Amount = Amount()
    """What the agent and all steps to come may need over what they have, at the pace of the steps that finished."""
    finished: int
    """Steps that delivered."""
    to_come: int
    """Steps that were not started."""
    kept: Amount
    """What stays reserved for those."""
    made: WorkCounts
    """What the agent has to deliver."""
    needed_by: tuple[str, ...]
    """Ids of the steps that build on this one; none of a writing step."""
    room: Limit = Limit()
    """What could still be granted before the task would pass its ceiling; no limit where it has none."""
    grantable: bool = True
    """Whether that is enough for the agent's next call. It never gets more: a ceiling stays, and grants use it up."""
    unanswered: str = ""
    """Why its last call brought no reply, where that spent its budget."""

    def with_ceiling(self, ceiling: Limit, limit: Limit, needed: Amount) -> "BudgetForecast":
        """The same with what may be granted to a task of this limit, where the next call needs so much more."""
        room = ceiling.remaining_after(limit.amount)
        return self.replace(room=room, grantable=room.can_cover(needed))


def build_budget_forecast(
    run: AgentRun, plan: Plan, account: BudgetAccount, runs: Mapping[str, AgentRun], finished: int
) -> BudgetForecast:
    """The outlook of an agent that spent its budget, from its task's account and the runs of the steps that started."""
    started = runs.keys()
    pace = _pace(run, runs)
    spent, calls = run.limit.restrict_to_limited_units(run.totals.spent), run.totals.turns
    each = Amount(tokens=spent.tokens // calls, micro_usd=spent.micro_usd // calls) if calls else Amount()
    to_come = [step.id for step in plan.steps if step.id not in started]
    needed = run.limit.restrict_to_limited_units(run.proposed_grant)
    finishing = sum((pace.subtract_clamped(account.reserved.get(step_id, Amount())) for step_id in to_come), needed)
    return BudgetForecast(
        calls=calls,
        each=each,
        worth=_worth(run.proposed_grant, run.needed, each),
        finishing=run.limit.restrict_to_limited_units(finishing),
        finished=finished,
        to_come=len(to_come),
        kept=sum((account.reserved.get(step_id, Amount()) for step_id in to_come), Amount()),
        made=run.made,
        needed_by=tuple(step.id for step in plan.steps if run.run.step_id in step.needs),
        unanswered=run.unanswered,
    )


def _pace(run: AgentRun, runs: Mapping[str, AgentRun]) -> Amount:
    """What a step of the task takes: the mean of those that delivered, or what this one has spent so far."""
    done = [one.totals.spent for one in runs.values() if one.phase == "delivered" and not one.partial]
    costs = done or [run.totals.spent]
    both = sum(costs, Amount())
    return Amount(tokens=both.tokens // len(costs), micro_usd=both.micro_usd // len(costs))


def _worth(asked: Amount, needed: Amount, each: Amount) -> int:
    """Turns until the next one no longer fits: each is let through by its worst case, and costs the average.

    With `needed` alone the next turn fits; every further one takes another average of what is asked for beyond that.
    """
    units = ((asked.tokens, needed.tokens, each.tokens), (asked.micro_usd, needed.micro_usd, each.micro_usd))
    return min(
        (1 + (wanted - short) // cost for wanted, short, cost in units if wanted >= short and wanted and cost),
        default=0,
    )
