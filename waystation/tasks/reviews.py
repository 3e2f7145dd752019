"""Oversight of a task: when plans are approved and revised and reports reviewed, what that may cost, and its effect.

Planning, revisions, reviews and judgements share a part of the task's budget, reserved from the start.
"""

from datetime import datetime

from waystation.agents.agent_run import AgentRun
from waystation.budgets.budget import BudgetAccount, RunUsage
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.refs import RunRef, TaskRef
from waystation.kernel.value import Value
from waystation.models.profiles import Effort, Price
from waystation.planning.plan import (
    JUDGE_PREFIX,
    MAX_STEPS,
    PLANNING_ID,
    Plan,
    PlanEdit,
    PlanEditResult,
    ReportReview,
    RevisionResult,
    SentenceJudgement,
    compute_shares_with_reserves,
    make_judge_id,
    make_review_id,
    make_revision_id,
)
from waystation.tasks.approvals import REVIEW_PLAN
from waystation.tasks.state import OVERSIGHT_RESERVATION, TaskState, merge_unique
from waystation.tasks.task import ApprovalRequest, RejectedMessage, TaskConfig

OVERSIGHT_BUDGET_DIVISOR = 10
"""They may spend 1/10 of the task's budget."""


def reserve_oversight_budget(state: TaskState, planning: RunUsage, config: TaskConfig) -> TaskState:
    """Reserve what planning left of its share for revisions, reviews and judgements, before the steps get theirs."""
    if not (config.revisions or config.reviews or config.judge_model):
        return state
    state = state.with_planning_cost(planning)
    left = state.account.limit.divide_by(OVERSIGHT_BUDGET_DIVISOR).remaining_after(planning.spent)
    return state.replace(
        account=state.account.reserve(OVERSIGHT_RESERVATION, left.amount.min_with(state.account.unreserved.amount))
    )


def build_plan_approval_request(state: TaskState, now: datetime, deadline: datetime | None) -> ApprovalRequest:
    """Build the request to approve the plan before any of its steps begins."""
    return ApprovalRequest(
        request_id=f"{PLANNING_ID}-{1 + sum(asked.about_plan for asked in state.approvals)}",
        agent=PLANNING_ID,
        requested=Amount(),
        spent=state.planning.spent,
        task_spent=state.totals.spent,
        steps_left=len(state.plan.steps) if state.plan is not None else 0,
        answer_by=deadline,
        requested_at=now,
    )


def compute_limit_for_steps(state: TaskState) -> Limit:
    """Return what all steps of the plan have together, before any has begun."""
    held = (state.account.reserved.get(step.id, Amount()) for step in (state.plan.steps if state.plan else ()))
    return state.account.unreserved.increase_by(sum(held, Amount()))


def apply_plan_edit_result(
    state: TaskState, edit: PlanEdit, result: PlanEditResult, config: TaskConfig, now: datetime
) -> tuple[TaskState, ApprovalRequest | RejectedMessage]:
    """Apply the plan that a person edited, and return the state with its audit entry.

    The edited plan is thereby approved: each step has the share that the person gave it, or an even part of the rest.
    If the plan could not be used, or the request was closed meanwhile, the edit is rejected and nothing else changes.
    """
    state = state.replace(plan_edit=None)
    request = next((asked for asked in state.pending_approvals if asked.request_id == edit.request_id), None)
    if request is None or result.plan is None:
        reason = result.reason or f"the request {edit.request_id} was closed before the edited plan was read"
        refused = RejectedMessage(signal=REVIEW_PLAN, reason=reason, at=now, answer_id=edit.answer_id)
        return state.after_answer(refused), refused
    account = state.account
    for step in state.plan.steps if state.plan is not None else ():
        account = account.settle(step.id, Amount())
    answer = request.replace(decision="approved", answered_at=now, by=edit.by, note=edit.note, answer_id=edit.answer_id)
    state = state.replace(account=account).with_plan(result.plan, state.planning, (), config.agent_budget)
    return state.after_answer(answer), answer


