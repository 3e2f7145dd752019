"""Submits tasks so that some are always open, grants every budget request, and follows all tasks to their end."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.model import MARK
from tests.end_to_end.survey_documents import BROAD_QUESTION, write_survey_documents
from waystation.client import Client
from waystation.documents.document_loading import load_documents
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.errors import BadInput, Unreachable
from waystation.tasks.task import TaskPhase, TaskRequest
from waystation.tasks.view import TaskBudgetView

LOOK_S = 1.0
BUDGET, GRANT = 60_000, 120_000
"""Tokens: small enough that tasks pause, since pauses are killed, too."""
GRANTS = 3
"""For each task; then it ends with what there is: in a small window the offline model may read in circles."""
WINDOW = 10_000
"""Tokens: small enough that agents compact several times."""


@dataclass
class TaskDriver:
    """Submits tasks, answers them and watches them, through a server that comes and goes."""

    client: Client
    open_at_once: int
    documents: Sequence[SourceDocument]
    phases: list[TaskPhase] = field(default_factory=list[TaskPhase])
    """Of the tasks submitted so far, by number."""
    ids: list[str] = field(default_factory=list[str])
    budgets: dict[int, TaskBudgetView] = field(default_factory=dict[int, TaskBudgetView])
    """By task, as last seen."""
    approved: Counter[str] = field(default_factory=Counter[str])
    """Grants by task id."""
    complete: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when as many tasks as wanted are open for the first time."""
    enough: bool = False
    """Set from outside: no task more."""

    async def run(self) -> None:
        """Until there are enough tasks and all of them are over."""
        while not self.enough or self.unfinished:
            if not self.enough and len(self.unfinished) < self.open_at_once:
                await self._submit_next()
            if len(self.ids) >= self.open_at_once:
                self.complete.set()
            # A server that was just killed is asked again a moment later.
            with suppress(Unreachable):
                await self._answer()
            with suppress(Unreachable):
                await self._look()
            await asyncio.sleep(LOOK_S)

    @property
    def unfinished(self) -> list[int]:
        """Numbers of the tasks that are not over, as far as was seen."""
        return [number for number, phase in enumerate(self.phases) if not phase.over]

    async def _submit_next(self) -> None:
        number = len(self.ids)
        mark = MARK.format(number)
        request = TaskRequest(
            question=BROAD_QUESTION,
            instructions=f"The sheets are those of {mark}",
            session=mark,
            request_id=mark,
            budget=Limit(tokens=BUDGET),
            window=WINDOW,
        )
        documents = [document.replace(name=mark + document.name) for document in self.documents]
        # Whether it was accepted is unknown then; the same request id finds it.
        with suppress(Unreachable):
            self.ids.append((await self.client.submit(request, documents)).task_id)
            self.phases.append(TaskPhase.SUBMITTED)

    async def _answer(self) -> None:
        for waiting in await self.client.list_approvals():
            task_id, request_id = waiting.task_id, waiting.approval.request_id
            # A task that ended meanwhile takes no answer.
            with suppress(BadInput):
                if self.approved[task_id] == GRANTS:
                    await self.client.deny(task_id, request_id=request_id)
                    continue
                answer = await self.client.approve(task_id, request_id=request_id, amount=Amount(tokens=GRANT))
                self.approved[task_id] += answer.outcome == "approved"

    async def _look(self) -> None:
        for number in self.unfinished:
            view = await self.client.get_task(self.ids[number])
            self.phases[number] = view.phase
            self.budgets[number] = view.budget


def build_documents() -> Sequence[SourceDocument]:
    """What every task is about."""
    with tempfile.TemporaryDirectory() as folder:
        return load_documents([write_survey_documents(Path(folder) / "survey")]).documents
