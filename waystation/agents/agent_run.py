"""State machine of one agent run: decides what the workflow does next with it.

It is part of the workflow's state: immutable, serialisable, carried through continue-as-new. It holds counts and IDs
only, because it enters workflow history.
"""

from collections.abc import Mapping
from datetime import date, datetime
from functools import cached_property
from typing import Literal

from waystation.agents.action_approvals import ActionDecision, ActionQuestion
from waystation.agents.cache_refresh import CacheRefreshOutcome, count_worthwhile_refreshes
from waystation.agents.compaction_request import EditOutcome, EditRequest
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
    TOO_LATE_REASON,
    AgentCompaction,
    CompactionOutcome,
    CompactionStatus,
    CompactionTotals,
    ContextEdit,
)
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef
from waystation.kernel.value import Value
from waystation.planning.plan import Plan


class RunLeg(Value):
    """Run this leg."""

    request: LegRequest


class CompactContext(Value):
    """Compact the context before the next leg."""

    request_tokens: int


class ApplyContextEdit(Value):
    """Apply a person's edit to the context."""

    request: EditRequest


class RequestBudget(Value):
    """The agent's budget is spent: draw on its task, then its session, and only then ask a person."""

    amount: Amount


class StartSubagents(Value):
    """Start these subagents and wait until all of them have ended."""

    orders: tuple[SubagentOrder, ...]


class RequestApproval(Value):
    """Have a person decide on each of these calls, and wait for all decisions."""

    questions: tuple[ActionQuestion, ...]


class FinishRun(Value):
    """The run is over. `partial`: the agent did not submit a result of its own."""

    partial: bool
    reason: str = ""


RunAction = RunLeg | CompactContext | ApplyContextEdit | RequestBudget | StartSubagents | RequestApproval | FinishRun


MAX_LISTED_COMPACTIONS = 5
"""Number of newest compactions that a run lists; earlier ones are added up, so that its state does not
grow with age.
"""
MAX_LISTED_NOTES = 20
"""Number of newest notes that a run lists; its task has taken over all of them."""
MAX_FUTILE_COMPACTIONS = 3
"""Maximum number of consecutive compactions without a turn in between; after that the agent delivers what it has."""

MIN_REQUESTED_TURNS, MAX_SHARES = 10, 3
"""A budget request covers at least `MIN_REQUESTED_TURNS` turns, up to `MAX_SHARES` shares: a grant of the requested
amount must not lead to another pause at once.
"""

OutcomeWithOpenCalls = SubagentsRequested | ApprovalRequired | OperatorActionRequired
"""Outcomes after which calls of the last reply may still lack results."""

_Phase = Literal["running", "full", "spent", "delegating", "asking", "delivered"]