def compute_oversight_limit(state: TaskState) -> Limit:
    """Return what the next revision or review may spend.

    The rest of the share, as far as it is reserved or unreserved.
    """
    used = sum((totals.spent for totals in (state.planning, *state.oversight.totals)), Amount())
    share = state.account.limit.divide_by(OVERSIGHT_BUDGET_DIVISOR).remaining_after(used)
    there = state.account.unreserved.increase_by(state.account.reserved.get(OVERSIGHT_RESERVATION, Amount()))
    return share.remaining_after(there.compute_excess(share.amount))


def start_oversight_run(state: TaskState, run_id: str) -> TaskState:
    """Mark an oversight run as started: whatever happens, its cost must be booked."""
    return state.replace(oversight=state.oversight.replace(current_run=run_id))


def book_oversight_cost(state: TaskState, run_id: str, totals: RunUsage) -> TaskState:
    """Book the run's total cost once; the rest stays reserved."""
    before = state.oversight.costs.get(run_id, RunUsage())
    spent = totals.spent.subtract_clamped(before.spent)
    held = state.account.reserved.get(OVERSIGHT_RESERVATION, Amount())
    account = state.account.settle(OVERSIGHT_RESERVATION, Amount()).charge(spent)
    rest = held.subtract_clamped(spent).min_with(account.unreserved.amount)
    costs = {**state.oversight.costs, run_id: totals}
    return state.replace(
        account=account.reserve(OVERSIGHT_RESERVATION, rest),
        oversight=state.oversight.replace(costs=costs, current_run=""),
    )


class ReviewRequest(Value):
    """One review. Running it again gives the same result and asks nothing twice."""

    writer: RunRef
    number: int
    model: str
    effort: Effort | None = None
    limit: Limit
    """What it may spend."""
    may_send_back: bool
    """Whether the writer is to fix the faults."""
    prices: tuple[Price, ...] = ()


class ReviewResult(Value):
    """Result of a review."""

    review: ReportReview
    totals: RunUsage
    notes: tuple[str, ...] = ()


def is_review_due(state: TaskState) -> bool:
    """Return whether there is a complete report to review."""
    if state.cancelled or state.delivery_requested:
        return False
    return state.all_steps_delivered and not _writer(state).partial


def build_review_request(state: TaskState, config: TaskConfig) -> ReviewRequest:
    """Build the next review of a complete report."""
    oversight = state.oversight
    may_send_back = oversight.times_sent_back < config.reviews and not oversight.fixing_failed
    return ReviewRequest(
        writer=_writer(state).run,
        number=len(oversight.reviews) + 1,
        model=config.review_model or config.plan_model,
        effort=config.review_effort,
        limit=compute_oversight_limit(state),
        may_send_back=may_send_back and _enough(_writer(state), _for_mending(state)),
        prices=config.default.prices,
    )


def apply_review(state: TaskState, made: ReviewResult) -> TaskState:
    """Store the review. If the report goes back, its writer works again, with what it had left and its share."""
    review = made.review
    state = book_oversight_cost(state, make_review_id(review.number), made.totals)
    oversight = state.oversight.replace(reviews=(*state.oversight.reviews, review))
    state = state.replace(oversight=oversight, notes=merge_unique(state.notes, made.notes))
    if not review.sent_back:
        return state
    run, more = _writer(state), _for_mending(state)
    step_id = run.run.step_id
    account = state.account.undo_settlement(step_id, run.totals.spent).reserve(step_id, more)
    share = run.limit.remaining_after(run.limit.amount).increase_by(more)
    return state.replace(
        account=account,
        runs={**state.runs, step_id: run.reopen_run(share)},
        oversight=oversight.replace(times_sent_back=oversight.times_sent_back + 1, fixing_faults=True),
    )


class JudgeRequest(Value):
    """One judgement of the report's cited sentences. Running it again gives the same result and asks nothing twice."""

    ref: TaskRef
    number: int
    model: str
    effort: Effort | None = None
    limit: Limit
    """What it may spend."""
    prices: tuple[Price, ...] = ()


