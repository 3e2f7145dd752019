"""A task with a hundred agents, forty compactions each and two hundred approvals: no payload grows with them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError

from tests.support.prices import PRICES
from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import TaskHandle, TaskSubmitter, make_task_request, run_platform, start_dev_server
from waystation.agents.agent_run import AgentRun
from waystation.agents.delegation import SubagentOrder, SubagentResult
from waystation.budgets.budget import RunUsage
from waystation.context.compaction import CompactionOutcome, CompactionStatus
from waystation.kernel.amount import Amount, Limit
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.progress import TRUNCATION_NOTE
from waystation.tasks.signals import ContextEditInput
from waystation.tasks.state import TaskState
from waystation.tasks.task import ApprovalRequest, TaskPhase, TaskRow, make_task_id
from waystation.tasks.view import TaskView
from waystation.testing.doubles import PlainRedactor
from waystation.workflows.payload_limit import MAX_PAYLOAD_BYTES
from waystation.workflows.task import TaskWorkflow

MOST_BYTES = 256_000
AGENTS, COMPACTIONS, APPROVALS = 100, 40, 200
BACK = ContextEditInput(action="rewind", agent="weigh", message="m1", by="Ada")


def _compacted(run: AgentRun) -> AgentRun:
    for number in range(COMPACTIONS):
        outcome = CompactionOutcome(
            compaction_id=f"{number:064x}",
            status=CompactionStatus.COMPRESSED,
            strategy="window",
            tokens_before=90_000,
            tokens_after=30_000,
            covered=80,
            passages=12,
            redactions=3,
            totals=run.totals,
            notes=(f"Summary {number} of {run.run.step_id} was checked: 3 identifiers were added.",),
        )
        run = run.after_compaction(outcome)
    return run


def grown(state: TaskState) -> TaskState:
    """The state of a task that had so many agents, compactions and approvals before it ended."""
    parent = state.runs["harbours"]
    names = [f"harbours.{number}" for number in range(1, AGENTS - len(state.runs) + 1)]
    orders = [
        SubagentOrder(id=name, call_id=f"call-{name}", role="research", title="A harbour", limit=Limit(tokens=5_000))
        for name in names
    ]
    ended = [
        SubagentResult(id=name, call_id=f"call-{name}", partial=True, reason="it was lost; " * 20) for name in names
    ]
    parent = parent.replace(subagent_orders=tuple(orders), subagent_results=tuple(ended))
    subagents = {
        name: parent.replace(
            run=parent.run.replace(step_id=name),
            subagent_orders=(),
            subagent_results=(),
            totals=RunUsage(),
        )
        for name in names
    }
    runs = {
        name: _compacted(run).replace(phase="delivered")
        for name, run in {**state.runs, "harbours": parent, **subagents}.items()
    }
    approvals = tuple(
        ApprovalRequest(
            request_id=f"harbours-{number}",
            agent="harbours",
            requested=Amount(tokens=5_000),
            granted=Amount(tokens=5_000),
            decision="approved",
            by="Ada Lovelace",
            note=f"Granted ({number}). ".ljust(2_000, "x"),
            requested_at=utc_now(),
            answered_at=utc_now(),
        )
        for number in range(1, APPROVALS + 1)
    )
    notes = tuple(note for run in runs.values() for note in run.notes)
    return state.replace(runs=runs, approvals=approvals, notes=(*state.notes, *notes))


async def grow(counter: TaskSubmitter) -> TaskRow:
    """A finished task whose stored state is that of a large one."""
    await counter.submit(under=make_task_config())
    assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
    row = await counter.store.get_task(make_task_id(make_task_request()), SYSTEM_SCOPE)
    assert row.progress is not None
    state = TaskState.model_validate_json(await counter.store.get_text(str(row.progress.state), SYSTEM_SCOPE))
    large = grown(state).model_dump_json()
    assert len(large) > 1_200_000
    stored = row.progress.replace(state=await counter.store.put_text(large, row.ref.scope))
    await counter.store.save_task_progress(row.ref.task_id, stored)
    return row


def payloads(message: Message) -> Iterator[Payload]:
    """All payloads anywhere in it."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            values = [one for one in value.values() if isinstance(one, Message)]
        else:
            values = value if field.is_repeated else [value]
        for one in values:
            yield from payloads(one)


