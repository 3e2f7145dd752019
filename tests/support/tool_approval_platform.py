"""A platform whose agents may send letters after approval, for tests of tool approvals."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from temporalio.client import Client

from tests.support.delegating_model import SUBMIT_FINDINGS_CALL, DelegatingTaskModel
from tests.support.send_letter_tool import SendLetterTool
from tests.support.task_model import TAKE_NOTE_CALL, ModelCall, ScriptedCall, find_newest_message
from tests.support.temporal_platform import TaskHandle, TaskSubmitter, open_activity_deps, wait_until
from waystation.context.transcript import ToolResult
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.privacy.ports import Redactor
from waystation.tasks.task import ApprovalRequest, TaskProgress
from waystation.workers.activity_deps import ActivityDeps
from waystation.workers.external_systems import ToolBackends
from waystation.workflows.task import TaskWorkflow

PRIVATE = "ada.lovelace@example.com"


def make_send_letter_call(to: str = "the keeper") -> ScriptedCall:
    return "send_letter", {"to": to, "text": f"Write to {PRIVATE}."}


ONE_LETTER_SCRIPT = {"harbours": [[TAKE_NOTE_CALL, make_send_letter_call()], [SUBMIT_FINDINGS_CALL]]}


class ToolApprovalPlatform:
    """A platform whose agents may send letters, which a test may start as often as it needs."""

    def __init__(self, server: Client, parts: ActivityDeps, crew: DelegatingTaskModel) -> None:
        self.server, self.crew, self.tool = server, crew, SendLetterTool()
        self.parts = replace(parts, tool_backends=ToolBackends(tables=DuckDbTableEngine(), web=(self.tool,)))
        self.counter = TaskSubmitter(server, parts.store)

    @property
    def task(self) -> TaskHandle:
        return self.counter.get_task_handle()

    async def progress(self) -> TaskProgress:
        return await self.task.query(TaskWorkflow.progress)

    async def wait_for_pending_requests(self, count: int = 1) -> tuple[ApprovalRequest, ...]:
        """Wait until this many requests are pending, and return them."""
        found: list[ApprovalRequest] = []

        async def so_many() -> bool:
            found[:] = [one for one in (await self.progress()).approvals if one.decision == "pending"]
            return len(found) >= count

        await wait_until(so_many)
        return tuple(found)

    def find_tool_results(self, turn: int = 2, step: str = "harbours") -> tuple[ToolResult, ...]:
        """Return the tool results that an agent received before this turn."""
        return find_newest_message(self.crew.heard[ModelCall(step, turn)]).tool_results


@asynccontextmanager
async def run_tool_approval_platform(
    server: Client,
    folder: Path,
    redactor: Redactor,
    scripts: Mapping[str, Sequence[Sequence[ScriptedCall]]],
) -> AsyncGenerator[ToolApprovalPlatform]:
    crew = DelegatingTaskModel(scripts=scripts)
    async with open_activity_deps(folder, redactor, crew) as parts:
        yield ToolApprovalPlatform(server, parts, crew)
