"""The protocol's extension for tasks: what a client is told of one that is over, and what a client is refused."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest
from jsonschema import validate
from mcp import Client as AssistantClient
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import (
    HEADER_MISMATCH,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
)

from tests.attacks.test_attacks_assistants import (
    OTHER,
    OWN,
    SECRET,
    open_assistant_client,
    open_http_client,
    store_task,
)
from tests.attacks.test_attacks_web_pages import BEARER, HERE
from tests.support.mcp_tasks_client import AnyResult, TaskMethodRequest, TasksClientExtension, call_task_method
from tests.support.view_values import VIEWED_PROGRESS
from tests.wire.test_wire_assistants import store_report_task
from waystation.agents.agent_status import AgentStatus
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.clock import utc_now
from waystation.plugins.web.assistant_gateway import AssistantGateway, FinishedTask
from waystation.plugins.web.mcp import AssistantServer
from waystation.plugins.web.mcp_tasks import EXTENSION, format_progress_line
from waystation.plugins.web.principals import AssistantPolicy
from waystation.runtime.sql_store import SqlStore
from waystation.tasks.task import TaskPhase, build_reader_scope
from waystation.tasks.view import TaskView
from waystation.workers.memory import MemoryReader

METHODS: dict[str, dict[str, Any]] = {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}


@pytest.fixture
def settings(without_server: Settings) -> Settings:
    return without_server.replace(offline=True)


@asynccontextmanager
async def following(settings: Settings) -> AsyncGenerator[AssistantClient]:
    async with await Client.connect(settings) as client:
        server = AssistantServer(
            AssistantGateway(client, settings, AssistantPolicy.from_settings(settings), MemoryReader(settings))
        )
        async with AssistantClient(server, extensions=[TasksClientExtension()]) as asking:
            yield asking


async def ended(settings: Settings, task: str, phase: TaskPhase, *notes: str) -> None:
    """Have the store know it so; only one that failed keeps the report that it had delivered before."""
    store = await SqlStore.open(settings.database_url, utc_now)
    row = await store.get_task(task, build_reader_scope(settings.tenant))
    assert row.progress is not None
    report = row.progress.report if phase == TaskPhase.FAILED else None
    await store.save_task_progress(task, row.progress.replace(phase=phase, report=report, notes=notes))
    await store.aclose()


def without_times(task: dict[str, Any]) -> dict[str, Any]:
    assert datetime.fromisoformat(task["createdAt"]) <= datetime.fromisoformat(task["lastUpdatedAt"])
    return {name: value for name, value in task.items() if not name.endswith("At")}


async def test_what_a_task_came_to_is_what_its_call_would_have_returned(settings: Settings) -> None:
    task = await store_report_task(settings)
    async with following(settings) as asking:
        told = await call_task_method(asking, "tasks/get", task)
        (submitting,) = [one for one in (await asking.list_tools()).tools if one.name == "submit_research"]
        report = (await asking.call_tool("get_report", {"task": task})).structured_content
    result = told.pop("result")
    assert without_times(told) == {
        "resultType": "complete",
        "taskId": task,
        "status": "completed",
        "statusMessage": f"{task} is done\n1 of 600,000 tokens spent\nto read the report, call get_report",
        "ttlMs": None,
        "pollIntervalMs": 5000,
    }
    assert submitting.output_schema is not None
    validate(result["structuredContent"], submitting.output_schema)
    finished = FinishedTask.model_validate(result["structuredContent"])
    assert (finished.documents, finished.budget.tokens, finished.page) == (1, 600_000, None)
    assert report is not None
    assert result["structuredContent"].items() >= report.items()
    assert (result["isError"], result["resultType"]) == (False, "complete")
    (content,) = result["content"]
    assert content["text"] == f"{told['statusMessage']}\n\n{report['markdown']}"


def test_the_progress_line_says_what_each_agent_is_doing() -> None:
    since = utc_now()
    working = (
        AgentStatus(agent="tides", what="model", since=since),
        AgentStatus(agent="weigh", what="tool", tool="read_document", since=since),
    )
    line = format_progress_line(TaskView.from_progress(VIEWED_PROGRESS).replace(activity=working))
    assert line.endswith("; tides is waiting for the model, weigh is calling read_document")


async def test_a_task_that_failed_is_a_result_that_says_so_and_one_that_was_cancelled_has_none(
    settings: Settings,
) -> None:
    task = await store_report_task(settings)
    async with following(settings) as asking:
        await ended(settings, task, TaskPhase.FAILED, "no model answered")
        failed = await call_task_method(asking, "tasks/get", task)
        await ended(settings, task, TaskPhase.DONE)
        without_report = await call_task_method(asking, "tasks/get", task)
        await ended(settings, task, TaskPhase.CANCELLED)
        cancelled = await call_task_method(asking, "tasks/get", task)
        await call_task_method(asking, "tasks/cancel", task)
    for told, said in ((failed, "note: no model answered"), (without_report, "no report")):
        assert (told["status"], told["result"]["isError"]) == ("completed", True)
        assert said in told["result"]["content"][0]["text"]
        assert "structuredContent" not in told["result"]
    assert cancelled["status"] == "cancelled"
    assert not {"result", "error", "inputRequests"} & cancelled.keys()


@pytest.mark.parametrize("method", METHODS)
async def test_of_tasks_of_others_nothing_is_said_that_is_not_said_of_none(method: str, settings: Settings) -> None:
    others = await store_task(settings, OTHER, spent=1)
    words: list[str] = []
    async with following(settings) as asking:
        for task in (others, "task-0000", "x" * 101):
            with pytest.raises(MCPError) as refused:
                await call_task_method(asking, method, task, **METHODS[method])
            assert refused.value.code == INVALID_PARAMS
            words.append(refused.value.message.replace(task, "TASK"))
    assert words[:2] == ["assistant has no task 'TASK': give an id that submit_research returned"] * 2
    assert words[2] == "Invalid request parameters"


@pytest.mark.parametrize("method", METHODS)
async def test_a_client_that_does_not_declare_it_is_refused_each_method(method: str, settings: Settings) -> None:
    task = await store_task(settings, OWN, spent=1)
    async with open_assistant_client(settings) as asking:
        with pytest.raises(MCPError) as refused:
            await call_task_method(asking, method, task, **METHODS[method])
    assert refused.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
    async with open_assistant_client(settings, mode="legacy") as asking:
        with pytest.raises(MCPError) as unknown:
            await call_task_method(asking, method, task, **METHODS[method])
    assert unknown.value.code == METHOD_NOT_FOUND


async def test_where_temporal_is_away_what_has_not_ended_is_an_error_with_the_next_step(settings: Settings) -> None:
    task = await store_task(settings, OWN)
    async with following(settings) as asking:
        for method, more in METHODS.items():
            with pytest.raises(MCPError, match="no Temporal server answers") as away:
                await call_task_method(asking, method, task, **more)
            assert away.value.code == INTERNAL_ERROR


async def test_whoever_wants_to_hear_of_tasks_without_declaring_them_is_refused(settings: Settings) -> None:
    wanted = TaskMethodRequest(
        method="subscriptions/listen", params={"taskId": "", "notifications": {"taskIds": ["task-1"]}}
    )
    async with open_assistant_client(settings) as asking:
        with pytest.raises(MCPError) as refused:
            await asking.session.send_request(wanted, AnyResult, request_read_timeout_seconds=20)
    assert refused.value.code == MISSING_REQUIRED_CLIENT_CAPABILITY


async def test_the_server_has_the_extension_in_versions_whose_requests_declare_it(settings: Settings) -> None:
    found: dict[str, Any] = {}
    for mode in ("auto", "legacy"):
        async with open_assistant_client(settings, mode=mode) as asking:
            assert asking.server_capabilities is not None
            found[mode] = asking.server_capabilities.extensions
    assert found == {"auto": {EXTENSION: {}}, "legacy": None}


class _OfAnother(TaskMethodRequest):
    """Whose header names another task than it asks for."""

    name_param = "sent"


async def test_over_http_the_task_in_the_header_is_the_one_that_is_asked_for(settings: Settings) -> None:
    task = await store_report_task(settings)
    async with open_http_client(settings) as sending:
        sending.headers.update(BEARER)
        there = streamable_http_client(f"{HERE}/mcp", http_client=sending)
        async with AssistantClient(there, extensions=[TasksClientExtension()]) as asking:
            assert (await call_task_method(asking, "tasks/get", task))["ttlMs"] is None
            request = _OfAnother(method="tasks/get", params={"taskId": task, "sent": "task-1"})
            with pytest.raises(MCPError) as refused:
                await asking.session.send_request(request, AnyResult)
    assert refused.value.code == HEADER_MISMATCH


async def test_a_fault_of_ours_says_no_words_of_what_it_was_about(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = await store_report_task(settings)

    async def broken(*_: object) -> None:
        raise KeyError(SECRET)

    async with following(settings) as asking:
        monkeypatch.setattr(Client, "load_report", broken)
        with pytest.raises(MCPError) as fault:
            await call_task_method(asking, "tasks/get", task)
    logged = capsys.readouterr()
    assert fault.value.code == INTERNAL_ERROR
    assert SECRET not in fault.value.message + logged.err + logged.out
