"""A task that an assistant follows by the protocol's extension, over both transports, with servers killed meanwhile."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.end_to_end.shell import Shell
from tests.end_to_end.survey_documents import QUESTION, write_survey_documents
from tests.end_to_end.test_assistants import FormGrantingUser, assert_citations_resolve, open_stdio_client
from tests.end_to_end.test_documented_commands import offline_platform
from tests.end_to_end.test_serve import start_server_process as serving
from tests.support.free_ports import find_free_port
from tests.support.mcp_tasks_client import TasksClientExtension, call_task_method, submit_research_task

LOOKS_EVERY = 0.2
GRANTED = {"action": "accept", "content": {"amount": "200k", "note": "go on", "decision": "approve"}}


@asynccontextmanager
async def over_http(shell: Shell, person: FormGrantingUser) -> AsyncGenerator[Client]:
    """A client of `/mcp`, of a server that is killed when the client goes."""
    port = find_free_port()
    with serving(shell.home, port, {"WAYSTATION_OFFLINE": "true"}) as (server, token):
        try:
            sends = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60)
            there = streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=sends)
            async with sends, Client(there, elicitation_callback=person, extensions=[TasksClientExtension()]) as client:
                yield client
        finally:
            server.kill()


async def seen_as(client: Client, task: str, *statuses: str) -> dict[str, Any]:
    """The task as soon as it is one of these; it is at work until then."""
    while True:
        seen = await call_task_method(client, "tasks/get", task)
        if seen["status"] in statuses:
            return seen
        assert seen["status"] == "working", seen
        await asyncio.sleep(LOOKS_EVERY)


async def answered_over_http(shell: Shell, task: str) -> dict[str, Any]:
    """What the task came to, and every request that it had."""
    keys: set[str] = set()
    async with over_http(shell, FormGrantingUser()) as client:
        while (seen := await seen_as(client, task, "input_required", "completed"))["status"] == "input_required":
            # Whoever has just been answered may still be shown; another answer is passed over.
            keys |= seen["inputRequests"].keys()
            await call_task_method(
                client, "tasks/update", task, inputResponses=dict.fromkeys(seen["inputRequests"], GRANTED)
            )
        await assert_citations_resolve(client, task, seen["result"]["structuredContent"])
    assert keys
    return seen


@pytest.mark.timeout(900)
def test_an_assistant_follows_a_task_through_killed_servers_to_a_report_whose_citations_hold(tmp_path: Path) -> None:
    survey = write_survey_documents(tmp_path / "survey")
    wanted = {"question": QUESTION, "documents": [{"path": "."}], "budget": "20k", "request_id": "survey"}

    async def session() -> None:
        async with open_stdio_client(shell, survey, FormGrantingUser(), "auto", TasksClientExtension()) as (
            client,
            number,
        ):
            handle = await submit_research_task(client, **wanted)
            assert (handle.status, handle.ttl_ms) == ("working", None)
            os.kill(number, signal.SIGKILL)
        task = handle.task_id
        async with open_stdio_client(shell, survey, FormGrantingUser(), "auto", TasksClientExtension()) as (client, _):
            assert (await submit_research_task(client, **wanted)).task_id == task
            waits = await seen_as(client, task, "input_required")
            assert all(f"in {task}" in one["params"]["message"] for one in waits["inputRequests"].values())
        ended = await answered_over_http(shell, task)
        async with open_stdio_client(shell, survey, FormGrantingUser(), "auto", TasksClientExtension()) as (client, _):
            again = await call_task_method(client, "tasks/get", task)
        # Only a server with pages knows where they are.
        pages = [one["result"]["structuredContent"].pop("page") for one in (again, ended)]
        assert (again, pages[1].endswith(f"/tasks/{task}")) == (ended, True)
        assert (ended["ttlMs"], ended["result"]["structuredContent"]["phase"]) == (None, "done")
        assert ended["createdAt"] == handle.created_at < ended["lastUpdatedAt"]

    with offline_platform(tmp_path / "home") as shell:
        asyncio.run(session())
