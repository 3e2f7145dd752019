"""The state of a running task, which its workflow carries through continue-as-new, and its transitions.

Includes requests for tool calls, and subagents, which get a part of their parent's budget and settle with it.
"""

import json
from collections.abc import Iterable
from datetime import datetime
from functools import cached_property

from waystation.agents.action_approvals import AUTHORISED_IN_ADVANCE, ActionDecision
from waystation.agents.agent_run import AgentRun, build_budget_forecast
from waystation.agents.delegation import SubagentOrder, SubagentProgress, SubagentResult, get_parent_id
from waystation.agents.leg import AgentConfig
from waystation.agents.task_messages import TaskMessage
from waystation.budgets.budget import (
    BudgetAccount,
    BudgetLevel,
    BudgetWarning,
    RunUsage,
    collect_budget_warnings,
    sum_run_usage,
)
from waystation.documents.documents import DocumentsUpdate
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.json_chunks import JsonChunk, join_json, split_json
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.value import Value
from waystation.models.profiles import THINKING_PART
from waystation.planning.plan import (
    PLANNING_ID,
    OversightState,
    Plan,
    PlanEdit,
    RevisionResult,
    Step,
    compute_even_share,
    compute_plan_shares,
    find_share_errors,
)
from waystation.tasks.session import SessionBudgetAnswer
from waystation.tasks.task import ApprovalRequest, RejectedMessage, ReportVersion, ReusedWork, TaskConfig, TaskPhase

MAX_SHOWN_REJECTIONS = 20
UNFIT_SHARES_NOTE = "The shares of the plan's steps do not fit the task's budget; every step gets an equal part."
TASK_LEVEL, SESSION_LEVEL = "The task", "The session"
"""Names of the levels above the agents, as in warnings."""
OVERSIGHT_RESERVATION = "(oversight)"
"""Key of the reservation for oversight in the task's account; no step has this name."""


