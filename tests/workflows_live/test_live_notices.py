"""Notices of running tasks: each event is told once, and nothing waits for it."""

import gc
import logging
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue, SecretStr
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError, ApplicationError

from activities.tasks import NoticeActivities
from tests.crew import ASKED, Call, Crew, tight
from tests.ports import free_port
from tests.running import RUNNERS, Counter, at_work, dev_server, opened_store, until
from tests.unit.notice_values import ASKED as TOLD
from tests.webhook_server import HANG, SECRET, Answer, WebhookServer, payload, running_webhook
from tests.workflows_live.history import events, everything_written, kinds
from waystation.agents.decisions import UnattendedPolicy
from waystation.config.settings import Settings
from waystation.kernel.errors import ModelRejected
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.privacy.ports import Redactor
from waystation.runtime.hooks import Messages, Webhook
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.continuation import TaskStart
from waystation.tasks.task import TaskPhase
from workers.queues import DEV_TIMING, WorkerContext, create_workflows_worker
from workers.sandbox import create_sandboxed_runner
from workflows.notice import NoticeWorkflow
from workflows.task import TaskWorkflow

ASKING = ("budget_asked-harbours-1", "budget_asked-tides-1")
CHILD = "start_child_workflow_execution_initiated"


def telling(server: WebhookServer) -> Settings:
    return Settings(webhook=SecretStr(server.url), temporal_ui="http://ui")


def ids(counter: Counter, *told: str) -> list[JsonValue]:
    return [f"notice-{counter.task().id}-{each}" for each in told]


async def until_told(server: WebhookServer, count: int) -> None:
    async def told() -> bool:
        return len(server.taken) >= count

    await until(told)


