"""Records the histories that `test_replay.py` replays: `python -m tests.replay.record`, from the repository's root.

Those of a release are never recorded again: a history that no longer replays is a task that hangs after the upgrade.
Those of the version that is being written are, when its workflows change. The task works with the offline model on
documents made up here; its budget and window are so small that contexts are compacted and it pauses for approvals,
which are given at once.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from socket import gethostname

from pydantic import JsonValue
from temporalio.client import WorkflowHistory

from tests.replay.delegation_task import answer_pending_requests, run_delegation_task
from tests.support.prices import PRICES
from tests.support.schedule_platform import run_schedule_platform
from tests.support.task_model import CallGate, ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import (
    KEY,
    SESSION,
    TENANT,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from waystation import __version__
from waystation.config.resolver import build_task_config
from waystation.config.settings import Settings
from waystation.documents.documents import SourceDocument
from waystation.kernel.amount import Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.temporal_names import make_indexing_workflow_id
from waystation.plugins.redaction.redactor import PresidioRedactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.signals import EDIT_CONTEXT, SEND_MESSAGE
from waystation.tasks.task import TaskRequest
from waystation.testing.doubles import PlainRedactor
from waystation.workers.models import create_model_router
from waystation.workflows.index_documents import IndexDocumentsWorkflow
from waystation.workflows.task import TaskWorkflow

HISTORIES = Path(__file__).parent / "histories"
STACK = re.compile(r'"stackTrace": "(?:[^"\\]|\\.)*"')
ASKED = TaskRequest(
    question="Which harbours can be entered at low water, and what guards their entrances?",
    tenant=TENANT,
    session=SESSION,
    request_id="first",
    budget=Limit(tokens=20_000),
    agent_budget=Limit(tokens=20_000),
    window=8_400,
)
COASTS = ("northern", "eastern", "southern", "western", "inner", "outer")


def _document(coast: str) -> SourceDocument:
    lines = [
        f"Harbour {number} of the {coast} coast can be entered at low water with {number % 7 + 2} fathoms, and a "
        f"{'white' if number % 2 else 'red'} beacon guards the {coast} entrance {number} cables off the mole."
        for number in range(1, 121)
    ]
    return SourceDocument(name=f"{coast}.md", text="\n".join(lines))


def _render_history(history: WorkflowHistory) -> str:
    """One event a line, without the name of the machine that recorded it and its places."""
    events = [json.dumps(event) for event in history.to_json_dict()["events"]]
    whole = STACK.sub('"stackTrace": ""', '{"events": [\n' + ",\n".join(events) + "\n]}\n")
    return re.sub(rf"\d+@{re.escape(gethostname())}", "recorder", whole)


async def record(folder: Path) -> None:
    """Run one task to its end and keep the histories of its workflow and of its session."""
    settings = Settings(home=folder)
    redactor = PresidioRedactor(KEY)
    async with (
        start_dev_server() as client,
        run_platform(client, folder, redactor, create_model_router(settings)) as counter,
    ):
        await counter.submit(
            ASKED, build_task_config(ASKED, settings, PRICES, utc_now().date()), [_document(coast) for coast in COASTS]
        )
        await wait_until(lambda: answer_pending_requests(counter.get_task_handle()))
        progress = await counter.get_task_handle().result()
        task, session = await counter.get_task_handle().fetch_history(), await counter.session.fetch_history()
    redactor.close()
    _write_histories(task=task, session=session)
    counted = f"{len(progress.compactions)} compactions, {len(progress.approvals)} approvals"
    sys.stdout.write(f"{progress.phase}: {counted}\n")


async def record_delegation(folder: Path) -> None:
    """The same of a task with subagents and all that people can say to it."""
    redactor = PresidioRedactor(KEY)
    async with start_dev_server() as client, run_delegation_task(client, folder, redactor) as counter:
        progress = await counter.get_task_handle().result()
        subagent = client.get_workflow_handle(f"{progress.task_id}/harbours.1")
        remembering = client.get_workflow_handle_for(
            IndexDocumentsWorkflow.run, make_indexing_workflow_id(progress.task_id)
        )
        await remembering.result()
        _write_histories(
            divided=await counter.get_task_handle().fetch_history(),
            subagent=await subagent.fetch_history(),
            remembering=await remembering.fetch_history(),
        )
    redactor.close()
    sys.stdout.write(f"{progress.phase}: {len(progress.steps)} agents, {len(progress.approvals)} approvals\n")


async def record_answered(folder: Path) -> None:
    """A task that people answer by Updates, also by one that waits and one that is sent twice."""
    gate = CallGate(ModelCall("write", 1))
    async with (
        start_dev_server() as client,
        run_platform(client, folder, PlainRedactor({}), ScriptedTaskModel(before=gate)) as counter,
    ):
        await counter.submit(under=make_tight_budget_config())
        task, sender = counter.get_task_handle(), counter.get_message_client()
        await wait_for_both_requests(task)
        for _ in range(2):
            await counter.tasks.update(task.id, SEND_MESSAGE, {"text": "Give depths in metres."}, "told")
        await sender.send(APPROVE_BUDGET, {"request_id": "nobody"})
        pin: dict[str, JsonValue] = {"action": "pin", "agent": "harbours", "message": "m5"}
        await sender.send(EDIT_CONTEXT, pin)
        await sender.send(DENY_BUDGET, {"request_id": "tides-1"})
        await sender.send(APPROVE_BUDGET, {"request_id": "harbours-1"})
        await gate.reached.wait()
        late = asyncio.create_task(sender.send(EDIT_CONTEXT, {**pin, "agent": "write", "message": "m1"}))

        async def waits() -> bool:
            return len((await task.query(TaskWorkflow.progress)).context_edits) > 1

        await wait_until(waits)
        gate.opened.set()
        progress = await task.result()
        _write_histories(answered=await task.fetch_history())
    sys.stdout.write(f"{progress.phase}: an edit was {(await late).outcome}\n")


async def record_scheduled(folder: Path) -> None:
    """Runs of a schedule: one that failed, and one whose task it began and waited for."""
    async with start_dev_server() as client:
        os.environ["TEMPORAL_ADDRESS"] = client.service_client.config.target_host
        async with run_schedule_platform(client, Settings(home=folder, tenant=TENANT)) as platform:
            await platform.schedules.add(platform.make_schedule().replace(failures=1))
            moved = platform.docs.rename(platform.docs.with_name("moved"))
            failed = await platform.run_week(0)
            moved.rename(platform.docs)
            await platform.schedules.resume("weekly", "the folder is back")
            done = await platform.run_week(1)
            first, second = sorted([one.id async for one in client.list_workflows('WorkflowType = "ScheduledRun"')])
            _write_histories(
                scheduled_failed=await client.get_workflow_handle(first).fetch_history(),
                scheduled=await client.get_workflow_handle(second).fetch_history(),
            )
    sys.stdout.write(f"{failed.view.last}; {done.view.last}\n")


def _write_histories(**histories: WorkflowHistory) -> None:
    folder = HISTORIES / __version__
    folder.mkdir(exist_ok=True)
    for name, history in histories.items():
        (folder / f"{name}.json").write_text(_render_history(history), encoding="utf-8")


async def record_all(folder: Path) -> None:
    """Every history of this version."""
    recorders = {
        "whole": record,
        "divided": record_delegation,
        "answered": record_answered,
        "scheduled": record_scheduled,
    }
    for name, recorded in recorders.items():
        (folder / name).mkdir()
        await recorded(folder / name)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        asyncio.run(record_all(Path(made)))
    sys.stdout.flush()
    os._exit(0)  # the SDK's native runtime can crash while the interpreter winds down
