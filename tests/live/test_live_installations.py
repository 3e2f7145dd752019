"""Installations in one namespace, with the same tenant, session, requests and names of schedules, do not meet."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import SecretStr
from temporalio.client import Client as TemporalClient
from temporalio.worker import Replayer

from tests.support.task_model import ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import (
    KEY,
    SESSION,
    TENANT,
    StrictWorkerPlugin,
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    wait_until,
)
from waystation.client import Client
from waystation.client.erasure import forget_selected_tasks
from waystation.config.settings import Settings
from waystation.runtime.store_setup import build_client_data_converter
from waystation.runtime.temporal.connect import DEFAULT_NAMESPACE, TemporalTarget
from waystation.runtime.temporal.erasure_client import find_histories
from waystation.runtime.temporal.installation import InstallationPlugin
from waystation.tasks.schedules import ScheduleDefinition, ScheduleTiming
from waystation.tasks.task import TaskPhase, TaskRequest, make_task_id
from waystation.testing.doubles import PlainRedactor
from waystation.workers.sandbox import create_sandboxed_runner
from waystation.workflows.task import TaskWorkflow

TASK_ID = make_task_id(make_task_request())
PREFIXES = ("", "acme.", "acme-2.")


class Platform(NamedTuple):
    """One installation at work."""

    settings: Settings
    counter: TaskSubmitter
    client: Client


@pytest.fixture
async def platforms(
    temporal_server: TemporalTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[list[Platform]]:
    """On one server: one without a name and two with."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(at_work_as(temporal_server, tmp_path / f"home-{prefix}", prefix[:-1]))
            for prefix in PREFIXES
        ]


@asynccontextmanager
async def at_work_as(target: TemporalTarget, home: Path, installation: str) -> AsyncGenerator[Platform]:
    key = SecretStr(KEY.hex())
    settings = Settings(home=home, installation=installation, tenant=TENANT, key=key, encrypt_at_rest=False)
    home.mkdir()
    server = await TemporalClient.connect(
        target.address,
        data_converter=build_client_data_converter(settings),
        plugins=[InstallationPlugin(settings.prefix), StrictWorkerPlugin(cached=True)],
    )
    async with (
        open_activity_deps(home, PlainRedactor({}), ScriptedTaskModel()) as parts,
        run_all_workers(server, parts, settings=settings),
        await Client.connect(settings) as client,
    ):
        yield Platform(settings, TaskSubmitter(server, parts.store), client)


def replayer(settings: Settings) -> Replayer:
    """Raises where a workflow of this installation would now do other things than its history tells."""
    return Replayer(
        workflows=[TaskWorkflow],
        workflow_runner=create_sandboxed_runner(),
        namespace=DEFAULT_NAMESPACE,
        data_converter=build_client_data_converter(settings),
        plugins=[InstallationPlugin(settings.prefix)],
    )


async def ids_on(target: TemporalTarget) -> set[str]:
    """Of all workflows on the server, whichever installation they belong to."""
    anyone = await TemporalClient.connect(target.address)
    return {found.id async for found in anyone.list_workflows()}


async def test_the_same_request_is_a_task_of_each_installation(
    platforms: list[Platform], temporal_server: TemporalTarget
) -> None:
    unnamed, acme, other = platforms
    for platform in platforms:
        await platform.counter.submit(under=make_tight_budget_config())

    async def all_wait() -> bool:
        return [len(await platform.client.list_approvals()) for platform in platforms] == [2, 2, 2]

    await wait_until(all_wait)
    assert {f"{prefix}{TASK_ID}" for prefix in PREFIXES} <= await ids_on(temporal_server)
    assert [await platform.client.list_unattended_queues() for platform in platforms] == [(), (), ()]
    assert (await acme.client.get_task(TASK_ID)).task_id == TASK_ID

    for asked in await acme.client.list_approvals():
        await acme.client.approve(TASK_ID, request_id=asked.approval.request_id)
    assert (await acme.counter.get_task_handle().result()).phase is TaskPhase.DONE
    assert [len(await platform.client.list_approvals()) for platform in platforms] == [2, 0, 2]
    await replayer(acme.settings).replay_workflow(await acme.counter.get_task_handle().fetch_history())

    seen = await find_histories(acme.counter.client, [TASK_ID], len)
    assert {one.workflow_id for one in seen} == {TASK_ID}

    await unnamed.client.cancel(TASK_ID)

    async def cancelled() -> bool:
        return (await unnamed.client.get_task(TASK_ID)).phase is TaskPhase.CANCELLED

    await wait_until(cancelled)
    assert (await other.client.get_task(TASK_ID)).phase is TaskPhase.PAUSED
    assert (await forget_selected_tasks(unnamed.settings, (TASK_ID,), everything=True)).histories > 0

    async def only_its_own_are_gone() -> bool:
        return {id for id in await ids_on(temporal_server) if TASK_ID in id} == {f"acme.{TASK_ID}", f"acme-2.{TASK_ID}"}

    await wait_until(only_its_own_are_gone)


async def test_schedules_of_one_name_are_paused_and_removed_one_by_one(platforms: list[Platform]) -> None:
    asked = TaskRequest(question="How deep is the bar?", tenant=TENANT, session=SESSION, request_id="weekly")
    wish = ScheduleDefinition(name="weekly", request=asked, paths=(), timing=ScheduleTiming(cron="0 7 * * 1"))
    desks = [await platform.client.get_schedule_client() for platform in platforms]
    for desk in desks:
        await desk.add(wish)

    async def seen() -> list[list[tuple[str, bool]]]:
        return [[(known.name, known.view.paused) for known in await desk.list()] for desk in desks]

    async def listed() -> bool:
        return await seen() == [[("weekly", False)]] * 3

    await wait_until(listed)
    await desks[1].pause("weekly", "")
    assert await seen() == [[("weekly", False)], [("weekly", True)], [("weekly", False)]]
    await desks[0].remove("weekly")

    async def removed() -> bool:
        return await seen() == [[], [("weekly", True)], [("weekly", False)]]

    await wait_until(removed)
