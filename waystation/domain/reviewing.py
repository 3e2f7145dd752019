"""When a report is reviewed, whether its writer can mend it, and what becomes of the task by that."""

from waystation.domain.agent_run import AgentRun
from waystation.domain.amount import Amount, Limit
from waystation.domain.budget import RunTotals
from waystation.domain.leg import RunRef
from waystation.domain.oversight import Review, review_id
from waystation.domain.oversight_budget import allowance, paid
from waystation.domain.plan import Plan
from waystation.domain.pricing import PRICES, Price
from waystation.domain.task import TaskTerms
from waystation.domain.task_state import TaskState, merged
from waystation.domain.value import Value


class ReviewRequest(Value):
    """One review to carry out. Carried out again, it gives the same and asks nothing twice."""

    writer: RunRef
    number: int
    model: str
    limit: Limit
    """What it may spend."""
    may_send_back: bool
    """Whether the writer shall be told what was found."""
    prices: tuple[Price, ...] = PRICES


class Reviewed(Value):
    """What a review led to."""

    review: Review
    totals: RunTotals
    notes: tuple[str, ...] = ()


def review_due(state: TaskState) -> bool:
    """Whether there is a whole report to review."""
    return state.all_done and not state.cancelled and not _writer(state).partial


def review_request(state: TaskState, terms: TaskTerms) -> ReviewRequest:
    """The next review of a report that is whole."""
    oversight = state.oversight
    may_send_back = oversight.sent_back < terms.reviews and not oversight.gave_up
    return ReviewRequest(
        writer=_writer(state).run,
        number=len(oversight.reviews) + 1,
        model=terms.review_model or terms.plan_model,
        limit=allowance(state),
        may_send_back=may_send_back and _enough(_writer(state), _for_mending(state)),
        prices=terms.agent.prices,
    )


def reviewed(state: TaskState, made: Reviewed) -> TaskState:
    """The review is kept. Where the report goes back, its writer works again, with what it had left and its share."""
    review = made.review
    state = paid(state, review_id(review.number), made.totals)
    oversight = state.oversight.with_(reviews=(*state.oversight.reviews, review))
    state = state.with_(oversight=oversight, notes=merged(state.notes, made.notes))
    if not review.sent_back:
        return state
    run, more = _writer(state), _for_mending(state)
    step_id = run.run.step_id
    account = state.account.take_back(step_id, run.totals.spent).reserve(step_id, more)
    share = run.limit.after(run.limit.amount).raised(more)
    return state.with_(
        account=account,
        runs={**state.runs, step_id: run.reopened(share)},
        oversight=oversight.with_(sent_back=oversight.sent_back + 1, mending=True),
    )


def mended(state: TaskState) -> TaskState:
    """The writer has delivered again. The report was whole before, so a writer that could not go on leaves it whole."""
    oversight = state.oversight
    if not (oversight.mending and state.all_done):
        return state
    run = _writer(state)
    if not run.partial:
        return state.with_(oversight=oversight.with_(mending=False))
    note = f"What the review found was not mended: {run.reason}."
    whole = run.model_copy(update={"partial": False, "reason": ""})
    return state.with_(
        runs={**state.runs, run.run.step_id: whole},
        oversight=oversight.with_(mending=False, gave_up=True),
        notes=merged(state.notes, (note,)),
    )


def _writer(state: TaskState) -> AgentRun:
    return state.runs[(state.plan or Plan(steps=())).steps[-1].id]


def _for_mending(state: TaskState) -> Amount:
    run = _writer(state)
    wanted = run.limit.after(run.totals.spent).amount + run.share.amount
    return wanted.at_most(state.account.unreserved.amount)


def _enough(run: AgentRun, more: Amount) -> bool:
    """Whether it pays for a turn whose prompt is in no cache: else a person would be asked for money for details."""
    spent, turns = run.totals.spent, max(1, run.totals.turns)
    tokens = run.totals.last_prompt * 5 // 4 + run.terms.output_floor
    needed = Amount(tokens=max(tokens, spent.tokens // turns), micro_usd=2 * spent.micro_usd // turns)
    left = run.limit.after(run.limit.amount).raised(more)
    return left.covers(needed)