async def runs_of(client: Client, task: TaskHandle) -> list[str]:
    return [found.run_id async for found in client.list_workflows(f"WorkflowId = '{task.id}'")]


async def test_a_large_task_goes_on_continues_as_new_and_delivers_with_bounded_payloads(tmp_path: Path) -> None:
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=60") as server,
        run_platform(server, tmp_path, PlainRedactor({}), ScriptedTaskModel()) as counter,
    ):
        row = await grow(counter)
        await counter.edit(BACK)
        task = counter.get_task_handle()
        shown = await task.query(TaskWorkflow.progress)
        ended = await task.result()
        stored = (await counter.store.get_task(row.ref.task_id, SYSTEM_SCOPE)).progress
        report = await counter.store.get_text(str(ended.report), SYSTEM_SCOPE)
        statuses, sizes = list[WorkflowExecutionStatus | None](), dict[str, int]()
        for run_id in await runs_of(server, task):
            handle = server.get_workflow_handle(task.id, run_id=run_id)
            statuses.append((await handle.describe()).status)
            for event in (await handle.fetch_history()).events:
                for payload in payloads(event):
                    sizes[str(event.event_type)] = max(sizes.get(str(event.event_type), 0), payload.ByteSize())
    assert WorkflowExecutionStatus.CONTINUED_AS_NEW in statuses
    assert len(sizes) > 5
    assert max(sizes.values()) <= MOST_BYTES, sizes
    assert ended.phase is TaskPhase.DONE
    assert max(len(shown.model_dump_json()), len(ended.model_dump_json())) <= MOST_BYTES
    assert ended.notes[-1] == TRUNCATION_NOTE
    assert TaskView.from_progress(ended).sum_compactions().count == AGENTS * COMPACTIONS
    assert stored is not None
    assert len(stored.approvals) == APPROVALS
    assert all(len(approval.note) == 2_000 for approval in stored.approvals)
    assert TaskView.from_progress(stored).sum_compactions().count == AGENTS * COMPACTIONS
    assert f"{AGENTS * COMPACTIONS:,} compactions replaced" in report


async def test_a_task_that_would_send_too_large_a_payload_fails_where_people_see_it(
    server: Client, tmp_path: Path
) -> None:
    one = PRICES[0]
    count = int(1.2 * MAX_PAYLOAD_BYTES) // len(one.model_dump_json())
    prices = tuple(one.replace(model=f"model-{number:06d}") for number in range(count))
    long = make_task_config()
    long = long.replace(default=long.default.replace(prices=prices))
    async with run_platform(server, tmp_path, PlainRedactor({}), ScriptedTaskModel()) as counter:
        with pytest.raises(BadInput, match="the session refused the task: the input of Task would have"):
            await counter.submit(under=long)
        row = await counter.store.get_task(make_task_id(make_task_request()), SYSTEM_SCOPE)
        start = TaskWorkflowInput(ref=row.ref, config=long, title="How is the bar crossed?", search_attributes=False)
        task = await server.start_workflow(TaskWorkflow.run, start, id=row.ref.task_id, task_queue=WORKFLOWS_QUEUE)
        with pytest.raises(WorkflowFailureError) as failure:
            await task.result()
        stored = (await counter.store.get_task(row.ref.task_id, SYSTEM_SCOPE)).progress
    assert "the input of PlanTask would have" in str(failure.value.cause)
    assert stored is not None
    assert stored.phase is TaskPhase.FAILED
    assert any(note.startswith("the input of PlanTask would have") for note in stored.notes)
