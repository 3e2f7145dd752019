"""Installations in one namespace, with the same tenant, session, requests and names of schedules, do not meet."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from pydantic import SecretStr
from temporalio.client import Client as TemporalClient
from temporalio.worker import Replayer

from tests.crew import Crew, tight
from tests.running import KEY, SESSION, TENANT, Counter, Watched, opened_parts, request, until, working
from waystation.client import Client
from waystation.client.removal import forget
from waystation.config.settings import Settings
from waystation.runtime.stores import data_converter
from waystation.runtime.temporal.connect import DEFAULT_NAMESPACE, Target
from waystation.runtime.temporal.installation import InstallationPlugin
from waystation.runtime.temporal.orders import find_histories
from waystation.tasks.schedules import ScheduleWish, Timing
from waystation.tasks.task import TaskPhase, TaskRequest, task_id_of
from waystation.testing import PlainRedactor
from workers.sandbox import create_sandboxed_runner
from workflows.task import TaskWorkflow

TASK_ID = task_id_of(request())
PREFIXES = ("", "acme.", "acme-2.")


class Platform(NamedTuple):
    """One installation at work."""

    settings: Settings
    counter: Counter
    client: Client


@pytest.fixture
async def platforms(
    temporal_server: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[list[Platform]]:
    """On one server: one without a name and two with."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_server.address)
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(at_work_as(temporal_server, tmp_path / f"home-{prefix}", prefix[:-1]))
            for prefix in PREFIXES
        ]


@asynccontextmanager
async def at_work_as(target: Target, home: Path, installation: str) -> AsyncGenerator[Platform]:
    key = SecretStr(KEY.hex())
    settings = Settings(home=home, installation=installation, tenant=TENANT, key=key, encrypt_at_rest=False)
    home.mkdir()
    server = await TemporalClient.connect(
        target.address,
        data_converter=data_converter(settings),
        plugins=[InstallationPlugin(settings.prefix), Watched(cached=True)],
    )
    async with (
        opened_parts(home, PlainRedactor({}), Crew()) as parts,
        working(server, parts, settings=settings),
        await Client.connect(settings) as client,
    ):
        yield Platform(settings, Counter(server, parts.store), client)


def replayer(settings: Settings) -> Replayer:
    """Raises where a workflow of this installation would now do other things than its history tells."""
    return Replayer(
        workflows=[TaskWorkflow],
        workflow_runner=create_sandboxed_runner(),
        namespace=DEFAULT_NAMESPACE,
        data_converter=data_converter(settings),
        plugins=[InstallationPlugin(settings.prefix)],
    )


async def ids_on(target: Target) -> set[str]:
    """Of all workflows on the server, whichever installation they belong to."""
    anyone = await TemporalClient.connect(target.address)
    return {found.id async for found in anyone.list_workflows()}


async def test_the_same_request_is_a_task_of_each_installation(
    platforms: list[Platform], temporal_server: Target
) -> None:
    unnamed, acme, other = platforms
    for platform in platforms:
        await platform.counter.submit(under=tight())

    async def all_wait() -> bool:
        return [len(await platform.client.approvals()) for platform in platforms] == [2, 2, 2]

    await until(all_wait)
    assert {f"{prefix}{TASK_ID}" for prefix in PREFIXES} <= await ids_on(temporal_server)
    assert [await platform.client.unattended_queues() for platform in platforms] == [(), (), ()]
    assert (await acme.client.progress(TASK_ID)).progress.task_id == TASK_ID

    for asked in await acme.client.approvals():
        await acme.client.approve(TASK_ID, request_id=asked.approval.request_id)
    assert (await acme.counter.task().result()).phase is TaskPhase.DONE
    assert [len(await platform.client.approvals()) for platform in platforms] == [2, 0, 2]
    await replayer(acme.settings).replay_workflow(await acme.counter.task().fetch_history())

    seen = await find_histories(acme.counter.client, [TASK_ID], len)
    assert {one.workflow_id for one in seen} == {TASK_ID}

    await unnamed.client.cancel(TASK_ID)

    async def cancelled() -> bool:
        return (await unnamed.client.progress(TASK_ID)).progress.phase is TaskPhase.CANCELLED

    await until(cancelled)
    assert (await other.client.progress(TASK_ID)).progress.phase is TaskPhase.PAUSED
    assert (await forget(unnamed.settings, (TASK_ID,), everything=True)).histories > 0

    async def only_its_own_are_gone() -> bool:
        return {id for id in await ids_on(temporal_server) if TASK_ID in id} == {f"acme.{TASK_ID}", f"acme-2.{TASK_ID}"}

    await until(only_its_own_are_gone)


async def test_schedules_of_one_name_are_paused_and_removed_one_by_one(platforms: list[Platform]) -> None:
    asked = TaskRequest(question="How deep is the bar?", tenant=TENANT, session=SESSION, request_id="weekly")
    wish = ScheduleWish(name="weekly", request=asked, paths=(), timing=Timing(cron="0 7 * * 1"))
    desks = [await platform.client.schedules() for platform in platforms]
    for desk in desks:
        await desk.add(wish)

    async def seen() -> list[list[tuple[str, bool]]]:
        return [[(known.name, known.seen.paused) for known in await desk.list()] for desk in desks]

    async def listed() -> bool:
        return await seen() == [[("weekly", False)]] * 3

    await until(listed)
    await desks[1].pause("weekly", "")
    assert await seen() == [[("weekly", False)], [("weekly", True)], [("weekly", False)]]
    await desks[0].remove("weekly")

    async def removed() -> bool:
        return await seen() == [[], [("weekly", True)], [("weekly", False)]]

    await until(removed)
