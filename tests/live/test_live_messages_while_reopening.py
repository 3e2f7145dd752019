"""A message that arrives while a task is reopened or begins as a fork is delivered, with a number of its own."""

from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import ScriptedTaskModel, make_task_config
from tests.support.temporal_platform import (
    TaskHandle,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
)
from waystation.agents.task_messages import TaskMessage
from waystation.client.submission import ForkRequest, register_fork
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.tasks.continuation import TaskRewind, TaskWorkflowInput
from waystation.tasks.signals import SEND_MESSAGE
from waystation.tasks.task import RejectedMessage, TaskPhase, TaskProgress, TaskRow, make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workflows.task import TaskWorkflow

BEFORE, MEANWHILE = "Give depths in metres.", "Never cite the almanac of 1790."


async def told_at_work(counter: TaskSubmitter) -> TaskRow:
    """A finished task that was sent one message while it worked."""
    await counter.submit(under=make_task_config())
    await counter.get_task_handle().signal(SEND_MESSAGE, {"text": BEFORE, "by": "Ada"})
    assert (await counter.get_task_handle().result()).phase is TaskPhase.DONE
    return await counter.store.get_task(make_task_id(make_task_request()), SYSTEM_SCOPE)


async def started_and_told(client: Client, start: TaskWorkflowInput) -> TaskHandle:
    """A task whose first workflow task finds a message next to the start: there was no worker for either."""
    task = await client.start_workflow(TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE)
    await task.signal(SEND_MESSAGE, {"text": MEANWHILE, "by": "Ben"})
    return task


async def heard_by_writer(counter: TaskSubmitter, task_id: str) -> list[str]:
    said = (await counter.store.load_transcript(f"{task_id}/write", SYSTEM_SCOPE)).messages
    return [message.text for message in said if message.task_message]


async def told_in_audit(counter: TaskSubmitter, task_id: str) -> list[TaskMessage]:
    return [
        entry
        for entry in await counter.store.list_audit_entries(task_id, SYSTEM_SCOPE)
        if isinstance(entry, TaskMessage)
    ]


def _check(ended: TaskProgress, audit: list[TaskMessage], heard: list[str]) -> None:
    assert ended.phase is TaskPhase.DONE
    assert [(one.number, one.by) for one in ended.task_messages] == [(1, "Ada"), (2, "Ben")]
    assert ended.task_messages[1] in audit
    assert len({one.number for one in audit}) == len(audit)
    assert heard[-1] == MEANWHILE


async def test_a_message_that_arrives_while_a_finished_task_is_reopened_is_delivered(
    server: Client, tmp_path: Path
) -> None:
    async with open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            row = await told_at_work(counter)
        back = TaskRewind(ref=row.ref, agent="weigh", message="m1", keep_message=True, requested_at=utc_now())
        start = TaskWorkflowInput(ref=row.ref, config=row.config, title=row.title, search_attributes=False, rewind=back)
        task = await started_and_told(server, start)
        async with run_all_workers(server, parts):
            ended = await task.result()
        _check(ended, await told_in_audit(counter, task.id), await heard_by_writer(counter, task.id))


async def test_a_message_that_arrives_while_a_fork_takes_over_finished_steps_is_delivered(
    server: Client, tmp_path: Path
) -> None:
    async with open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            first = await told_at_work(counter)
        settings = Settings(offline=True, revisions=0, reviews=0)
        row = await register_fork(settings, parts.store, first, ForkRequest(step="weigh", request_id="second"))
        start = TaskWorkflowInput(ref=row.ref, config=row.config, title=row.title, search_attributes=False, forked=True)
        task = await started_and_told(server, start)
        async with run_all_workers(server, parts):
            ended = await task.result()
        _check(ended, await told_in_audit(counter, task.id), await heard_by_writer(counter, task.id))


async def test_a_message_to_a_task_that_cannot_be_reopened_is_refused_and_the_refusal_is_in_the_audit(
    server: Client, tmp_path: Path
) -> None:
    async with open_activity_deps(tmp_path, PlainRedactor({}), ScriptedTaskModel()) as parts:
        counter = TaskSubmitter(server, parts.store)
        async with run_all_workers(server, parts):
            row = await told_at_work(counter)
        nowhere = TaskRewind(ref=row.ref, agent="weigh", message="m999", keep_message=True, requested_at=utc_now())
        start = TaskWorkflowInput(
            ref=row.ref, config=row.config, title=row.title, search_attributes=False, rewind=nowhere
        )
        task = await started_and_told(server, start)
        async with run_all_workers(server, parts):
            failure = await _failure(task)
        trail = await counter.store.list_audit_entries(task.id, SYSTEM_SCOPE)
        stored = (await counter.store.get_task(task.id, SYSTEM_SCOPE)).progress
    assert BadInput.__name__ in failure
    assert [entry.reason for entry in trail if isinstance(entry, RejectedMessage)] == [
        "the task is ending or has ended: none of its agents would receive the message"
    ]
    assert stored is not None
    assert stored.phase is TaskPhase.DONE


async def _failure(task: TaskHandle) -> str:
    """Type of the error that ended the workflow."""
    with pytest.raises(WorkflowFailureError) as failure:
        await task.result()
    activity = failure.value.cause
    assert isinstance(activity, ActivityError)
    assert isinstance(activity.cause, ApplicationError)
    return str(activity.cause.type)
