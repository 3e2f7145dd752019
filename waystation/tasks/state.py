"""The state of a running task: all that its workflow carries through continue-as-new.

Requests to let an agent call a tool, in the state of its task: opened, decided on, overtaken.

Subagents in the state of their task: started with what their parent gives up, and settled with it.
"""

import json
from collections.abc import Iterable
from datetime import datetime

from waystation.agents.agent_run import AgentRun, build_budget_forecast
from waystation.agents.decisions import IN_ADVANCE, ActionDecision
from waystation.agents.delegation import SubagentOrder, SubagentProgress, SubagentResult, get_parent_id
from waystation.agents.leg import AgentConfig
from waystation.budgets.budget import BudgetAccount, Level, RunUsage, collect_budget_warnings, sum_run_usage
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.pieces import JsonChunk, join_json, split_json
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.value import Value
from waystation.models.profiles import THINKING_PART
from waystation.planning.plan import (
    PLANNING_ID,
    Oversight,
    Plan,
    PlanEdit,
    Revised,
    Step,
    plan_shares,
    share_errors,
    share_out,
)
from waystation.tasks.session import SessionAnswer
from waystation.tasks.task import Approval, Refusal, ReportVersion, Reused, TaskPhase, TaskTerms, Telling

SHOWN_REFUSALS = 20
UNFIT_SHARES = "The shares of the plan's steps do not fit this budget; every step has an even part."
HELD_FOR = "(oversight)"
"""Among the reservations of the task's account, what planning left for revisions and reviews; no step is called so."""