class JudgeResult(Value):
    """Result of a judgement."""

    judgement: SentenceJudgement
    totals: RunUsage
    notes: tuple[str, ...] = ()


def is_judgement_due(state: TaskState, config: TaskConfig) -> bool:
    """Return whether a model is to judge the sentences of a complete report that code cannot decide."""
    return bool(config.judge_model) and is_review_due(state)


def build_judge_request(state: TaskState, ref: TaskRef, config: TaskConfig) -> JudgeRequest:
    """Build the next judgement of a complete report."""
    return JudgeRequest(
        ref=ref,
        # An interrupted judgement has a cost and no result: its number, and so its transcript, is not used again.
        number=1 + sum(run_id.startswith(JUDGE_PREFIX) for run_id in state.oversight.costs),
        model=config.judge_model,
        effort=config.judge_effort,
        limit=compute_oversight_limit(state),
        prices=config.default.prices,
    )


def apply_judgement(state: TaskState, made: JudgeResult) -> TaskState:
    """Store the judgement and book its cost."""
    state = book_oversight_cost(state, make_judge_id(made.judgement.number), made.totals)
    judgements = (*state.oversight.judgements, made.judgement)
    return state.replace(
        oversight=state.oversight.replace(judgements=judgements), notes=merge_unique(state.notes, made.notes)
    )


def finish_report_repair(state: TaskState) -> TaskState:
    """Complete the writer's fixes.

    The report was complete before, so a writer that could not go on leaves it complete.
    """
    oversight = state.oversight
    if not (oversight.fixing_faults and state.all_steps_delivered):
        return state
    run = _writer(state)
    if not run.partial:
        return state.replace(oversight=oversight.replace(fixing_faults=False))
    note = f"The writer did not correct the faults that the review found: {run.reason}."
    whole = run.replace(partial=False, reason="")
    return state.replace(
        runs={**state.runs, run.run.step_id: whole},
        oversight=oversight.replace(fixing_faults=False, fixing_failed=True),
        notes=merge_unique(state.notes, (note,)),
    )


def _writer(state: TaskState) -> AgentRun:
    return state.runs[(state.plan or Plan(steps=())).steps[-1].id]


def _for_mending(state: TaskState) -> Amount:
    run = _writer(state)
    wanted = run.limit.remaining_after(run.totals.spent).amount + run.initial_limit.amount
    return wanted.min_with(state.account.unreserved.amount)


