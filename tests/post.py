"""A platform whose agents may send letters, which asks first: what tests of such calls need beside a server."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client

from tests.crew import NOTE, Call, Move, newest
from tests.delegating import HAND_IN, DelegatingCrew
from tests.letters import SendLetter
from tests.running import Counter, Task, opened_parts, until
from waystation.context.transcript import ToolResult
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.privacy.ports import Redactor
from waystation.tasks.task import Approval, TaskProgress
from workers.outside import ToolBackends
from workers.parts import ActivityDeps
from workflows.task import TaskWorkflow

PRIVATE = "ada.lovelace@example.com"


def letter(to: str = "the keeper") -> Move:
    return "send_letter", {"to": to, "text": f"Write to {PRIVATE}."}


ONE = {"harbours": [[NOTE, letter()], [HAND_IN]]}


class Post:
    """A platform whose agents may send letters, started as often as a test wants to."""

    def __init__(self, server: Client, parts: ActivityDeps, crew: DelegatingCrew) -> None:
        self.server, self.crew, self.tool = server, crew, SendLetter()
        self.parts = replace(parts, reach=ToolBackends(tables=DuckDbTableEngine(), web=(self.tool,)))
        self.counter = Counter(server, parts.store)

    @property
    def task(self) -> Task:
        return self.counter.task()

    async def progress(self) -> TaskProgress:
        return await self.task.query(TaskWorkflow.progress)

    async def asked(self, count: int = 1) -> tuple[Approval, ...]:
        """So many requests that are open."""
        found: list[Approval] = []

        async def so_many() -> bool:
            found[:] = [one for one in (await self.progress()).approvals if one.decision == "pending"]
            return len(found) >= count

        await until(so_many)
        return tuple(found)

    def told(self, turn: int = 2, step: str = "harbours") -> tuple[ToolResult, ...]:
        """What an agent was told before this turn."""
        return newest(self.crew.heard[Call(step, turn)]).tool_results


@asynccontextmanager
async def post(
    server: Client,
    folder: Path,
    redactor: Redactor,
    scripts: Mapping[str, Sequence[Sequence[Move]]],
) -> AsyncGenerator[Post]:
    crew = DelegatingCrew(scripts=scripts)
    async with opened_parts(folder, redactor, crew) as parts:
        yield Post(server, parts, crew)
