"""The state of a running task: all that its workflow carries through continue-as-new, and what people see of it."""

from datetime import datetime

from waystation.domain.agent_run import AgentRun
from waystation.domain.budget import RunTotals, Usage
from waystation.domain.compaction.outcome import AgentCompaction
from waystation.domain.ledger import Account
from waystation.domain.leg import RunRef
from waystation.domain.plan import Plan, Step, share_out
from waystation.domain.session import Answer
from waystation.domain.task import (
    Approval,
    BudgetProgress,
    Refusal,
    StepProgress,
    StepState,
    TaskPhase,
    TaskProgress,
    TaskRef,
    TaskTerms,
)
from waystation.domain.value import Value

SHOWN_REFUSALS = 20


class TaskState(Value):
    """Everything that is true of a task between two events."""

    phase: TaskPhase = TaskPhase.PLANNING
    account: Account
    plan: Plan | None = None
    """Without goals: those stay in the store."""
    planning: RunTotals = RunTotals()
    runs: dict[str, AgentRun] = {}
    """By step id, once a step was started."""
    approvals: tuple[Approval, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[str, ...] = ()
    asks: int = 0
    """How often the session was asked; part of an ask's id."""
    answered_asks: tuple[str, ...] = ()
    cancelled: bool = False
    """A person ended the task, or it failed: nothing new is started, also by an agent that ends its leg meanwhile."""
    report: str | None = None

    @property
    def done(self) -> frozenset[str]:
        """Steps that delivered."""
        return frozenset(step_id for step_id, run in self.runs.items() if run.phase == "delivered")

    @property
    def all_done(self) -> bool:
        """Whether every step delivered."""
        return self.plan is not None and len(self.done) == len(self.plan.steps)

    @property
    def last_phase(self) -> TaskPhase:
        """How a task ends whose work is over."""
        if self.cancelled:
            return TaskPhase.CANCELLED
        return TaskPhase.PARTIAL if any(run.partial for run in self.runs.values()) else TaskPhase.DONE

    @property
    def ending(self) -> bool:
        """The report is being stored, or is: nobody's answer changes it any more."""
        return self.cancelled or self.phase is TaskPhase.REPORTING or self.phase.over

    @property
    def pending(self) -> tuple[Approval, ...]:
        """Requests that can still be answered."""
        return () if self.ending else tuple(asked for asked in self.approvals if asked.decision == "pending")

    @property
    def totals(self) -> RunTotals:
        """Planning and all agents together."""
        return summed((self.planning, *(run.totals for run in self.runs.values())))

    def planned(self, plan: Plan, totals: RunTotals, notes: tuple[str, ...], agent_budget: int) -> "TaskState":
        """The plan is there: every step's share is reserved now, so that steps to come keep it."""
        state = self.with_planning(totals)
        account = state.account
        share = share_out(account.unreserved or 0, agent_budget, len(plan.steps))
        for step in plan.steps:
            account = account.reserve(step.id, share)
        return state.with_(phase=TaskPhase.WORKING, plan=plan, account=account, notes=merged(self.notes, notes))

    def with_planning(self, totals: RunTotals) -> "TaskState":
        """What planning cost in all, booked once."""
        return self.with_(planning=totals, account=self.account.spend(totals.spent - self.planning.spent))

    def started(self, step: Step, ref: TaskRef, terms: TaskTerms) -> "TaskState":
        """The step's agent run, with the share that is reserved for it."""
        share = self.account.reserved.get(step.id, 0)
        run = AgentRun(
            run=RunRef(**ref.model_dump(), step_id=step.id, role=step.role),
            terms=terms.agent,
            limit=share,
            share=share,
        )
        return self.with_run(run)

    def with_run(self, run: AgentRun) -> "TaskState":
        """A run's new state. A delivered run settles its reservation, once."""
        step_id = run.run.step_id
        account = self.account.settle(step_id, run.totals.spent) if run.phase == "delivered" else self.account
        return self.with_(
            runs={**self.runs, step_id: run}, account=account, notes=merged(self.notes, run.notes)
        ).resting()

    def drawn(self, step_id: str) -> tuple["TaskState", int]:
        """What the task has left unreserved, for a run that spent its own; 0 where that is too little for one call."""
        run = self.runs[step_id]
        if (self.account.unreserved or 0) < run.needed:
            return self, 0
        account, tokens = self.account.draw(step_id, max(run.share // 2, run.needed))
        return self.with_(account=account), tokens

    def granted(self, step_id: str, tokens: int) -> "TaskState":
        """New money for a step's agent: task and agent are raised together. A run that delivered stays as it is."""
        if step_id in self.done:
            return self
        return self.with_(account=self.account.grant_to(step_id, tokens)).with_run(
            self.runs[step_id].after_grant(tokens)
        )

    def session_answered(self, answer: Answer) -> "TaskState":
        """What the session gives raises the task, once for each ask; runs then draw on it."""
        if answer.ask_id in self.answered_asks:
            return self
        account = self.account.grant(answer.tokens) if answer.tokens > 0 else self.account
        return self.with_(account=account, answered_asks=(*self.answered_asks, answer.ask_id))

    def asked(self, approval: Approval) -> "TaskState":
        """A person is asked."""
        return self.with_(approvals=(*self.approvals, approval)).resting()

    def answered(self, answer: Approval | Refusal) -> "TaskState":
        """An answer arrived; a refused one changes nothing but the list of refusals."""
        if isinstance(answer, Refusal):
            return self.with_(refusals=(*self.refusals, answer)[-SHOWN_REFUSALS:])
        approvals = tuple(answer if known.request_id == answer.request_id else known for known in self.approvals)
        return self.with_(approvals=approvals).resting()

    def resting(self) -> "TaskState":
        """Working, or paused when every started, undelivered run waits for a person."""
        if self.phase not in {TaskPhase.WORKING, TaskPhase.PAUSED}:
            return self
        waiting = {approval.agent for approval in self.pending}
        active = {step_id for step_id in self.runs if step_id not in self.done}
        paused = bool(active) and active <= waiting
        return self.with_(phase=TaskPhase.PAUSED if paused else TaskPhase.WORKING)

    def request_for(self, step_id: str, now: datetime) -> Approval:
        """The request for a step's agent. Its id counts the step's requests: it is the same when replayed."""
        run = self.runs[step_id]
        number = 1 + sum(approval.agent == step_id for approval in self.approvals)
        steps = self.plan.steps if self.plan else ()
        return Approval(
            request_id=f"{step_id}-{number}",
            agent=step_id,
            asked_tokens=max(run.share, run.needed),
            spent=run.totals.spent,
            limit=run.limit,
            needed=run.needed,
            task_spent=self.totals.spent,
            steps_left=len(steps) - len(self.done),
            requested_at=now,
        )

    def ended(self, phase: TaskPhase) -> "TaskState":
        """The task is over: whatever is still reserved is settled with what was spent of it."""
        account = self.account
        for step_id in tuple(account.reserved):
            run = self.runs.get(step_id)
            account = account.settle(step_id, run.totals.spent if run else 0)
        return self.with_(phase=phase, account=account)

    def denied(self, step_id: str) -> "TaskState":
        """No more for a step's agent: it delivers what it has; where the answer says so, the whole task ends."""
        answer = next(approval for approval in reversed(self.approvals) if approval.agent == step_id)
        run = self.runs[step_id].cannot_go_on("a person denied it more tokens")
        return self.with_(cancelled=self.cancelled or answer.finish == "cancel").with_run(run)

    def with_(self, **changes: object) -> "TaskState":
        """A copy with these fields changed."""
        return self.model_copy(update=changes)


def merged(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Both, each text once, in order."""
    return tuple(dict.fromkeys((*known, *new)))


def summed(parts: tuple[RunTotals, ...]) -> RunTotals:
    """Totals added up. One unknown price makes the sum unknown: never a guess."""
    costs = [part.cost_micro_usd for part in parts]
    return RunTotals(
        usage=sum((part.usage for part in parts), Usage()),
        turns=sum(part.turns for part in parts),
        possibly_billed=sum(part.possibly_billed for part in parts),
        cost_micro_usd=None if None in costs else sum(cost or 0 for cost in costs),
    )


def progress_of(state: TaskState, ref: TaskRef, terms: TaskTerms, title: str) -> TaskProgress:
    """What people see."""
    runs = state.runs.values()
    return TaskProgress(
        task_id=ref.task_id,
        phase=state.phase,
        title=title,
        model=terms.agent.model,
        steps=tuple(_step(state, step) for step in (state.plan.steps if state.plan else ())),
        budget=BudgetProgress(
            limit=state.account.limit or 0,
            spent=state.totals.spent,
            reserved=max(0, state.account.held + state.account.spent - state.totals.spent),
        ),
        totals=state.totals,
        legs=sum(run.leg - 1 for run in runs),
        compactions=tuple(
            AgentCompaction(agent=run.run.step_id, **compaction.model_dump())
            for run in runs
            for compaction in run.compactions
        ),
        approvals=state.approvals,
        refusals=state.refusals,
        notes=state.notes,
        report=state.report,
    )


def _step(state: TaskState, step: Step) -> StepProgress:
    run = state.runs.get(step.id)
    held = state.account.reserved.get(step.id, 0)
    if run is None:
        skipped = state.phase.over or state.cancelled
        return StepProgress(
            id=step.id,
            role=step.role,
            title=step.title,
            state="skipped" if skipped else "waiting",
            legs=0,
            usage=Usage(),
            limit=held,
        )
    return StepProgress(
        id=step.id,
        role=step.role,
        title=step.title,
        state=_state_of(state, run),
        legs=run.leg - 1,
        usage=run.totals.usage,
        cost_micro_usd=run.totals.cost_micro_usd,
        limit=run.limit,
        spent=run.totals.spent,
        reason=run.reason,
    )


def _state_of(state: TaskState, run: AgentRun) -> StepState:
    if run.phase == "delivered":
        return "partial" if run.partial else "done"
    if any(approval.agent == run.run.step_id for approval in state.pending):
        return "paused"
    return "compacting" if run.phase == "full" else "working"


class TaskStart(Value):
    """Input of the Task workflow: references and terms, and the state to go on from."""

    ref: TaskRef
    terms: TaskTerms
    title: str
    search_attributes: bool
    state: TaskState | None = None