def _enough(run: AgentRun, more: Amount) -> bool:
    """Return whether it pays for a turn without a cached prompt.

    Otherwise a person would be asked for budget for details.
    """
    spent, turns = run.totals.spent, max(1, run.totals.turns)
    tokens = run.totals.last_prompt_tokens * 5 // 4 + run.config.min_reply_tokens
    needed = Amount(tokens=max(tokens, spent.tokens // turns), micro_usd=2 * spent.micro_usd // turns)
    left = run.limit.remaining_after(run.limit.amount).increase_by(more)
    return left.can_cover(needed)


_MIN_PART = 2
"""A new step that would start with less than 1/2 of what the others had is not worth starting."""


class RevisionRequest(Value):
    """One revision. Running it again gives the same result and asks nothing twice."""

    ref: TaskRef
    number: int
    model: str
    effort: Effort | None = None
    limit: Limit
    """What it may spend."""
    started_steps: tuple[str, ...]
    """IDs of the steps that stay as they are."""
    reviewed_steps: tuple[str, ...]
    """IDs of the research steps, all of which are done."""
    max_new_steps: int
    """Number of new steps that the budget allows."""
    denied: bool = False
    """Whether a person denied it: the previous plan then holds again."""
    prices: tuple[Price, ...] = ()


def is_revision_due(state: TaskState, config: TaskConfig) -> bool:
    """Return whether all research is done, no revision has seen all of it, and some steps have not begun."""
    plan, revisions = state.plan, state.oversight.revisions
    if plan is None or state.cancelled or state.delivery_requested or len(revisions) >= config.revisions:
        return False
    research = _research(plan)
    seen = revisions[-1].reviewed_steps if revisions else ()
    ahead = any(step.id not in _begun(state) for step in plan.steps)
    return ahead and state.delivered_agents.issuperset(research) and not set(research) <= set(seen)


def build_revision_request(state: TaskState, ref: TaskRef, config: TaskConfig) -> RevisionRequest:
    """Build the next revision of the plan."""
    plan = state.plan or Plan(steps=())
    return RevisionRequest(
        ref=ref,
        number=len(state.oversight.revisions) + 1,
        model=config.plan_model,
        effort=config.plan_effort,
        limit=compute_oversight_limit(state),
        started_steps=tuple(step.id for step in plan.steps if step.id in _begun(state)),
        reviewed_steps=_research(plan),
        max_new_steps=_room(state, plan, config.agent_budget),
        prices=config.default.prices,
    )


def _for_new_steps(
    state: TaskState, revision: RevisionResult, agent_budget: Limit
) -> tuple[BudgetAccount, dict[str, Limit]]:
    """Return the account without the reservations of dropped steps, and the share of each new step.

    A share is at least the minimum reserve of the step's role while the account has that.
    """
    account, steps = state.account, () if revision.plan is None else revision.plan.steps
    for step_id in revision.revision.dropped:
        account = account.settle(step_id, Amount())
    roles = {step.id: step.role for step in steps if step.id in revision.revision.added}
    return account, compute_shares_with_reserves(account.unreserved, agent_budget, roles, state.minimum_reserves)


def propose_revision(
    state: TaskState, made: RevisionResult, config: TaskConfig, now: datetime, deadline: datetime | None
) -> tuple[TaskState, ApprovalRequest] | None:
    """Ask a person to approve a revision; return the state and the request. None if no approval is needed."""
    revision, steps = made.revision, 0 if made.plan is None else len(made.plan.steps)
    state = book_oversight_cost(state, make_revision_id(revision.number), made.totals)
    _, shares = _for_new_steps(state, made, config.agent_budget)
    cost = sum((share.amount for share in shares.values()), Amount())
    if config.revision_percent is None or state.account.limit.compute_percent(config.revision_percent).can_cover(cost):
        return None
    request = build_plan_approval_request(state, now, deadline).replace(requested=cost, steps_left=steps)
    return state.replace(proposed_revision=made).with_approval_request(request), request


def is_plan_approved(state: TaskState) -> bool:
    """Return whether a person approved the last plan request."""
    return next((one.decision == "approved" for one in reversed(state.approvals) if one.about_plan), False)


def apply_revision(state: TaskState, made: RevisionResult, agent_budget: Limit) -> TaskState:
    """Adopt the revised plan. Reservations of dropped steps are released; new steps get their shares of that."""
    revision = made.revision
    state = book_oversight_cost(state, make_revision_id(revision.number), made.totals)
    account, shares = _for_new_steps(state, made, agent_budget)
    for step_id, share in shares.items():
        account = account.reserve(step_id, share.amount)
    oversight = state.oversight.replace(
        revisions=(*state.oversight.revisions, revision),
        shares={**state.oversight.shares, **shares},
    )
    return state.replace(
        plan=made.plan or state.plan, account=account, oversight=oversight, notes=merge_unique(state.notes, made.notes)
    )


def _research(plan: Plan) -> tuple[str, ...]:
    return tuple(step.id for step in plan.steps if step.role == "research")


def _begun(state: TaskState) -> frozenset[str]:
    """Includes steps that restart after a rewind: they know what they were to do."""
    return frozenset((*state.runs, *state.suspended_runs))


def _room(state: TaskState, plan: Plan, agent_budget: Limit) -> int:
    least, left = (state.initial_step_limit or agent_budget).divide_by(_MIN_PART), state.account.unreserved
    pairs = ((left.tokens, least.tokens), (left.micro_usd, least.micro_usd))
    affordable = [have // each for have, each in pairs if have is not None and each]
    return max(0, min((MAX_STEPS - len(plan.steps), *affordable)))
