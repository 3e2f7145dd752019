"""Where an agent that spent its budget gets more: from its task, then its session, and only then from a person."""

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from waystation.domain.budget import Mode
from waystation.domain.names import ASK_BUDGET, TASK_FINISHED, TASK_GRANTED
from waystation.domain.session import Ask, Raised, Settlement
from waystation.domain.value import Value
from workflows.board import Board, record
from workflows.options import SESSION_ANSWER


class BudgetGate:
    """The budget of one task, seen by its agents."""

    def __init__(self, board: Board, session_workflow_id: str) -> None:
        self._board, self._session_id = board, session_workflow_id

    async def pass_(self, step_id: str) -> None:
        """Come back when the agent has more, has to deliver what it has, or the workflow wants its agents back.

        No activity runs meanwhile, so that a pause holds no worker slot; a request that is open stays open through
        continue-as-new.
        """
        if not self._is_asked(step_id):
            if self._drawn(step_id):
                return
            await self._ask_session(step_id)
            if self._board.stopping or self._drawn(step_id):
                return
            await self._ask_person(step_id)
        await workflow.wait_condition(lambda: self._board.run(step_id).phase != "spent" or self._board.stopping)

    async def tell_granted(self, tokens: int) -> None:
        """A person's grant is new money: the session is raised by as much."""
        await self._signal_session(TASK_GRANTED, Raised(task_id=self._board.start.ref.task_id, tokens=tokens))

    async def tell_finished(self) -> None:
        """What the task spent; its session takes back the rest."""
        spent = self._board.state.totals.spent
        await self._signal_session(TASK_FINISHED, Settlement(task_id=self._board.start.ref.task_id, spent=spent))

    def _is_asked(self, step_id: str) -> bool:
        return any(approval.agent == step_id for approval in self._board.state.pending)

    def _drawn(self, step_id: str) -> bool:
        state, tokens = self._board.state.drawn(step_id)
        if tokens == 0:
            return False
        self._board.change(state.with_run(state.runs[step_id].after_grant(tokens)))
        return True

    async def _ask_session(self, step_id: str) -> None:
        state, run = self._board.state, self._board.run(step_id)
        ask_id = f"{step_id}-{state.asks + 1}"
        self._board.change(state.with_(asks=state.asks + 1))
        task_id = self._board.start.ref.task_id
        ask = Ask(task_id=task_id, ask_id=f"{task_id}/{ask_id}", tokens=max(run.share, run.needed))
        if not await self._signal_session(ASK_BUDGET, ask):
            return
        try:
            await workflow.wait_condition(lambda: ask.ask_id in self._board.state.answered_asks, timeout=SESSION_ANSWER)
        except TimeoutError:
            workflow.logger.warning("the session did not answer an ask for budget; a late answer still counts")

    async def _ask_person(self, step_id: str) -> None:
        state, run = self._board.state, self._board.run(step_id)
        if self._board.start.terms.mode is Mode.HARD:
            self._board.change(state.with_run(run.cannot_go_on("its budget is spent, and the mode is hard")))
            return
        request = state.request_for(step_id, workflow.now())
        self._board.change(state.asked(request))
        await record(self._board, request)

    async def _signal_session(self, name: str, message: Value) -> bool:
        """False: the session is gone. The task goes on with what it has."""
        session = workflow.get_external_workflow_handle(self._session_id)
        try:
            await session.signal(name, message)
        except ApplicationError:
            workflow.logger.warning("the session of this task is gone")
            return False
        return True