class TaskState(Value):
    """Everything that is true of a task between two events."""

    phase: TaskPhase = TaskPhase.PLANNING
    account: BudgetAccount
    plan: Plan | None = None
    """Without goals: those stay in the store."""
    plan_edit: PlanEdit | None = None
    proposed_revision: RevisionResult | None = None
    """A revision that waits for approval: until then the current plan holds, and no step begins."""
    planning: RunUsage = RunUsage()
    initial_step_limit: Limit | None = None
    """What every step started with, once there is a plan."""
    minimum_reserve: Amount | None = None
    """Minimum that a later step keeps when others borrow from it; None: borrowing is off."""
    minimum_reserves: dict[str, Amount] = {}
    """Minimum that a step starts with, by role."""
    runs: dict[str, AgentRun] = {}
    """Runs of started steps and subagents, by ID."""
    suspended_runs: dict[str, AgentRun] = {}
    """Runs that restart once their needs are done again, by step ID: the task was reopened by a rewind."""
    oversight: OversightState = OversightState()
    approvals: tuple[ApprovalRequest, ...] = ()
    rejected_messages: tuple[RejectedMessage, ...] = ()
    task_messages: tuple[TaskMessage, ...] = ()
    document_updates: tuple[DocumentsUpdate, ...] = ()
    reused: ReusedWork | None = None
    notes: tuple[str, ...] = ()
    budget_warnings: dict[str, int] = {}
    """By level: how often people had raised it when its last warning was noted."""
    noted_warnings: dict[str, BudgetWarning] = {}
    """By level: its last warning."""
    session_requests: int = 0
    """Number of budget requests to the session; part of a request's ID."""
    answered_session_requests: tuple[str, ...] = ()
    cancelled: bool = False
    """Whether a person ended the task, or it failed: nothing new is started, not even by an agent whose leg ends
    meanwhile.
    """
    delivery_requested: bool = False
    """Whether a person asked for the report now: no agent asks for anything any more, and the task ends partial."""
    report: str | None = None
    reports: tuple[ReportVersion, ...] = ()
    """Stored reports, oldest first: a rewind replaces none."""

    @property
    def delivered_agents(self) -> frozenset[str]:
        """IDs of the agents that delivered: of steps, and subagents."""
        return frozenset(step_id for step_id, run in self.runs.items() if run.phase == "delivered")

    @property
    def delivered_step_count(self) -> int:
        """Number of steps that delivered."""
        return sum(get_parent_id(step_id) is None for step_id in self.delivered_agents)

    @property
    def all_steps_delivered(self) -> bool:
        """Whether every step delivered."""
        return self.plan is not None and self.delivered_step_count == len(self.plan.steps)

    @property
    def final_phase(self) -> TaskPhase:
        """The phase in which the task ends when its work is over."""
        if self.cancelled:
            return TaskPhase.CANCELLED
        if self.delivery_requested:
            return TaskPhase.PARTIAL
        steps = (run for step_id, run in self.runs.items() if get_parent_id(step_id) is None)
        return TaskPhase.PARTIAL if any(run.partial or run.inputs_incomplete for run in steps) else TaskPhase.DONE

    @property
    def is_ending(self) -> bool:
        """Whether the report is being stored or is stored: no answer changes it any more."""
        return self.cancelled or self.phase is TaskPhase.REPORTING or self.phase.over

    @property
    def pending_approvals(self) -> tuple[ApprovalRequest, ...]:
        """Requests that can still be answered."""
        return () if self.is_ending else tuple(asked for asked in self.approvals if asked.decision == "pending")

    @property
    def used_share(self) -> float:
        """Share of the task's budget that is spent (0 to 1)."""
        return self.account.limit.compute_used_share(self.totals.spent)

    @property
    def all_runs(self) -> tuple[AgentRun, ...]:
        """Started runs, and those that restart."""
        return (*self.runs.values(), *self.suspended_runs.values())

    @cached_property
    def totals(self) -> RunUsage:
        """Usage of planning, oversight and all agents together."""
        return sum_run_usage((self.planning, *self.oversight.totals, *(run.totals for run in self.all_runs)))

    def with_plan(self, plan: Plan, totals: RunUsage, notes: tuple[str, ...], agent_budget: Limit) -> "TaskState":
        """Set the plan, and reserve every step's share now, so that later steps keep it."""
        state = self.with_planning_cost(totals)
        account = state.account
        share = compute_even_share(account.unreserved, agent_budget, len(plan.steps))
        shared = plan
        if any(step.share for step in plan.steps) and find_share_errors(plan, account.unreserved):
            notes, shared = (*notes, UNFIT_SHARES_NOTE), plan.without_shares()
        shares = compute_plan_shares(shared, account.unreserved, agent_budget, self.minimum_reserves)
        given = {step.id: shares[step.id] for step in plan.steps if step.share or shares[step.id] != share}
        for step in plan.steps:
            account = account.reserve(step.id, given.get(step.id, share).amount)
        # Of a plan that a person replaced, no share stays: a step would begin with another limit than its reservation.
        oversight = state.oversight.replace(shares=given)
        return state.replace(
            phase=TaskPhase.WORKING,
            plan=plan,
            initial_step_limit=share,
            account=account,
            oversight=oversight,
            notes=merge_unique(self.notes, notes),
        )

    def with_planning_cost(self, totals: RunUsage) -> "TaskState":
        """Book the total cost of planning once."""
        return self.replace(
            planning=totals, account=self.account.charge(totals.spent.subtract_clamped(self.planning.spent))
        )

    def get_step_share(self, step_id: str) -> Limit | None:
        """Return what a step starts with, once there is a plan."""
        return self.oversight.shares.get(step_id, self.initial_step_limit)

    def start_step(self, step: Step, ref: TaskRef, config: TaskConfig) -> "TaskState":
        """Start the step's agent run with its reserved share."""
        if (shelved := self.suspended_runs.get(step.id)) is not None:
            rest = {step_id: run for step_id, run in self.suspended_runs.items() if step_id != step.id}
            return self.replace(suspended_runs=rest).with_run(shelved)
        share = self.get_step_share(step.id) or Limit(tokens=self.account.reserved.get(step.id, Amount()).tokens)
        state = self if self.minimum_reserve is None else self._made_good(step.id, share)
        run = AgentRun(
            run=RunRef(**ref.model_dump(), step_id=step.id, role=step.role),
            config=config.get_config(step.role),
            limit=state.get_unborrowed_share(step.id) or share,
            initial_limit=share,
        )
        return state.with_run(run)

    def get_minimum_reserve(self, step: Step) -> Amount:
        """Return the minimum that a step starts with, within its share: no other step may borrow from it."""
        share = self.get_step_share(step.id) or Limit()
        least = self.minimum_reserves.get(step.role, Amount())
        return Amount(
            tokens=least.tokens if share.tokens is None else min(least.tokens, share.tokens),
            micro_usd=least.micro_usd if share.micro_usd is None else min(least.micro_usd, share.micro_usd),
        )

    def _made_good(self, step_id: str, share: Limit) -> "TaskState":
        """Reserve again what was borrowed from a step that begins, as far as it is available."""
        lacks = share.amount.subtract_clamped(self.account.reserved.get(step_id, Amount()))
        return self.replace(account=self.account.reserve_available(step_id, lacks)[0])

    def get_unborrowed_share(self, step_id: str) -> Limit | None:
        """Return what a later step would start with now: its share minus what others have borrowed."""
        share = self.get_step_share(step_id)
        if share is None or self.minimum_reserve is None:
            return share
        held = self.account.reserved.get(step_id, Amount())
        return Limit(
            tokens=None if share.tokens is None else min(share.tokens, held.tokens),
            micro_usd=None if share.micro_usd is None else min(share.micro_usd, held.micro_usd),
        )

    def with_run(self, run: AgentRun) -> "TaskState":
        """Update a run. A delivered run settles its reservation once. Nearly spent budgets are noted."""
        state, step_id, delivered = self, run.run.step_id, run.phase == "delivered"
        state = state._settled(run) if delivered else state
        account = state.account
        if step_id in self.delivered_agents:  # a requested summary was still running when it delivered
            account = account.charge(run.totals.spent.subtract_clamped(self.runs[step_id].totals.spent))
        state = state.replace(
            runs={**state.runs, step_id: run}, account=account, notes=merge_unique(self.notes, run.notes)
        )
        task = BudgetLevel(TASK_LEVEL, state.totals.spent, account.limit, self._raises())
        agent = BudgetLevel(step_id, run.totals.spent, run.limit, self._raises(step_id))
        return state.with_budget_warnings(*((task,) if delivered else (agent, task))).with_pause_phase()

    def _settled(self, run: AgentRun) -> "TaskState":
        """Settle a delivered run.

        Its unspent budget returns to the task, or to the parent, which receives the result.
        """
        step_id, spent = run.run.step_id, run.totals.spent
        parent = self.runs.get(get_parent_id(step_id) or "")
        order = parent and parent.find_open_order(step_id)
        if parent is None or order is None:
            return self.replace(account=self.account.settle(step_id, spent))
        account, rest = self.account.release_to_parent(step_id, parent.run.step_id, spent)
        back = SubagentResult(id=step_id, call_id=order.call_id, partial=run.partial, reason=run.reason)
        told = parent.after_subagent(back, rest, lacking=run.partial or run.inputs_incomplete)
        return self.replace(account=account, runs={**self.runs, parent.run.step_id: told})

    def with_budget_warnings(self, *levels: BudgetLevel) -> "TaskState":
        """Note each level that is nearly spent, unless it was noted since it was last raised."""
        warned, new = collect_budget_warnings(self.budget_warnings, levels)
        return self.replace(budget_warnings=warned, noted_warnings={**self.noted_warnings, **new}) if new else self

    @property
    def shown_warnings(self) -> tuple[str, ...]:
        """The budget warnings that still hold: none of an ended agent or task, and none for an earlier limit."""
        if self.is_ending:
            return ()
        limits = {step_id: run.limit for step_id, run in self.runs.items() if run.phase != "delivered"}
        limits[TASK_LEVEL] = self.account.limit
        if SESSION_LEVEL in self.noted_warnings:
            limits[SESSION_LEVEL] = self.noted_warnings[SESSION_LEVEL].limit
        return tuple(one.text for level, one in self.noted_warnings.items() if limits.get(level) == one.limit)

    def _raises(self, step_id: str | None = None) -> int:
        """Return how often people have granted more, to one step's agent or to all."""
        return sum(
            approval.decision == "approved"
            and approval.by != AUTHORISED_IN_ADVANCE
            and step_id in {None, approval.agent}
            for approval in self.approvals
            if approval.action is None
        )

    def after_grant(self, step_id: str, amount: Amount) -> "TaskState":
        """Grant budget to a step's agent: task and agent are raised together. A delivered run stays as it is."""
        if step_id in self.delivered_agents:
            return self
        return self.replace(account=self.account.grant_to(step_id, amount)).with_run(
            self.runs[step_id].after_grant(amount)
        )

    def after_session_answer(self, answer: SessionBudgetAnswer) -> "TaskState":
        """Raise the task by what the session gives, once per request; runs then draw on it."""
        if answer.request_id in self.answered_session_requests:
            return self
        given = self.replace(
            account=self.account.grant(answer.amount),
            answered_session_requests=(*self.answered_session_requests, answer.request_id),
        )
        return given.with_budget_warnings(
            BudgetLevel(SESSION_LEVEL, answer.used, answer.limit, verb="spent or reserved")
        )

    def with_report_version(self, version: ReportVersion) -> "TaskState":
        """Record a stored report."""
        return self.replace(report=version.report, reports=(*self.reports, version))

    def with_approval_request(self, approval: ApprovalRequest) -> "TaskState":
        """Add an approval request."""
        return self.replace(approvals=(*self.approvals, approval)).with_pause_phase()

    def after_answer(self, answer: ApprovalRequest | RejectedMessage) -> "TaskState":
        """Record an answer; a rejected one changes only the list of rejections."""
        if isinstance(answer, RejectedMessage):
            return self.replace(rejected_messages=(*self.rejected_messages, answer)[-MAX_SHOWN_REJECTIONS:])
        approvals = tuple(answer if known.request_id == answer.request_id else known for known in self.approvals)
        return self.replace(approvals=approvals).with_pause_phase()

    def with_pause_phase(self) -> "TaskState":
        """Set the phase: paused if every started, undelivered run waits for a person, otherwise working."""
        if self.phase not in {TaskPhase.WORKING, TaskPhase.PAUSED}:
            return self
        waiting = {approval.agent for approval in self.pending_approvals}
        active = {step_id for step_id, run in self.runs.items() if run.phase not in {"delivered", "delegating"}}
        paused = PLANNING_ID in waiting or (bool(active) and active <= waiting)
        return self.replace(phase=TaskPhase.PAUSED if paused else TaskPhase.WORKING)

    def build_budget_request(
        self, step_id: str, now: datetime, deadline: datetime | None = None, ceiling: Limit | None = None
    ) -> ApprovalRequest:
        """Build the budget request of a step's agent.

        Its ID counts the step's requests, and is the same in a replay.
        """
        run = self.runs[step_id]
        number = 1 + sum(approval.agent == step_id for approval in self.approvals)
        plan = self.plan or Plan(steps=())
        return ApprovalRequest(
            request_id=f"{step_id}-{number}",
            agent=step_id,
            requested=run.proposed_grant,
            spent=run.totals.spent,
            limit=run.limit,
            needed=run.needed,
            task_spent=self.totals.spent,
            steps_left=len(plan.steps) - self.delivered_step_count,
            forecast=build_budget_forecast(run, plan, self.account, self.runs, self.delivered_step_count).with_ceiling(
                ceiling or Limit(), self.account.limit, run.needed
            ),
            reason=run.halt_reason,
            answer_by=deadline,
            requested_at=now,
        )

    def end_task(self, phase: TaskPhase) -> "TaskState":
        """End the task: settle all remaining reservations with what was spent of them."""
        account = self.account
        for step_id in tuple(account.reserved):
            run = self.runs.get(step_id) or self.suspended_runs.get(step_id)
            account = account.settle(step_id, run.totals.spent if run else Amount())
        return self.replace(phase=phase, account=account)

    def after_expiry(self, request: ApprovalRequest, now: datetime) -> "TaskState":
        """Make the agent deliver what it has, because no one answered by the deadline."""
        state = self.after_answer(request.replace(decision="expired", answered_at=now))
        run = state.runs[request.agent].finish_partial("its budget request was not answered by its deadline")
        return state.with_run(run)

    def after_denial(self, step_id: str) -> "TaskState":
        """Make a step's agent deliver what it has; if the answer says so, the whole task ends."""
        answer = next(approval for approval in reversed(self.approvals) if approval.agent == step_id)
        run = self.runs[step_id].finish_partial("a person denied its budget request")
        return self.replace(cancelled=self.cancelled or answer.finish == "cancel").with_run(run)


