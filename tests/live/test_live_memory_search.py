"""Looks into embedded memory while workers have it open: they are asked, over the real server."""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest
from temporalio.api.workflowservice.v1 import DescribeActivityExecutionRequest, ListActivityExecutionsRequest
from temporalio.client import Client as TemporalClient
from temporalio.service import RPCError, RPCStatusCode

from tests.attacks.test_attacks_web_pages import BEARER, open_site_client
from tests.support.store_values import make_passage, make_summary
from tests.support.temporal_platform import run_cli, wait_until
from waystation.config.settings import Settings
from waystation.kernel.refs import RunRef
from waystation.runtime.redaction_setup import open_embedder
from waystation.runtime.store_setup import open_store
from waystation.tasks.task import tenant_hash
from waystation.workers.memory import open_memory
from waystation.workers.wiring import run_configured_workers

SAID = "The bar carries two fathoms."


@pytest.fixture(autouse=True)
async def kept(server: TemporalClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home folder whose store has a passage."""
    given = {"WAYSTATION_HOME": tmp_path, "WAYSTATION_KEY": bytes(32).hex(), "WAYSTATION_EMBEDDER": "none"}
    given["TEMPORAL_ADDRESS"] = server.service_client.config.target_host
    for name, value in given.items():
        monkeypatch.setenv(name, str(value))
    async with aclosing(await open_store(Settings())) as store:
        own = {"tenant": tenant_hash("local"), "session": "s", "task_id": "task-1"}
        run = RunRef(store_id=await store.get_store_id(), step_id="research-1", role="research", **own)
        await store.open_run(run)
        fence = await store.acquire_fence(run.run_id)
        one = make_passage("0b9f4c3e-8d55-5d0c-9d0b-1f2d6c0a7e11").replace(
            tenant=tenant_hash("local"), text=SAID, run_id=fence.run_id
        )
        await store.commit_compaction(fence, 0, make_summary(), [one], None)


@pytest.fixture
async def workers(kept: None) -> AsyncGenerator[None]:
    assert kept is None  # it comes first
    async with run_configured_workers(Settings()):
        yield


async def kept_by(server: TemporalClient, activity_id: str) -> bool:
    """Whether a server has an activity itself: its list, an index, can show one for a while that is gone."""
    wanted = DescribeActivityExecutionRequest(namespace=server.namespace, activity_id=activity_id)
    try:
        await server.workflow_service.describe_activity_execution(wanted)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise
    return True


@pytest.mark.usefixtures("workers")
async def test_a_search_finds_what_the_workers_have_and_leaves_nothing_on_the_server(
    server: TemporalClient, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = await run_cli(capsys, "memory", "search", "what does the bar carry?", "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    assert (found["text"], found["kind"]) == (SAID, "conversation")
    code, out, _ = await run_cli(capsys, "memory", "search", "bar", "--since", "2999-01-01", "--json")
    assert (code, json.loads(out)) == (0, [])

    async def none_kept() -> bool:
        listed = await server.workflow_service.list_activity_executions(
            ListActivityExecutionsRequest(namespace=server.namespace)
        )
        return not [one for one in listed.executions if await kept_by(server, one.activity_id)]

    await wait_until(none_kept)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(("tenant", "times"), [("local", 1), ("other", 0)])
async def test_programs_and_pages_find_the_same_and_other_tenants_nothing(tenant: str, times: int) -> None:
    async with open_site_client(Settings(), tenant) as asking:
        asked = {"query": "what does the bar carry?"}
        found = (await asking.get("/v1/memory", params=asked, headers=BEARER)).json()
        page = (await asking.get("/memory", params=asked, headers=BEARER)).text
    assert [one["text"] for one in found] == [SAID] * times
    assert page.count("<mark>bar</mark>") == times
    assert page.count("Nothing in memory matches.") == 1 - times


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize(
    ("narrowed", "status", "times"),
    [
        ({"kind": "conversation", "since": "2020-01-01T00:00:00Z"}, 200, 1),
        ({"kind": "document"}, 200, 0),
        ({"agent": "writing"}, 200, 0),
        ({"until": "2020-01-01T00:00:00Z"}, 200, 0),
        ({"since": "2020-01-01T00:00:00"}, 200, 1),
        ({"kind": "gossip"}, 422, 0),
        ({"task": "task-0123456789abcdef"}, 404, 0),
        ({"elsewhere": "S"}, 422, 0),
    ],
)
async def test_a_program_narrows_what_it_looks_for(narrowed: dict[str, str], status: int, times: int) -> None:
    async with open_site_client(Settings()) as asking:
        asked = {"query": "what does the bar carry?", **narrowed}
        answer = await asking.get("/v1/memory", params=asked, headers=BEARER)
    assert answer.status_code == status
    assert answer.text.count(SAID) == times


@pytest.mark.usefixtures("workers")
async def test_the_status_counts_the_points_that_the_workers_have(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = await run_cli(capsys, "memory", "status", "--json")
    assert code == 0
    assert (json.loads(out)["points"], json.loads(out)["finding"]) == (1, "")


async def test_another_process_that_is_no_worker_is_named_as_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings()
    async with open_embedder(settings) as embedder, open_memory(settings, embedder):
        code, _, err = await run_cli(capsys, "memory", "search", "bar")
        assert code == 3
        assert "another process has the memory open, and no worker answers" in err