class TaskState(Value):
    """Everything that is true of a task between two events."""

    phase: TaskPhase = TaskPhase.PLANNING
    account: BudgetAccount
    plan: Plan | None = None
    """Without goals: those stay in the store."""
    plan_edit: PlanEdit | None = None
    proposed: Revised | None = None
    """A revision that waits until a person agrees to it: until then the plan holds, and no step begins."""
    planning: RunUsage = RunUsage()
    share: Limit | None = None
    """What every step started with, once there is a plan."""
    floor: Amount | None = None
    """What a step to come keeps at least when others borrow from it; None: nobody borrows."""
    minimum_reserves: dict[str, Amount] = {}
    """By role, what a step of it starts with at least."""
    runs: dict[str, AgentRun] = {}
    """By step id, once a step was started."""
    shelved: dict[str, AgentRun] = {}
    """By step id, runs that begin anew once what they need is done again: the task goes on after a rewind."""
    oversight: Oversight = Oversight()
    approvals: tuple[Approval, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    tellings: tuple[Telling, ...] = ()
    updates: tuple[DocumentsUpdate, ...] = ()
    reused: Reused | None = None
    notes: tuple[str, ...] = ()
    warned: dict[str, int] = {}
    """By level: how often people had raised it when its last warning was noted."""
    asks: int = 0
    """How often the session was asked; part of an ask's id."""
    answered_asks: tuple[str, ...] = ()
    cancelled: bool = False
    """A person ended the task, or it failed: nothing new is started, also by an agent that ends its leg meanwhile."""
    report: str | None = None
    reports: tuple[ReportVersion, ...] = ()
    """That were stored, oldest first: a rewind replaces none."""

    @property
    def done(self) -> frozenset[str]:
        """Agents that delivered: of steps, and subagents."""
        return frozenset(step_id for step_id, run in self.runs.items() if run.phase == "delivered")

    @property
    def steps_done(self) -> int:
        """How many steps delivered."""
        return sum(get_parent_id(step_id) is None for step_id in self.done)

    @property
    def all_done(self) -> bool:
        """Whether every step delivered."""
        return self.plan is not None and self.steps_done == len(self.plan.steps)

    @property
    def last_phase(self) -> TaskPhase:
        """How a task ends whose work is over."""
        if self.cancelled:
            return TaskPhase.CANCELLED
        steps = (run for step_id, run in self.runs.items() if get_parent_id(step_id) is None)
        return TaskPhase.PARTIAL if any(run.partial or run.lacking for run in steps) else TaskPhase.DONE

    @property
    def ending(self) -> bool:
        """The report is being stored, or is: nobody's answer changes it any more."""
        return self.cancelled or self.phase is TaskPhase.REPORTING or self.phase.over

    @property
    def pending(self) -> tuple[Approval, ...]:
        """Requests that can still be answered."""
        return () if self.ending else tuple(asked for asked in self.approvals if asked.decision == "pending")

    @property
    def used(self) -> float:
        """The share of the task's budget that is spent."""
        return self.account.limit.compute_used_share(self.totals.spent)

    @property
    def all_runs(self) -> tuple[AgentRun, ...]:
        """Those that were started, and those that begin anew."""
        return (*self.runs.values(), *self.shelved.values())

    @property
    def totals(self) -> RunUsage:
        """Planning, oversight and all agents together."""
        return sum_run_usage((self.planning, *self.oversight.totals, *(run.totals for run in self.all_runs)))

    def planned(self, plan: Plan, totals: RunUsage, notes: tuple[str, ...], agent_budget: Limit) -> "TaskState":
        """The plan is there: every step's share is reserved now, so that steps to come keep it."""
        state = self.with_planning(totals)
        account = state.account
        share = share_out(account.unreserved, agent_budget, len(plan.steps))
        shared = plan
        if any(step.share for step in plan.steps) and share_errors(plan, account.unreserved):
            notes, shared = (*notes, UNFIT_SHARES), plan.without_shares()
        shares = plan_shares(shared, account.unreserved, agent_budget, self.minimum_reserves)
        given = {step.id: shares[step.id] for step in plan.steps if step.share or shares[step.id] != share}
        for step in plan.steps:
            account = account.reserve(step.id, given.get(step.id, share).amount)
        oversight = state.oversight.replace(shares={**state.oversight.shares, **given})
        return state.replace(
            phase=TaskPhase.WORKING,
            plan=plan,
            share=share,
            account=account,
            oversight=oversight,
            notes=merged(self.notes, notes),
        )

    def with_planning(self, totals: RunUsage) -> "TaskState":
        """What planning cost in all, booked once."""
        return self.replace(
            planning=totals, account=self.account.charge(totals.spent.subtract_clamped(self.planning.spent))
        )

    def share_of(self, step_id: str) -> Limit | None:
        """What a step starts with, once there is a plan."""
        return self.oversight.shares.get(step_id, self.share)

    def started(self, step: Step, ref: TaskRef, terms: TaskTerms) -> "TaskState":
        """The step's agent run, with the share that is reserved for it."""
        if (shelved := self.shelved.get(step.id)) is not None:
            rest = {step_id: run for step_id, run in self.shelved.items() if step_id != step.id}
            return self.replace(shelved=rest).with_run(shelved)
        share = self.share_of(step.id) or Limit(tokens=self.account.reserved.get(step.id, Amount()).tokens)
        state = self if self.floor is None else self._made_good(step.id, share)
        run = AgentRun(
            run=RunRef(**ref.model_dump(), step_id=step.id, role=step.role),
            terms=terms.agent_of(step.role),
            limit=state.starts_with(step.id) or share,
            share=share,
        )
        return state.with_run(run)

    def reserve_of(self, step: Step) -> Amount:
        """What a step that has not begun starts with at least, as far as its share has it: nobody may borrow of it."""
        share = self.share_of(step.id) or Limit()
        least = self.minimum_reserves.get(step.role, Amount())
        return Amount(
            tokens=least.tokens if share.tokens is None else min(least.tokens, share.tokens),
            micro_usd=least.micro_usd if share.micro_usd is None else min(least.micro_usd, share.micro_usd),
        )

    def _made_good(self, step_id: str, share: Limit) -> "TaskState":
        """What was borrowed from a step that begins is held for it again, as far as it is there."""
        lacks = share.amount.subtract_clamped(self.account.reserved.get(step_id, Amount()))
        return self.replace(account=self.account.draw(step_id, lacks)[0])

    def starts_with(self, step_id: str) -> Limit | None:
        """What a step to come would start with now: its share, as far as nobody has borrowed of it."""
        share = self.share_of(step_id)
        if share is None or self.floor is None:
            return share
        held = self.account.reserved.get(step_id, Amount())
        return Limit(
            tokens=None if share.tokens is None else min(share.tokens, held.tokens),
            micro_usd=None if share.micro_usd is None else min(share.micro_usd, held.micro_usd),
        )

    def with_run(self, run: AgentRun) -> "TaskState":
        """A run's new state. A delivered run settles its reservation, once. Nearly spent budgets are noted."""
        state, step_id, delivered = self, run.run.step_id, run.phase == "delivered"
        state = state._settled(run) if delivered else state
        account = state.account
        if step_id in self.done:  # a summary that somebody asked for was under way when it delivered
            account = account.charge(run.totals.spent.subtract_clamped(self.runs[step_id].totals.spent))
        state = state.replace(runs={**state.runs, step_id: run}, account=account, notes=merged(self.notes, run.notes))
        task = Level("The task", state.totals.spent, account.limit, self._raises())
        agent = Level(step_id, run.totals.spent, run.limit, self._raises(step_id))
        return state.warning(*((task,) if delivered else (agent, task))).resting()

    def _settled(self, run: AgentRun) -> "TaskState":
        """What a delivered run did not spend is its task's again, or its parent's, which hears how it ended."""
        step_id, spent = run.run.step_id, run.totals.spent
        parent = self.runs.get(get_parent_id(step_id) or "")
        order = parent and parent.open_order(step_id)
        if parent is None or order is None:
            return self.replace(account=self.account.settle(step_id, spent))
        account, rest = self.account.release_to_parent(step_id, parent.run.step_id, spent)
        back = SubagentResult(id=step_id, call_id=order.call_id, partial=run.partial, reason=run.reason)
        told = parent.after_subagent(back, rest, lacking=run.partial or run.lacking)
        return self.replace(account=account, runs={**self.runs, parent.run.step_id: told})

    def warning(self, *levels: Level) -> "TaskState":
        """With a note for each level that is nearly spent, unless it has one since it was last raised."""
        warned, notes = collect_budget_warnings(self.warned, levels)
        return self.replace(warned=warned, notes=merged(self.notes, notes)) if notes else self

    def _raises(self, step_id: str | None = None) -> int:
        """How often people have granted more, to one step's agent or to all."""
        return sum(
            approval.decision == "approved" and approval.by != IN_ADVANCE and step_id in {None, approval.agent}
            for approval in self.approvals
            if approval.action is None
        )

    def granted(self, step_id: str, amount: Amount) -> "TaskState":
        """New money for a step's agent: task and agent are raised together. A run that delivered stays as it is."""
        if step_id in self.done:
            return self
        return self.replace(account=self.account.grant_to(step_id, amount)).with_run(
            self.runs[step_id].after_grant(amount)
        )

    def session_answered(self, answer: SessionAnswer) -> "TaskState":
        """What the session gives raises the task, once for each ask; runs then draw on it."""
        if answer.ask_id in self.answered_asks:
            return self
        given = self.replace(
            account=self.account.grant(answer.amount), answered_asks=(*self.answered_asks, answer.ask_id)
        )
        return given.warning(Level("The session", answer.used, answer.limit, verb="spent or reserved"))

    def published(self, version: ReportVersion) -> "TaskState":
        """Its report is stored."""
        return self.replace(report=version.report, reports=(*self.reports, version))

    def asked(self, approval: Approval) -> "TaskState":
        """A person is asked."""
        return self.replace(approvals=(*self.approvals, approval)).resting()

    def answered(self, answer: Approval | Refusal) -> "TaskState":
        """An answer arrived; a refused one changes nothing but the list of refusals."""
        if isinstance(answer, Refusal):
            return self.replace(refusals=(*self.refusals, answer)[-SHOWN_REFUSALS:])
        approvals = tuple(answer if known.request_id == answer.request_id else known for known in self.approvals)
        return self.replace(approvals=approvals).resting()

    def resting(self) -> "TaskState":
        """Working, or paused when every started, undelivered run waits for a person."""
        if self.phase not in {TaskPhase.WORKING, TaskPhase.PAUSED}:
            return self
        waiting = {approval.agent for approval in self.pending}
        active = {step_id for step_id, run in self.runs.items() if run.phase not in {"delivered", "delegating"}}
        paused = PLANNING_ID in waiting or (bool(active) and active <= waiting)
        return self.replace(phase=TaskPhase.PAUSED if paused else TaskPhase.WORKING)

    def request_for(
        self, step_id: str, now: datetime, deadline: datetime | None = None, ceiling: Limit | None = None
    ) -> Approval:
        """The request for a step's agent. Its id counts the step's requests: it is the same when replayed."""
        run = self.runs[step_id]
        number = 1 + sum(approval.agent == step_id for approval in self.approvals)
        plan = self.plan or Plan(steps=())
        return Approval(
            request_id=f"{step_id}-{number}",
            agent=step_id,
            asked=run.proposed,
            spent=run.totals.spent,
            limit=run.limit,
            needed=run.needed,
            task_spent=self.totals.spent,
            steps_left=len(plan.steps) - self.steps_done,
            outlook=build_budget_forecast(run, plan, self.account, self.runs, self.steps_done).under(
                ceiling or Limit(), self.account.limit, run.needed
            ),
            reason=run.halted,
            answer_by=deadline,
            requested_at=now,
        )

    def ended(self, phase: TaskPhase) -> "TaskState":
        """The task is over: whatever is still reserved is settled with what was spent of it."""
        account = self.account
        for step_id in tuple(account.reserved):
            run = self.runs.get(step_id) or self.shelved.get(step_id)
            account = account.settle(step_id, run.totals.spent if run else Amount())
        return self.replace(phase=phase, account=account)

    def expired(self, request: Approval, now: datetime) -> "TaskState":
        """Nobody answered until the deadline: the agent delivers what it has."""
        state = self.answered(request.replace(decision="expired", answered_at=now))
        run = state.runs[request.agent].finish_partial("nobody answered its request for money until its deadline")
        return state.with_run(run)

    def denied(self, step_id: str) -> "TaskState":
        """No more for a step's agent: it delivers what it has; where the answer says so, the whole task ends."""
        answer = next(approval for approval in reversed(self.approvals) if approval.agent == step_id)
        run = self.runs[step_id].finish_partial("a person denied it more")
        return self.replace(cancelled=self.cancelled or answer.finish == "cancel").with_run(run)


def state_pieces(state: TaskState) -> tuple[JsonChunk, ...]:
    """The state in pieces that each fit into one payload."""
    return split_json(state.model_dump(mode="json"))


def state_of(pieces: Iterable[JsonChunk]) -> TaskState:
    """The state that was split into these pieces. Raises ValueError where one is missing."""
    return TaskState.model_validate_json(json.dumps(join_json(pieces)))


def merged(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Both, each text once, in order."""
    return tuple(dict.fromkeys((*known, *new)))


TAKEN_BACK = "its conversation was taken back"


def opened_actions(state: TaskState, step_id: str, now: datetime, deadline: datetime | None) -> tuple[Approval, ...]:
    """Requests for the calls that an agent waits for and nobody was asked about yet, in the order of its reply.

    Their ids count on from the agent's other requests: they are the same when replayed.
    """
    run, plan = state.runs[step_id], state.plan or Plan(steps=())
    open_already = {asked.action.digest for asked in state.pending if asked.agent == step_id and asked.action}
    first = 1 + sum(asked.agent == step_id for asked in state.approvals)
    fresh = (question for question in run.questions if question.digest not in open_already)
    return tuple(
        Approval(
            request_id=f"{step_id}-{number}",
            agent=step_id,
            action=question,
            asked=Amount(),
            spent=run.totals.spent,
            limit=run.limit,
            task_spent=state.totals.spent,
            steps_left=len(plan.steps) - state.steps_done,
            answer_by=deadline,
            requested_at=now,
        )
        for number, question in enumerate(fresh, first)
    )


def decided(state: TaskState, answer: Approval) -> TaskState:
    """What the answer to a request for a call, or that none came in time, means for its agent: it goes on when it was
    the last.
    """
    if answer.action is None or answer.agent in state.done:
        return state
    decision = ActionDecision(
        digest=answer.action.digest,
        allowed=answer.decision == "approved",
        note=answer.note,
        expired=answer.decision == "expired",
    )
    cancels = answer.decision == "denied" and answer.finish == "cancel"
    run = state.runs[answer.agent].after_decision(decision)
    return state.replace(cancelled=state.cancelled or cancels).with_run(run)


def overtaken(state: TaskState, step_id: str, now: datetime) -> tuple[Approval, ...]:
    """Open requests for calls that the agent does not wait for any more, closed."""
    waits_for = {question.digest for question in state.runs[step_id].questions}
    return tuple(
        asked.replace(decision="expired", note=TAKEN_BACK, answered_at=now)
        for asked in state.pending
        if asked.agent == step_id and asked.action is not None and asked.action.digest not in waits_for
    )


def taken_on(state: TaskState, parent_id: str, terms: TaskTerms) -> TaskState:
    """The subagents that an agent asked for are among the task's runs, with what is carved from its budget, under the
    terms of their roles. Those that are there already stay as they are.
    """
    for order in state.runs[parent_id].open_orders:
        if order.id not in state.runs:
            own = _terms(terms.agent_of(order.role), order)
            state = _taken_on(state, state.runs[parent_id], order, own)
    return state


def _taken_on(state: TaskState, parent: AgentRun, order: SubagentOrder, terms: AgentConfig) -> TaskState:
    carved = order.limit.amount
    run = AgentRun(
        run=parent.run.replace(step_id=order.id, role=order.role),
        terms=terms,
        limit=order.limit,
        share=order.limit,
    )
    parent_id = parent.run.step_id
    runs = {**state.runs, parent_id: parent.after_transfer(carved), order.id: run}
    return state.replace(runs=runs, account=state.account.transfer(parent_id, order.id, carved))


def _terms(terms: AgentConfig, order: SubagentOrder) -> AgentConfig:
    """With its share for thinking, and replies that its budget pays for. Its window is its role's: a context is full
    when the model's window is, not when money is short.
    """
    tokens = order.limit.tokens
    if tokens is None:
        return terms
    return terms.thinking_at_most(tokens // THINKING_PART).with_replies_for(tokens)


def progressed(state: TaskState, news: SubagentProgress) -> TaskState:
    """How far a subagent is. Of one that has ended, or that is not known, nothing is taken in."""
    run = state.runs.get(news.id)
    if run is None or get_parent_id(news.id) is None or run.phase == "delivered":
        return state
    return state.with_run(run.told(news))
