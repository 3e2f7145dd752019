"""What people see of a request for money while a task really waits: what it is for, the draft, and who answered."""

from pathlib import Path

import pytest
from temporalio.client import Client as TemporalClient

from tests.crew import ASKED, CALL_TOKENS, SAID, SHARE, Call, Crew, Gate, tight
from tests.running import TENANT, at_work, dev_server, until_both_ask
from tests.workflows_live.history import details
from waystation.agents.agent_run import BudgetForecast
from waystation.agents.deliverables import WorkCounts
from waystation.budgets.budget import Mode
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
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=tight())
        progress = await until_both_ask(counter.task())
        assert {approval.agent: approval.outlook for approval in progress.approvals} == dict.fromkeys(
            ("harbours", "tides"),
            BudgetForecast(
                calls=5,
                each=Amount(tokens=CALL_TOKENS),
                worth=11,
                finishing=Amount(tokens=ASKED),
                finished=0,
                to_come=2,
                kept=Amount(tokens=2 * SHARE),
                made=WorkCounts(notes=4),
                needed_by=("weigh",),
            ),
        )
        shown = await details(counter.task())
    assert f"- 5 calls so far, about 450 tokens each: {ASKED:,} tokens more are worth about 11\n" in shown
    assert "- if denied, tides ends with 4 notes, weigh goes on with that, and the task ends partial\n" in shown
    assert SAID not in shown


async def test_the_draft_is_what_ending_the_task_delivers_and_is_stored_nowhere(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, outside: Settings
) -> None:
    gate = Gate(Call("plan", 1))
    async with (
        at_work(server, tmp_path, redactor, Crew(before=gate)) as counter,
        await Client.connect(outside) as client,
    ):
        await counter.submit(under=tight())
        await gate.reached.wait()
        with pytest.raises(BadInput, match=r"has no draft yet \(it is planning\): no agent has noted"):
            await client.draft(counter.task().id)
        gate.opened.set()
        await until_both_ask(counter.task())
        draft = await client.draft(counter.task().id)
        assert (await client.progress(counter.task().id)).progress.report is None
        await counter.task().signal(DENY_BUDGET, {"request_id": "tides-1", "finish": "cancel"})
        ended = await counter.task().result()
        report = await client.report(counter.task().id)
        with pytest.raises(BadInput, match=r"is cancelled and has its report: `waystation report task-"):
            await client.draft(counter.task().id)
    assert draft.phase is TaskPhase.PAUSED
    assert "> **Draft.** The task is paused, with 0 of 4 steps finished. If it ended now, it would deliver this." in (
        draft.markdown
    )
    assert f"harbours asked for {ASKED:,} tokens after 5 calls; not answered yet" in draft.markdown
    assert SAID in draft.markdown
    assert body(draft.markdown) == body(report)
    assert ended.phase is TaskPhase.CANCELLED


def body(report: str) -> str:
    """From the first section to the account of how it came about."""
    return report.split("\n## ", maxsplit=1)[1].split("## How this report came about", maxsplit=1)[0]


async def test_a_draft_can_be_read_while_no_worker_runs(
    server: TemporalClient, tmp_path: Path, redactor: Redactor, outside: Settings
) -> None:
    async with at_work(server, tmp_path, redactor, Crew()) as counter:
        await counter.submit(under=tight())
        await until_both_ask(counter.task())
        task_id = counter.task().id
    async with await Client.connect(outside) as client:
        draft = await client.draft(task_id)
        (first, second) = await client.approvals()
    assert "> **Draft.** The task is not over." in draft.markdown
    assert SAID in draft.markdown
    assert f"- Budget: {CALL_TOKENS * 11:,} of 10,000 tokens" in draft.markdown
    assert {first.approval.agent, second.approval.agent} == {"harbours", "tides"}


async def test_it_is_told_where_answers_were_sent_from_also_to_earlier_runs_of_the_workflow(
    tmp_path: Path, redactor: Redactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dev_server("limit.historyCount.suggestContinueAsNew=30") as server:
        address = server.service_client.config.target_host
        monkeypatch.setenv("TEMPORAL_ADDRESS", address)
        monkeypatch.setenv("DATABASE_URL", f"sqlite+aiosqlite:///{tmp_path / 'waystation.db'}")
        async with (
            at_work(server, tmp_path, redactor, Crew()) as counter,
            await Client.connect(Settings(home=tmp_path, tenant=TENANT)) as client,
        ):
            await counter.submit(under=tight())
            await until_both_ask(counter.task())
            task = counter.task()
            somebody = await TemporalClient.connect(address, identity="7@elsewhere")
            await somebody.get_workflow_handle(task.id).signal(APPROVE_BUDGET, {"request_id": "tides-1", "by": "Eve"})
            await client.approve(task.id, request_id="harbours-1", by="Ada")
            await task.result()
            view = await client.with_origins(await client.progress(task.id))
            runs = [run.run_id async for run in server.list_workflows(f'WorkflowId = "{task.id}"')]
    assert len(runs) > 1
    assert {request_id: origin.text for request_id, origin in view.origins.items()} == {
        "harbours-1": f"sent from {get_client_identity()}",
        "tides-1": "sent from 7@elsewhere",
    }


@pytest.mark.parametrize("mode", list(Mode))
async def test_in_every_mode_it_is_noted_once_that_an_agent_has_nearly_spent_its_budget(
    mode: Mode, tmp_path: Path, redactor: Redactor
) -> None:
    async with (
        dev_server("limit.historyCount.suggestContinueAsNew=30") as server,
        at_work(server, tmp_path, redactor, Crew()) as counter,
    ):
        await counter.submit(under=tight(mode))
        if mode is Mode.APPROVAL:
            await until_both_ask(counter.task())
            for request_id in ("harbours-1", "tides-1"):
                await counter.task().signal(APPROVE_BUDGET, {"request_id": request_id})
        progress = await counter.task().result()
    noted = [note for note in progress.notes if note.startswith(("harbours has spent", "tides has spent"))]
    spent = f"has spent 94 % of its budget: {5 * CALL_TOKENS:,} of {SHARE:,} tokens."
    assert sorted(noted) == [f"harbours {spent}", f"tides {spent}"]
