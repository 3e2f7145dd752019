"""Requests to let an agent call a tool, in the state of its task: opened, decided on, overtaken."""

from datetime import datetime

from waystation.domain.actions import ActionDecision
from waystation.domain.amount import Amount
from waystation.domain.plan import Plan
from waystation.domain.task import Approval
from waystation.domain.task_state import TaskState

TAKEN_BACK = "its conversation was taken back"


def opened(state: TaskState, step_id: str, now: datetime, deadline: datetime | None) -> tuple[Approval, ...]:
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
    return state.with_(cancelled=state.cancelled or cancels).with_run(run)


def overtaken(state: TaskState, step_id: str, now: datetime) -> tuple[Approval, ...]:
    """Open requests for calls that the agent does not wait for any more, closed."""
    waits_for = {question.digest for question in state.runs[step_id].questions}
    return tuple(
        asked.model_copy(update={"decision": "expired", "note": TAKEN_BACK, "answered_at": now})
        for asked in state.pending
        if asked.agent == step_id and asked.action is not None and asked.action.digest not in waits_for
    )
