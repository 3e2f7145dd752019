"""What looks over a task's work, when it is due. What cannot be done is noted: no task fails by it."""

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.ledger import LedgerActivities
from activities.oversight import OversightActivities
from waystation.domain.budget import RunTotals
from waystation.domain.leg import RunRef
from waystation.domain.oversight import PlanRevision, Review, review_id, revision_id
from waystation.domain.oversight_budget import begun, paid
from waystation.domain.reviewing import Reviewed, mended, review_due, review_request, reviewed
from waystation.domain.revising import Revised, revised, revision_due, revision_request
from workflows.agent_work import cause_of
from workflows.board import Board
from workflows.options import LEG, SHORT, named


async def revise_if_due(board: Board) -> None:
    """Between the research and what needs it."""
    start = board.start
    if not revision_due(board.state, start.terms):
        return
    request = revision_request(board.state, start.ref, start.terms)
    board.change(begun(board.state, revision_id(request.number)))
    summary = f"revise the plan after the research, {request.number} of at most {start.terms.revisions}"
    try:
        made = await workflow.execute_activity_method(OversightActivities.revise, request, **named(LEG, summary))
    except ActivityError as error:
        note = f"The plan could not be revised ({_reason(error)}); it was kept as it was."
        made = Revised(
            revision=PlanRevision(number=request.number, seen=request.seen), totals=await _spent(board), notes=(note,)
        )
    board.change(revised(board.state, made, start.terms.agent_budget))


async def sent_back(board: Board) -> bool:
    """Have the report reviewed that was written. Whether its writer works on it again."""
    terms = board.start.terms
    if not terms.reviews:
        return False
    board.change(mended(board.state))
    if not review_due(board.state):
        return False
    request = review_request(board.state, terms)
    board.change(begun(board.state, review_id(request.number)))
    summary = f"review the report, {request.number}"
    try:
        made = await workflow.execute_activity_method(OversightActivities.review, request, **named(LEG, summary))
    except ActivityError as error:
        note = f"The report could not be reviewed ({_reason(error)})."
        made = Reviewed(review=Review(number=request.number, faults=0), totals=await _spent(board), notes=(note,))
    board.change(reviewed(board.state, made))
    return made.review.sent_back


async def settle_oversight(board: Board) -> None:
    """What was stopped while it was under way: the store says what it spent."""
    if run_id := board.state.oversight.under_way:
        board.change(paid(board.state, run_id, await _spent(board)))


def _reason(error: ActivityError) -> str:
    if is_cancelled_exception(error):
        raise error
    return cause_of(error)


async def _spent(board: Board) -> RunTotals:
    run = RunRef(**board.start.ref.model_dump(), step_id=board.state.oversight.under_way, role="reviewing")
    return await workflow.execute_activity_method(LedgerActivities.totals, run, **SHORT)