def split_state(state: TaskState) -> tuple[JsonChunk, ...]:
    """Split the state into pieces that each fit into one payload."""
    return split_json(state.model_dump(mode="json"))


def join_state(pieces: Iterable[JsonChunk]) -> TaskState:
    """Join the pieces of a state. Raises ValueError if one is missing."""
    return TaskState.model_validate_json(json.dumps(join_json(pieces)))


def merge_unique(known: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    """Concatenate both in order, each text once."""
    return tuple(dict.fromkeys((*known, *new)))


TAKEN_BACK_NOTE = "its conversation was rewound"


def build_action_requests(
    state: TaskState, step_id: str, now: datetime, deadline: datetime | None
) -> tuple[ApprovalRequest, ...]:
    """Build requests for an agent's pending calls that have none yet, in the order of its reply.

    Their IDs continue the numbering of the agent's requests, and are the same in a replay.
    """
    run, plan = state.runs[step_id], state.plan or Plan(steps=())
    open_already = {asked.action.digest for asked in state.pending_approvals if asked.agent == step_id and asked.action}
    first = 1 + sum(asked.agent == step_id for asked in state.approvals)
    fresh = (question for question in run.questions if question.digest not in open_already)
    return tuple(
        ApprovalRequest(
            request_id=f"{step_id}-{number}",
            agent=step_id,
            action=question,
            requested=Amount(),
            spent=run.totals.spent,
            limit=run.limit,
            task_spent=state.totals.spent,
            steps_left=len(plan.steps) - state.delivered_step_count,
            answer_by=deadline,
            requested_at=now,
        )
        for number, question in enumerate(fresh, first)
    )


def apply_action_decision(state: TaskState, answer: ApprovalRequest) -> TaskState:
    """Apply the answer to a request for a call, or its expiry; after the last one, the agent goes on."""
    if answer.action is None or answer.agent in state.delivered_agents:
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


def expire_obsolete_requests(state: TaskState, step_id: str, now: datetime) -> tuple[ApprovalRequest, ...]:
    """Return open requests for calls that the agent no longer waits for, as expired."""
    waits_for = {question.digest for question in state.runs[step_id].questions}
    return tuple(
        asked.replace(decision="expired", note=TAKEN_BACK_NOTE, answered_at=now)
        for asked in state.pending_approvals
        if asked.agent == step_id and asked.action is not None and asked.action.digest not in waits_for
    )


def start_subagents(state: TaskState, parent_id: str, config: TaskConfig) -> TaskState:
    """Add the subagents that an agent requested to the task's runs.

    They get a part of its budget and the config of their roles. Subagents that exist already stay as they are.
    """
    for order in state.runs[parent_id].open_orders:
        if order.id not in state.runs:
            own = _terms(config.get_config(order.role), order)
            state = _taken_on(state, state.runs[parent_id], order, own)
    return state


def _taken_on(state: TaskState, parent: AgentRun, order: SubagentOrder, config: AgentConfig) -> TaskState:
    carved = order.limit.amount
    run = AgentRun(
        run=parent.run.replace(step_id=order.id, role=order.role),
        config=config,
        limit=order.limit,
        initial_limit=order.limit,
    )
    parent_id = parent.run.step_id
    runs = {**state.runs, parent_id: parent.after_transfer(carved), order.id: run}
    return state.replace(runs=runs, account=state.account.transfer(parent_id, order.id, carved))


def _terms(config: AgentConfig, order: SubagentOrder) -> AgentConfig:
    """Return the config with a share for thinking and with replies that the budget pays for.

    The window is the role's: a context is full when the model's window is, not when budget is short.
    """
    tokens = order.limit.tokens
    if tokens is None:
        return config
    return config.with_thinking_limit(tokens // THINKING_PART).with_scaled_min_reply(tokens)


def apply_subagent_progress(state: TaskState, news: SubagentProgress) -> TaskState:
    """Apply a subagent's progress; ignored for one that has ended or is unknown."""
    run = state.runs.get(news.id)
    if run is None or get_parent_id(news.id) is None or run.phase == "delivered":
        return state
    return state.with_run(run.with_progress(news))
