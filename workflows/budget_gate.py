"""Where an agent that spent its budget gets more: from its parent, task or session, and only then from a person."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from waystation.domain.amount import Amount, amount_text
from waystation.domain.approvals import authorised
from waystation.domain.budget import Mode
from waystation.domain.drawing import drawn
from waystation.domain.names import ASK_BUDGET, TASK_FINISHED, TASK_GRANTED
from waystation.domain.notices import Event
from waystation.domain.session import Ask, Raised, Settlement
from waystation.domain.value import Value
from workflows.board import Board, record
from workflows.notice import keep_and_tell
from workflows.options import SESSION_ANSWER
from workflows.relief import wait_for_money


class BudgetGate:
    """The budget of one task, seen by its agents."""

    def __init__(self, board: Board, session_workflow_id: str) -> None:
        self._board, self._session_id = board, session_workflow_id

    async def pass_(self, step_id: str) -> None:
        """Come back when the agent has more or has to deliver what it has, when an edit is to be carried out first, or
        the workflow wants its agents back. It has more also where money comes free while a person is asked.

        No activity runs meanwhile, so that a pause holds no worker slot; a request that is open stays open through
        continue-as-new.
        """
        if not self._is_asked(step_id):
            if not self._board.run(step_id).halted and await self._has_more(step_id):
                return
            await self._ask_person(step_id)
        await wait_for_money(self._board, step_id)

    async def _has_more(self, step_id: str) -> bool:
        """From its task or its session; also where the agent has ended, or is wanted back."""
        if self._draws_nothing:
            self._stop(step_id)
            return True
        if self._drawn(step_id):
            return True
        await self._ask_session(step_id)
        return self._board.stopping or self._drawn(step_id)

    async def tell_granted(self, amount: Amount) -> None:
        """A person's grant is new money: the session is raised by as much."""
        await self._signal_session(TASK_GRANTED, Raised(task_id=self._board.start.ref.task_id, amount=amount))

    async def tell_finished(self) -> None:
        """What the task spent; its session takes back the rest."""
        spent = self._board.state.totals.spent
        await self._signal_session(TASK_FINISHED, Settlement(task_id=self._board.start.ref.task_id, spent=spent))

    def _is_asked(self, step_id: str) -> bool:
        return any(approval.agent == step_id for approval in self._board.state.pending)

    def _drawn(self, step_id: str) -> bool:
        """Histories in which subagents drew nothing from their parents must still replay."""
        helped = drawn(self._board.state, step_id, from_parent=workflow.patched("subagents-draw-on-parents"))
        if helped is None:
            return False
        self._board.change(helped)
        return True

    async def _ask_session(self, step_id: str) -> None:
        state, run = self._board.state, self._board.run(step_id)
        ask_id = f"{step_id}-{state.asks + 1}"
        self._board.change(state.with_(asks=state.asks + 1))
        task_id = self._board.start.ref.task_id
        ask = Ask(task_id=task_id, ask_id=f"{task_id}/{ask_id}", amount=run.wanted)
        if not await self._signal_session(ASK_BUDGET, ask):
            return
        try:
            await workflow.wait_condition(
                lambda: ask.ask_id in self._board.state.answered_asks,
                timeout=SESSION_ANSWER,
                timeout_summary="the session answers",
            )
        except TimeoutError:
            workflow.logger.warning("the session did not answer an ask for budget; a late answer still counts")

    async def _ask_person(self, step_id: str) -> None:
        if self._mode is not Mode.APPROVAL:
            return self._stop(step_id)
        board, terms, now = self._board, self._board.start.terms, workflow.now()
        request = board.state.request_for(step_id, now, terms.unattended.deadline(now), terms.ceiling)
        granted = authorised(board.standing, request, terms.unattended.top_up, now)
        if granted is not None:
            board.change(board.state.asked(granted).granted(step_id, granted.granted))
            await record(board, granted)
            await self.tell_granted(granted.granted)
            return
        await keep_and_tell(board, board.state.asked(request), Event.ASKED, request)

    def _stop(self, step_id: str) -> None:
        """Nobody is asked: the agent delivers what it has."""
        run = self._board.run(step_id)
        short = f"its next call may cost {amount_text(run.needed)} more than it has left"
        reason = run.halted or f"{short}, and the mode is {self._mode}"
        self._board.change(self._board.state.with_run(run.cannot_go_on(reason)))

    @property
    def _draws_nothing(self) -> bool:
        """Mode hard. It used to draw before it stopped: histories that did must still replay."""
        return self._mode is Mode.HARD and workflow.patched("hard-draws-nothing")

    @property
    def _mode(self) -> Mode:
        return self._board.start.terms.mode

    async def _signal_session(self, name: str, message: Value) -> bool:
        """False: the session is gone. The task goes on with what it has."""
        session = workflow.get_external_workflow_handle(self._session_id)
        try:
            await session.signal(name, message)
        except ApplicationError:
            workflow.logger.warning("the session of this task is gone")
            return False
        return True
