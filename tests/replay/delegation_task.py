"""The task of which histories are recorded beside the usual one: all that can come to pass in one comes to pass in it.

Its researcher delegates, and asks before it writes a letter; so does a subagent, and another asks for money, which it
gets from what the first hands back, and later from a person; people tell it something and give it a document again; its
plan is revised, and its report is sent back once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from temporalio.client import Client

from tests.support.delegating_model import (
    SUBMIT_FINDINGS_CALL,
    DelegatingTaskModel,
    make_delegate_call,
    make_delegating_task_config,
)
from tests.support.oversight_model import (
    ADD_STEP_CALL,
    FAIL_REVIEW_CALL,
    PASS_REVIEW_CALL,
    OversightTaskModel,
    with_oversight,
)
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.send_letter_tool import SendLetterTool
from tests.support.task_model import TAKE_NOTE_CALL, CallGate, ModelCall
from tests.support.temporal_platform import TaskHandle, TaskSubmitter, open_activity_deps, run_all_workers, wait_until
from tests.support.tool_approval_platform import make_send_letter_call
from waystation.client.submission import compare_documents, load_changed_documents, store_document_set
from waystation.documents.table_engine.engine import DuckDbTableEngine
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.signals import SEND_MESSAGE, UPDATE_DOCUMENTS
from waystation.tasks.task import TaskPhase
from waystation.workers.external_systems import ToolBackends
from waystation.workflows.task import TaskWorkflow

UPDATED_DOCUMENT = "Keep the white beacon to starboard.\nThe bar carries three fathoms.\n"
SCRIPTS = {
    "harbours": [
        [make_delegate_call("beacons", 60), make_delegate_call("bars", 20)],
        [TAKE_NOTE_CALL, make_send_letter_call()],
        [SUBMIT_FINDINGS_CALL],
    ],
    "harbours.1": [*[[TAKE_NOTE_CALL]] * 60, [SUBMIT_FINDINGS_CALL]],
    "harbours.2": [[make_send_letter_call()], [SUBMIT_FINDINGS_CALL]],
}
HELD_CALL = ModelCall("tides", 3)
GRANTED_TOKENS = 30_000
"""Tokens. It leaves enough for the step that the revision adds."""


@dataclass
class DelegatingOversightModel(DelegatingTaskModel, OversightTaskModel):
    """Delegates by its scripts, revises, reviews and judges."""


@asynccontextmanager
async def run_delegation_task(client: Client, folder: Path, redactor: Redactor) -> AsyncGenerator[TaskSubmitter]:
    """The platform on which that task has come to its end."""
    gate = CallGate(HELD_CALL)
    crew = DelegatingOversightModel(
        before=gate, scripts=SCRIPTS, revisions=[ADD_STEP_CALL], reviews=[FAIL_REVIEW_CALL, PASS_REVIEW_CALL]
    )
    async with open_activity_deps(folder, redactor, crew) as plain:
        parts = replace(plain, tool_backends=ToolBackends(tables=DuckDbTableEngine(), web=(SendLetterTool(),)))
        async with run_all_workers(client, parts):
            counter = TaskSubmitter(client, parts.store)
            terms = with_oversight(given=make_delegating_task_config(budget=60_000, agent_budget=30_000))
            await counter.submit(under=terms.replace(remembered_characters=1_000, judge_model="small"))
            await gate.reached.wait()
            await _send_message_and_update(counter, folder)
            gate.opened.set()
            await wait_until(lambda: answer_pending_requests(counter.get_task_handle()))
            yield counter


async def _send_message_and_update(counter: TaskSubmitter, folder: Path) -> None:
    """Words of a person's, and a newer version of the document."""
    await counter.get_task_handle().signal(SEND_MESSAGE, {"text": "Give depths in metres.", "by": "Ada"})
    (folder / "pilot.md").write_text(UPDATED_DOCUMENT, encoding="utf-8")
    task = (await counter.store.get_task(counter.get_task_handle().id, SYSTEM_SCOPE)).ref.scope
    loaded = await load_changed_documents(await counter.store.list_documents(task.task_id, task), [folder / "pilot.md"])
    again = await compare_documents(counter.store, task, loaded, remove_missing=False)
    await counter.get_task_handle().signal(
        UPDATE_DOCUMENTS, {"documents": await store_document_set(counter.store, again, task), "by": "Ada"}
    )


async def answer_pending_requests(task: TaskHandle) -> bool:
    """Say yes to whatever is asked when nobody works any more; whether the task is over.

    Calls of tools first: what those agents hand back may answer who waits for money.
    """
    progress = await task.query(TaskWorkflow.progress)
    if progress.phase is TaskPhase.PAUSED:
        waiting = [one for one in progress.approvals if one.decision == "pending"]
        for asked in [one for one in waiting if one.action is not None] or waiting:
            money = {} if asked.action is not None else {"tokens": GRANTED_TOKENS}
            await task.signal(APPROVE_BUDGET, {"request_id": asked.request_id, "by": "Ada", **money})
    return progress.phase.over
