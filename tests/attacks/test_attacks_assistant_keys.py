"""A key for assistants opens their address and nothing else, over restarts and from elsewhere, until it is revoked."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import httpx2
import pytest
from mcp import Client as AssistantClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from tests.attacks.test_attacks_assistants import OWN, store_task
from tests.attacks.test_attacks_web_pages import NO_SERVER, SITE
from waystation.cli.main import run
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.client_permissions import CLIENT_PERMISSIONS
from waystation.kernel.clock import utc_now
from waystation.plugins.web import app
from waystation.plugins.web.access import AccessPolicy
from waystation.plugins.web.app import ServerDeps, create_access_policy, create_app
from waystation.plugins.web.assistant_gateway import AssistantGateway
from waystation.plugins.web.mcp import AssistantServer
from waystation.plugins.web.principals import ApiKeyStore, AssistantPolicy, Authenticator
from waystation.runtime.temporal.run_file import ProcessIdentity, RunFile, write_run_file
from waystation.tasks.view import PendingApproval
from waystation.workers.memory import MemoryReader

NAME = "waystation.example.org"
NOON = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


@pytest.fixture
def settings(without_server: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TEMPORAL_ADDRESS", NO_SERVER)
    return without_server.replace(offline=True)


@pytest.fixture
def keys(settings: Settings) -> ApiKeyStore:
    settings.home.mkdir(exist_ok=True)
    return ApiKeyStore(settings.home / "api-keys.json")


@asynccontextmanager
async def served(
    settings: Settings, keys: ApiKeyStore, access: AccessPolicy, key: str
) -> AsyncGenerator[httpx2.AsyncClient]:
    """One run of the server, and a client that sends this key."""
    address = f"https://{NAME}" if access.names else f"http://127.0.0.1:{access.port}"
    async with await Client.connect(settings) as client:
        server = AssistantServer(
            AssistantGateway(client, settings, AssistantPolicy.from_settings(settings), MemoryReader(settings))
        )
        site = SITE._replace(assistants=server)
        served_app = create_app(site, client, settings.tenant, ServerDeps(access, Authenticator(keys)))
        transport, sent = httpx2.ASGITransport(app=served_app), {"Authorization": f"Bearer {key}"}
        async with (
            server.session_manager.run(),
            httpx2.AsyncClient(transport=transport, base_url=address, headers=sent) as asking,
        ):
            yield asking


@pytest.mark.parametrize("names", [(), (NAME,)])
async def test_an_assistant_keeps_its_key_over_restarts(
    names: tuple[str, ...], settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_task(settings, OWN, spent=1)
    _, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    for _ in range(2):
        async with served(settings, keys, create_access_policy(8520, names), key) as sending:
            transport = streamable_http_client(str(sending.base_url.join("/mcp")), http_client=sending)
            async with AssistantClient(transport) as asking:
                report = await asking.call_tool("get_report", {"task": task})
        assert not report.is_error, report.content


@pytest.mark.parametrize("names", [(), (NAME,)])
async def test_a_key_for_assistants_opens_nothing_else(
    names: tuple[str, ...], settings: Settings, keys: ApiKeyStore
) -> None:
    task = await store_task(settings, OWN, spent=1)
    _, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    async with served(settings, keys, create_access_policy(8520, names), key) as asking:
        read = [
            await asking.get(path) for path in ("/", "/v1/tasks", f"/v1/tasks/{task}/report", "/v1/events", "/mcp/x")
        ]
        done = [
            await asking.post(path, json={"request_id": "q"})
            for path in (
                f"/v1/tasks/{task}/approve",
                "/v1/list_tasks",
                *(f"/v1/client/{role}/list_tasks" for role in CLIENT_PERMISSIONS),
            )
        ]
        origin = {"Origin": str(asking.base_url).rstrip("/")}
        signed_in = [
            await asking.post("/sign-in", headers=origin, data={"key": key}),
            await asking.get("/", params={"token": key}),
        ]
    assert {answer.status_code for answer in (*read, *done)} == {403}
    assert all("can only be used at /mcp" in answer.json()["detail"] for answer in (*read, *done)), (
        "no role is to blame"
    )
    assert {answer.status_code for answer in signed_in} <= {401, 403}
    assert not any("set-cookie" in answer.headers for answer in signed_in)


async def test_at_the_address_of_assistants_a_key_is_one_of_theirs_of_this_tenant_and_not_revoked(
    settings: Settings, keys: ApiKeyStore
) -> None:
    made, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    others = [
        keys.create_key("Ada", settings.tenant, "approve", NOON)[1],
        keys.create_key("Eve", "other", "assistant", NOON)[1],
    ]
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with served(settings, keys, create_access_policy(8520), key) as asking:
        refused = [await asking.post("/mcp", json=hello, headers={"Authorization": f"Bearer {one}"}) for one in others]
        before = await asking.post("/mcp", json=hello)
        ApiKeyStore(keys.path).revoke(made.id, NOON)
        after = await asking.post("/mcp", json=hello)
    assert [answer.status_code for answer in (*refused, after)] == [403, 403, 401]
    assert all("waystation keys make NAME --role assistant" in answer.text for answer in refused)
    assert before.status_code not in {401, 403}


@pytest.mark.parametrize("path", ["/mcp/", "/mcp//"])
async def test_a_slash_at_the_end_of_the_address_of_assistants_changes_no_answer(
    path: str, settings: Settings, keys: ApiKeyStore
) -> None:
    access = create_access_policy(8520)
    _, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    hello = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepts = {"Accept": "application/json, text/event-stream"}
    async with served(settings, keys, access, key) as asking:
        for opens in (key, access.assistants_token, access.token, "none"):
            sent = {**accepts, "Authorization": f"Bearer {opens}"}
            with_slash, without = [await asking.post(one, json=hello, headers=sent) for one in (path, "/mcp")]
            assert (with_slash.status_code, with_slash.text) == (without.status_code, without.text)
            assert (with_slash.status_code == 401) == (opens == "none")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_call_that_takes_long_ends_when_its_key_is_revoked(
    mode: str, settings: Settings, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = asyncio.Event()

    async def requests(_: AssistantGateway) -> tuple[PendingApproval, ...]:
        began.set()
        await asyncio.Event().wait()
        return ()

    monkeypatch.setattr("waystation.plugins.web.mcp.ALIVE_SECONDS", 0.05)
    monkeypatch.setattr(AssistantGateway, "list_requests", requests)
    made, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    async with served(settings, keys, create_access_policy(8520), key) as sending:
        transport = streamable_http_client(str(sending.base_url.join("/mcp")), http_client=sending)
        async with AssistantClient(transport, mode=mode) as asking:
            calling = asyncio.create_task(asking.call_tool("list_approvals", {}))
            await began.wait()
            ApiKeyStore(keys.path).revoke(made.id, NOON)
            async with asyncio.timeout(30):
                with pytest.raises(MCPError, match="the key was revoked"):
                    await calling


async def test_the_page_of_a_task_is_that_of_the_pages_here_without_their_token(
    settings: Settings, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    _, key = keys.create_key("Ada", settings.tenant, "approve", NOON)
    task = await store_task(settings, OWN, spent=1)
    own = ProcessIdentity.from_pid(os.getpid())
    beside = RunFile(
        address="127.0.0.1:1",
        namespace="default",
        ui_url="http://127.0.0.1:2",
        server=own,
        workers=own,
        started=utc_now(),
        pages=f"http://127.0.0.1:8520/?token={key}",
    )
    async with await Client.connect(settings) as client:
        write_run_file(settings.run_file, beside)
        assistant = AssistantGateway(client, settings, AssistantPolicy.from_settings(settings), MemoryReader(settings))
        finished = await assistant.build_finished_task(await client.get_last_known_task(task))
    assert finished.page == f"http://127.0.0.1:8520/tasks/{task}"


def test_the_command_makes_one_and_says_what_it_opens(
    without_server: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["keys", "make", "desk", "--role", "assistant"]) == 0
    made = capsys.readouterr()
    assert made.out.startswith("wsk_")
    assert f"desk may use MCP in tenant {without_server.tenant}" in made.err


async def test_sessions_of_assistants_are_bounded_and_those_that_ask_nothing_end(
    settings: Settings, keys: ApiKeyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "ASSISTANTS_AT_ONCE", 3)
    monkeypatch.setattr(app, "ASSISTANT_IDLE_SECONDS", 0.5)
    _, key = keys.create_key("desk", settings.tenant, "assistant", NOON)
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    }
    accepts = {"Accept": "application/json, text/event-stream"}
    async with served(settings, keys, create_access_policy(8520), key) as asking:
        answers = [await asking.post("/mcp", json=hello, headers=accepts) for _ in range(4)]
        async with asyncio.timeout(60):
            while (again := await asking.post("/mcp", json=hello, headers=accepts)).status_code == 503:
                await asyncio.sleep(0.1)
    assert answers[0].status_code == 200
    assert 503 in {answer.status_code for answer in answers}
    assert again.status_code == 200
