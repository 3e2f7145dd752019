"""An assistant's task by the protocol's extension: begun, answered by the rules of `approve` and `deny`, cancelled."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import Client as AssistantClient
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS
from temporalio.client import Client as TemporalClient

from tests.live.test_live_assistants import (
    NOTE,
    PLENTY,
    AssistantSession,
    ScriptedFormUser,
    call_tool,
    open_assistant_session,
    start_paused_task,
)
from tests.support.mcp_tasks_client import TasksClientExtension, call_task_method, submit_research_task
from tests.support.task_model import CallGate, ModelCall, ScriptedTaskModel, make_tight_budget_config
from tests.support.temporal_platform import run_platform, wait_until
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount, Limit
from waystation.plugins.web.assistant_gateway import AnswerForm, AssistantGateway
from waystation.plugins.web.mcp import AssistantServer
from waystation.privacy.ports import Redactor
from waystation.tasks.signals import AnswerResult
from waystation.tasks.view import PendingApproval
from waystation.workers.memory import MemoryReader

QUESTION: dict[str, Any] = {
    "question": "How is the bar crossed?",
    "documents": [{"name": "pilot.md", "text": "Keep the white beacon to starboard.\n"}],
    "budget": "300k",
}


class Late(AssistantGateway):
    """Whose answer comes when another one has just been given."""

    async def answer_request(self, one: PendingApproval, form: AnswerForm) -> AnswerResult:
        """See base class."""
        await self.client.approve(
            one.task_id, request_id=one.approval.request_id, amount=Amount(tokens=60_000), by="ada"
        )
        return await super().answer_request(one, form)


@asynccontextmanager
async def following(assistant: AssistantGateway, *, forms: bool = True) -> AsyncGenerator[AssistantClient]:
    """A client that follows tasks, and shows forms by itself: nobody calls back for one of a task."""
    person = ScriptedFormUser("decline") if forms else None
    async with AssistantClient(
        AssistantServer(assistant), extensions=[TasksClientExtension()], elicitation_callback=person
    ) as client:
        yield client
    assert person is None or not person.read


def form(decision: str, amount: str = "") -> dict[str, Any]:
    return {"action": "accept", "content": {"amount": amount, "note": NOTE, "decision": decision}}


async def update(client: AssistantClient, task: str, **answers: Any) -> None:
    assert await call_task_method(client, "tasks/update", task, inputResponses=answers) == {"resultType": "complete"}


async def refused(client: AssistantClient, task: str, **answers: Any) -> str:
    with pytest.raises(MCPError) as why:
        await update(client, task, **answers)
    assert why.value.code == INVALID_PARAMS
    return why.value.message


async def over(client: AssistantClient, task: str) -> dict[str, Any]:
    """The task when it has ended, whatever it asked for on its way."""
    seen: dict[str, Any] = {}

    async def ended() -> bool:
        seen.update(await call_task_method(client, "tasks/get", task))
        return seen["status"] in {"completed", "cancelled", "failed"}

    await wait_until(ended)
    return seen


async def test_what_a_task_waits_for_is_answered_by_an_update_once_whoever_was_first(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, (first, second) = await start_paused_task(counter, there.client)
        async with following(there.assistant()) as client:
            waits = await call_task_method(client, "tasks/get", task)
            assert (waits["status"], waits["inputRequests"].keys()) == ("input_required", {first, second})
            shown = waits["inputRequests"][first]
            assert shown["method"] == "elicitation/create"
            assert f"in {task}" in shown["params"]["message"]
            assert shown["params"]["requestedSchema"]["properties"].keys() == {"amount", "note", "decision"}
            assert shown["params"]["requestedSchema"]["required"] == ["decision"]

            await update(client, task, **{first: {"action": "decline"}, "harbours-99": form("approve"), "x": 5})
            assert (await call_task_method(client, "tasks/get", task))["inputRequests"].keys() == {first, second}
        late = Late(there.client, remote_settings, there.assistant().policy, MemoryReader(remote_settings))
        async with following(late) as client:
            await update(client, task, **{first: form("approve", "1k")})
        async with following(there.assistant()) as client:
            await update(client, task, **{first: form("approve", "1k"), second: form("approve", "60k")})
            await update(client, task, **{first: form("deny"), second: form("deny")})
            ended = await over(client, task)
        assert ended["status"] == "completed", ended["statusMessage"]
        result = ended["result"]
        assert (result["isError"], result["structuredContent"]["phase"]) == (False, "done")
        assert [source["fault"] for source in result["structuredContent"]["sources"]] == [""]
        assert result["structuredContent"]["markdown"] in result["content"][0]["text"]
        answered = {one.request_id: one for one in (await there.client.get_task(task)).approvals}
        assert (answered[first].by, answered[first].granted.tokens) == ("ada", 60_000)
        # With so much money for the one, the other may have gone on before it was answered.
        other = answered[second]
        assert (other.decision, other.by, other.granted.tokens, other.note) == (
            "approved",
            "assistant (MCP)",
            60_000,
            NOTE,
        ) or other.decision == "withdrawn"


async def test_an_update_grants_no_more_than_the_tool_and_denies_as_it_does(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
        open_assistant_session(remote_settings) as there,
    ):
        task, (first, second) = await start_paused_task(counter, there.client)
        limit = Limit(tokens=(make_tight_budget_config().budget.tokens or 0) + 50_000)
        for assistant, forms, words in (
            (there.assistant("nobody"), True, "does not allow assistants to approve requests"),
            (there.assistant("person"), False, "this client cannot show a form to its user"),
        ):
            async with following(assistant, forms=forms) as client:
                waits = await call_task_method(client, "tasks/get", task)
                assert (waits["status"], "inputRequests" in waits) == ("working", False)
                assert f"`waystation approve {task} --request {first}`" in waits["statusMessage"]
                assert words in await refused(client, task, **{first: form("approve")})
        async with following(there.assistant("client", limit)) as client:
            assert "assistant cannot spend" in await refused(client, task, **{first: form("approve", "50001")})
            assert f"{first}: decision: it is missing" in await refused(
                client, task, **{first: {"action": "accept"}, second: {"action": "perhaps"}}
            )
            assert (await call_task_method(client, "tasks/get", task))["inputRequests"].keys() == {first, second}
            assert "cannot spend" in await refused(
                client, task, **{first: form("approve", "900M"), second: form("deny")}
            )
            assert (await call_task_method(client, "tasks/get", task))["inputRequests"].keys() == {first}
        async with following(there.assistant("client", limit), forms=False) as client:
            await update(client, task, **{first: form("approve", "50k")})
            ended = await over(client, task)
        assert (ended["status"], ended["result"]["structuredContent"]["phase"]) == ("completed", "partial")


async def begin_and_cancel(there: AssistantSession, gate: CallGate) -> None:
    assistant = there.assistant(budget=PLENTY)
    async with following(assistant) as client:
        handle = await submit_research_task(client, **QUESTION, request_id="one")
        assert (handle.status, f"{handle.task_id} is " in handle.status_message) == ("working", True)
        assert (await submit_research_task(client, **QUESTION, request_id="one")).task_id == handle.task_id
        await gate.reached.wait()
        assert (await call_task_method(client, "tasks/get", handle.task_id))["status"] == "working"
        async with there.asking(assistant, None) as without:
            usual = await without.call_tool("submit_research", {**QUESTION, "request_id": "one"})
            assert usual.structured_content is not None
            assert usual.structured_content.keys() == {
                *("task_id", "page", "budget", "documents", "warnings"),
            }
            assert usual.structured_content["task_id"] == handle.task_id
        assert await call_task_method(client, "tasks/cancel", handle.task_id) == {"resultType": "complete"}
        ended = await over(client, handle.task_id)
        assert (ended["status"], ended["createdAt"]) == ("cancelled", handle.created_at)
        await call_task_method(client, "tasks/cancel", handle.task_id)
        done, words = await call_tool(client, "task_status", task=handle.task_id)
        assert (done, f"{handle.task_id} is cancelled" in words) == (True, True)
        refusal = await client.call_tool("submit_research", {**QUESTION, "budget": "900M"})
        assert refusal.is_error


async def test_a_submission_is_a_handle_for_whom_follows_it_and_is_cancelled_by_that(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    gate = CallGate(ModelCall("harbours", 2))
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(gate)),
        open_assistant_session(remote_settings) as there,
    ):
        try:
            await begin_and_cancel(there, gate)
        finally:
            gate.opened.set()
