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

from tests.support.free_ports import find_free_port
from tests.support.notification_values import REQUEST_NOTICE as TOLD
from tests.support.task_model import REQUESTED_TOKENS, ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import (
    RUNNERS,
    TaskSubmitter,
    open_store,
    run_platform,
    start_dev_server,
    wait_until,
)
from tests.support.webhook_server import (
    NO_RESPONSE,
    SECRET,
    WebhookResponse,
    WebhookServer,
    parse_event_payload,
    run_webhook_server,
)
from tests.support.workflow_history import fetch_events, join_all_strings, list_event_kinds
from waystation.activities.tasks import NotificationActivities
from waystation.agents.action_approvals import UnattendedPolicy
from waystation.config.settings import Settings
from waystation.kernel.errors import ModelRejected
from waystation.kernel.refs import TaskRef
from waystation.kernel.temporal_names import WORKFLOWS_QUEUE
from waystation.privacy.ports import Redactor
from waystation.runtime.hooks import AppriseNotifier, WebhookNotifier
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.approvals import APPROVE_BUDGET
from waystation.tasks.continuation import TaskWorkflowInput
from waystation.tasks.task import TaskPhase
from waystation.workers.queues import DEV_TIMING, WorkerContext, create_workflows_worker
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.notification import NotificationWorkflow
from waystation.workflows.task import TaskWorkflow

ASKING = ("budget_asked-harbours-1", "budget_asked-tides-1")
CHILD = "start_child_workflow_execution_initiated"


def telling(server: WebhookServer) -> Settings:
    return Settings(webhook=SecretStr(server.url), temporal_ui="http://ui")


def ids(counter: TaskSubmitter, *told: str) -> list[JsonValue]:
    return [f"notice-{counter.get_task_handle().id}-{each}" for each in told]


async def until_told(server: WebhookServer, count: int) -> None:
    async def told() -> bool:
        return len(server.accepted_bodies) >= count

    await wait_until(told)


async def pause(counter: TaskSubmitter) -> None:
    """Both researchers wait for a person, and both notices are on their way."""
    await counter.submit(under=make_tight_budget_config())

    async def is_paused() -> bool:
        paused = (await counter.get_task_handle().query(TaskWorkflow.progress)).phase is TaskPhase.PAUSED
        return paused and list_event_kinds(await fetch_events(counter.get_task_handle())).count(
            "child_workflow_execution_started"
        ) == len(ASKING)

    await wait_until(is_paused)


async def finish(counter: TaskSubmitter) -> TaskPhase:
    for request_id in ("harbours-1", "tides-1"):
        await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": request_id})
    return (await counter.get_task_handle().result()).phase


async def ended(client: Client, delivery_ids: list[JsonValue]) -> None:
    """Every notice has been delivered, and nothing more will come of it."""
    for delivery_id in delivery_ids:
        await client.get_workflow_handle(str(delivery_id)).result()


@pytest.mark.parametrize("runner", RUNNERS)
async def test_a_task_that_pauses_and_finishes_tells_of_each_event_once_also_when_the_webhook_fails_first(
    runner: str, server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        run_webhook_server(
            WebhookResponse(500), WebhookResponse(429, {"Retry-After": "1"}), WebhookResponse()
        ) as webhook,
        run_platform(
            server, tmp_path, redactor, ScriptedTaskModel(), runner=RUNNERS[runner](), settings=telling(webhook)
        ) as counter,
    ):
        await pause(counter)
        await until_told(webhook, 2)
        assert webhook.delivery_ids == ids(counter, *ASKING)
        assert await finish(counter) is TaskPhase.DONE
        expected = ids(counter, *ASKING, "done")
        await ended(server, expected)
        described = await server.get_workflow_handle(str(expected[-1])).describe()
        summary = await described.static_summary()
        task_id = counter.get_task_handle().id
    assert webhook.delivery_ids == expected
    assert len(webhook.asked) == len(expected) + 2
    assert summary == f"{task_id}: done"
    told = {parse_event_payload(body)["delivery_id"]: parse_event_payload(body) for body in webhook.accepted_bodies}
    asked = told[expected[0]]
    assert (asked["agent"], asked["request_id"], asked["asked_tokens"]) == ("harbours", "harbours-1", REQUESTED_TOKENS)
    assert asked["link"] == f"http://ui/namespaces/default/workflows/{task_id}"
    assert asked["title"] == "How is the bar crossed?"