async def pause(counter: Counter) -> None:
    """Both researchers wait for a person, and both notices are on their way."""
    await counter.submit(under=tight())

    async def is_paused() -> bool:
        paused = (await counter.task().query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED
        return paused and kinds(await events(counter.task())).count("child_workflow_execution_started") == len(ASKING)

    await until(is_paused)


async def finish(counter: Counter) -> TaskPhase:
    for request_id in ("harbours-1", "tides-1"):
        await counter.task().signal(APPROVE_BUDGET, {"request_id": request_id})
    return (await counter.task().result()).phase


async def ended(client: Client, delivery_ids: list[JsonValue]) -> None:
    """Every notice has been delivered, and nothing more will come of it."""
    for delivery_id in delivery_ids:
        await client.get_workflow_handle(str(delivery_id)).result()


@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_task_that_pauses_and_finishes_tells_of_each_event_once_also_when_the_webhook_fails_first(
    runner: str, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        running_webhook(Answer(500), Answer(429, {"Retry-After": "1"}), Answer()) as webhook,
        at_work(server, tmp_path, redactor, Crew(), runner=RUNNERS[runner](), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        await until_told(webhook, 2)
        assert webhook.told == ids(counter, *ASKING)
        assert await finish(counter) is TaskPhase.DONE
        expected = ids(counter, *ASKING, "done")
        await ended(server, expected)
        described = await server.get_workflow_handle(str(expected[-1])).describe()
        summary = await described.static_summary()
        task_id = counter.task().id
    assert webhook.told == expected
    assert len(webhook.asked) == len(expected) + 2
    assert summary == f"{task_id}: done"
    told = {payload(body)["delivery_id"]: payload(body) for body in webhook.taken}
    asked = told[expected[0]]
    assert (asked["agent"], asked["request_id"], asked["asked_tokens"]) == ("harbours", "harbours-1", ASKED)
    assert asked["link"] == f"http://ui/namespaces/default/workflows/{task_id}"
    assert asked["title"] == "How is the bar crossed?"


async def test_workers_that_start_again_tell_what_could_not_be_told_and_nothing_twice(
    tmp_path: Path, redactor: Redactor
) -> None:
    port = free_port()
    nobody = WebhookServer([], f"http://127.0.0.1:{port}/services/{SECRET}")
    async with dev_server(cached=False) as client:
        async with at_work(client, tmp_path, redactor, Crew(), settings=telling(nobody)) as counter:
            await pause(counter)
        async with (
            running_webhook(port=port) as webhook,
            at_work(client, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
        ):
            await until_told(webhook, 2)
            assert await finish(counter) is TaskPhase.DONE
            expected = ids(counter, *ASKING, "done")
            await ended(client, expected)
    assert webhook.told == expected


@asynccontextmanager
async def notices_alone(
    client: Client, store: SqlStore, webhook: WebhookServer, *messages: WebhookServer
) -> AsyncGenerator[None]:
    """A worker that tells these of notices, without waiting for more of them."""
    addresses = [SecretStr(server.url.replace("http://", "json://")) for server in messages]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(aclosing(Webhook(SecretStr(webhook.url))))
        each = [Messages(address, number, gather_s=0.01) for number, address in enumerate(addresses, 1)]
        told = [first, *[await stack.enter_async_context(aclosing(one)) for one in each]]
        notices = NoticeActivities(told, lambda _: None)
        async with create_workflows_worker(
            WorkerContext(client, store, Settings(), create_sandboxed_runner(), False, notices, DEV_TIMING)
        ):
            yield


async def begun(server: Client) -> WorkflowHandle[NoticeWorkflow, None]:
    return await server.start_workflow(NoticeWorkflow.run, TOLD, id=TOLD.delivery_id, task_queue=WORKFLOWS_QUEUE)


async def taken_as_the_server_has_it(client: Client, handle: WorkflowHandle[NoticeWorkflow, None]) -> list[str]:
    """What a worker that comes after this one is told."""
    described = (await handle.describe()).raw_description
    payloads = [one for pending in described.pending_activities for one in pending.heartbeat_details.payloads]
    return await client.data_converter.decode(payloads)


async def test_one_address_that_takes_nothing_has_no_other_told_again_by_the_workers_that_come_after(
    server: Client, tmp_path: Path
) -> None:
    async with (
        opened_store(tmp_path) as store,
        running_webhook() as webhook,
        running_webhook() as takes,
        running_webhook(Answer(500)) as fails,
    ):
        handle: WorkflowHandle[NoticeWorkflow, None] | None = None
        for attempts in (1, 3):
            async with notices_alone(server, store, webhook, takes, fails):
                handle = handle or await begun(server)

                async def failed(at_least: int = attempts) -> bool:
                    return len(fails.asked) >= at_least

                await until(failed)
        fails.answers = [Answer()]
        async with notices_alone(server, store, webhook, takes, fails):
            await handle.result()
    assert [len(one.taken) for one in (webhook, takes, fails)] == [1, 1, 1]


async def test_the_server_knows_who_took_a_notice_while_another_has_not_answered_yet(
    server: Client, tmp_path: Path
) -> None:
    async with (
        opened_store(tmp_path) as store,
        running_webhook() as webhook,
        running_webhook() as takes,
        running_webhook(HANG) as silent,
        notices_alone(server, store, webhook, takes, silent),
    ):
        handle = await begun(server)

        async def both_are_known() -> bool:
            return len(await taken_as_the_server_has_it(server, handle)) == 2

        await until(both_are_known)
        known = await taken_as_the_server_has_it(server, handle)
        assert sorted(known) == ["address 1 of WAYSTATION_NOTIFY (json)", "the webhook at 127.0.0.1"]
        silent.closing.set()
        await handle.result()


async def test_a_webhook_that_is_dead_holds_no_task_back(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    nobody = WebhookServer([], f"http://127.0.0.1:{free_port()}/services/{SECRET}")
    async with at_work(server, tmp_path, redactor, Crew(), settings=telling(nobody)) as counter:
        await pause(counter)
        assert await finish(counter) is TaskPhase.DONE
        described = [await server.get_workflow_handle(str(each)).describe() for each in ids(counter, *ASKING, "done")]
    assert {each.status for each in described} == {WorkflowExecutionStatus.RUNNING}


async def test_a_webhook_that_refuses_shows_in_its_own_workflow_and_fails_no_task(
    server: Client, tmp_path: Path, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        running_webhook(Answer(404)) as webhook,
        at_work(server, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        for delivery_id in ids(counter, *ASKING):
            with pytest.raises(WorkflowFailureError) as failed:
                await server.get_workflow_handle(str(delivery_id)).result()
            assert isinstance(failed.value.cause, ActivityError)
            assert isinstance(failed.value.cause.cause, ApplicationError)
            assert "answered 404, which is final: check WAYSTATION_WEBHOOK" in failed.value.cause.cause.message

        async def known_to_the_task() -> bool:
            said = kinds(await events(counter.task()))
            return said.count("child_workflow_execution_failed") == 2 and said[-1] == "workflow_task_completed"

        await until(known_to_the_task)
        gc.collect()  # else asyncio might look at what nobody has looked at only after the test
        assert await finish(counter) is TaskPhase.DONE
    assert "never retrieved" not in caplog.text


async def test_a_deadline_that_passes_is_told(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    decided = tight().replace(unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200)))
    async with (
        running_webhook() as webhook,
        at_work(server, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        await counter.submit(under=decided)
        assert (await counter.task().result()).phase is TaskPhase.PARTIAL
        expired = ("budget_expired-harbours-1", "budget_expired-tides-1")
        await ended(server, ids(counter, *ASKING, *expired, "partial"))
        # Agents that started with less than the others may ask, too.
        assert all(each in webhook.told for each in ids(counter, *ASKING, *expired, "partial"))
    assert all(webhook.told.count(each) == 1 for each in webhook.told)


async def test_an_overdue_request_is_told_once_also_when_its_task_continues_as_new(
    tmp_path: Path, redactor: Redactor
) -> None:
    decided = tight().replace(unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200), then="wait"))
    async with (
        running_webhook() as webhook,
        dev_server("limit.historyCount.suggestContinueAsNew=100") as client,
        at_work(client, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        await counter.submit(under=decided)
        overdue = ("budget_overdue-harbours-1", "budget_overdue-tides-1")
        await until_told(webhook, len(ASKING) + len(overdue))
        task = counter.task()
        first = (await task.describe()).run_id

        async def continued() -> bool:
            await task.signal(APPROVE_BUDGET, "enough?")
            return (await task.describe()).run_id != first

        await until(continued)
        assert await finish(counter) is TaskPhase.DONE
        expected = ids(counter, *ASKING, *overdue, "done")
        await ended(client, expected)
    assert webhook.told == expected


async def test_a_cancelled_task_is_told(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with (
        running_webhook() as webhook,
        at_work(server, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        await counter.task().cancel()
        with pytest.raises(WorkflowFailureError):
            await counter.task().result()
        await ended(server, ids(counter, "cancelled"))
    assert payload(webhook.taken[-1])["event"] == "task_finished"
    assert payload(webhook.taken[-1])["phase"] == "cancelled"


async def test_a_failed_task_is_told_with_the_reason(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async def fail(call: Call) -> None:
        raise ModelRejected("there is no such model")

    async with (
        running_webhook() as webhook,
        at_work(server, tmp_path, redactor, Crew(before=fail), settings=telling(webhook)) as counter,
    ):
        await counter.submit()
        with pytest.raises(WorkflowFailureError):
            await counter.task().result()
        await ended(server, ids(counter, "failed"))
    told = payload(webhook.taken[-1])
    assert (told["event"], told["phase"]) == ("task_failed", "failed")
    assert told["reason"] == "there is no such model"


async def test_a_task_whose_end_cannot_be_stored_is_told_as_failed(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        running_webhook() as webhook,
        at_work(server, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        ref = TaskRef(store_id="", tenant="", session="alone", task_id=counter.task().id)
        start = TaskStart(ref=ref, terms=tight(), title="nobody knows it", search_attributes=False, notices=True)
        task = await server.start_workflow(TaskWorkflow.run, start, id=ref.task_id, task_queue=WORKFLOWS_QUEUE)
        with pytest.raises(WorkflowFailureError):
            await task.result()
        await ended(server, ids(counter, "failed"))
    told = payload(webhook.taken[-1])
    assert (told["event"], told["phase"]) == ("task_failed", "failed")
    assert str(told["reason"]).startswith("no task ")


async def test_the_secret_of_the_webhook_is_in_no_history_and_no_log(
    server: Client, tmp_path: Path, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        running_webhook(Answer(500), Answer(404), Answer()) as webhook,
        at_work(server, tmp_path, redactor, Crew(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        assert await finish(counter) is TaskPhase.DONE
        await ended(server, ids(counter, "done"))
        workflows = [counter.task().id, counter.session.id, *ids(counter, *ASKING, "done")]
        handles = [server.get_workflow_handle(str(each)) for each in workflows]
        written = "".join([everything_written(await events(handle)) for handle in handles])
    assert "answered 404" in written
    assert SECRET not in written
    assert SECRET not in "".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")


async def test_without_a_webhook_nothing_is_started(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit()
        await counter.task().result()
        assert CHILD not in kinds(await events(counter.task()))