class AgentRun(Value):
    """One agent with its own context window, budget and compactions."""

    run: RunRef
    config: AgentConfig
    limit: Limit
    """Total that the run may spend."""
    initial_limit: Limit
    """What it started with, and what it requests when that is spent."""
    leg: int = 1
    phase: _Phase = "running"
    totals: RunUsage = RunUsage()
    needed: Amount = Amount()
    """What its next call needs beyond what is left; zero in a unit of which it has enough."""
    request_tokens: int = 0
    window_exceeded: bool = False
    """Whether the model said that its window was exceeded; see `ContextFull`."""
    token_ratio: float = 1.0
    compactions: tuple[CompactionOutcome, ...] = ()
    """The newest compactions, oldest first."""
    earlier_compactions: CompactionTotals = CompactionTotals()
    """Totals of all earlier compactions."""
    futile_compactions: int = 0
    """Compactions since the last turn."""
    partial: bool = False
    reason: str = ""
    notes: tuple[str, ...] = ()
    work_counts: WorkCounts = WorkCounts()
    """Work delivered when its last leg ended."""
    halt_reason: str = ""
    """Why the provider makes no more calls until a person has acted."""
    halted_until: datetime | None = None
    """When the provider makes calls again by itself, if it said so."""
    no_reply_reason: str = ""
    """Why its last call brought no reply, if that call spent its budget."""
    context_edits: tuple[ContextEdit, ...] = ()
    """People's edits of its context, in the order of application."""
    subagent_orders: tuple[SubagentOrder, ...] = ()
    """The subagents that it requested, oldest first."""
    subagent_results: tuple[SubagentResult, ...] = ()
    """Results of the subagents that have ended."""
    inputs_incomplete: bool = False
    """Whether a run that it builds on ended early, or was itself lacking."""
    released_budget: Amount = Amount()
    """Budget released by the subagents that it waits for; the others may draw on it."""
    cache_refreshes: int = 0
    """How often its cached prefix was read while it waits for its subagents."""
    cache_released: bool = False
    """Whether its cached prefix may expire during this wait."""
    questions: tuple[ActionQuestion, ...] = ()
    """Calls that wait for a person's decision."""
    decisions: tuple[ActionDecision, ...] = ()
    """Decisions on calls of its last reply that have no results yet."""

    def get_next_action(self) -> RunAction:
        """Return what the workflow must do next."""
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
        """Amount that it draws when its budget is spent, in the units that it lacks.

        What its next call needs, plus one share.
        """
        return self._lacking_units.restrict_to_limited_units(self.initial_limit.amount) + self.needed

    @property
    def proposed_grant(self) -> Amount:
        """Amount that a person is asked for.

        As `top_up_amount`, or enough for `MIN_REQUESTED_TURNS` turns at the pace so far. At most `MAX_SHARES` shares,
        because first turns are expensive.
        """
        spent, turns, share = self.totals.spent, max(1, self.totals.turns), self.initial_limit.amount
        stretch = Amount(
            tokens=min(MIN_REQUESTED_TURNS * spent.tokens // turns, MAX_SHARES * share.tokens),
            micro_usd=min(MIN_REQUESTED_TURNS * spent.micro_usd // turns, MAX_SHARES * share.micro_usd),
        )
        return self._lacking_units.restrict_to_limited_units(share.max_with(stretch)) + self.needed

    @property
    def _lacking_units(self) -> Limit:
        return Limit(tokens=self.needed.tokens or None, micro_usd=self.needed.micro_usd or None)

    def after_leg(self, outcome: LegOutcome) -> "AgentRun":
        """Apply a leg's outcome."""
        standing = outcome.state
        worked = standing.totals.turns > self.totals.turns
        base = self.replace(
            totals=standing.totals,
            token_ratio=standing.token_ratio,
            work_counts=standing.work_counts,
            decisions=self.decisions if isinstance(outcome, OutcomeWithOpenCalls) else (),
            leg=self.leg + 1,
            futile_compactions=0 if worked else self.futile_compactions,
            notes=_newest(self.notes, standing.notes),
            no_reply_reason="",
        )
        match outcome:
            case AgentFinished():
                return base._delivered(partial=outcome.partial, reason=outcome.reason)
            case ContextFull():
                return base.replace(window_exceeded=outcome.window_exceeded)._full(outcome.request_tokens)
            case BudgetExhausted():
                return base.replace(phase="spent", needed=outcome.needed, no_reply_reason=outcome.unanswered)
            case OperatorActionRequired():
                return base.halt(outcome.reason, outcome.resets_at)
            case SubagentsRequested() | ApprovalRequired():
                return base._waiting_for(outcome)
            case TurnLimitReached() | Interrupted():
                return base.replace(phase="running")

    def _waiting_for(self, outcome: SubagentsRequested | ApprovalRequired) -> "AgentRun":
        if isinstance(outcome, SubagentsRequested):
            return self.replace(
                phase="delegating",
                subagent_orders=(*self.subagent_orders, *outcome.orders),
                released_budget=Amount(),
                cache_refreshes=0,
                cache_released=False,
            )
        return self.replace(phase="asking", questions=outcome.questions)

    def after_compaction(self, outcome: CompactionOutcome) -> "AgentRun":
        """Apply a compaction's outcome.

        One that made no room, or was blocked, is repeated at most `MAX_FUTILE_COMPACTIONS` times.
        """
        base = self.replace(
            totals=outcome.totals,
            futile_compactions=self.futile_compactions + 1,
            notes=_newest(self.notes, outcome.notes),
        )._compacted(outcome)
        if outcome.status.made_room:
            return base.replace(phase="running")
        if outcome.status is CompactionStatus.BLOCKED:
            blocked = f"the agent's context cannot be compacted: {' '.join(outcome.notes)}"
            return base if base.futile_compactions < MAX_FUTILE_COMPACTIONS else base.finish_partial(blocked)
        return base.finish_partial(f"the agent's context cannot be made smaller ({outcome.status})")

    def after_grant(self, amount: Amount) -> "AgentRun":
        """Add budget from a parent or a person; the run continues."""
        limit = self.limit.increase_by(amount)
        return self.replace(limit=limit, phase="running", needed=Amount(), halt_reason="", halted_until=None)

    @property
    def remaining_budget(self) -> Amount:
        """Budget left of the run's own limit."""
        return self.limit.remaining_after(self.totals.spent).amount

    def after_decision(self, decision: ActionDecision) -> "AgentRun":
        """Apply a decision on one of the pending calls; after the last one the run continues."""
        left = tuple(question for question in self.questions if question.digest != decision.digest)
        if len(left) == len(self.questions):
            return self
        base = self.replace(questions=left, decisions=(*self.decisions, decision))
        return base if left or base.phase != "asking" else base.replace(phase="running")

    @property
    def open_orders(self) -> tuple[SubagentOrder, ...]:
        """Subagents that have not ended."""
        ended = {back.id for back in self.subagent_results}
        return tuple(order for order in self.subagent_orders if order.id not in ended)

    def find_open_order(self, subagent: str) -> SubagentOrder | None:
        """Return the order of a subagent that has not ended."""
        return next((order for order in self.open_orders if order.id == subagent), None)

    def after_subagent(self, back: SubagentResult, rest: Amount, *, lacking: bool = False) -> "AgentRun":
        """Apply a subagent's result.

        Its unspent budget returns to this run, which continues after the last subagent.
        """
        base = self.replace(
            limit=self.limit.increase_by(rest),
            subagent_results=(*self.subagent_results, back),
            inputs_incomplete=self.inputs_incomplete or lacking,
            released_budget=self.released_budget + rest,
        )
        done = base.phase == "delegating" and not base.open_orders
        return base.replace(phase="running") if done else base

    def count_open_refreshes(self, day: date) -> int:
        """Return how often its cached prefix may still be read during this wait, at the prices of a day."""
        if self.phase != "delegating" or self.cache_released:
            return 0
        most = count_worthwhile_refreshes(self.config, self.totals.last_prompt_tokens, day)
        return max(0, most - self.cache_refreshes)

    def after_cache_refresh(self, outcome: CacheRefreshOutcome) -> "AgentRun":
        """Apply the cost of a refresh. A prefix that was not in the cache is let go."""
        return self.replace(
            totals=outcome.totals, cache_refreshes=self.cache_refreshes + 1, cache_released=not outcome.alive
        )

    def release_cache(self) -> "AgentRun":
        """Let the cached prefix expire during this wait."""
        return self.replace(cache_released=True)

    def after_transfer(self, amount: Amount) -> "AgentRun":
        """Reduce the run's limit by what was transferred to its subagents."""
        return self.replace(
            limit=self.limit.remaining_after(amount), released_budget=self.released_budget.subtract_clamped(amount)
        )

    def after_reallocation(self, amount: Amount) -> "AgentRun":
        """Reduce the limit by what another agent of the task received.

        This run is waiting for budget and then needs as much more.
        """
        return self.replace(
            limit=self.limit.remaining_after(amount), needed=self.limit.restrict_to_limited_units(self.needed + amount)
        )

    def with_progress(self, news: SubagentProgress) -> "AgentRun":
        """Apply the progress that the run's own workflow reports."""
        return self.replace(totals=news.totals, leg=news.leg, work_counts=news.work_counts)

    def reopen_run(self, share: Limit) -> "AgentRun":
        """Restart the run after its task's end, with a share of what the task has left.

        Earlier spending stays booked.
        """
        return self.replace(
            phase="running",
            questions=(),
            decisions=(),
            limit=share.increase_by(self.totals.spent),
            initial_limit=share,
            needed=Amount(),
            futile_compactions=0,
            partial=False,
            inputs_incomplete=False,
            reason="",
            halt_reason="",
            halted_until=None,
            no_reply_reason="",
        )

    @cached_property
    def agent_compactions(self) -> tuple[AgentCompaction, ...]:
        """Its newest compactions, as shown to people. Cached because a task shows those of all runs at each change."""
        return tuple(AgentCompaction.from_outcome(self.run.step_id, one) for one in self.compactions)

    def halt(self, reason: str, until: datetime | None = None) -> "AgentRun":
        """Wait for a person, who lets the run go on or ends it; more budget alone does not help.

        Args:
            reason: What a person must mend.
            until: When the cause ends by itself; None if that is not known.
        """
        return self.replace(phase="spent", needed=Amount(), halt_reason=reason, halted_until=until)

    def finish_partial(self, reason: str) -> "AgentRun":
        """Deliver what exists, marked partial, with the reason and with any earlier obstacle."""
        before = self.halt_reason or (format_unanswered_call(self.no_reply_reason) if self.no_reply_reason else "")
        reason = f"{reason}; {before}" if before and before not in reason else reason
        return self._delivered(partial=True, reason=reason)

    @property
    def next_edit(self) -> ContextEdit | None:
        """The oldest waiting edit. None waits for an agent that has delivered."""
        return next((edit for edit in self.context_edits if edit.state == "waiting"), None)

    def get_edit(self, edit_id: str) -> ContextEdit:
        """Return the current state of an edit."""
        return next(edit for edit in self.context_edits if edit.id == edit_id)

    @property
    def next_edit_id(self) -> str:
        """ID of the next edit: `edit-N`."""
        return f"{EDIT_PREFIX}{len(self.context_edits) + 1}"

    @property
    def late_edits(self) -> tuple[ContextEdit, ...]:
        """Edits that arrived too late, because the run ended first."""
        return tuple(edit for edit in self.context_edits if edit.reason == TOO_LATE_REASON)

    @property
    def committed_compaction_count(self) -> int:
        """Number of committed compactions."""
        return self.all_compactions.effective_count

    @cached_property
    def all_compactions(self) -> CompactionTotals:
        """Totals of all compactions of this run."""
        return self.earlier_compactions + CompactionTotals.from_outcomes(self.compactions)

    def with_edit(self, edit: ContextEdit) -> "AgentRun":
        """Add an edit, or update one. An edit that no longer waits is noted."""
        known = {one.id: one for one in (*self.context_edits, edit)}
        noted = () if edit.state == "waiting" else (edit.text,)
        return self.replace(context_edits=tuple(known.values()), notes=_newest(self.notes, noted))

    def after_edit(self, edit: ContextEdit, outcome: EditOutcome) -> "AgentRun":
        """Apply an edit's outcome: the run continues where it was."""
        base = self.with_edit(edit.replace(state=outcome.state, reason=outcome.reason))
        if outcome.state == "done" and base.phase == "full":
            base = base.replace(phase="running")  # the next leg measures whether the context is still full
        if outcome.state == "done" and base.phase == "asking" and edit.action == "rewind":
            base = base.replace(phase="running", questions=(), decisions=())  # the next leg sees if it still asks
        if outcome.state == "done" and edit.action == "rewind":
            base = base.replace(inputs_incomplete=False)
        made = outcome.compaction
        return base if made is None else base.replace(totals=made.totals)._compacted(made)

    def with_settled_usage(self, totals: RunUsage) -> "AgentRun":
        """Replace the usage by the store's, after a leg that failed, timed out or was cancelled."""
        cut_off = self.phase == "running"  # the leg's number is not reused: its outcome may be in the store
        return self.replace(totals=totals, leg=self.leg + 1 if cut_off else self.leg)

    def _delivered(self, *, partial: bool, reason: str) -> "AgentRun":
        base = self.replace(phase="delivered", partial=partial, reason=reason)
        for edit in self.context_edits:
            if edit.state == "waiting":
                base = base.with_edit(edit.replace(state="refused", reason=TOO_LATE_REASON))
        return base

    def _leg_request(self) -> LegRequest:
        return LegRequest(
            run=self.run,
            leg=self.leg,
            limit=self.limit,
            config=self.config,
            token_ratio=self.token_ratio,
            subagent_results=self.subagent_results,
            decisions=self.decisions,
        )

    def _edit_request(self, edit: ContextEdit) -> EditRequest:
        return EditRequest(
            run=self.run,
            config=self.config,
            limit=self.limit,
            edit=edit,
            token_ratio=self.token_ratio,
            known_records=self.committed_compaction_count,
        )

    def _compacted(self, outcome: CompactionOutcome) -> "AgentRun":
        listed = (*self.compactions, outcome)
        dropped, newest = listed[:-MAX_LISTED_COMPACTIONS], listed[-MAX_LISTED_COMPACTIONS:]
        earlier = self.earlier_compactions + CompactionTotals.from_outcomes(dropped)
        return self.replace(compactions=newest, earlier_compactions=earlier)

    def _full(self, request_tokens: int) -> "AgentRun":
        if self.futile_compactions >= MAX_FUTILE_COMPACTIONS:
            return self.finish_partial(
                f"{self.futile_compactions} compactions in a row did not free enough space for a turn"
            )
        return self.replace(phase="full", request_tokens=request_tokens)


def _newest(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*known, *new)))[-MAX_LISTED_NOTES:]


