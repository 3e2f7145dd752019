"""The agents of a task that are at work: each driven by a coroutine of its own."""

import asyncio

from workflows.agent_runner import AgentRunner
from workflows.board import Board
from workflows.budget_gate import BudgetGate


class Crew:
    """Who drives which agent run."""

    def __init__(self, board: Board, gate: BudgetGate) -> None:
        self._board, self._gate = board, gate
        self._driving: dict[str, asyncio.Task[None]] = {}

    @property
    def empty(self) -> bool:
        """Nobody is at work."""
        return not self._driving

    @property
    def any_back(self) -> bool:
        """Somebody has come back."""
        return any(driven.done() for driven in self._driving.values())

    @property
    def waiting(self) -> list[str]:
        """Runs that nobody drives: of steps that were just started, and subagents that were just asked for."""
        state = self._board.state
        return [step_id for step_id in state.runs if step_id not in state.done and step_id not in self._driving]

    def set_out(self) -> None:
        """Drive all of those."""
        for step_id in self.waiting:
            runner = AgentRunner(self._board, self._gate, step_id)
            self._driving[step_id] = asyncio.create_task(runner.drive())

    async def welcome_back(self) -> None:
        """Take in those that have come back. Raises what ended them."""
        for step_id in [step_id for step_id, driven in self._driving.items() if driven.done()]:
            await self._driving.pop(step_id)

    async def stop(self) -> None:
        """After a cancellation, by the server or by a denial: no agent goes on."""
        for driven in self._driving.values():
            driven.cancel()
        await asyncio.gather(*self._driving.values(), return_exceptions=True)
        self._driving.clear()
