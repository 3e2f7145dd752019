"""A new task takes over finished steps of one that is over, and pays only what it does itself."""

from pathlib import Path

import pytest
from temporalio.client import Client

from tests.support.scopes import SYSTEM_SCOPE
from tests.support.task_model import (
    CALL_TOKENS,
    RESEARCH_TOKENS,
    SCRIPTED_CALLS,
    WORK_TOKENS,
    ModelCall,
    ScriptedTaskModel,
    make_task_config,
    make_tight_budget_config,
)
from tests.support.temporal_platform import (
    TaskSubmitter,
    make_task_request,
    open_activity_deps,
    run_all_workers,
    run_platform,
    start_dev_server,
    wait_for_both_requests,
    wait_until,
)
from waystation.client.submission import ForkRequest, register_fork
from waystation.config.settings import Settings
from waystation.kernel.amount import Limit
from waystation.kernel.errors import BadInput, RequestConflict
from waystation.privacy.ports import Redactor
from waystation.tasks.approvals import APPROVE_BUDGET, DENY_BUDGET
from waystation.tasks.signals import SEND_MESSAGE
from waystation.tasks.task import ReusedWork, TaskPhase, TaskProgress, TaskRow, make_task_id
from waystation.workflows.task import TaskWorkflow

SETTINGS = Settings(offline=True, revisions=0, reviews=0)
CALLS_FROM_WEIGH = [ModelCall("weigh", 1), ModelCall("write", 1), ModelCall("write", 2)]
FROM_WEIGH, FROM_WRITE = (ForkRequest(step=step, request_id="second") for step in ("weigh", "write"))


async def submit_fork(counter: TaskSubmitter, wish: ForkRequest, of: str | None = None) -> TaskRow:
    """As the client does it: store the fork, then hand it to the session."""
    first = await counter.store.get_task(of or make_task_id(make_task_request()), SYSTEM_SCOPE)
    return await register_fork(SETTINGS, counter.store, first, wish)


async def run_fork(counter: TaskSubmitter, row: TaskRow) -> TaskProgress:
    """How the fork ends."""
    await counter.admit(row)
    return await counter.client.get_workflow_handle_for(TaskWorkflow.run, row.ref.task_id).result()


async def test_a_fork_pays_only_for_the_step_that_begins_anew_and_for_what_builds_on_it(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with run_platform(server, tmp_path, redactor, crew) as counter:
        await counter.submit(under=make_task_config())
        first = await counter.get_task_handle().result()
        crew.calls.clear()
        row = await submit_fork(counter, FROM_WEIGH.replace(instructions="Weigh the tides twice."))
        second = await run_fork(counter, row)
        again = await submit_fork(counter, FROM_WEIGH.replace(instructions="Weigh the tides twice."))
        bill, paid = (
            (await counter.store.list_task_charges(row.ref.task_id, SYSTEM_SCOPE)).cost_breakdown,
            (await counter.store.list_task_charges(first.task_id, SYSTEM_SCOPE)).cost_breakdown,
        )
        report = await counter.store.get_text(str(second.report), SYSTEM_SCOPE)
        contract = (await counter.store.load_transcript(f"{row.ref.task_id}/weigh", SYSTEM_SCOPE)).messages[0].text
        notes = await counter.store.list_notes(row.ref.task_id, SYSTEM_SCOPE)
        documents = [
            await counter.store.list_documents(task, SYSTEM_SCOPE) for task in (first.task_id, row.ref.task_id)
        ]
        kept = await counter.store.load_transcript(f"{row.ref.task_id}/harbours", SYSTEM_SCOPE)
        original = await counter.store.load_transcript(f"{first.task_id}/harbours", SYSTEM_SCOPE)
        with pytest.raises(RequestConflict, match="'second' was already used in this session"):
            await submit_fork(counter, FROM_WRITE)
    assert again.ref == row.ref
    assert row.request.servers == ("default",)  # as what it goes on from, whatever its session has named since
    assert (first.phase, second.phase) == (TaskPhase.DONE, TaskPhase.DONE)
    assert crew.calls == CALLS_FROM_WEIGH
    assert second.totals.spent.tokens == bill.total.calls * CALL_TOKENS == len(CALLS_FROM_WEIGH) * CALL_TOKENS
    assert paid.total.calls * CALL_TOKENS == WORK_TOKENS
    assert second.reused == ReusedWork(task_id=first.task_id, agents=("harbours", "tides"))
    assert f"Reused from {first.task_id} (paid there): harbours, tides." in second.notes
    assert "Weigh the tides twice." in contract
    assert documents[0] == documents[1]
    assert kept.messages == original.messages
    assert {note.run_id for note in notes} == {f"{row.ref.task_id}/{step}" for step in ("harbours", "tides")}
    assert len(notes) == 2 * [name for name, _ in SCRIPTED_CALLS["submit_findings"]].count("take_note")
    assert "the citation points to lines that exist" in report


async def test_a_fork_of_a_fork_names_who_paid_for_what(server: Client, tmp_path: Path, redactor: Redactor) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_task_config())
        first = (await counter.get_task_handle().result()).task_id
        second = (await run_fork(counter, await submit_fork(counter, FROM_WEIGH))).task_id
        third = await run_fork(counter, await submit_fork(counter, FROM_WRITE.replace(request_id="third"), second))
        fourth = await run_fork(
            counter, await submit_fork(counter, FROM_WRITE.replace(request_id="fourth"), third.task_id)
        )
    payers = {"harbours": first, "tides": first}
    assert third.reused == ReusedWork(task_id=second, agents=("harbours", "tides", "weigh"), payers=payers)
    assert third.notes[:2] == (
        f"Reused from {second} (paid in {first}): harbours, tides.",
        f"Reused from {second} (paid there): weigh.",
    )
    assert fourth.reused is not None
    assert fourth.reused.payers == {**payers, "weigh": second}