async def test_workers_that_start_again_tell_what_could_not_be_told_and_nothing_twice(
    tmp_path: Path, redactor: Redactor
) -> None:
    port = find_free_port()
    nobody = WebhookServer([], f"http://127.0.0.1:{port}/services/{SECRET}")
    async with start_dev_server(cached=False) as client:
        async with run_platform(client, tmp_path, redactor, ScriptedTaskModel(), settings=telling(nobody)) as counter:
            await pause(counter)
        async with (
            run_webhook_server(port=port) as webhook,
            run_platform(client, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
        ):
            await until_told(webhook, 2)
            assert await finish(counter) is TaskPhase.DONE
            expected = ids(counter, *ASKING, "done")
            await ended(client, expected)
    assert webhook.delivery_ids == expected


@asynccontextmanager
async def notices_alone(
    client: Client, store: SqlStore, webhook: WebhookServer, *messages: WebhookServer
) -> AsyncGenerator[None]:
    """A worker that tells these of notices, without waiting for more of them."""
    addresses = [SecretStr(server.url.replace("http://", "json://")) for server in messages]
    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(aclosing(WebhookNotifier(SecretStr(webhook.url))))
        each = [AppriseNotifier(address, number, gather_s=0.01) for number, address in enumerate(addresses, 1)]
        told = [first, *[await stack.enter_async_context(aclosing(one)) for one in each]]
        notices = NotificationActivities(told, lambda _: None)
        async with create_workflows_worker(
            WorkerContext(client, store, Settings(), create_sandboxed_runner(), False, notices, DEV_TIMING)
        ):
            yield


async def begun(server: Client) -> WorkflowHandle[NotificationWorkflow, None]:
    return await server.start_workflow(NotificationWorkflow.run, TOLD, id=TOLD.delivery_id, task_queue=WORKFLOWS_QUEUE)


async def taken_as_the_server_has_it(client: Client, handle: WorkflowHandle[NotificationWorkflow, None]) -> list[str]:
    """What a worker that comes after this one is told."""
    described = (await handle.describe()).raw_description
    payloads = [one for pending in described.pending_activities for one in pending.heartbeat_details.payloads]
    return await client.data_converter.decode(payloads)


async def test_one_address_that_takes_nothing_has_no_other_told_again_by_the_workers_that_come_after(
    server: Client, tmp_path: Path
) -> None:
    async with (
        open_store(tmp_path) as store,
        run_webhook_server() as webhook,
        run_webhook_server() as takes,
        run_webhook_server(WebhookResponse(500)) as fails,
    ):
        handle: WorkflowHandle[NotificationWorkflow, None] | None = None
        for attempts in (1, 3):
            async with notices_alone(server, store, webhook, takes, fails):
                handle = handle or await begun(server)

                async def failed(at_least: int = attempts) -> bool:
                    return len(fails.asked) >= at_least

                await wait_until(failed)
        fails.answers = [WebhookResponse()]
        async with notices_alone(server, store, webhook, takes, fails):
            await handle.result()
    assert [len(one.accepted_bodies) for one in (webhook, takes, fails)] == [1, 1, 1]


async def test_the_server_knows_who_took_a_notice_while_another_has_not_answered_yet(
    server: Client, tmp_path: Path
) -> None:
    async with (
        open_store(tmp_path) as store,
        run_webhook_server() as webhook,
        run_webhook_server() as takes,
        run_webhook_server(NO_RESPONSE) as silent,
        notices_alone(server, store, webhook, takes, silent),
    ):
        handle = await begun(server)

        async def both_are_known() -> bool:
            return len(await taken_as_the_server_has_it(server, handle)) == 2

        await wait_until(both_are_known)
        known = await taken_as_the_server_has_it(server, handle)
        assert sorted(known) == ["address 1 of WAYSTATION_NOTIFY (json)", "the webhook at 127.0.0.1"]
        silent.closing.set()
        await handle.result()


async def test_a_webhook_that_is_dead_holds_no_task_back(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    nobody = WebhookServer([], f"http://127.0.0.1:{find_free_port()}/services/{SECRET}")
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(nobody)) as counter:
        await pause(counter)
        assert await finish(counter) is TaskPhase.DONE
        described = [await server.get_workflow_handle(str(each)).describe() for each in ids(counter, *ASKING, "done")]
    assert {each.status for each in described} == {WorkflowExecutionStatus.RUNNING}


async def test_a_webhook_that_refuses_shows_in_its_own_workflow_and_fails_no_task(
    server: Client, tmp_path: Path, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        run_webhook_server(WebhookResponse(404)) as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        for delivery_id in ids(counter, *ASKING):
            with pytest.raises(WorkflowFailureError) as failed:
                await server.get_workflow_handle(str(delivery_id)).result()
            assert isinstance(failed.value.cause, ActivityError)
            assert isinstance(failed.value.cause.cause, ApplicationError)
            assert (
                "answered 404 (the notification is not sent again): check WAYSTATION_WEBHOOK"
                in failed.value.cause.cause.message
            )

        async def known_to_the_task() -> bool:
            said = list_event_kinds(await fetch_events(counter.get_task_handle()))
            return said.count("child_workflow_execution_failed") == 2 and said[-1] == "workflow_task_completed"

        await wait_until(known_to_the_task)
        gc.collect()  # else asyncio might look at what nobody has looked at only after the test
        assert await finish(counter) is TaskPhase.DONE
    assert "never retrieved" not in caplog.text


async def test_a_deadline_that_passes_is_told(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    decided = make_tight_budget_config().replace(unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200)))
    async with (
        run_webhook_server() as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        await counter.submit(under=decided)
        assert (await counter.get_task_handle().result()).phase is TaskPhase.PARTIAL
        expired = ("budget_expired-harbours-1", "budget_expired-tides-1")
        await ended(server, ids(counter, *ASKING, *expired, "partial"))
        # Agents that started with less than the others may ask, too.
        assert all(each in webhook.delivery_ids for each in ids(counter, *ASKING, *expired, "partial"))
    assert all(webhook.delivery_ids.count(each) == 1 for each in webhook.delivery_ids)


async def test_an_overdue_request_is_told_once_also_when_its_task_continues_as_new(
    tmp_path: Path, redactor: Redactor
) -> None:
    decided = make_tight_budget_config().replace(
        unattended=UnattendedPolicy(answer_within=timedelta(milliseconds=200), at_deadline="wait")
    )
    async with (
        run_webhook_server() as webhook,
        start_dev_server("limit.historyCount.suggestContinueAsNew=100") as client,
        run_platform(client, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        await counter.submit(under=decided)
        overdue = ("budget_overdue-harbours-1", "budget_overdue-tides-1")
        await until_told(webhook, len(ASKING) + len(overdue))
        task = counter.get_task_handle()
        first = (await task.describe()).run_id

        async def continued() -> bool:
            await task.signal(APPROVE_BUDGET, "enough?")
            return (await task.describe()).run_id != first

        await wait_until(continued)
        assert await finish(counter) is TaskPhase.DONE
        expected = ids(counter, *ASKING, *overdue, "done")
        await ended(client, expected)
    assert webhook.delivery_ids == expected


async def test_a_cancelled_task_is_told(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with (
        run_webhook_server() as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        await counter.get_task_handle().cancel()
        with pytest.raises(WorkflowFailureError):
            await counter.get_task_handle().result()
        await ended(server, ids(counter, "cancelled"))
    assert parse_event_payload(webhook.accepted_bodies[-1])["event"] == "task_finished"
    assert parse_event_payload(webhook.accepted_bodies[-1])["phase"] == "cancelled"


async def test_a_failed_task_is_told_with_the_reason(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async def fail(call: ModelCall) -> None:
        raise ModelRejected("there is no such model")

    async with (
        run_webhook_server() as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=fail), settings=telling(webhook)) as counter,
    ):
        await counter.submit()
        with pytest.raises(WorkflowFailureError):
            await counter.get_task_handle().result()
        await ended(server, ids(counter, "failed"))
    told = parse_event_payload(webhook.accepted_bodies[-1])
    assert (told["event"], told["phase"]) == ("task_failed", "failed")
    assert told["reason"] == "there is no such model"


async def test_a_task_whose_end_cannot_be_stored_is_told_as_failed(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        run_webhook_server() as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        ref = TaskRef(store_id="", tenant="", session="alone", task_id=counter.get_task_handle().id)
        start = TaskWorkflowInput(
            ref=ref,
            config=make_tight_budget_config(),
            title="nobody knows it",
            search_attributes=False,
            notifications=True,
        )
        task = await server.start_workflow(TaskWorkflow.run, start, id=ref.task_id, task_queue=WORKFLOWS_QUEUE)
        with pytest.raises(WorkflowFailureError):
            await task.result()
        await ended(server, ids(counter, "failed"))
    told = parse_event_payload(webhook.accepted_bodies[-1])
    assert (told["event"], told["phase"]) == ("task_failed", "failed")
    assert str(told["reason"]).startswith("no task ")


async def test_the_secret_of_the_webhook_is_in_no_history_and_no_log(
    server: Client, tmp_path: Path, redactor: Redactor, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        run_webhook_server(WebhookResponse(500), WebhookResponse(404), WebhookResponse()) as webhook,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(), settings=telling(webhook)) as counter,
    ):
        await pause(counter)
        assert await finish(counter) is TaskPhase.DONE
        await ended(server, ids(counter, "done"))
        workflows = [counter.get_task_handle().id, counter.session.id, *ids(counter, *ASKING, "done")]
        handles = [server.get_workflow_handle(str(each)) for each in workflows]
        written = "".join([join_all_strings(await fetch_events(handle)) for handle in handles])
    assert "answered 404" in written
    assert SECRET not in written
    assert SECRET not in "".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")


async def test_without_a_webhook_nothing_is_started(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit()
        await counter.get_task_handle().result()
        assert CHILD not in list_event_kinds(await fetch_events(counter.get_task_handle()))
