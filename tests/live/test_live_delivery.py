"""One order ends a task with what it has, whatever waits and whoever works."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.attacks.test_attacks_form_errors import Returned
from tests.attacks.test_attacks_web_pages import ACCESS, BEARER, COOKIES, HERE, open_site_client
from tests.live.test_live_assistants import call_tool, open_assistant_session
from tests.support.task_model import (
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_tight_budget_config,
    parse_step_id,
)
from tests.support.temporal_platform import run_platform, wait_for_both_requests
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.models.ports import ModelRequest, ModelResponse
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import DeliverInput
from waystation.tasks.signals import DELIVER_TEXT, DELIVERY
from waystation.tasks.task import TaskPhase


async def test_an_order_to_deliver_denies_all_requests_and_ends_the_task_in_a_partial_report(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await wait_for_both_requests(task)
        async with await Client.connect(remote_settings) as client:
            result = await client.send(task.id, DELIVERY, DeliverInput(note="The board meets.").sign("Ada"))
            late = await client.send(task.id, DELIVERY, DeliverInput())
        ended = await task.result()
        async with await Client.connect(remote_settings) as client:
            report = await client.get_report(task.id)
    assert (result.outcome, late.outcome) == ("done", "refused")
    assert {name: one.outcome for name, one in result.each.items()} == {
        "harbours-1": "denied",
        "tides-1": "denied",
    }
    assert ended.phase is TaskPhase.PARTIAL
    assert {one.request_id: (one.decision, one.by) for one in ended.approvals} == {
        "harbours-1": ("denied", "Ada"),
        "tides-1": ("denied", "Ada"),
    }
    assert "A person asked for the report before the work was done." in ended.notes
    assert "A person asked for the report before the work was done." in report


async def order_by_api(settings: Settings, task: str) -> tuple[str, str]:
    """Order the delivery twice over HTTP. Returns both results."""
    async with open_site_client(settings) as asking:
        first, again = [
            await asking.post(f"/v1/tasks/{task}/deliver", headers=BEARER, json={"by": "Ada", "note": "Now."})
            for _ in range(2)
        ]
    return f"{first.status_code} {first.json()['outcome']}", f"{again.status_code} {again.json()['detail']}"


async def order_by_page(settings: Settings, task: str) -> tuple[str, str]:
    """Order the delivery twice by the form of the task's page. Returns both results."""
    async with open_site_client(settings) as asking:
        page = await asking.get(f"/tasks/{task}", headers=COOKIES)
        assert f'action="/tasks/{task}/deliver"' in page.text
        form = {"mark": ACCESS.csrf_token, "by": "Ada", "note": "Now."}
        ours = {**COOKIES, "Origin": HERE}
        long = await asking.post(f"/tasks/{task}/deliver", headers=ours, data={**form, "note": "n" * 2_001})
        back = Returned("deliver", long.text)
        assert (long.status_code, back.fields["by"], "at most 2000" in back.fault("note")) == (400, "Ada", True)
        first, again = [await asking.post(f"/tasks/{task}/deliver", headers=ours, data=form) for _ in range(2)]
    return f"{first.status_code} {first.headers['location']}", f"{again.status_code} {again.text}"


async def order_by_assistant(settings: Settings, task: str) -> tuple[str, str]:
    """Order the delivery twice by the tool of the MCP server. Returns both results."""
    async with open_assistant_session(settings) as there, there.asking(there.assistant(), None) as asking:
        (done, first), (repeated, again) = [
            await call_tool(asking, "deliver", task=task, note="Now.") for _ in range(2)
        ]
    return f"{done} {first}", f"{repeated} {again}"


@pytest.mark.parametrize(
    ("order", "expected", "author"),
    [
        (order_by_api, "200 done", "Ada"),
        (order_by_page, "303 /tasks/", "Ada"),
        (order_by_assistant, "True ", "assistant (MCP)"),
    ],
)
async def test_the_api_the_page_and_the_tool_order_a_delivery_once(
    order: Callable[[Settings, str], Awaitable[tuple[str, str]]],
    expected: str,
    author: str,
    server: TemporalClient,
    tmp_path: Path,
    redactor: Redactor,
    remote_settings: Settings,
) -> None:
    gate = CallGate(ModelCall("tides", 3))
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        first, again = await order(remote_settings, task.id)
        gate.opened.set()
        ended = await task.result()
    assert first.startswith(expected)
    assert "already asked to deliver" in again
    assert ended.phase is TaskPhase.PARTIAL
    assert [(one.by, one.text is not None) for one in ended.task_messages] == [(author, True)]


@dataclass
class ReceivingModel(ScriptedTaskModel):
    """Remembers which agents have received the order."""

    received: set[str] = field(default_factory=set[str])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Reply as scripted."""
        if any(message.text.startswith(DELIVER_TEXT) for message in request.messages):
            self.received.add(parse_step_id(request))
        return await super().complete(request)


async def test_agents_at_work_receive_the_order_and_a_budget_that_is_spent_later_is_not_asked_for(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    gate = CallGate(ModelCall("tides", 3))
    model = ReceivingModel(before=gate)
    async with run_platform(server, tmp_path, redactor, model) as counter:
        await counter.submit(under=make_tight_budget_config())
        task = counter.get_task_handle()
        await gate.reached.wait()
        async with await Client.connect(remote_settings) as client:
            result = await client.send(task.id, DELIVERY, DeliverInput())
        gate.opened.set()
        ended = await task.result()
    assert result.outcome == "done"
    assert "tides" in model.received
    assert ended.phase is TaskPhase.PARTIAL
    assert [one.decision for one in ended.approvals if one.decision == "pending"] == []
    assert [one.request_id for one in ended.approvals if one.agent == "tides"] == []