async def test_a_fork_of_a_cancelled_task_does_what_was_not_finished_also_where_temporal_has_forgotten_it(
    tmp_path: Path, redactor: Redactor
) -> None:
    crew = ScriptedTaskModel()
    async with open_activity_deps(tmp_path, redactor, crew) as parts:
        async with start_dev_server() as server, run_all_workers(server, parts):
            counter = TaskSubmitter(server, parts.store)
            await counter.submit(under=make_tight_budget_config())
            task = counter.get_task_handle()
            await wait_for_both_requests(task)
            await task.signal(SEND_MESSAGE, {"text": "The bar shifts."})
            # What it leaves is too little for the other: that one still waits.
            await task.signal(APPROVE_BUDGET, {"request_id": "harbours-1", "tokens": 1_000})

            async def delivered() -> bool:
                return (await task.query(TaskWorkflow.progress)).steps[0].state == "done"

            await wait_until(delivered)
            await task.signal(DENY_BUDGET, {"request_id": "tides-1", "finish": "cancel"})
            first = await task.result()
        crew.calls.clear()
        async with start_dev_server() as server, run_all_workers(server, parts):
            counter = TaskSubmitter(server, parts.store)
            row = await submit_fork(counter, FROM_WRITE.replace(budget=Limit(tokens=50_000)))
            second = await run_fork(counter, row)
            told = await parts.store.list_task_messages(row.ref.task_id, SYSTEM_SCOPE)
    assert (first.phase, second.phase) == (TaskPhase.CANCELLED, TaskPhase.DONE)
    assert second.reused == ReusedWork(task_id=first.task_id, agents=("harbours",))
    assert second.totals.spent.tokens == RESEARCH_TOKENS + len(CALLS_FROM_WEIGH) * CALL_TOKENS
    assert [call for call in crew.calls if call.step in {"weigh", "write"}] == CALLS_FROM_WEIGH
    assert [message.number for message in told] == [1]


async def test_what_cannot_be_forked_is_refused_and_stores_nothing(
    server: Client, tmp_path: Path, redactor: Redactor
) -> None:
    async with run_platform(server, tmp_path, redactor, ScriptedTaskModel()) as counter:
        await counter.submit(under=make_tight_budget_config())
        with pytest.raises(BadInput, match="has not ended: `waystation watch`"):
            await submit_fork(counter, FROM_WEIGH)
        await wait_for_both_requests(counter.get_task_handle())
        await counter.get_task_handle().signal(DENY_BUDGET, {"request_id": "harbours-1", "finish": "cancel"})
        await counter.get_task_handle().result()
        with pytest.raises(BadInput, match="has no step 'weight'; it has harbours, tides, weigh, write"):
            await submit_fork(counter, FROM_WEIGH.replace(step="weight"))
        assert len(await counter.store.list_tasks(SYSTEM_SCOPE)) == 1
