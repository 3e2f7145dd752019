"""A message that arrives while a task is reopened or begins as a fork is delivered, with a number of its own."""

from pathlib import Path

import pytest
from temporalio.client import Client, WorkflowFailureError
from temporalio.exceptions import ActivityError, ApplicationError

from tests.crew import Crew, terms
from tests.readers import ANYONE
from tests.running import Counter, Task, opened_parts, request, working
from waystation.client.sessions import ForkRequest, register_fork
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.kernel.errors import BadInput
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.tasks.continuation import TaskRewind, TaskStart
from waystation.tasks.signals import TELL
from waystation.tasks.task import Refusal, TaskPhase, TaskProgress, TaskRow, Telling, task_id_of
from waystation.testing import PlainRedactor
from workflows.task import TaskWorkflow

BEFORE, MEANWHILE = "Give depths in metres.", "Never cite the almanac of 1790."


async def told_at_work(counter: Counter) -> TaskRow:
    """A finished task that was sent one message while it worked."""
    await counter.submit(under=terms())
    await counter.task().signal(TELL, {"text": BEFORE, "by": "Ada"})
    assert (await counter.task().result()).phase is TaskPhase.DONE
    return await counter.store.task(task_id_of(request()), ANYONE)


async def started_and_told(client: Client, start: TaskStart) -> Task:
    """A task whose first workflow task finds a message next to the start: there was no worker for either."""
    task = await client.start_workflow(TaskWorkflow.run, start, id=start.ref.task_id, task_queue=WORKFLOWS_QUEUE)
    await task.signal(TELL, {"text": MEANWHILE, "by": "Ben"})
    return task


async def heard_by_writer(counter: Counter, task_id: str) -> list[str]:
    said = (await counter.store.load(f"{task_id}/write", ANYONE)).messages
    return [message.text for message in said if message.told]


async def told_in_audit(counter: Counter, task_id: str) -> list[Telling]:
    return [entry for entry in await counter.store.list_audit_entries(task_id, ANYONE) if isinstance(entry, Telling)]


def _check(ended: TaskProgress, audit: list[Telling], heard: list[str]) -> None:
    assert ended.phase is TaskPhase.DONE
    assert [(one.number, one.by) for one in ended.tellings] == [(1, "Ada"), (2, "Ben")]
    assert ended.tellings[1] in audit
    assert len({one.number for one in audit}) == len(audit)
    assert heard[-1] == MEANWHILE


async def test_a_message_that_arrives_while_a_finished_task_is_reopened_is_delivered(
    server: Client, tmp_path: Path
) -> None:
    async with opened_parts(tmp_path, PlainRedactor({}), Crew()) as parts:
        counter = Counter(server, parts.store)
        async with working(server, parts):
            row = await told_at_work(counter)
        back = TaskRewind(ref=row.ref, agent="weigh", message="m1", keep=True, asked_at=utc_now())
        start = TaskStart(ref=row.ref, terms=row.terms, title=row.title, search_attributes=False, rewind=back)
        task = await started_and_told(server, start)
        async with working(server, parts):
            ended = await task.result()
        _check(ended, await told_in_audit(counter, task.id), await heard_by_writer(counter, task.id))


async def test_a_message_that_arrives_while_a_fork_takes_over_finished_steps_is_delivered(
    server: Client, tmp_path: Path
) -> None:
    async with opened_parts(tmp_path, PlainRedactor({}), Crew()) as parts:
        counter = Counter(server, parts.store)
        async with working(server, parts):
            first = await told_at_work(counter)
        settings = Settings(offline=True, revisions=0, reviews=0)
        row = await register_fork(settings, parts.store, first, ForkRequest(step="weigh", request_id="second"))
        start = TaskStart(ref=row.ref, terms=row.terms, title=row.title, search_attributes=False, forked=True)
        task = await started_and_told(server, start)
        async with working(server, parts):
            ended = await task.result()
        _check(ended, await told_in_audit(counter, task.id), await heard_by_writer(counter, task.id))


async def test_a_message_to_a_task_that_cannot_be_reopened_is_refused_and_the_refusal_is_in_the_audit(
    server: Client, tmp_path: Path
) -> None:
    async with opened_parts(tmp_path, PlainRedactor({}), Crew()) as parts:
        counter = Counter(server, parts.store)
        async with working(server, parts):
            row = await told_at_work(counter)
        nowhere = TaskRewind(ref=row.ref, agent="weigh", message="m999", keep=True, asked_at=utc_now())
        start = TaskStart(ref=row.ref, terms=row.terms, title=row.title, search_attributes=False, rewind=nowhere)
        task = await started_and_told(server, start)
        async with working(server, parts):
            failure = await _failure(task)
        trail = await counter.store.list_audit_entries(task.id, ANYONE)
        stored = (await counter.store.task(task.id, ANYONE)).progress
    assert BadInput.__name__ in failure
    assert [entry.reason for entry in trail if isinstance(entry, Refusal)] == [
        "the task is ending, or over: none of its agents would hear it"
    ]
    assert stored is not None
    assert stored.phase is TaskPhase.DONE


async def _failure(task: Task) -> str:
    """Type of the error that ended the workflow."""
    with pytest.raises(WorkflowFailureError) as failure:
        await task.result()
    activity = failure.value.cause
    assert isinstance(activity, ActivityError)
    assert isinstance(activity.cause, ApplicationError)
    return str(activity.cause.type)
