"""What people send to a task: validated, put on its board, kept by the store.

What names something in the store is put on the board twice: when it has come, and when the store has it.
"""

from pydantic import JsonValue
from temporalio import workflow

from activities.bookkeeping import SentActivities, TellRequest, UpdateRequest
from activities.tasks import EditedPlanRequest, PlanningActivities
from waystation.domain.amount import Amount
from waystation.domain.approvals import SeveralAnswers, refusal
from waystation.domain.documents import DocumentsUpdate
from waystation.domain.plan import PlanEdit
from waystation.domain.reviews import for_steps, replanned
from waystation.domain.signals import UNSEALED, InputT, SentTo, Signal, Words, after_message, not_kept, whole
from waystation.domain.task import Approval, Telling
from workflows.approvals import BudgetGate
from workflows.board import Board, record
from workflows.options import CONTEXT_SHORT, SHORT, named


class Inbox:
    """Any JSON, or none, is taken: a malformed message is refused where the person sees it. Words and documents wake
    nobody: who waits hears of them when they go on.
    """

    def __init__(self, board: Board, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate

    async def take(self, signal: Signal[InputT], sent: tuple[JsonValue, ...]) -> None:
        """Have it take effect. What came unencrypted where it must not is refused."""
        board, now = self._board, workflow.now()
        if board.takes(sent):
            answer = signal.answer(SentTo(board.state, board.standing, now), whole(sent))
        else:
            answer = refusal(signal.name, whole(sent), ValueError(UNSEALED), now)
        board.change(after_message(board.state, answer))
        if isinstance(answer, Words):
            summary = f"keep message {answer.telling.number} of a person"
            words = TellRequest(task_id=board.task_id, words=answer)
            kept = await workflow.execute_activity_method(SentActivities.keep, words, **named(SHORT, summary))
            return await self._kept(signal.name, kept.telling, kept.reason)
        if isinstance(answer, DocumentsUpdate):
            summary = f"update {answer.number} of the documents"
            wanted = UpdateRequest(task_id=board.task_id, update=answer)
            done = await workflow.execute_activity_method(SentActivities.update, wanted, **named(SHORT, summary))
            return await self._kept(signal.name, done.update, done.reason)
        if isinstance(answer, PlanEdit):
            return await self._replan(answer)
        answers = answer.each if isinstance(answer, SeveralAnswers) else (answer,)
        await record(board, *answers)
        granted = sum((one.granted for one in answers if isinstance(one, Approval)), Amount())
        if not granted.nothing:
            await self._gate.tell_granted(granted)

    async def _replan(self, edit: PlanEdit) -> None:
        """The task works by this plan, where it can be run."""
        start = self._board.start
        wanted = EditedPlanRequest(ref=start.ref, edit=edit, left=for_steps(self._board.state))
        summary = "read the plan that a person sent"
        made = await workflow.execute_activity_method(
            PlanningActivities.take_edit, wanted, **named(CONTEXT_SHORT, summary)
        )
        state, answer = replanned(self._board.state, edit, made, start.terms, workflow.now())
        self._board.change(state)
        await record(self._board, answer)

    async def _kept(self, signal: str, sent: Telling | DocumentsUpdate, reason: str) -> None:
        """As the store has it now; or why it has not."""
        if not reason:
            self._board.change(after_message(self._board.state, sent))
            return
        state, refused = not_kept(signal, self._board.state, sent, reason, workflow.now())
        self._board.change(state)
        await record(self._board, refused)
