"""What people see of a request for money while a task really waits: what it is for, the draft, and who answered."""

from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.support.task_model import (
    CALL_TOKENS,
    QUOTED_SENTENCE,
    REQUESTED_TOKENS,
    STEP_SHARE_TOKENS,
    CallGate,
    ModelCall,
    ScriptedTaskModel,
    make_tight_budget_config,
)
from tests.support.temporal_platform import TENANT, run_platform, start_dev_server, wait_for_both_requests
from tests.support.workflow_history import fetch_current_details
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import BudgetMode
from waystation.client import Client
from waystation.config.settings import Settings
from waystation.kernel.amount import Amount
from waystation.kernel.errors import BadInput
from waystation.privacy.ports import Redactor
from waystation.runtime.temporal.connect import get_client_identity
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.task import TaskPhase


async def test_a_request_estimates_what_the_money_buys_and_counts_what_there_is(
    server: TemporalClient, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        progress = await wait_for_both_requests(counter.get_task_handle())
        assert {approval.agent: approval.forecast for approval in progress.approvals} == dict.fromkeys(
            ("harbours", "tides"),
            BudgetForecast(
                turns=5,
                average_turn_cost=Amount(tokens=CALL_TOKENS),
                turns_covered=11,
                cost_to_finish=Amount(tokens=REQUESTED_TOKENS),
                finished_steps=0,
                pending_steps=2,
                reserved_for_pending=Amount(tokens=2 * STEP_SHARE_TOKENS),
                work_counts=WorkCounts(notes=4),
                dependent_steps=("weigh",),
            ),
        )
        shown = await fetch_current_details(counter.get_task_handle())
    assert f"**tides asks for {REQUESTED_TOKENS:,} tokens.**" in shown
    assert "- forecast: about 11 more calls at an average of 450 tokens, with room for" in shown
    assert "- if denied: tides ends with 4 notes; weigh continues with this result; the report is partial\n" in shown
    assert QUOTED_SENTENCE not in shown


async def test_the_draft_is_what_ending_the_task_delivers_and_is_stored_nowhere(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    gate = CallGate(ModelCall("plan", 1))
    async with (
        run_platform(server, tmp_path, redactor, ScriptedTaskModel(before=gate)) as counter,
        await Client.connect(remote_settings) as client,
    ):
        await counter.submit(under=make_tight_budget_config())
        await gate.reached.wait()
        with pytest.raises(BadInput, match=r"has no draft yet \(it is planning\): no agent has noted"):
            await client.build_draft(counter.get_task_handle().id)
        gate.opened.set()
        await wait_for_both_requests(counter.get_task_handle())
        draft = await client.build_draft(counter.get_task_handle().id)
        assert (await client.get_task(counter.get_task_handle().id)).reports == ()
        await counter.get_task_handle().signal(DENY_BUDGET, {"request_id": "tides-1", "finish": "cancel"})
        ended = await counter.get_task_handle().result()
        report = await client.get_report(counter.get_task_handle().id)
        with pytest.raises(BadInput, match=r"is cancelled and already has its report: run `waystation report task-"):
            await client.build_draft(counter.get_task_handle().id)
    assert draft.phase is TaskPhase.PAUSED
    assert (
        "> **Draft.** The task is paused, with 0 of 4 steps finished. If it ended now, it would deliver this report."
        in (draft.markdown)
    )
    assert f"harbours asked for {REQUESTED_TOKENS:,} tokens after 5 calls; not answered yet" in draft.markdown
    assert QUOTED_SENTENCE in draft.markdown
    assert body(draft.markdown) == body(report)
    assert ended.phase is TaskPhase.CANCELLED


def body(report: str) -> str:
    """From the first section to the account of how it came about."""
    return report.split("\n## ", maxsplit=1)[1].split("## About this report", maxsplit=1)[0]


async def test_a_draft_can_be_read_while_no_worker_runs(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, remote_settings: Settings
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        await wait_for_both_requests(counter.get_task_handle())
        task_id = counter.get_task_handle().id
    async with await Client.connect(remote_settings) as client:
        draft = await client.build_draft(task_id)
        (first, second) = await client.list_approvals()
    assert "> **Draft.** The task is not finished." in draft.markdown
    assert QUOTED_SENTENCE in draft.markdown
    assert f"- Budget: {CALL_TOKENS * 11:,} of 10,000 tokens" in draft.markdown
    assert {first.approval.agent, second.approval.agent} == {"harbours", "tides"}


async def test_it_is_told_where_answers_were_sent_from_also_to_earlier_runs_of_the_workflow(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start_dev_server("limit.historyCount.suggestContinueAsNew=30") as server:
        address = server.service_client.config.target_host
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'waystation.db'}")
        async with (
            run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
            await Client.connect(Settings(home=tmp_path, tenant=TENANT)) as client,
        ):
            await counter.submit(under=make_tight_budget_config())
            await wait_for_both_requests(counter.get_task_handle())
            task = counter.get_task_handle()
            somebody = await TemporalClient.connect(address, identity="7@elsewhere")
            await somebody.get_workflow_handle(task.id).signal(APPROVE_BUDGET, {"request_id": "tides-1", "by": "Eve"})
            await client.approve(task.id, request_id="harbours-1", by="Ada")
            await task.result()
            view = await client.get_task(task.id, details=True)
            runs = [run.run_id async for run in server.list_workflows(f'WorkflowId = "{task.id}"')]
    assert len(runs) > 1
    assert {one.request_id: one.sent_from.text for one in view.approvals if one.sent_from is not None} == {
        "harbours-1": f"sent from {get_client_identity()}",
        "tides-1": "sent from 7@elsewhere",
    }


@pytest.mark.parametrize("mode", list(BudgetMode))
async def test_in_every_mode_it_is_noted_once_that_an_agent_has_nearly_spent_its_budget(
    mode: BudgetMode, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        start_dev_server("limit.historyCount.suggestContinueAsNew=30") as server,
        run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter,
    ):
        await counter.submit(under=make_tight_budget_config(mode))
        if mode is BudgetMode.APPROVAL:
            await wait_for_both_requests(counter.get_task_handle())
            for request_id in ("harbours-1", "tides-1"):
                await counter.get_task_handle().signal(APPROVE_BUDGET, {"request_id": request_id})
        progress = await counter.get_task_handle().result()
    noted = [note for note in progress.notes if note.startswith(("harbours has spent", "tides has spent"))]
    spent = f"has spent 94 % of its budget: {5 * CALL_TOKENS:,} of {STEP_SHARE_TOKENS:,} tokens."
    assert sorted(noted) == [f"harbours {spent}", f"tides {spent}"]