def format_unanswered_call(cause: str) -> str:
    """Return why so much counts as spent without a reply."""
    return f"the agent's last model call may have been billed, although it got no reply: {cause}"


class BudgetForecast(Value):
    """As it was when the request was made."""

    turns: int
    """Turns of the agent so far."""
    average_turn_cost: Amount
    """Average cost of a turn, in the units that the agent is limited in."""
    turns_covered: int
    """Approximate number of further turns that the requested amount pays for at that average."""
    cost_to_finish: Amount = Amount()
    """What the agent and all later steps may need beyond what they have, at the pace of the steps that finished."""
    finished_steps: int
    """Number of steps that delivered."""
    pending_steps: int
    """Number of steps that have not started."""
    reserved_for_pending: Amount
    """Amount reserved for the steps that have not started."""
    work_counts: WorkCounts
    """What the agent could deliver now."""
    dependent_steps: tuple[str, ...]
    """IDs of the steps that build on this one; empty for a writing step."""
    headroom: Limit = Limit()
    """What may still be granted below the task's ceiling; unlimited if it has none."""
    covers_next_call: bool = True
    """Whether that covers the agent's next call. A ceiling never rises, and grants use it up."""
    no_reply_reason: str = ""
    """Why its last call brought no reply, if that call spent its budget."""

    def with_ceiling(self, ceiling: Limit, limit: Limit, needed: Amount) -> "BudgetForecast":
        """Return the forecast with what may still be granted to a task.

        Args:
            ceiling: Upper bound of the task's limit.
            limit: Current limit of the task.
            needed: What the agent's next call needs beyond what it has.
        """
        room = ceiling.remaining_after(limit.amount)
        return self.replace(headroom=room, covers_next_call=room.can_cover(needed))


def build_budget_forecast(
    run: AgentRun, plan: Plan, account: BudgetAccount, runs: Mapping[str, AgentRun], finished: int
) -> BudgetForecast:
    """Build the forecast for an agent that spent its budget.

    Args:
        run: The agent.
        plan: Plan of its task.
        account: Account of its task.
        runs: Runs of the steps that started, by step ID.
        finished: Number of steps that delivered.
    """
    started = runs.keys()
    pace = _pace(run, runs)
    spent, calls = run.limit.restrict_to_limited_units(run.totals.spent), run.totals.turns
    each = Amount(tokens=spent.tokens // calls, micro_usd=spent.micro_usd // calls) if calls else Amount()
    to_come = [step.id for step in plan.steps if step.id not in started]
    needed = run.limit.restrict_to_limited_units(run.proposed_grant)
    finishing = sum((pace.subtract_clamped(account.reserved.get(step_id, Amount())) for step_id in to_come), needed)
    return BudgetForecast(
        turns=calls,
        average_turn_cost=each,
        turns_covered=_worth(run.proposed_grant, run.needed, each),
        cost_to_finish=run.limit.restrict_to_limited_units(finishing),
        finished_steps=finished,
        pending_steps=len(to_come),
        reserved_for_pending=sum((account.reserved.get(step_id, Amount()) for step_id in to_come), Amount()),
        work_counts=run.work_counts,
        dependent_steps=tuple(step.id for step in plan.steps if run.run.step_id in step.needs),
        no_reply_reason=run.no_reply_reason,
    )


def _pace(run: AgentRun, runs: Mapping[str, AgentRun]) -> Amount:
    """Return the cost of one step: the mean of those that delivered, or what this one has spent so far."""
    done = [one.totals.spent for one in runs.values() if one.phase == "delivered" and not one.partial]
    costs = done or [run.totals.spent]
    both = sum(costs, Amount())
    return Amount(tokens=both.tokens // len(costs), micro_usd=both.micro_usd // len(costs))


def _worth(asked: Amount, needed: Amount, each: Amount) -> int:
    """Return the number of turns until the next one no longer fits.

    Each is admitted by its worst case and costs the average. With `needed` alone the next turn fits; every further one
    takes another average of what is asked for beyond that.
    """
    units = ((asked.tokens, needed.tokens, each.tokens), (asked.micro_usd, needed.micro_usd, each.micro_usd))
    return min(
        (1 + (wanted - short) // cost for wanted, short, cost in units if wanted >= short and wanted and cost),
        default=0,
    )
